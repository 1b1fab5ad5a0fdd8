// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/changes"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// TakeOver copies the idempotency keys of an image and, if asked, its notes and the
// release times of files, as far as their checksums verify. It never replaces a row.
func TestTakeOver(t *testing.T) {
	from := t.TempDir()
	s := open(t, from)
	epoch := own(t, s)
	var other store.Transition
	for n, key := range []string{"first", "second", "damaged"} {
		run := startOf(epoch, runKey(n), "1")
		run.Idempotency = &store.Idempotency{Key: key, BodyHash: "body", Until: 7}
		run.Files = []string{"sha256_" + key}
		if n == 1 { // this run has ended
			run.Head.Ended = 5
			run.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: run.Frames}
		}
		mustCommit(t, s, run)
		other = run
	}
	other.Account, other.Idempotency = "another", nil
	mustCommit(t, s, other)
	for name, value := range map[string]string{"here": "old", "there": "1", "damaged": "2"} {
		if err := s.SetNote(ctx, epoch, name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	grant(t, s, "acme", 0, 2)
	if verdicts, err := s.Delete(ctx, epoch, 0, []store.Key{runKey(1)}); err != nil || verdicts[0].Err != nil {
		t.Fatal(verdicts, err)
	}
	if accounts, err := s.Accounts(ctx); err != nil || !slices.Equal(accounts, []string{runKey(0).Account, "another"}) {
		t.Errorf("accounts are %q, %v", accounts, err)
	}
	if gone, err := s.Deleted(ctx); err != nil || !maps.Equal(gone, map[store.Key]bool{runKey(1): true}) {
		t.Errorf("deleted are %v, %v", gone, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{`UPDATE idempotency SET until = 8 WHERE key = 'damaged'`, `UPDATE notes SET value = '3' WHERE name = 'damaged'`} {
		if _, err := rawDB(t, from).Exec(query); err != nil {
			t.Fatal(err)
		}
	}

	s = open(t, t.TempDir())
	epoch = own(t, s)
	if err := s.TakeFeedEnds(ctx, wal.Image{Dir: from}); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, startOf(epoch, runKey(0), "1"), startOf(epoch, runKey(2), "1"))
	// The feeds go on behind all numbers that can have been used.
	if last, expired, err := s.Newest(ctx, "acme"); err != nil || last != expired+2 || expired != 6+changes.Skipped {
		t.Errorf("the feed has changes %d to %d, %v", expired+1, last, err)
	}
	if last, expired, err := s.Newest(ctx, "another"); err != nil || last != expired || expired != 1+changes.Skipped {
		t.Errorf("the other feed has changes %d to %d, %v", expired+1, last, err)
	}
	if err := s.EndFeeds(ctx); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, startOf(epoch, runKey(20), "1"))
	if last, expired, err := s.Newest(ctx, "acme"); err != nil || last != expired+1 || expired != 8+2*changes.Skipped {
		t.Errorf("after its end the feed has changes %d to %d, %v", expired+1, last, err)
	}
	if _, err := s.Changes(ctx, "acme", 3, 10); !errors.Is(err, fault.CursorExpired) {
		t.Errorf("a cursor from before: %v", err)
	}
	if c := checkOf(t, s); len(c) > 0 {
		t.Errorf("the check says %q", c)
	}
	if err := s.SetNote(ctx, epoch, "here", []byte("new")); err != nil {
		t.Fatal(err)
	}
	for _, all := range []bool{false, true, true} { // once more changes nothing
		if err := s.TakeOver(ctx, wal.Image{Dir: from}, all); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"here": "new", "there": "1", "damaged": ""} {
			if !all && name == "there" {
				want = ""
			}
			if value, err := s.Note(ctx, name); err != nil || string(value) != want {
				t.Errorf("all %t: the note %s is %q, %v", all, name, value, err)
			}
		}
		if a, err := s.Account(ctx, "acme", math.MaxInt64); err != nil || a.Balance(10).Available != map[bool]int64{true: 2}[all] {
			t.Errorf("all %t: the account has %+v, %v", all, a, err)
		}
		if n, err := s.References(ctx, runKey(1).Account, "sha256_second", 1); err != nil || n.Released != map[bool]int64{true: 5}[all] {
			t.Errorf("all %t: a file was released at %d, %v", all, n.Released, err)
		}
	}
	for n, key := range []string{"first", "second", "damaged"} {
		again := startOf(epoch, runKey(10+n), "1")
		again.Idempotency = &store.Idempotency{Key: key, BodyHash: "body", Until: 9}
		verdicts, err := s.Commit(ctx, []store.Transition{again})
		if err != nil || (verdicts[0].Run == runKey(0).Run) != (n == 0) || (verdicts[0].Err != nil) != (n == 0) {
			t.Errorf("a start with the key %s: %+v, %v", key, verdicts, err)
		}
	}
	if err := s.TakeOver(ctx, wal.Image{Dir: t.TempDir() + "/none"}, true); err == nil {
		t.Error("what is not there was taken over")
	}
	if err := s.TakeFeedEnds(ctx, wal.Image{Dir: t.TempDir() + "/none"}); err == nil {
		t.Error("feeds that are not there were taken over")
	}
	if err := s.TakeOver(ctx, wal.Image{Dir: from}, true); err != nil {
		t.Errorf("after one that failed: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"TakeOver": s.TakeOver(ctx, wal.Image{Dir: from}, true),
		"EndFeeds": s.EndFeeds(ctx), "TakeFeedEnds": s.TakeFeedEnds(ctx, wal.Image{Dir: from}), "Accounts": second(s.Accounts(ctx)), "Deleted": second(s.Deleted(ctx))} {
		if err == nil {
			t.Errorf("%s of a closed store", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }
