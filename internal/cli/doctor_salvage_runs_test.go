// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	library "github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// Two runs of a damaged log, each whole only where it is read otherwise: of one an
// event is hit, the other began after that. Both are saved, with their files and
// idempotency keys, and go on.
func TestSalvageSavesFromEveryReading(t *testing.T) {
	held := library.Request{Source: "w.yaml", IdempotencyKey: "once", Recipe: []byte("name: w\nsteps:\n" +
		"  - {id: split, action: {name: text-split, parameters: {text: 'a b c', output: file}}}\n" +
		"  - {id: hold, action: {name: hold}}\n  - {id: go, wait: {signal: go}}\n")}
	dir, first, second := heldAndKilled(t, held)
	before := digestOf(t, dir)
	saved := filepath.Join(t.TempDir(), "saved")
	out, talk, code := inProcess("", "doctor", "--data", dir, "--salvage", saved, "-o", "json")
	var got salvaged
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("exit %d: %s%s", code, out, talk)
	}
	if got.Runs != 2 || len(got.Others) != 1 || got.Rest != "" ||
		code != fault.ExitFailed || len(got.Damaged) != 1 || got.Damaged[0].Run != first || !strings.Contains(got.Damaged[0].Why, "saved up to event") {
		t.Errorf("exit %d: %s%s", code, out, talk)
	}
	if digestOf(t, dir) != before {
		t.Error("the damaged directory was changed")
	}
	if out, talk, code := inProcess("", "doctor", "--data", saved); code != fault.ExitOK {
		t.Errorf("doctor of what was saved: exit %d: %s%s", code, out, talk)
	}
	if out, _, _ := inProcess("", "runs", "get", first, "--data", saved); strings.Contains(out, store.ImportedReason) {
		t.Errorf("it is the user's own run: %s", out)
	}
	files, _, _ := inProcess("", "files", "ls", "--data", saved, "-o", "name")
	if out, talk, code := inProcess("", "files", "rm", strings.TrimSpace(files), "--data", saved); code != fault.ExitConflict || !strings.Contains(talk, first) {
		t.Errorf("%s names no file: exit %d: %s%s", first, code, out, talk)
	}
	goes := make(chan struct{})
	close(goes)
	e := holding(t, saved, nil, goes)
	defer e.Close()
	if run, err := e.Start(t.Context(), held); err != nil || run != first {
		t.Errorf("the same request started %s, %v", run, err)
	}
	if err := e.Signal(t.Context(), first, "go", "again"); err != nil {
		t.Error(err)
	}
	for _, run := range []string{first, second} {
		if res, err := e.Wait(t.Context(), run); err != nil || res.Status != "completed" {
			t.Errorf("%s is %s, %v", run, res.Status, err)
		}
	}
}

