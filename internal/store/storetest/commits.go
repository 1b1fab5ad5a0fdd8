// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"fmt"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

func staleEpoch(h *harness) {
	h.commit(h.start(key("a"), 2))
	old := h.next(key("a"), 3, 3)
	start := h.start(key("b"), 1)
	h.own()
	h.refused(fault.StaleEpoch, old)
	h.refused(fault.StaleEpoch, start)
	headOnly := store.Transition{Key: key("a"), Epoch: h.epoch - 1, Head: head(key("a"), "failed", 1)}
	h.refused(fault.StaleEpoch, headOnly)
	h.holds(key("a"), 2)
	if _, err := h.s.Load(ctx, key("b")); err == nil {
		h.Fatal("a start under an old epoch left a run")
	}
	future := h.next(key("a"), 3, 3)
	future.Epoch = h.epoch + 1
	h.refused(fault.StaleEpoch, future)
	h.commit(h.next(key("a"), 3, 3))

	if err := h.s.Owns(ctx, h.epoch); err != nil {
		h.Errorf("the owner: %v", err)
	}
	for _, epoch := range []uint64{0, h.epoch - 1, h.epoch + 1} {
		h.wantCode(h.s.Owns(ctx, epoch), fault.StaleEpoch)
	}
}

// A refused transition changes nothing, whatever else the batch contains.
func verdicts(h *harness) {
	h.commit(h.start(key("a"), 3), h.start(key("b"), 1))
	stale := h.next(key("b"), 2, 2)
	stale.Epoch--
	gap := h.next(key("a"), 9, 9)
	gap.Head = head(key("a"), "never", 1)
	gap.Plans = []store.EncodedPlan{{Key: "never", Data: []byte("never")}}
	gap.Idempotency = &store.Idempotency{Key: "never", BodyHash: "b"}
	twice := h.start(key("a"), 1)
	twice.Idempotency = &store.Idempotency{Key: "never", BodyHash: "b"}
	twice.Plans = []store.EncodedPlan{{Key: "never", Data: []byte("never")}}
	verdicts, err := h.s.Commit(ctx, []store.Transition{
		gap, h.start(key("c"), 2), stale, twice, h.next(key("a"), 4, 5),
	})
	h.must(err)
	for i, want := range []fault.Code{fault.Conflict, "", fault.StaleEpoch, fault.Conflict, ""} {
		if got := fault.CodeOf(verdicts[i].Err); got != want {
			h.Fatalf("verdict %d = %v, want %q", i, verdicts[i].Err, want)
		}
	}
	h.holds(key("a"), 5)
	h.holds(key("b"), 1)
	h.holds(key("c"), 2)
	h.equal("head", h.load(key("a")).Head, *head(key("a"), "running", 1000))
	_, err = h.s.Plan(ctx, "never")
	h.wantCode(err, fault.RecipeNotFound)
	start := h.start(key("d"), 1)
	start.Idempotency = &store.Idempotency{Key: "never", BodyHash: "other"}
	h.commit(start)
	h.must(func() error { _, err := h.s.Commit(ctx, nil); return err }())
}

func dense(h *harness) {
	k := key("a")
	h.refused(fault.Conflict, h.next(k, 2, 2)) // no run yet
	h.commit(h.start(k, 3))
	h.refused(fault.Conflict, h.next(k, 3, 4))  // event 3 again
	h.refused(fault.Conflict, h.next(k, 5, 5))  // event 4 is missing
	h.refused(fault.Conflict, h.start(k, 4))    // from the start
	h.refused(fault.Conflict, h.next(k, 4, 3))  // backwards
	h.refused(fault.Conflict, h.next(k, 0, 4))  // no first
	h.refused(fault.Conflict, store.Transition{ // numbers without events
		Key: k, Epoch: h.epoch, First: 4, Last: 4,
	})
	h.holds(k, 3)
	h.commit(h.next(k, 4, 4))
	h.holds(k, 4)
}

