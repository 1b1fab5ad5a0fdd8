// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

type turnCount int

func (*turnCount) Before(store.Key, *machine.Run, *machine.Input)                 {}
func (n *turnCount) After(store.Key, *machine.Run, *machine.Input, *machine.Turn) { *n++ }

// A Stage does what an Engine does, one call at a time: nothing leaves before
// its commit (I1), the clock is the caller's, and a reader sees each event once
// (I14).
func TestStage(t *testing.T) {
	ctx := context.Background()
	const t0 = testEpoch
	st := memory.New(memory.Options{})
	cfg := Config{Store: st, Actions: catalogue.New(noop()), Logger: testLog(t)}
	var turns turnCount
	s, err := OpenStage(ctx, cfg, program.NewCache(10), t0)
	if err != nil {
		t.Fatal(err)
	}
	s.Observe(&turns)
	commit := func() {
		t.Helper()
		batch, ok := s.EncodeBatch()
		if !ok {
			t.Fatal("nothing to commit")
		}
		if len(batch) > 0 {
			s.Committed(st.Commit(ctx, batch))
		} else {
			s.Committed(nil, nil)
		}
	}
	m, err := s.Start(&StartRequest{Account: "a", Plan: planOf(t, chain(2), noop())})
	if err != nil {
		t.Fatal(err)
	}
	s.Handle(t0, m)
	if _, told := m.Answer(); told || len(s.Effects()) != 0 || turns == 0 {
		t.Fatalf("an answer or an effect came before the commit (%d turns)", turns)
	}
	commit()
	out, told := m.Answer()
	if !told || out.Err != nil || out.Run != m.Key().Run {
		t.Fatalf("the start was answered %+v, %v", out, told)
	}
	var seen []uint64
	r, err := s.Watch(m.Key(), 0, func(ev feed.Event) { seen = append(seen, ev.Seq) })
	if err != nil {
		t.Fatal(err)
	}
	now := int64(t0)
	for n := 0; ; n++ {
		effects := s.Effects()
		if len(effects) == 0 {
			break
		}
		now += 1_000_000
		if effects[0].Kind != machine.CmdDispatch || effects[0].Task == nil {
			t.Fatalf("effect %d is %+v", n, effects[0])
		}
		s.Handle(now, s.Report(&effects[0], machine.Input{Kind: machine.InResult, Outcome: machine.Success, Output: []byte("1")}, false))
		commit()
		if ended, err := r.Poll(); err != nil || ended != (n == 1) {
			t.Fatalf("after step %d the reader reports ended %v, %v", n, ended, err)
		}
	}
	for i, seq := range seen {
		if seq != uint64(i+1) {
			t.Fatalf("the reader saw %v", seen)
		}
	}
	head, err := st.Head(ctx, m.Key())
	if err != nil || head.Ended != now || uint64(len(seen)) == 0 {
		t.Fatalf("the run ended at %d, want %d (%v)", head.Ended, now, err)
	}
	if n, _ := s.e.feed.Usage(); n != 0 {
		t.Errorf("%d readers are left", n)
	}
	if s.Busy() || s.Dead() != nil || s.Stalled() != nil || s.Loaded() != 0 {
		t.Errorf("at rest: busy %v, dead %v, stalled %v, %d runs in memory", s.Busy(), s.Dead(), s.Stalled(), s.Loaded())
	}
}

// A Stage that is stopping starts nothing.
func TestAStoppingStageStartsNothing(t *testing.T) {
	a := noop()
	cfg := Config{Store: memory.New(memory.Options{}), Actions: catalogue.New(a), Logger: testLog(t)}
	s, err := OpenStage(t.Context(), cfg, program.NewCache(10), testEpoch)
	if err != nil {
		t.Fatal(err)
	}
	req := &StartRequest{Account: acc, Plan: planOf(t, chain(1), a), Recipe: "r"}
	if _, err := s.Start(req); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	_, err = s.Start(req)
	wantCode(t, err, errStopping.Code)
	_, err = s.Retry(store.Key{Account: acc, Run: "run"}, RetryRequest{})
	wantCode(t, err, errStopping.Code)
}
