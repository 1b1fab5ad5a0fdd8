// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// treeTerms are what a scenario says of the runs above and below its run.
type treeTerms struct {
	offer *journal.Share // what a child run is proposed; nil = 16 steps, 16 KiB and 5 credits
	room  *journal.Share // what the runs above leave a child run beyond its share; nil = plenty
}

var childStatuses = map[string]journal.RunStatus{"": journal.RunCompleted, "completed": journal.RunCompleted,
	"failed": journal.RunFailed, "cancelled": journal.RunCancelled, "expired": journal.RunExpired}

// childLine carries out a directive about child runs. It reports whether the input is to
// be given to the run.
func (w *fakeEngine) childLine(verb string, args map[string]string, in *Input) bool {
	switch verb {
	case "child": // a child run has ended
		in.Kind, in.Ref = InChildEnded, w.ref(args[""])
		in.Fence = w.fence(in.Ref, args)
		status, ok := childStatuses[args["status"]]
		if !ok {
			w.t.Fatalf("no status %q", args["status"])
		}
		in.End = &ChildEnd{Status: status, Steps: w.number(args["steps"]), Outputs: []byte(args["outputs"]), Last: args["last"],
			Code: fault.Code(args["code"]), Msg: args["msg"], Recipe: "below", Step: args["failed"]}
		if status == journal.RunCancelled && in.End.Code == "" {
			in.End.Code, in.End.Msg = fault.ExecutionCancelled, "asked to"
		}
		if n, _ := strconv.Atoi(args["size"]); n > 0 {
			in.End.Outputs = fmt.Appendf(nil, `{"made":"%0*d"}`, n, 0)
		}
		if used := args["used"]; used != "" {
			var err error
			if in.End.Used, err = ledger.ParseAmount(used); err != nil {
				w.t.Fatal(err)
			}
		}
	case "more": // a child run has been given more
		in.Kind, in.Ref, in.N = InChildExtended, w.ref(args[""]), w.number(args["n"])
		in.Fence = w.fence(in.Ref, args)
		for in.Resource = journal.CreditsShare; in.Resource.String() != args["resource"]; in.Resource++ {
			if in.Resource > journal.MemoryShare {
				w.t.Fatalf("no resource %q", args["resource"])
			}
		}
	case "refuse": // the child run that a step asks for cannot be started
		in.Kind, in.Ref = InGranted, w.ref(args[""])
		in.Child = &ChildGrant{Failure: &Failure{Code: fault.Code(args["code"]), Msg: args["msg"]}}
	case "resume": // a child run goes on as another attempt of its step
		in.Kind, in.Child = InResume, &ChildGrant{Share: *w.shareOf(args["share"])}
		in.Fence = journal.Fence{Gen: uint32(max(1, w.number(args["generation"]))), Attempt: uint32(w.number(args["attempt"]))}
	case "pin": // what an expression has named was found
		in.Kind, in.Text = InPinned, args[""]
		by := plan.ByName
		if strings.HasPrefix(in.Text, "@sha256:") {
			by = plan.ByText
		}
		in.Tree = &journal.Tree{Recipes: []journal.TreeRecipe{{Ref: in.Text, Name: "found", Version: args["version"], Key: "plan of " + args["version"], By: by}}}
	case "pins":
		for _, r := range w.run.start.Tree.Recipes {
			fmt.Fprintf(&w.out, "%s is %s %s\n", r.Ref, r.Name, r.Version)
		}
		return false
	case "lost-child": // the last child run of a step cannot go on
		in.Kind, in.Ref, in.Child = InGranted, w.ref(args[""]), &ChildGrant{Share: journal.Share{Credits: 2, Steps: 16}}
	case "offer":
		w.tree.offer = w.shareOf(args[""])
		return false
	case "room":
		w.tree.room = w.shareOf(args[""])
		return false
	case "asks":
		w.showChild(args[""])
		return false
	case "share":
		free, r := w.run.Free(), w.run
		if free.Credits == math.MaxInt64 {
			free.Credits = -1
		}
		fmt.Fprintf(&w.out, "given %+v, free credits=%d steps=%d\n", r.given, free.Credits, free.Steps)
		if r.start.Child != nil {
			fmt.Fprintf(&w.out, "share of the run: credits=%d steps=%d memory=%d\n", r.funds.held, r.share.Steps, r.share.Memory)
			if place := r.start.Child; place.Attempt > 1 {
				fmt.Fprintf(&w.out, "it is attempt %d.%d of its step\n", place.Gen, place.Attempt)
			}
		}
		return false
	default:
		w.t.Fatalf("unknown directive %q", verb)
	}
	return true
}

