// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected output of scenarios")

// t0 is when every scenario begins.
var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func compilePlan(t testing.TB, src string) *plan.Plan {
	t.Helper()
	p, _, _, diags := compile.Source("recipe.yaml", []byte(src), testOptions())
	if p == nil {
		for _, d := range diags {
			t.Log(d)
		}
		t.Fatal("the recipe does not compile")
	}
	return played(p, src)
}

// played is the plan that a scenario is about: that of the recipe, or of the first one that it embeds.
func played(p *plan.Plan, src string) *plan.Plan {
	if strings.Contains(src, "name: of_the_child") || strings.Contains(src, `"name":"of_the_child"`) {
		return p.Embedded[0]
	}
	return p
}

func pinsOf(p *plan.Plan) []journal.Pin {
	var pins []journal.Pin
	for _, a := range p.Actions {
		pin := journal.Pin{Name: a.Name, Version: "1.0.0", Cost: 2, Once: a.Name == "once"}
		switch a.Name {
		case "priced":
			pin.Cost, pin.Price = 0, 400_000
		case "alone":
			pin.Cost = 0
		}
		pins = append(pins, pin)
	}
	return pins
}

// TestScenarios runs the scenarios in testdata, one idea per file.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios found")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScenario(t, file) })
	}
}

// A block of a scenario file is a list of directives, a line "----", and the expected
// output. The first block holds comment lines, which describe the scenario, and the
// recipe. A block ends at an empty line after "----".
type block struct{ head, want string }

func (b block) does() string { return strings.TrimSpace(stripComments(b.head)) }

func readScenario(t testing.TB, file string) (blocks []block) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for rest := string(src); rest != ""; {
		head, tail, ok := strings.Cut(rest, "----\n")
		if !ok {
			t.Fatalf("%s: text after the last block: %q", file, rest)
		}
		want, next := "", strings.TrimPrefix(tail, "\n")
		if next == tail { // output is expected
			want, next, _ = strings.Cut(tail, "\n\n")
			want = strings.TrimSuffix(want, "\n") + "\n"
		}
		blocks = append(blocks, block{head, want})
		rest = next
	}
	return blocks
}