func sameRunInBatch(h *harness) {
	a, b := key("a"), key("b")
	h.commit(h.start(a, 2), h.next(a, 3, 3), h.start(b, 1), h.next(a, 4, 6), h.next(b, 2, 2))
	h.holds(a, 6)
	h.holds(b, 2)
	verdicts, err := h.s.Commit(ctx, []store.Transition{h.next(a, 7, 7), h.next(a, 9, 9), h.next(a, 8, 8)})
	h.must(err)
	if verdicts[0].Err != nil || verdicts[1].Err == nil || verdicts[2].Err != nil {
		h.Fatalf("verdicts = %v, want the second alone refused", verdicts)
	}
	h.holds(a, 8)
	// When a start is refused, the later transitions of that run are refused, too.
	verdicts, err = h.s.Commit(ctx, []store.Transition{h.start(a, 3), h.next(key("c"), 2, 2)})
	h.must(err)
	h.wantCode(verdicts[0].Err, fault.Conflict)
	h.wantCode(verdicts[1].Err, fault.Conflict)
}

// manyStarts has a run in the middle of many that has begun, and ended, before: it alone is
// refused.
func manyStarts(h *harness) {
	old := key("r20")
	h.commit(h.start(old, 2))
	end := h.next(old, 3, 3)
	end.Head = head(old, "completed", 1000)
	end.Head.Ended = 2000
	end.Compaction = compaction(old, 1, 3)
	h.commit(end)
	batch := []store.Transition{}
	for i := range 50 {
		k := key(fmt.Sprintf("r%d", i))
		batch = append(batch, h.start(k, 1))
		if i%7 == 0 {
			batch = append(batch, h.next(k, 2, 4))
		}
	}
	verdicts, err := h.s.Commit(ctx, batch)
	h.must(err)
	for i, v := range verdicts {
		k := batch[i].Key
		if (v.Err != nil) != (k == old) {
			h.Fatalf("run %s: %v", k.Run, v.Err)
		}
	}
	h.wantCode(verdicts[23].Err, fault.Conflict)
	h.holds(old, 3)
	h.holds(key("r0"), 4)
	h.holds(key("r1"), 1)
	h.holds(key("r49"), 4)
	h.equal("head", h.load(old).Head, *end.Head)
}

func batchBelongsToCaller(h *harness) {
	k := key("a")
	tr := h.start(k, 4)
	tr.Plans = []store.EncodedPlan{{Key: "p", Data: []byte("plan")}}
	tr.Compaction = compaction(k, 1, 4)
	last := h.next(k, 5, 6)
	h.commit(tr, last)
	for _, b := range [][]byte{tr.Frames, tr.Plans[0].Data, tr.Compaction.Chunk, tr.Compaction.State, last.Frames} {
		for i := range b {
			b[i] = '?'
		}
	}
	tr.Head.Status = "?"
	h.holds(k, 6)
	p, err := h.s.Plan(ctx, "p")
	h.must(err)
	h.equal("plan", string(p), "plan")
	h.equal("status", h.load(k).Head.Status, "running")
	// Changing what a reader has returned does not change what is stored.
	saved := h.load(k)
	clear(saved.State)
	clear(saved.Tail)
	p[0] = '?'
	h.holds(k, 6)
}

func startNeedsHead(h *harness) {
	tr := h.start(key("a"), 1)
	tr.Head = nil
	h.refused(fault.Conflict, tr)
	h.refused(fault.Conflict, store.Transition{Key: key("a"), Epoch: h.epoch, Head: head(key("a"), "running", 1)})
	_, err := h.s.Head(ctx, key("a"))
	h.wantCode(err, fault.RunNotFound)
}

func heads(h *harness) {
	k := key("a")
	h.commit(h.start(k, 2))
	want := store.Head{
		Key: k, Recipe: "digest", Version: "1.0.0", PlanHash: "h1", Status: "failed", Created: 1000, Updated: 6, Ended: 7,
		Code: fault.StepTimeout, Message: "späte Antwort", Used: 12, Failures: true, Quarantine: "poison", Owes: true,
	}
	tr := h.next(k, 3, 3)
	tr.Head = &want
	h.commit(tr)
	got, err := h.s.Head(ctx, k)
	h.must(err)
	h.equal("head", got, want)
	h.equal("loaded head", h.load(k).Head, want)
	// Recipe, plan and time of creation stay as the start set them.
	other := want
	other.Recipe, other.Version, other.PlanHash, other.Created = "r", "2.0", "h", 5
	h.commit(store.Transition{Key: k, Epoch: h.epoch, Head: &other})
	got, err = h.s.Head(ctx, k)
	h.must(err)
	h.equal("head", got, want)
	// A head without events: the flag beside the status.
	want.Quarantine = ""
	h.commit(store.Transition{Key: k, Epoch: h.epoch, Head: &want})
	got, err = h.s.Head(ctx, k)
	h.must(err)
	h.equal("head", got, want)
	h.holds(k, 3)
}

