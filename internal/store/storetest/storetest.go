// SPDX-License-Identifier: Apache-2.0

// Package storetest is the contract of store.Store, as tests.
//
// It decides what every implementation must do. Run checks an open store. RunCrash
// checks one that can be opened again, cleanly or after a crash, and whose bytes can be
// damaged. The package never looks inside an implementation.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// Run checks the contract of stores; open returns an empty one.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range []struct {
		name string
		run  func(*harness)
	}{
		{"F35_StaleEpochIsRefused", staleEpoch},
		{"EveryTransitionHasItsVerdict", verdicts},
		{"EventsAreDense", dense},
		{"OneRunSeveralTimesInABatch", sameRunInBatch},
		{"BatchBelongsToTheCaller", batchBelongsToCaller},
		{"StartNeedsAHead", startNeedsHead},
		{"ManyStarts", manyStarts},
		{"HeadsAreReplaced", heads},
		{"I14_AnyCursorGivesTheSameEvents", cursors},
		{"I17_OtherAccountsSeeNothing", accounts},
		{"CompactionMovesEvents", compactions},
		{"CompactionGuards", compactionGuards},
		{"UncompactedCounts", uncompacted},
		{"JournalIsTrimmed", trimmed},
		{"Suspension", suspensions},
		{"ManyRunsCompactedTogether", packs},
		{"DueIsOrdered", due},
		{"Recover", recovery},
		{"X206_RunsThatHaveNotEnded", unended},
		{"X206_QueuedRunsInOrder", queued},
		{"I13_IdempotencyKeys", idempotency},
		{"Plans", plans},
		{"Notes", notes},
		{"List", list},
		{"X194_Filters", filters},
		{"F49_LongSearches", longSearches},
		{"X98_DeletedRunsAreHidden", hiddenRuns},
		{"RunsNameFiles", files},
		{"SettledRunsAreDeleted", deletion},
		{"UncompactedRunsAreNotDeleted", uncompactedRuns},
		{"LongRunsAreDeleted", longRuns},
		{"I13_KeysAreForgotten", forgottenKeys},
		{"I11_EntriesMoveCredits", entries},
		{"I12_EntriesAreAllOrNothing", entriesTogether},
		{"I12_EntryKeysAreUsedOnce", entryKeys},
		{"TransitionsWithoutARun", withoutRun},
		{"I11_GroupsAreAllOrNothing", groupsAreAllOrNothing},
		{"I11_GroupsBesideEachOther", groupsBesideEachOther},
		{"GroupsFollowEachOther", groupsFollowEachOther},
		{"GroupsOfOneRun", groupsOfOneRun},
		{"I11_AccountsAsOf", accountsAsOf},
		{"HeadsAndEntriesAreChanges", changesOfCommits},
		{"ManyChangesInACommit", manyChanges},
		{"CursorsOfFeeds", cursorsOfFeeds},
		{"DeletedRunsAreChanges", deletedRunsAreChanges},
		{"ChangesAreForgotten", forgottenChanges},
		{"ChangesUnderLoad", changesUnderLoad},
		{"Trees", trees},
		{"X206_ChildRuns", childRuns},
		{"TreesAreDeletedWhole", treesGo},
		{"LargeTreesAreDeleted", largeTreesGo},
		{"RecordsAreKept", recordsAreKept},
		{"RecordsAreCopied", recordsAreCopied},
		{"RevisionsAreUsedOnce", revisions},
		{"RecordGuards", recordGuards},
		{"I15_RecordBounds", recordBounds},
		{"RecordLists", recordLists},
		{"I15_LargeRecordLists", largeRecordLists},
		{"RecordsAreForgotten", forgottenRecords},
		{"RecordRaces", recordRaces},
		{"RecordsOfTransitions", recordsOfTransitions},
		{"Stats", stats},
		{"CancelledContext", cancelled},
		{"ClosedStore", closed},
		{"ConcurrentUse", concurrent},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, open(t))
			c.run(h)
		})
	}
}

type harness struct {
	*testing.T
	s     store.Store
	epoch uint64
}

func newHarness(t *testing.T, s store.Store) *harness {
	t.Helper()
	h := &harness{T: t, s: s}
	t.Cleanup(func() { _ = h.s.Close() })
	h.own()
	return h
}

func (h *harness) own() {
	h.Helper()
	epoch, err := h.s.Own(ctx)
	h.must(err)
	if epoch <= h.epoch {
		h.Fatalf("Own = %d after %d, want more", epoch, h.epoch)
	}
	h.epoch = epoch
}

var ctx = context.Background()

func (h *harness) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *harness) wantCode(err error, code fault.Code) {
	h.Helper()
	if !errors.Is(err, code) {
		h.Fatalf("error = %v, want %s", err, code)
	}
}

func key(run string) store.Key { return store.Key{Account: "acme", Run: run} }