func runScenario(t *testing.T, file string) {
	w := &fakeEngine{t: t, now: t0, auto: true}
	var out strings.Builder
	for _, b := range readScenario(t, file) {
		got := w.play(b.does())
		out.WriteString(b.head + "----\n" + got + "\n")
		if !*rewrite && got != b.want {
			t.Fatalf("%s: after\n%s\ngot:\n%s\nwant:\n%s", file, strings.TrimSpace(b.head), got, b.want)
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.TrimSuffix(out.String(), "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func stripComments(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// fakeEngine stands for the engine: it grants attempts, continues the run and reports
// results as the directives say.
type fakeEngine struct {
	t     testing.TB
	prog  *Program
	run   *Run
	led   *runChecker
	now   int64
	auto  bool // grant every attempt and continue at once
	quiet bool // print only node and run outcomes
	out   strings.Builder
	most  int64           // credits that the account can give; math.MaxInt64 until a directive says less
	tree  treeTerms       // what a directive says of the runs above and below
	seen  map[string]bool // the kinds and names that the scenario has shown; nil = not recorded
}

// met records the kinds and names that a turn shows.
func (w *fakeEngine) met(in *Input, turn *Turn) {
	if w.seen == nil {
		return
	}
	w.seen[fmt.Sprint("input ", in.Kind)] = true
	if in.Kind == InResult {
		w.seen[fmt.Sprint("outcome ", in.Outcome)], w.seen[fmt.Sprint("source ", in.Source)] = true, true
	}
	for i := range turn.Events {
		ev := &turn.Events[i]
		w.seen[fmt.Sprint("event ", ev.Kind)] = true
		w.seen["code "+string(ev.Code)] = true
		if ev.Kind == journal.EvNodeSkipped || ev.Kind == journal.EvNodeCancelled {
			w.seen["reason "+journal.Reason(ev.Flag).String()] = true
		}
	}
	for _, c := range turn.Commands {
		w.seen[fmt.Sprint("command ", c.Kind)] = true
	}
	w.seen["run "+w.run.status.String()] = true
	w.run.eachScope(func(s *scope) {
		for i := range s.steps {
			w.seen["step "+s.steps[i].status.String()] = true
		}
	})
	if turn.Err != nil {
		w.seen["code "+string(fault.CodeOf(turn.Err))] = true
	}
	w.seen["wait "+w.run.WaitState()] = true
}

func (w *fakeEngine) play(block string) string {
	w.out.Reset()
	if w.run == nil {
		w.begin(compilePlan(w.t, block))
		return "ok\n"
	}
	for line := range strings.Lines(block) {
		w.line(strings.TrimSpace(line))
	}
	if w.out.Len() == 0 {
		return "(nothing)\n"
	}
	return w.out.String()
}

func (w *fakeEngine) begin(p *plan.Plan) {
	w.prog = Prepare(p)
	w.run = NewRun(w.prog)
	w.led = newLedger(w.run)
	w.most = math.MaxInt64
}

// line carries out one directive.
func (w *fakeEngine) line(s string) {
	verb, rest, _ := strings.Cut(s, " ")
	args := parseArgs(rest)
	in := &Input{At: w.now}
	if n := args["available"]; n != "" {
		w.most = w.number(n)
	}
	switch verb {
	case "manual":
		w.auto = false
		return
	case "quiet":
		w.quiet = true
		return
	case "start":
		in.Kind = InStart
		in.Start = &journal.Start{Run: "run_1", Account: "acct", Recipe: "r", PlanHash: w.prog.plan.Hash().String(), Seed: 7, Pins: pinsOf(w.prog.plan)}
		in.Start.Correlation, in.Queued = args["correlation"], args["queued"] == "true"
		if n := args["reserved"]; n != "" {
			in.Start.Credits = &journal.Credits{Estimated: w.number(args["estimated"]), Reserved: w.number(n), Most: w.number(args["most"]),
				Policy: ledger.Policy(cmp.Or(args["policy"], string(ledger.RefundUnused)))}
		}
		if v := args["input"]; v != "" {
			if err := json.Unmarshal([]byte(v), &in.Start.Parameters); err != nil {
				w.t.Fatal(err)
			}
			in.Start.Parameters = exact(in.Start.Parameters).(map[string]any)
		}
		if n, _ := strconv.Atoi(args["size"]); n > 0 {
			in.Start.Parameters = map[string]any{"big": strings.Repeat("x", n)}
		}
		in.Start.Inherited = json.RawMessage(args["inherited"])
		w.place(in.Start, args)
		if f := args["file"]; f != "" {
			in.Start.Files = []journal.File{{Hash: "sha256_" + strings.Repeat(f, 64)[:64], Name: f, Size: 5}}
			if x := args["extended"]; x != "" {
				in.Start.Files[0].Extended = json.RawMessage(x)
			}
		}
	case "grant":
		in.Kind, in.Ref = InGranted, w.ref(args[""])
	case "hold":
		in.Kind, in.Ref, in.Text = InHeld, w.ref(args[""]), args["reason"]
	case "finish", "fail", "preview", "submit":
		w.result(verb, args)
		return
	case "progress":
		in.Kind, in.Ref = InProgress, w.ref(args[""])
		in.Fence = w.fence(in.Ref, args)
		switch {
		case args["delta"] != "":
			in.Progress = &Progress{Kind: ProgressDelta, Text: args["delta"]}
		case args["log"] != "":
			in.Progress = &Progress{Kind: ProgressLog, Level: "info", Text: args["log"]}
		default:
			f, _ := strconv.ParseFloat(args["fraction"], 64)
			in.Progress = &Progress{Fraction: f, Text: args["text"]}
		}
		in.Progress.Passed = args["outputVerdict"] == "passed"
	case "after":
		d, err := time.ParseDuration(args[""])
		if err != nil {
			w.t.Fatal(err)
		}
		w.now += d.Microseconds()
		in.At, in.Kind = w.now, InTimer
	case "signal":
		in.Kind, in.Name, in.Data = InSignal, args[""], []byte(args["data"])
	case "items":
		in.Kind, in.Ref, in.More = InItems, w.ref(args[""]), args["more"] == "true"
		in.Items = &Items{}
		in.Items.From, _ = strconv.ParseInt(args["from"], 10, 64)
		var items []json.RawMessage
		if err := json.Unmarshal([]byte(args["list"]), &items); err != nil {
			w.t.Fatal(err)
		}
		for _, it := range items {
			in.Items.List = append(in.Items.List, it)
		}
	case "lost":
		in.Kind, in.Text = InWorkerLost, args["handedBack"]
		if args[""] == "all" {
			in.All = true
		} else {
			in.Ref = w.ref(args[""])
			in.Fence = w.fence(in.Ref, args)
		}
	case "continue":
		in.Kind = InContinue
	case "cancel":
		in.Kind, in.Text = InCancel, "asked to"
		if args["why"] == "none" {
			in.Text = ""
		}
	case "pause":
		in.Kind, in.Text = InPause, args["reason"]
	case "unpause", "admit":
		in.Kind = map[string]InputKind{"unpause": InUnpause, "admit": InAdmit}[verb]
	case "retry":
		in.Kind, in.Name, in.Queued = InRetry, args["from"], args["queued"] == "true"
		in.Limits = &plan.Limits{TotalSteps: w.number(args["steps"]), LoopItems: w.number(args["items"]), MemoryBytes: w.number(args["memory"]), ExpressionCost: w.number(args["cost"])}
	case "edit":
		in.Kind, in.Data, in.Name, in.Queued = InEdit, []byte(args[""]), args["from"], args["queued"] == "true"
	case "restart":
		w.restart()
		return
	case "input":
		w.showInput(args[""])
		return
	case "contracts":
		ref := w.ref(args[""])
		task := w.run.Task(ref, w.fence(ref, nil))
		fmt.Fprintf(&w.out, "contracts of %s: input %s output %s\n", task.StepPath, task.InputC, task.OutputC)
		if g := task.Gate; g != nil {
			fmt.Fprintf(&w.out, "gate of %s: %s\n", task.StepPath, compact(g))
		}
		return
	case "funds":
		held, settled := w.run.Held()
		fmt.Fprintf(&w.out, "held %d, settled %d, used %s, open %s\n", held, settled, w.run.used, w.run.openCeilings())
		return
	case "missing":
		fmt.Fprintf(&w.out, "%d credits missing\n", w.run.CreditsMissing(w.ref(args[""])))
		return
	case "token":
		fmt.Fprintf(&w.out, "resume_token %s\n", w.run.ResumeToken())
		return
	case "state":
		fmt.Fprintf(&w.out, "%s wait_state=%s used=%d failures=%v generation=%d quiet=%v next=%s memory=%d\n", w.run.status, w.run.WaitState(),
			w.run.Used(), w.run.failures, w.run.gen, w.run.Quiet(), w.when(w.run.NextDue()), w.run.valueMem-w.led.seen.InputBytes())
		return
	default:
		if !w.childLine(verb, args, in) {
			return
		}
	}
	w.feed(in)
}

func (w *fakeEngine) result(verb string, args map[string]string) {
	in := &Input{At: w.now, Kind: InResult, Ref: w.ref(args[""])}
	in.Fence = w.fence(in.Ref, args)
	in.Source = map[string]journal.Source{"webhook": journal.FromWebhook, "poll": journal.FromPoll}[args["by"]]
	in.Output = []byte(args["output"])
	if len(in.Output) == 0 {
		in.Output = []byte(`"` + args[""] + `-done"`)
	}
	for _, phase := range []string{journal.InputPhase, journal.OutputPhase} {
		if said := args[phase+"Verdict"]; said != "" {
			if in.Moderation == nil {
				in.Moderation = &Moderation{Shown: true}
			}
			v := journal.Verdict{Phase: phase, Flagged: said != "passed", By: []string{"words"}}
			if v.Flagged {
				v.Categories = []string{said}
			}
			v.Review, v.Decision = args["review"] == phase, args["decision"]
			in.Moderation.Verdicts = append(in.Moderation.Verdicts, v)
		}
	}
	if text := args["price"]; text != "" {
		price, err := ledger.ParseAmount(text)
		if err != nil {
			w.t.Fatal(err)
		}
		in.Price = &price
	}
	if from := args["cached"]; from != "" {
		in.Cached = &journal.Cached{Key: "k1", Run: from, Step: "a", At: t0}
	}
	switch verb {
	case "finish":
		in.Outcome = Success
		if args["price"] == "" {
			in.Cost = 2
			if c := args["cost"]; c != "" {
				in.Cost = w.number(c)
			}
		}
		if n := args["size"]; n != "" {
			size, _ := strconv.Atoi(n)
			in.Output = []byte(`"` + strings.Repeat("x", size-2) + `"`)
		}
	case "preview":
		in.Outcome = Preview
	case "submit":
		in.Outcome, in.Output, in.Cost = Submitted, nil, 0
		in.Job = &Submission{Job: journal.Job{Provider: cmp.Or(args["provider"], "acme"), ID: cmp.Or(args["job"], "j1")}}
		in.Job.Task = args["task"]
		if h := args["handle"]; h != "" {
			in.Job.Handle = json.RawMessage(h)
		}
		if ttl := args["ttl"]; ttl != "" {
			d, err := time.ParseDuration(ttl)
			if err != nil {
				w.t.Fatal(err)
			}
			in.Job.TTLMS = d.Milliseconds()
		}
	case "fail":
		in.Outcome = Failed
		in.Err = &Failure{Code: fault.Code(args["code"]), Msg: args["msg"], Phase: args["phase"]}
		if in.Err.Code == "" {
			in.Err.Code = fault.StepFailed
		}
		if in.Err.Phase != "" {
			in.Err.Violations = []string{"/x is wrong"}
		}
		in.Err.Unknown = args["unknown"] == "true"
		in.Err.RetryAfterMS, _ = strconv.ParseInt(args["retryAfter"], 10, 64)
	}
	w.feed(in)
}

func (w *fakeEngine) ref(s string) journal.Ref {
	ref, err := journal.ParseRef(w.prog.plan, s)
	if err != nil {
		w.t.Fatal(err)
	}
	return ref
}

// fence is the live attempt of a step instance, or the fence that the directive names.
func (w *fakeEngine) fence(ref journal.Ref, args map[string]string) journal.Fence {
	f := journal.Fence{Gen: w.run.gen}
	if s, i := w.run.at(ref); s != nil {
		f.Attempt = s.steps[i].attempt
	}
	if n := args["attempt"]; n != "" {
		a, _ := strconv.Atoi(n)
		f.Attempt = uint32(a)
	}
	if n := args["generation"]; n != "" {
		g, _ := strconv.Atoi(n)
		f.Gen = uint32(g)
	}
	return f
}

// feed gives an input to the run, prints the result and does what the engine would do
// at once: grant and continue.
func (w *fakeEngine) feed(in *Input) {
	queue := []*Input{in}
	for len(queue) > 0 {
		in, queue = queue[0], queue[1:]
		var turn Turn
		w.surround(in)
		w.run.Decide(in, &turn)
		w.met(in, &turn)
		if err := w.led.turn(&turn); err != nil {
			w.t.Fatalf("%v\nso far:\n%s", err, w.out.String())
		}
		if turn.Err != nil {
			fmt.Fprintf(&w.out, "refused: %v\n", turn.Err)
		}
		for i := range turn.Events {
			w.print(&turn.Events[i])
		}
		for i := range turn.Jobs {
			w.printJob(&turn.Jobs[i])
		}
		for _, c := range turn.Commands {
			switch {
			case c.Kind == CmdContinue && w.auto:
				queue = append(queue, &Input{Kind: InContinue, At: w.now})
			case c.Kind == CmdAcquire && w.auto:
				queue = append(queue, &Input{Kind: InGranted, At: w.now, Ref: c.Ref})
			default:
				w.printCommand(c)
			}
		}
	}
}

var commandNames = [...]string{"", "acquire", "dispatch", "cancel", "need items", "collect", "continue", "child", "cancel child", "admit"}

func (w *fakeEngine) printCommand(c Command) {
	if w.quiet {
		return
	}
	fmt.Fprintf(&w.out, "> %s %s", commandNames[c.Kind], journal.StepPath(w.prog.plan, c.Ref))
	if c.Fence.Attempt > 0 {
		fmt.Fprintf(&w.out, " attempt=%d.%d", c.Fence.Gen, c.Fence.Attempt)
	}
	if c.Kind == CmdNeedItems {
		fmt.Fprintf(&w.out, " from=%d n=%d", c.From, c.N)
	}
	if c.Kind == CmdDispatch {
		w.printCache(c)
	}
	w.out.WriteByte('\n')
}

// printJob prints what the store must change about an external job.
func (w *fakeEngine) printJob(c *journal.JobChange) {
	what := [...]string{"", "waits for", "has ended", "is to be cancelled", "was shown"}[c.Kind]
	if c.Kind == journal.JobSubmitted {
		fmt.Fprintf(&w.out, "+ %s %s job %s of %s", journal.StepPath(w.prog.plan, c.Ref), what, c.Job.ID, c.Job.Provider)
	} else {
		fmt.Fprintf(&w.out, "- job %s of %s %s", c.Job.ID, c.Job.Provider, what)
	}
	if c.Unknown {
		w.out.WriteString(" (nobody waits for it)")
	}
	w.out.WriteByte('\n')
}

func (w *fakeEngine) when(us int64) string {
	if us == 0 {
		return "never"
	}
	return "+" + time.Duration((us-t0)*1000).String()
}

func (w *fakeEngine) print(ev *journal.Event) {
	if w.quiet && (ev.Kind == journal.EvNodeQueued || ev.Kind == journal.EvNodeStarted || ev.Kind == journal.EvRunStatus || ev.Kind == journal.EvNodeOpened || ev.Kind == journal.EvNodeIteration) {
		return
	}
	b := &w.out
	b.WriteString(ev.Name())
	if ev.Step >= 0 {
		b.WriteString(" " + journal.StepPath(w.prog.plan, ev.Ref()))
	}
	env := journal.Render(w.prog.plan, "run_1", ev)
	if e, ok := env.Payload["error"].(map[string]any); ok {
		fmt.Fprintf(b, " %v: %v", e["code"], e["message"])
	}
	for _, k := range []string{"due", "until"} {
		if env.Payload[k] != nil {
			fmt.Fprintf(b, " %s=%s", k, w.when(ev.N))
		}
	}
	keys := make([]string, 0, len(env.Payload))
	for k := range env.Payload {
		switch k {
		case "step", "nodeId", "name", "kind", "recipe", "version", "planHash", "account", "files", "pins", "durationMs", "creditsUsed", "inputHash", "due", "until", "error":
		case "status":
			if strings.HasPrefix(ev.Name(), "run.status") {
				keys = append(keys, k)
			}
		default:
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		raw, err := json.Marshal(env.Payload[k])
		if err != nil {
			w.t.Fatal(err)
		}
		if len(raw) > 400 {
			raw = fmt.Appendf(nil, "(%d bytes)", len(raw))
		}
		fmt.Fprintf(b, " %s=%s", k, raw)
	}
	b.WriteByte('\n')
}

// restart drops the run from memory, restores it from its snapshot and prints what it
// owes.
func (w *fakeEngine) restart() {
	back, err := Restore(w.prog, w.run.Snapshot(nil))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := supplyAll(back, w.led.frames); err != nil {
		w.t.Fatal(err)
	}
	w.run, w.led.run = back, back
	for _, c := range back.Owed(nil) {
		w.printCommand(c)
	}
}

func (w *fakeEngine) showInput(step string) {
	ref := w.ref(step)
	task := w.run.Task(ref, w.fence(ref, nil))
	if task == nil {
		fmt.Fprintf(&w.out, "no open attempt of %s\n", step)
		return
	}
	input, _, fail := task.Render()
	if fail != nil {
		fmt.Fprintf(&w.out, "cannot render: %s: %s\n", fail.Code, fail.Msg)
		return
	}
	fmt.Fprintf(&w.out, "input of %s: %s key=%s\n", task.StepPath, input, task.EffectKey[:8])
}
