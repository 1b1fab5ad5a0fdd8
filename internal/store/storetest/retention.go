// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// settled makes a run that ended at `at` with all events compacted and names files.
func (h *harness) settled(k store.Key, at int64, files ...string) store.Transition {
	tr := h.start(k, 2)
	tr.Head.Status, tr.Head.Ended = "completed", at
	tr.Files = files
	tr.Compaction = &store.Compaction{First: 1, Last: 2, Chunk: frames(k, 1, 2)}
	return tr
}

// naming returns the runs that name a file as text: "a b @9" for the runs a and b and a
// deleted run that had ended at 9.
func (h *harness) naming(account, hash string) string {
	h.Helper()
	n, err := h.s.References(ctx, account, hash, 10)
	h.must(err)
	text := strings.Join(n.Runs, " ")
	if n.Released != 0 {
		text += fmt.Sprintf(" @%d", n.Released)
	}
	return strings.TrimSpace(text)
}

func (h *harness) delete(want fault.Code, keys ...store.Key) {
	h.Helper()
	verdicts, err := h.s.Delete(ctx, h.epoch, 0, keys)
	h.must(err)
	h.equal("verdicts", len(verdicts), len(keys))
	for _, v := range verdicts {
		h.equal("verdict", fault.CodeOf(v.Err), want)
	}
}

// gone fails the test unless the run answers like one that never existed.
func (h *harness) gone(k store.Key) {
	h.Helper()
	_, err := h.s.Head(ctx, k)
	h.wantCode(err, fault.RunNotFound)
	_, err = h.s.Load(ctx, k)
	h.wantCode(err, fault.RunNotFound)
	_, err = h.s.Events(ctx, k, 0, 100)
	h.wantCode(err, fault.RunNotFound)
	heads, err := h.s.List(ctx, store.Query{Account: k.Account, Prefix: k.Run})
	h.must(err)
	h.equal("listed", len(heads), 0)
	h.refused(fault.Conflict, h.next(k, 3, 3))
}

// files: the names of files are known from the commit of their transition on, per
// account. Those of a refused transition are not.
func files(h *harness) {
	a, b, other := key("a"), key("b"), store.Key{Account: "rival", Run: "a"}
	start := h.start(a, 1)
	start.Files = []string{"f1", "f2", "f1"}
	mine := h.start(other, 1)
	mine.Files = []string{"f1"}
	h.commit(start, mine, h.start(b, 1))
	next := h.next(a, 2, 2)
	next.Files = []string{"f1", "f3"}
	late := h.next(b, 2, 2)
	late.Files = []string{"f3"}
	bad := h.next(b, 7, 7)
	bad.Files = []string{"f4"}
	verdicts, err := h.s.Commit(ctx, []store.Transition{next, late, bad})
	h.must(err)
	h.wantCode(verdicts[2].Err, fault.Conflict)
	for hash, want := range map[string]string{"f1": "a", "f2": "a", "f3": "a b", "f4": "", "f5": ""} {
		h.equal("runs that name "+hash, h.naming("acme", hash), want)
	}
	h.equal("runs of the rival", h.naming("rival", "f1"), "a")
	h.equal("runs of the rival", h.naming("rival", "f2"), "")
	n, err := h.s.References(ctx, "acme", "f3", 1)
	h.must(err)
	h.equal("limited", strings.Join(n.Runs, " "), "a")
}

// deletion: only settled runs are deleted, with all that belongs to them and nothing
// else.
func deletion(h *harness) {
	old, young, live, owing, other := key("old"), key("young"), key("live"), key("owing"), store.Key{Account: "rival", Run: "old"}
	owes := h.settled(owing, 5, "f")
	owes.Head.Owes = true
	suspended := h.start(key("suspended"), 2)
	suspended.Compaction, suspended.Suspension = compaction(key("suspended"), 1, 2), &store.Suspension{WakeAt: 1}
	h.commit(suspended, h.settled(old, 10, "f", "g"), h.settled(young, 30, "f"), h.start(live, 3), owes, h.settled(other, 20, "f"))

	ended := func(before int64, after store.Wake, limit int) (runs string) {
		wakes, err := h.s.Ended(ctx, before, after, limit)
		h.must(err)
		for _, w := range wakes {
			runs += fmt.Sprintf("%s/%s@%d ", w.Account, w.Run, w.At)
		}
		return runs
	}
	h.equal("ended before 10", ended(10, store.Wake{}, 10), "")
	h.equal("ended before 11", ended(11, store.Wake{}, 10), "acme/old@10 ")
	h.equal("all that ended", ended(99, store.Wake{}, 10), "acme/old@10 rival/old@20 acme/young@30 ")
	h.equal("limited", ended(99, store.Wake{}, 1), "acme/old@10 ")
	h.equal("after one", ended(99, store.Wake{Key: old, At: 10}, 10), "rival/old@20 acme/young@30 ")

	h.delete(fault.Conflict, live, owing, key("suspended"))
	h.delete(fault.RunNotFound, key("nobody"), store.Key{Account: "rival", Run: "young"})
	verdicts, err := h.s.Delete(ctx, h.epoch-1, 0, []store.Key{old})
	h.must(err)
	h.wantCode(verdicts[0].Err, fault.StaleEpoch)
	h.holds(old, 2)

	h.delete("", old)
	h.gone(old)
	h.delete(fault.RunNotFound, old)
	h.holds(other, 2)
	h.holds(live, 3)
	h.equal("runs that name f", h.naming("acme", "f"), "owing young @10")
	h.equal("runs that name g", h.naming("acme", "g"), "@10")
	h.equal("the rival's f", h.naming("rival", "f"), "old")
	h.delete("", young)
	h.equal("runs that name f", h.naming("acme", "f"), "owing @30")
	h.equal("nothing else ended", ended(99, store.Wake{}, 10), "rival/old@20 ")
	h.must(h.s.ForgetFile(ctx, "acme", "f"))
	h.must(h.s.ForgetFile(ctx, "acme", "g"))
	h.equal("forgotten", h.naming("acme", "f")+h.naming("acme", "g"), "owing")
}

