// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// shortPages returns a journal event by event. After event `most`, if it is set, it
// fails with err, or ends if err is nil.
type shortPages struct {
	store.Store
	most int64 // -1: no event at all; 0: no limit
	err  error
}

func (s *shortPages) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	if s.most != 0 && int64(after) >= s.most {
		return store.Page{Next: after, Last: after}, s.err
	}
	page, err := s.Store.Events(ctx, key, after, maxBytes)
	if err != nil || page.Next <= after {
		return page, err
	}
	err = journal.EachEvent(page.Frames, func(ev *journal.Event) error {
		if ev.Seq != after+1 {
			return nil
		}
		page.Frames = journal.AppendFrame(nil, []journal.Event{*ev})
		page.Next = ev.Seq
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		return page, errors.Join(err, errors.New("the page does not have the event"))
	}
	return page, nil
}

// storedRun runs steps up to a wait, stops the engine, and returns what the store has
// of the run: a snapshot, or events only.
func storedRun(t *testing.T) (st *memory.Store, prog *program.Program, saved *store.Saved, events []journal.Event) {
	st = memory.New(memory.Options{})
	a := noop()
	e := openEngine(t, st, Config{}, a)
	p := planOf(t, `name: s
steps:
  - {id: a, action: {name: noop}}
  - {id: b, action: {name: noop}}
  - {id: w, wait: {duration: 1h}}
  - {id: c, action: {name: noop}}
outputs: {a: steps.a.output, b: steps.b.output}
`, a)
	key := store.Key{Account: acc, Run: start(t, e, p, nil)}
	synctest.Wait()
	if _, err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	saved, err := st.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.EachEvent(t.Context(), st, key, 0, func(ev *journal.Event) error {
		events = append(events, *ev)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	prog, err = e.core.programs.Load(t.Context(), st, saved.Head.PlanHash)
	if err != nil || saved.State == nil || saved.StateLast < 9 || saved.Last != uint64(len(events)) {
		t.Fatalf("a snapshot at event %d of %d (%d), %v", saved.StateLast, saved.Last, len(events), err)
	}
	return st, prog, saved, events
}

// A run is the fold of its events up to any of them, whether it is made from a
// snapshot, from one of another format, or from events only, and however these are
// paged.
func TestRunsAreFoldedInAnyPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, prog, saved, events := storedRun(t)
		whole := machine.NewRun(prog.Machine())
		want := map[uint64][]byte{}
		for i := range events {
			if err := whole.Apply(&events[i]); err != nil {
				t.Fatal(err)
			}
			want[events[i].Seq] = whole.Snapshot(nil)
		}
		other, none := *saved, *saved
		other.Format++
		none.State, none.Format = nil, 0
		for name, saved := range map[string]*store.Saved{"this format": saved, "another format": &other, "no snapshot": &none} {
			for until := uint64(0); until <= saved.Last; until++ {
				run, err := prog.Fold(t.Context(), &shortPages{Store: st}, saved, until)
				if err != nil {
					t.Errorf("%s, to event %d: %v", name, until, err)
					continue
				}
				last := until
				if until == 0 {
					last = saved.Last
				}
				if run.Last() != last || len(run.Missing()) != 0 || !bytes.Equal(run.Snapshot(nil), want[last]) {
					t.Errorf("%s, to event %d: folded to %d, values of %v are missing, or it is in another state", name, until, run.Last(), run.Missing())
				}
			}
		}
	})
}

// A journal that cannot be read, or ends before the last event that the run is known to
// have, gives no run.
func TestRunsOfShortJournalsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, prog, saved, _ := storedRun(t)
		other := *saved
		other.State, other.Format = nil, 0
		broken := errors.New("the disk is broken")
		for name, c := range map[string]struct {
			saved *store.Saved
			most  int64
			err   error
			want  error
		}{
			"values, read error":   {saved, -1, broken, broken},
			"values, short":        {saved, -1, nil, fault.StoreCorrupt},
			"events, read error":   {&other, 3, broken, broken},
			"events, short":        {&other, 3, nil, fault.StoreCorrupt},
			"events, short by one": {&other, int64(saved.Last) - 1, nil, fault.StoreCorrupt},
		} {
			if _, err := prog.Fold(t.Context(), &shortPages{st, c.most, c.err}, c.saved, 0); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		longer := *saved
		longer.Last++
		if _, err := prog.Fold(t.Context(), st, &longer, 0); !errors.Is(err, fault.StoreCorrupt) {
			t.Errorf("a journal that lacks its last event: %v", err)
		}
	})
}

