// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A result is looked at when it comes, also of attempts that the loop does not carry
// out itself, and although nothing else wakes it.
func TestResultsAreLookedAtWhenTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		slow := held(release)
		e := open(t, memory.New(memory.Options{}), Config{}, slow)
		run := start(t, e, planOf(t, "name: s\nsteps:\n  - {id: a, action: {name: slow}}\n  - {id: b, dependsOn: [], action: {name: slow}}\n", slow), nil)
		synctest.Wait()
		began := time.Now()
		if head := endAfter(t, e, run, release); head.Status != "completed" || time.Since(began) != 0 {
			t.Errorf("the run is %s after %s (%s)", head.Status, time.Since(began), head.Message)
		}
	})
}

// What one input causes goes on in several commits where it is long, and waits for
// nothing between them.
func TestLongTurnsDoNotWait(t *testing.T) {
	var src strings.Builder
	src.WriteString("name: t\nsteps:\n  - {id: s0, transform: {expression: \"1\"}}\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&src, "  - {id: s%d, transform: {expression: steps.s%d.output + 1}}\n", i, i-1)
	}
	p := planOf(t, src.String())
	for room := 20; room <= 60; room += 10 { // the last commit is not full in each
		synctest.Test(t, func(t *testing.T) {
			st := memory.New(memory.Options{})
			e := open(t, st, Config{MaxTurn: 1, MaxBatchBytes: room})
			began := time.Now()
			if head := end(t, e, start(t, e, p, nil)); head.Status != "completed" || time.Since(began) != 0 {
				t.Errorf("in commits of %d bytes the run is %s after %s (%s)", room, head.Status, time.Since(began), head.Message)
			}
			if stats, err := st.Stats(t.Context()); err != nil || stats.Commits < 5 {
				t.Errorf("%+v, %v: want several commits", stats, err)
			}
		})
	}
}

// Alarms go off in the order of their times, of equal times in the order in which
// they were set; those that mean nothing any more are told apart, and dropped once
// they are most.
func TestAlarms(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		var h alarms
		type known struct {
			at   int64
			seq  uint64
			bell *timerHandle
		}
		var set []known
		dead := func() (n int) {
			for i := range h.heap {
				if !h.heap[i].living() {
					n++
				}
			}
			return n
		}
		most := 0
		for step := range 5_000 {
			switch k := r.IntN(10); {
			case k < 5 || len(set) == 0:
				b := &timerHandle{l: &loadedRun{}}
				a := known{at: 1 + r.Int64N(50), bell: b}
				if r.IntN(4) == 0 {
					a.bell = nil // of a suspended run
				}
				a.seq = h.push(alarm{at: a.at, timer: a.bell})
				if a.bell != nil {
					a.bell.valid = a.seq
				}
				set = append(set, a)
			case k < 8: // a run leaves, or waits for something else
				i := r.IntN(len(set))
				if b := set[i].bell; b != nil && b.l != nil && b.valid == set[i].seq {
					if r.IntN(2) == 0 {
						b.l = nil
					} else {
						b.valid = 0
					}
					h.died()
				}
				if len(h.heap) < len(set) { // all the dead were dropped
					if h.dead != 0 || dead() != 0 {
						t.Fatalf("seed %d: of %d alarms left, %d mean nothing, %d are known", seed, len(h.heap), dead(), h.dead)
					}
					set = slices.DeleteFunc(set, func(a known) bool { return a.bell != nil && (a.bell.l == nil || a.bell.valid != a.seq) })
				}
			default:
				slices.SortFunc(set, func(a, b known) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
				want := set[0]
				set = set[1:]
				living := want.bell == nil || want.bell.l != nil && want.bell.valid == want.seq
				if at := h.next(); at != want.at {
					t.Fatalf("seed %d, step %d: the next is at %d, want %d", seed, step, at, want.at)
				}
				if a, ok := h.pop(); a.at != want.at || a.timer != want.bell || ok != living {
					t.Fatalf("seed %d, step %d: popped %+v, means something %v; want %+v, %v", seed, step, a, ok, want, living)
				}
			}
			if len(h.heap) != len(set) || h.dead != dead() {
				t.Fatalf("seed %d, step %d: %d alarms, %d of them dead, want %d, %d", seed, step, len(h.heap), h.dead, len(set), dead())
			}
			most = max(most, h.dead)
		}
		if most >= minDead && most > len(h.heap) {
			t.Errorf("seed %d: up to %d dead alarms are kept", seed, most)
		}
		for range set {
			h.pop()
		}
		if h.next() != 0 || h.dead != 0 {
			t.Errorf("seed %d: empty, the next alarm is at %d, %d are dead", seed, h.next(), h.dead)
		}
	}
}

// Dead alarms are dropped when they are so many, and half of all; not before.
func TestDeadAlarmsAreBounded(t *testing.T) {
	for _, living := range []int{0, minDead - 1, minDead, minDead + 1, minDead + 2} {
		var h alarms
		h.push(alarm{at: 1, key: store.Key{Run: "suspended"}})
		for range living - 1 {
			h.push(alarm{at: 2, timer: &timerHandle{l: &loadedRun{}, valid: h.seq + 1}})
		}
		var bells []*timerHandle
		for range minDead + 1 {
			b := &timerHandle{l: &loadedRun{}, valid: h.seq + 1}
			h.push(alarm{at: 3, timer: b})
			bells = append(bells, b)
		}
		all := len(h.heap)
		for i, b := range bells {
			b.l = nil
			h.died()
			n := i + 1
			if dropped := len(h.heap) < all; dropped != (n >= minDead && n >= all/2) {
				t.Errorf("%d living, %d dead: dropped %v", all-len(bells), n, dropped)
			}
			if len(h.heap) < all {
				break
			}
		}
	}
	if at := (&alarms{}).next(); at != 0 {
		t.Errorf("without any the next is at %d", at)
	}
}

// Two starts are the same one only where everything that decides what runs is equal:
// an idempotency key with another request is refused (I13).
func TestI13_RequestsAreToldApart(t *testing.T) {
	hash := func(plan string, change func(*StartRequest)) string {
		req := &StartRequest{Account: acc, Version: "1", Parameters: map[string]any{"a": "x"}, Files: []journal.File{{Hash: "f"}}}
		change(req)
		h, err := bodyHash(req, plan)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	seen := map[string]int{}
	for i, h := range []string{
		hash("plan", func(*StartRequest) {}),
		hash("other", func(*StartRequest) {}),
		hash("plan", func(r *StartRequest) { r.Account = "other" }),
		hash("plan", func(r *StartRequest) { r.Version = "2" }),
		hash("plan", func(r *StartRequest) { r.Parameters = map[string]any{"a": "y"} }),
		hash("plan", func(r *StartRequest) { r.Files = nil }),
		hash("plan", func(r *StartRequest) { r.Files = append(r.Files, r.Files...) }),
		hash("plan1", func(r *StartRequest) { r.Version = "" }),
	} {
		if other, same := seen[h]; same {
			t.Errorf("requests %d and %d are taken for one", other, i)
		}
		seen[h] = i
	}
	if _, same := seen[hash("plan", func(r *StartRequest) { r.Labels = map[string]string{"a": "b"} })]; !same {
		t.Error("labels make it another request")
	}
}