func idempotency(h *harness) {
	start := func(run, account, k, body string) store.Transition {
		tr := h.start(store.Key{Account: account, Run: run}, 1)
		tr.Idempotency = &store.Idempotency{Key: k, BodyHash: body, Until: 99}
		return tr
	}
	h.commit(start("a", "acme", "k", "body"))
	v := h.refused(fault.Conflict, start("b", "acme", "k", "body"))
	h.equal("run of the twin", v.Run, "a")
	v = h.refused(fault.IdempotencyMismatch, start("b", "acme", "k", "another"))
	h.equal("run of the mismatch", v.Run, "a")
	_, err := h.s.Head(ctx, key("b"))
	h.wantCode(err, fault.RunNotFound)
	h.commit(start("b", "other", "k", "another"), start("c", "acme", "k2", "body"))
	// Starting an existing run is a conflict, whatever the key.
	suspended := start("p", "acme", "kp", "body")
	suspended.Compaction, suspended.Suspension = compaction(key("p"), 1, 1), &store.Suspension{}
	h.commit(suspended)
	h.equal("run of a second start", h.refused(fault.Conflict, start("p", "acme", "k", "another")).Run, "")
	// A start that is refused for another reason is told of its twin all the same.
	refusal := fault.New(fault.QuotaExceeded, "too many runs")
	full := start("f", "acme", "k", "body")
	full.Idempotency.Refusal = refusal
	h.equal("run of the twin", h.refused(fault.Conflict, full).Run, "a")
	full.Idempotency.Key = "unused"
	h.equal("run of a refused start", h.refused(fault.QuotaExceeded, full).Run, "")
	_, err = h.s.Head(ctx, key("f"))
	h.wantCode(err, fault.RunNotFound)
	// Twins in one batch: the first wins.
	verdicts, err := h.s.Commit(ctx, []store.Transition{start("d", "acme", "k3", "x"), start("e", "acme", "k3", "x")})
	h.must(err)
	h.must(verdicts[0].Err)
	h.wantCode(verdicts[1].Err, fault.Conflict)
	h.equal("run of the twin in the batch", verdicts[1].Run, "d")
}

func plans(h *harness) {
	_, err := h.s.Plan(ctx, "p")
	h.wantCode(err, fault.RecipeNotFound)
	tr := h.start(key("a"), 1)
	tr.Plans = []store.EncodedPlan{{Key: "p", Data: []byte(`{"steps":[]}`)}}
	h.commit(tr)
	again := h.start(store.Key{Account: "other", Run: "b"}, 1)
	again.Plans = []store.EncodedPlan{{Key: "p", Data: []byte(`not looked at`)}}
	named := h.start(key("c"), 1)
	h.commit(again, named)
	// A later transition may add plans, some of which are already stored.
	more := h.next(key("c"), 2, 2)
	more.Plans = []store.EncodedPlan{{Key: "p", Data: []byte(`nor is this`)}, {Key: "q", Data: []byte(`{"q":1}`)}, {Key: "r", Data: []byte(`{"r":1}`)}}
	// A refused one adds none.
	late := h.next(key("c"), 2, 2)
	late.Plans = []store.EncodedPlan{{Key: "s", Data: []byte(`{"s":1}`)}}
	verdicts, err := h.s.Commit(ctx, []store.Transition{more, late})
	h.must(err)
	h.must(verdicts[0].Err)
	h.wantCode(verdicts[1].Err, fault.Conflict)
	for key, want := range map[string]string{"p": `{"steps":[]}`, "q": `{"q":1}`, "r": `{"r":1}`} {
		p, err := h.s.Plan(ctx, key)
		h.must(err)
		h.equal("plan "+key, string(p), want)
	}
	_, err = h.s.Plan(ctx, "s")
	h.wantCode(err, fault.RecipeNotFound)
}