// frames imitates the encoding of events: each is a line with its number and some text
// that differs by run.
func frames(k store.Key, first, last uint64) []byte {
	var b []byte
	for n := first; n <= last; n++ {
		b = fmt.Appendf(b, "%d %s/%s %s\n", n, k.Account, k.Run, strings.Repeat("x", int(n%7)))
	}
	return b
}

// numbers parses frames and skips events up to after. It fails the test unless the rest
// are events of k, dense, from after+1.
func (h *harness) numbers(k store.Key, data []byte, after uint64) (last uint64) {
	h.Helper()
	last = after
	for line := range strings.Lines(string(data)) {
		var n uint64
		if _, err := fmt.Sscanf(line, "%d ", &n); err != nil {
			h.Fatalf("run %s: malformed event %q", k.Run, line)
		}
		if want := string(frames(k, n, n)); line != want {
			h.Fatalf("event %q, want %q", line, want)
		}
		if n <= after {
			continue
		}
		if n != last+1 {
			h.Fatalf("run %s: event %d follows event %d", k.Run, n, last)
		}
		last = n
	}
	return last
}

func head(k store.Key, status string, created int64) *store.Head {
	return &store.Head{Key: k, Recipe: "digest", Version: "1.0.0", PlanHash: "h1", Status: status, Created: created, Updated: created}
}

// start is the first transition of a run, with events 1..last.
func (h *harness) start(k store.Key, last uint64) store.Transition {
	return store.Transition{Key: k, Epoch: h.epoch, First: 1, Last: last, Frames: frames(k, 1, last), Head: head(k, "running", 1000)}
}

func (h *harness) next(k store.Key, first, last uint64) store.Transition {
	return store.Transition{Key: k, Epoch: h.epoch, First: first, Last: last, Frames: frames(k, first, last)}
}

// compaction covers first..last, with a state that names last.
func compaction(k store.Key, first, last uint64) *store.Compaction {
	return &store.Compaction{First: first, Last: last, Chunk: frames(k, first, last), Format: 7, State: state(k, last)}
}

func state(k store.Key, last uint64) []byte {
	return fmt.Appendf(nil, "state of %s at %d", k.Run, last)
}

// commit fails the test unless all transitions are written.
func (h *harness) commit(batch ...store.Transition) {
	h.Helper()
	verdicts, err := h.s.Commit(ctx, batch)
	h.must(err)
	if len(verdicts) != len(batch) {
		h.Fatalf("%d verdicts for %d transitions", len(verdicts), len(batch))
	}
	for i, v := range verdicts {
		if v.Err != nil {
			h.Fatalf("transition %d of run %s: %v", i, batch[i].Run, v.Err)
		}
	}
}

// refused fails the test unless t, committed alone, is refused with code.
func (h *harness) refused(code fault.Code, t store.Transition) store.Verdict {
	h.Helper()
	verdicts, err := h.s.Commit(ctx, []store.Transition{t})
	h.must(err)
	h.wantCode(verdicts[0].Err, code)
	return verdicts[0]
}

func (h *harness) load(k store.Key) *store.Saved {
	h.Helper()
	saved, err := h.s.Load(ctx, k)
	h.must(err)
	return saved
}

// holds fails the test unless the run has exactly the events 1 to last, by every way of
// reading.
func (h *harness) holds(k store.Key, last uint64) {
	h.Helper()
	saved := h.load(k)
	if saved.Last != last {
		h.Fatalf("run %s: Load says last event %d, want %d", k.Run, saved.Last, last)
	}
	if saved.StateLast > 0 && !bytes.Equal(saved.State, state(k, saved.StateLast)) {
		h.Fatalf("run %s: state after event %d is %q", k.Run, saved.StateLast, saved.State)
	}
	if got := h.numbers(k, saved.Tail, saved.StateLast); got != last {
		h.Fatalf("run %s: state and tail end at event %d, want %d", k.Run, got, last)
	}
	if got := h.readAll(k, 0, 1<<20); got != last {
		h.Fatalf("run %s: events end at %d, want %d", k.Run, got, last)
	}
}

// readAll pages through the events after a cursor and returns the last number.
func (h *harness) readAll(k store.Key, after uint64, maxBytes int) uint64 {
	h.Helper()
	for {
		page, err := h.s.Events(ctx, k, after, maxBytes)
		h.must(err)
		got := h.numbers(k, page.Frames, after)
		if got != page.Next {
			h.Fatalf("run %s: a page after %d ends at event %d and says %d", k.Run, after, got, page.Next)
		}
		if page.Next > page.Last || (page.Next == after && after < page.Last) {
			h.Fatalf("run %s: page after %d = next %d, last %d", k.Run, after, page.Next, page.Last)
		}
		if page.Next == after {
			return after
		}
		after = page.Next
	}
}

func (h *harness) equal(what string, got, want any) {
	h.Helper()
	if !reflect.DeepEqual(got, want) {
		h.Fatalf("%s = %+v, want %+v", what, got, want)
	}
}