// FramesAfter returns the frames after an event. All events of a frame have the same
// time.
func TestFramesAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, _, events := storedRun(t)
		for i := range events {
			events[i].At = int64(1 + i/3) // frames of three, so that some are cut
		}
		var frames []byte
		for i := 0; i < len(events); i += 3 {
			frames = journal.AppendFrame(frames, events[i:min(i+3, len(events))])
		}
		for last := range uint64(len(events) + 1) {
			tail, err := journal.FramesAfter(frames, last)
			var seqs []uint64
			if err == nil {
				err = journal.EachEvent(tail, func(ev *journal.Event) error {
					if was := events[ev.Seq-1]; ev.At != was.At || ev.Kind != was.Kind || !bytes.Equal(ev.Data, was.Data) {
						t.Errorf("behind %d event %d is %+v, was %+v", last, ev.Seq, ev, was)
					}
					seqs = append(seqs, ev.Seq)
					return nil
				})
			}
			if err != nil || len(seqs) != len(events)-int(last) || len(seqs) > 0 && (seqs[0] != last+1 || seqs[len(seqs)-1] != uint64(len(events))) {
				t.Errorf("behind %d of %d: %v, %v", last, len(events), seqs, err)
			}
			if last == 0 && (!bytes.Equal(tail, frames) || &tail[0] == &frames[0]) {
				t.Error("uncut frames are changed, or shared with the store")
			}
		}
		if _, err := journal.FramesAfter([]byte{1, 2, 3}, 1); !errors.Is(err, fault.StoreCorrupt) {
			t.Errorf("invalid frames: %v", err)
		}
	})
}

// A reader gets every event however the journal is paged, including events that arrive
// meanwhile.
func TestI14_WatchInShortPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := noop()
		e := openEngine(t, &shortPages{Store: memory.New(memory.Options{})}, Config{}, a)
		run := start(t, e, planOf(t, "name: s\nsteps:\n  - {id: a, action: {name: noop}}\n  - {id: w, wait: {duration: 1h}}\n  - {id: b, action: {name: noop}}\n", a), nil)
		synctest.Wait()
		var ended uint64
		for after := uint64(0); ; after++ {
			next := after + 1
			for ev, err := range e.Watch(t.Context(), acc, run, after) {
				if err != nil || ev.Seq != next || ev.Envelope().Sequence != next {
					t.Fatalf("event %d, %v, where %d was expected", ev.Seq, err, next)
				}
				next++
			}
			if ended == 0 {
				ended = next
			}
			if next = max(next, after+1); next != max(ended, after+1) {
				t.Fatalf("from %d on the run ends before event %d, from the beginning on before %d", after, next, ended)
			}
			if after == ended {
				break
			}
		}
		if ended < 9 {
			t.Errorf("%d events", ended)
		}
	})
}

// Two accounts run recipes with the same meaning and different step names. Each sees
// its own names, from the engine that started the runs and from the next one.
func TestStepNamesAreTheAccountsOwn(t *testing.T) {
	st := memory.New(memory.Options{})
	named := func(name string) string {
		return "name: same\nsteps:\n  - {id: work, name: " + name + ", action: {name: noop}}\n"
	}
	e := openEngine(t, st, Config{}, noop())
	runs := map[string]string{}
	for _, account := range []string{"first", "second"} {
		s, err := e.Start(t.Context(), StartRequest{Account: account, Plan: planOf(t, named("Of the "+account), noop()), Recipe: "same"})
		if err != nil {
			t.Fatal(err)
		}
		runs[account] = s.Run
		if _, err := e.Wait(t.Context(), account, s.Run); err != nil {
			t.Fatal(err)
		}
	}
	look := func(e *Engine, where string) {
		t.Helper()
		for account, run := range runs {
			shown := 0
			for ev, err := range e.Feed().Events(t.Context(), store.Key{Account: account, Run: run}, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if name, ok := ev.Envelope().Payload["name"]; ok {
					shown++
					if name != "Of the "+account {
						t.Errorf("%s: account %s is shown the step name %q", where, account, name)
					}
				}
			}
			if shown == 0 {
				t.Errorf("%s: account %s is shown no step name", where, account)
			}
			head, err := e.Head(t.Context(), account, run)
			if err != nil {
				t.Fatal(err)
			}
			if h, err := e.History(t.Context(), account, run, 1); err != nil || h == nil || plan.HashOf(head.PlanHash) != planOf(t, named("x"), noop()).Hash().String() {
				t.Errorf("%s: the plan of account %s has the key %s, %v", where, account, head.PlanHash, err)
			}
		}
	}
	look(e, "at once")
	if _, err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	look(openEngine(t, st, Config{}, noop()), "after a restart")
}