func notes(h *harness) {
	get := func() any {
		v, err := h.s.Note(ctx, "clean")
		h.must(err)
		if v == nil {
			return nil
		}
		return string(v)
	}
	h.equal("absent note", get(), nil)
	h.must(h.s.SetNote(ctx, h.epoch, "clean", []byte("yes")))
	h.equal("note", get(), "yes")
	h.must(h.s.SetNote(ctx, h.epoch, "clean", []byte("no")))
	h.equal("replaced note", get(), "no")
	h.must(h.s.SetNote(ctx, h.epoch, "clean", []byte{}))
	h.equal("empty note", get(), "")
	h.must(h.s.SetNote(ctx, h.epoch, "clean", nil))
	h.equal("removed note", get(), nil)
	h.must(h.s.SetNote(ctx, h.epoch, "clean", nil))
	// An earlier owner neither writes nor removes notes.
	h.must(h.s.SetNote(ctx, h.epoch, "clean", []byte("mine")))
	h.own()
	h.wantCode(h.s.SetNote(ctx, h.epoch-1, "clean", []byte("late")), fault.StaleEpoch)
	h.wantCode(h.s.SetNote(ctx, h.epoch-1, "clean", nil), fault.StaleEpoch)
	h.equal("note of the owner before", get(), "mine")
	h.must(h.s.SetNote(ctx, h.epoch, "clean", []byte("new")))
	h.equal("note of the new owner", get(), "new")
}

func stats(h *harness) {
	before, err := h.s.Stats(ctx)
	h.must(err)
	h.commit(h.start(key("a"), 2), h.start(key("b"), 1))
	h.commit(h.next(key("a"), 3, 3))
	after, err := h.s.Stats(ctx)
	h.must(err)
	h.equal("commits", after.Commits-before.Commits, int64(2))
	h.equal("transitions", after.Transitions-before.Transitions, int64(3))
	if after.Syncs >= 0 {
		h.equal("syncs", after.Syncs-before.Syncs, int64(2))
	}
	if after.JournalRows <= before.JournalRows || after.JournalBytes <= before.JournalBytes {
		h.Fatalf("the journal did not grow: %+v", after)
	}
}

func cancelled(h *harness) {
	h.commit(h.start(key("a"), 1))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := h.s.Commit(gone, []store.Transition{h.next(key("a"), 2, 2)}); err == nil {
		h.Fatal("Commit under a cancelled context succeeded")
	}
	if _, err := h.s.Load(gone, key("a")); err == nil {
		h.Fatal("Load under a cancelled context succeeded")
	}
	h.holds(key("a"), 1)
	h.commit(h.next(key("a"), 2, 2))
}

func closed(h *harness) {
	h.commit(h.start(key("a"), 1))
	h.must(h.s.Close())
	h.must(h.s.Close())
	if _, err := h.s.Commit(ctx, []store.Transition{h.next(key("a"), 2, 2)}); err == nil {
		h.Fatal("a closed store commits")
	}
	if _, err := h.s.Load(ctx, key("a")); err == nil {
		h.Fatal("a closed store reads")
	}
}

// Readers never see a run between two states, whatever is committed and compacted
// meanwhile.
func concurrent(h *harness) {
	const runs, rounds = 4, 40
	var batch []store.Transition
	for r := range runs {
		batch = append(batch, h.start(key(fmt.Sprint(r)), 1))
	}
	h.commit(batch...)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	fail := make(chan string, runs)
	for r := range runs {
		wg.Go(func() {
			k := key(fmt.Sprint(r))
			for seen := uint64(0); ; {
				saved, err := h.s.Load(ctx, k)
				if err != nil {
					fail <- err.Error()
					return
				}
				n := lastLine(saved.Tail, saved.StateLast)
				if saved.Last < seen || n != saved.Last {
					fail <- fmt.Sprintf("run %s: last %d after %d, tail ends at %d", k.Run, saved.Last, seen, n)
					return
				}
				seen = saved.Last
				page, err := h.s.Events(ctx, k, 0, 1<<20)
				if err != nil || page.Next < seen || lastLine(page.Frames, 0) != page.Next {
					fail <- fmt.Sprintf("run %s: events to %d after %d, %v", k.Run, page.Next, seen, err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for n := uint64(2); n < 2+rounds; n++ {
		batch = batch[:0]
		for r := range runs {
			tr := h.next(key(fmt.Sprint(r)), n, n)
			if n%5 == 0 {
				first := n - 4
				if n == 5 {
					first = 1
				}
				tr.Compaction = compaction(tr.Key, first, n)
			}
			batch = append(batch, tr)
		}
		h.commit(batch...)
	}
	close(stop)
	wg.Wait()
	select {
	case msg := <-fail:
		h.Fatal(msg)
	default:
	}
}