// holding opens an engine with an action that says when it begins and ends when it may.
func holding(t *testing.T, dir string, began chan<- struct{}, goes <-chan struct{}) *library.Engine {
	t.Helper()
	e, err := library.Open(t.Context(), library.Options{Dir: dir, Actions: []action.Action{{
		Name: "hold", Version: "1.0.0", Description: "Waits.",
		Run: func(ctx context.Context, _ *action.Task) (action.Result, error) {
			if began != nil {
				began <- struct{}{}
			}
			select {
			case <-goes:
			case <-ctx.Done():
			}
			return action.Result{}, ctx.Err()
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// heldAndKilled makes a data directory as a process that is killed leaves it, with a
// run that is in the middle of a step and one that came after it and is over. In the
// log a bit of an event of the first has flipped.
func heldAndKilled(t *testing.T, held library.Request) (dir, first, second string) {
	t.Helper()
	live, dir := filepath.Join(t.TempDir(), "live"), filepath.Join(t.TempDir(), "killed")
	began := make(chan struct{}, 1)
	e := holding(t, live, began, nil)
	defer e.Close()
	first, err := e.Start(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range e.Watch(t.Context(), first, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Step == "split" && ev.Type == "node.completed" {
			break
		}
	}
	<-began
	mark := rand.Text() // on a page that nothing else is written to
	var around strings.Builder
	for range 1_000 {
		around.WriteString(rand.Text())
	}
	if err := e.Signal(t.Context(), first, "go", around.String()+mark+around.String()); err != nil {
		t.Fatal(err)
	}
	second, err = e.Start(t.Context(), library.Request{Source: "r.yaml", Recipe: []byte("name: r\nsteps: [{id: t, transform: {expression: '1'}}]\n")})
	if err == nil {
		_, err = e.Wait(t.Context(), second)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(live)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "roux.db-wal")
	wal, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(wal, []byte(mark))
	if at < 0 {
		t.Fatal("the event is not in the log")
	}
	wal[at] ^= 1
	if err := os.WriteFile(path, wal, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, first, second
}

// The image with most runs is taken. What verifies in another one is taken from there,
// as is what has more events there; what verifies in none is named, and what was
// deleted is not missed.
func TestSelection(t *testing.T) {
	key := func(run string) store.Key { return store.Key{Account: account, Run: run} }
	good := func(runs string) map[store.Key]uint64 {
		m := map[store.Key]uint64{}
		for run := range strings.FieldsSeq(runs) {
			m[key(run[:1])] = uint64(run[1] - '0')
		}
		return m
	}
	all := []*imageReport{
		{image: sqlite.Image{Way: "1"}, good: good("a3 b3 c3 i3")},
		{image: sqlite.Image{Way: "2"}, good: good("b3 d3 e3 f3"), damaged: map[store.Key]string{key("c"): "a gap", key("g"): "a gap"}, complaints: []string{"odd"}},
		{image: sqlite.Image{Way: "3"}, good: good("b3 d4 e3 f2 j1"), damaged: map[store.Key]string{key("c"): "a gap", key("g"): "torn", key("h"): "torn"},
			deleted: map[store.Key]bool{key("i"): true}},
	}
	c := choose(all)
	var from []string
	for key, j := range c.from {
		from = append(from, key.Run+j.image.Way)
	}
	slices.Sort(from)
	if got := strings.Join(from, " "); c.best != all[2] || got != "a1 b3 c1 d3 e3 f2 j3" {
		t.Errorf("the best is %s, taken are %s", c.best.image.Way, got)
	}
	if want := map[store.Key]string{key("g"): "torn", key("h"): "torn"}; !maps.Equal(c.lost, want) {
		t.Errorf("lost are %v", c.lost)
	}
}

// Images of a store at several times, and what one of them has damaged: each run comes
// from where it is whole, whatever it is doing and whoever has it.
func TestGatherFromImages(t *testing.T) {
	base := t.TempDir()
	one, two := filepath.Join(base, "image-1"), filepath.Join(base, "image-2")
	start := func(e *library.Engine, recipe, once string) string {
		t.Helper()
		run, err := e.Start(t.Context(), library.Request{Source: "r.yaml", Recipe: []byte(recipe), IdempotencyKey: once})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	end := func(e *library.Engine, run string) {
		t.Helper()
		if _, err := e.Wait(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	signal := func(e *library.Engine, run, name string, data int) {
		t.Helper()
		if err := e.Signal(t.Context(), run, name, data); err != nil {
			t.Fatal(err)
		}
	}
	within := func(dir, account string, fn func(e *library.Engine)) {
		t.Helper()
		e, err := library.Open(t.Context(), library.Options{Dir: dir, Account: account})
		if err != nil {
			t.Fatal(err)
		}
		fn(e)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	const waits = "name: w\nsteps: [{id: go, wait: {signal: go}}, {id: on, wait: {signal: on}}]\n"
	const long = "name: l\nsteps: [{id: t, transform: {expression: \"range(60000).map(i, 'number ' + string(i))\"}}]\n"
	var other, ended, waiting, parted, lost string
	within(one, "other", func(e *library.Engine) { other = start(e, long, ""); end(e, other) })
	within(one, "", func(e *library.Engine) {
		ended, lost, waiting, parted = start(e, long, "once"), start(e, waits, ""), start(e, waits, ""), start(e, waits, "")
		end(e, ended)
	})
	if err := os.CopyFS(two, os.DirFS(one)); err != nil {
		t.Fatal(err)
	}
	within(two, "", func(e *library.Engine) {
		for i := range 4 {
			end(e, start(e, fmt.Sprintf("name: r%d\nsteps: [{id: t, transform: {expression: '1'}}]\n", i), ""))
		}
		signal(e, lost, "go", 1)
		signal(e, parted, "go", 2)
	})
	within(one, "", func(e *library.Engine) {
		signal(e, waiting, "go", 1)
		signal(e, parted, "go", 1)
		signal(e, parted, "on", 1)
		end(e, parted)
	})
	alter := func(dir, query string, args ...any) {
		t.Helper()
		db, err := sql.Open("sqlite", filepath.Join(dir, datadir.Database))
		if err == nil {
			_, err = db.ExecContext(t.Context(), query, args...)
		}
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	alter(two, `UPDATE runs SET status = 'bompleted' WHERE run IN (?, ?)`, ended, lost)
	alter(one, `UPDATE runs SET status = 'bompleted' WHERE run = ?`, lost)
	alter(two, `DELETE FROM runs WHERE run = ?`, other)

	to := filepath.Join(base, "saved")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := gather(t.Context(), []sqlite.Image{{Dir: one, Way: "one"}, {Dir: two, Way: "two"}}, to)
	if err != nil {
		t.Fatal(err)
	}
	var others, damaged []string
	for _, o := range out.Others {
		others = append(others, o.Run+" "+o.Read)
	}
	for _, d := range out.Damaged {
		damaged = append(damaged, d.Run)
	}
	slices.Sort(others)
	want := []string{ended + " one", waiting + " one", "other/" + other + " one"}
	slices.Sort(want)
	if !slices.Equal(others, want) || out.Runs != 8 || out.Read != "two" || out.Rest != two {
		t.Errorf("%+v, want from the other image %q", out, want)
	}
	want = slices.Sorted(slices.Values([]string{ended, lost, parted}))
	if !slices.Equal(damaged, want) {
		t.Errorf("damaged are %q, want %q", damaged, want)
	}
	if _, err := os.Stat(one); err == nil {
		t.Error("an image that nobody needs is left")
	}
	if talk, said, code := inProcess("", "doctor", "--data", to); code != fault.ExitOK {
		t.Errorf("doctor: exit %d: %s%s", code, talk, said)
	}
	if talk, said, code := inProcess("", "events", lost, "--data", two); !strings.Contains(talk+said, lost) {
		t.Errorf("what is left of %s: exit %d: %s%s", lost, code, talk, said)
	}
	within(to, "other", func(e *library.Engine) { end(e, other) })
	within(to, "", func(e *library.Engine) {
		if run := start(e, long, "once"); run != ended {
			t.Errorf("the same request started %s", run)
		}
		for _, run := range []string{ended, waiting, parted} {
			if run != ended {
				signal(e, run, "on", 1) // it has had "go"
			}
			end(e, run)
		}
	})
}

// A run is moved as it is: over, parked or at work, in one transition or in several.
func TestMoverTakesRunsAsTheyAre(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	var stores [2]*sqlite.Store
	var epochs [2]uint64
	for i, dir := range []string{from, to} {
		st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
		if err == nil {
			epochs[i], err = st.Own(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		stores[i] = st
	}
	m := &mover{ctx: t.Context(), to: stores[1], epoch: epochs[1]}
	var keys []store.Key
	for _, what := range []string{"live", "parked", "ended"} {
		for _, size := range []int{10, movedPiece / 3} {
			key := store.Key{Account: account, Run: fmt.Sprintf("%s-%d", what, size)}
			keys = append(keys, key)
			head := store.Head{Key: key, Recipe: "r", Version: "1", PlanHash: "plan", Status: "running", Created: 5, Updated: 6, Quarantine: "a reason"}
			tr := store.Transition{Key: key, Epoch: epochs[0], First: 1, Last: 10, Head: &head, Plans: []store.EncodedPlan{{Key: "plan", Data: []byte("a plan")}}}
			for seq := range uint64(10) {
				ev := journal.Event{Seq: seq + 1, Kind: journal.EvNodeProgress, At: 7, Text: strings.Repeat("x", size)}
				tr.Frames = journal.AppendFrame(tr.Frames, []journal.Event{ev})
			}
			if what == "ended" {
				head.Status, head.Ended = "completed", 9
			}
			if what == "parked" {
				tr.Compaction, tr.Suspension = &store.Compaction{First: 1, Last: 10, Chunk: tr.Frames}, &store.Suspension{WakeAt: 12}
			}
			verdicts, err := stores[0].Commit(t.Context(), []store.Transition{tr})
			if err = errors.Join(err, verdicts[0].Err); err != nil {
				t.Fatal(err)
			}
			if err := m.run(stores[0], key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.flush(); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		was, err := stores[0].Load(t.Context(), key)
		is, err2 := stores[1].Load(t.Context(), key)
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if was.Head != is.Head || !bytes.Equal(was.Tail, is.Tail) || was.Last != is.Last || !reflect.DeepEqual(was.Suspension, is.Suspension) {
			t.Errorf("%s is %+v with %d bytes, parked %v, and was %+v with %d, parked %v", key.Run, is.Head, len(is.Tail), is.Suspension, was.Head, len(was.Tail), was.Suspension)
		}
		if covered := is.Chunked == is.Last; covered != !strings.HasPrefix(key.Run, "live") {
			t.Errorf("%s: chunks reach event %d of %d", key.Run, is.Chunked, is.Last)
		}
	}
}