// uncompactedRuns: a settled run with events only in the journal must be compacted before
// it can be deleted.
func uncompactedRuns(h *harness) {
	k := key("a")
	tr := h.settled(k, 10)
	tr.Compaction = nil
	h.commit(tr)
	h.delete(fault.Conflict, k)
	h.commit(store.Transition{Key: k, Epoch: h.epoch, Compaction: &store.Compaction{First: 1, Last: 2, Chunk: frames(k, 1, 2)}})
	h.delete("", k)
	h.gone(k)
}

// longRuns: a run with many chunks is deleted whole.
func longRuns(h *harness) {
	k := key("a")
	h.commit(h.start(k, 1))
	for n := uint64(2); n < 60; n++ {
		tr := h.next(k, n, n)
		tr.Compaction = &store.Compaction{First: n, Last: n, Chunk: frames(k, n, n)}
		if n == 2 {
			tr.Compaction = &store.Compaction{First: 1, Last: 2, Chunk: frames(k, 1, 2)}
		}
		if n == 59 {
			tr.Head = head(k, "completed", 1)
			tr.Head.Ended = 7
		}
		h.commit(tr)
	}
	h.holds(k, 59)
	h.delete("", k)
	h.gone(k)
}

// forgottenKeys: an idempotency key is removed when its time has passed and its run has
// ended or is gone, never earlier.
func forgottenKeys(h *harness) {
	with := func(tr store.Transition, name string, until int64) store.Transition {
		tr.Idempotency = &store.Idempotency{Key: name, BodyHash: "b", Until: until}
		return tr
	}
	h.commit(with(h.settled(key("a"), 1), "ka", 10), with(h.settled(key("b"), 1), "kb", 20),
		with(h.start(key("c"), 1), "kc", 10), with(h.settled(key("d"), 1), "kd", 12))
	forget := func(before int64, limit int) int {
		n, err := h.s.ForgetKeys(ctx, h.epoch, before, limit)
		h.must(err)
		return n
	}
	h.equal("before the first", forget(10, 10), 0)
	h.equal("limited", forget(15, 1), 1)
	h.equal("the rest", forget(15, 10), 1)
	h.equal("nothing more", forget(15, 10), 0)
	h.delete("", key("b"))
	h.equal("of a deleted run, in time", forget(20, 10), 0)
	h.equal("of a deleted run", forget(21, 10), 1)
	_, err := h.s.ForgetKeys(ctx, h.epoch-1, 99, 10)
	h.wantCode(err, fault.StaleEpoch)
	h.commit(with(h.start(key("a2"), 1), "ka", 99))
	h.refused(fault.Conflict, with(h.start(key("c2"), 1), "kc", 99))
}

// staysDeleted: a crash does not bring a deleted run back. Journal rows that still hold
// events of it count as whole and are deleted like others.
func staysDeleted(h *harness, d Disk) {
	a, b := key("a"), key("b")
	over := h.settled(a, 5, "f")
	compaction := over.Compaction
	over.Compaction = nil
	h.commit(over, h.start(b, 3)) // one journal row for both
	h.commit(store.Transition{Key: a, Epoch: h.epoch, Compaction: compaction})
	h.delete("", a)
	for range 2 {
		h.s = d.Crash(h.T, h.s)
		h.own()
		h.gone(a)
		h.holds(b, 3)
		h.equal("who names f", h.naming("acme", "f"), "@5")
		h.must(h.s.Recover(ctx, func(s *store.Saved) error {
			h.equal("recovered", s.Head.Run, "b")
			return s.Err
		}))
	}
	end := h.next(b, 4, 4)
	end.Head, end.Compaction = head(b, "completed", 1), &store.Compaction{First: 1, Last: 4, Chunk: frames(b, 1, 4)}
	end.Head.Ended = 6
	h.commit(end)
	h.delete("", b)
	h.commit(h.start(key("c"), 1)) // commits trim
	st, err := h.s.Stats(ctx)
	h.must(err)
	if st.JournalRows > 1 {
		h.Fatalf("%d journal rows are left, want the last one", st.JournalRows)
	}
}

// namesSurvive: the names of files survive with their commits.
func namesSurvive(h *harness, d Disk) {
	tr := h.start(key("a"), 1)
	tr.Files = []string{"f"}
	h.commit(tr, h.settled(key("b"), 9, "f", "g"))
	h.delete("", key("b"))
	h.must(h.s.Close())
	h.s = d.Reopen(h.T, h.s)
	h.own()
	h.equal("f", h.naming("acme", "f"), "a @9")
	h.equal("g", h.naming("acme", "g"), "@9")
}