func (w *fakeEngine) shareOf(text string) *journal.Share {
	s := new(journal.Share)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// place makes the run a child run if the directive gives it a share.
func (w *fakeEngine) place(st *journal.Start, args map[string]string) {
	if args["share"] == "" {
		return
	}
	c := &journal.Child{Root: "run_0", Parent: "run_0", Step: 1, Gen: 1, Attempt: 1, Depth: max(1, w.number(args["depth"])), MaxDepth: 8, Share: *w.shareOf(args["share"])}
	if n := args["maxDepth"]; n != "" {
		c.MaxDepth = w.number(n)
	}
	if most := args["allowed"]; most != "" {
		c.Most = *w.shareOf(most)
	}
	st.Child = c
}

// surround sets what the account and the runs above can give, and answers a step that asks
// for its child run as the engine does.
func (w *fakeEngine) surround(in *Input) {
	in.Available = w.most
	if in.Room = (journal.Share{Credits: w.most, Steps: 1 << 40, Memory: 1 << 40}); w.tree.room != nil {
		in.Room = *w.tree.room
	}
	if in.Kind != InGranted || in.Child != nil || w.prog.plan.Steps[in.Ref.Step].Kind != plan.Recipe {
		return
	}
	in.Child = &ChildGrant{Share: journal.Share{Steps: 16, Memory: 16 << 10}}
	if w.run.metered() {
		in.Child.Share.Credits = 5
	}
	if w.tree.offer != nil {
		in.Child.Share = *w.tree.offer
	}
	if w.run.Asks(in.Ref) {
		var task *ChildTask
		if task, in.Child.Failure = w.run.ChildTask(in.Ref); task != nil {
			in.InputHash, in.Child.Resume = task.InputHash, task.Last != ""
		}
	}
}

// showChild prints what a step says of the child run that it asks for.
func (w *fakeEngine) showChild(step string) {
	task, fail := w.run.ChildTask(w.ref(step))
	if fail != nil {
		fmt.Fprintf(&w.out, "cannot render: %s: %s\n", fail.Code, fail.Msg)
		return
	}
	fmt.Fprintf(&w.out, "%s asks for recipe %s: input %s files %d depth %d of %d\n", step, task.Ref.Name, task.Input, len(task.Files), task.Depth, task.MaxDepth)
	if d := task.Definition; d != nil {
		fmt.Fprintf(&w.out, "by %s %s: %s\n", d.By, d.Ref, d.Text)
	}
	if task.Last != "" {
		fmt.Fprintf(&w.out, "it goes on in run %s\n", task.Last)
	}
	if task.Inherited != nil {
		fmt.Fprintf(&w.out, "inherited %s\n", task.Inherited)
	}
	for _, f := range task.Files {
		fmt.Fprintf(&w.out, "file %s %.14s %d bytes\n", f.Name, f.Hash, f.Size)
	}
}

// Every code of the nesting source is in the table of codes with a remedy, and a scenario
// shows a step that fails with it because its child run cannot start.
func TestX125_NestingCodes(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"child_depth", "child_refused"} {
		w := &fakeEngine{t: t, now: t0, auto: true, seen: seen}
		for _, b := range readScenario(t, "testdata/"+name+".txt") {
			w.play(b.does())
		}
	}
	legacy := map[string]bool{}
	for _, row := range fault.All() {
		if row.Legacy == "" {
			continue
		}
		legacy[row.Legacy] = true
		if row.Remedy == "" || !seen["code "+string(row.Code)] {
			t.Errorf("%s (%s): remedy %q, shown by a scenario %v", row.Legacy, row.Code, row.Remedy, seen["code "+string(row.Code)])
		}
	}
	for _, code := range []string{"E001", "E002", "E003", "E004", "E005"} {
		if !legacy[code] {
			t.Errorf("no code is also written %s", code)
		}
	}
}

// A large value passes from a child run through its parent to the next child run as a
// reference to a file; the parent never holds its bytes.
func TestX163_LargeValuesBetweenRuns(t *testing.T) {
	w := &fakeEngine{t: t, now: t0}
	var out strings.Builder
	for _, b := range readScenario(t, "testdata/child_large.txt") {
		out.WriteString(w.play(b.does()))
	}
	task, fail := w.run.ChildTask(w.ref("b"))
	if fail != nil {
		t.Fatal(fail.Msg)
	}
	if !bytes.Contains(task.Input, []byte(`"$roux":"ref"`)) || len(task.Input) > 1000 || w.run.Memory() > 10_000 {
		t.Errorf("the next child run gets %s, and the run holds %d bytes; it said\n%s", task.Input, w.run.Memory(), out.String())
	}
}
