// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// maxKept bounds the bytes of the journal that the scan keeps for Recover.
const maxKept = 64 << 20

// scanned is what the journal has of one run.
type scanned struct {
	refs []foundRef
	// These come from the tables.
	known              bool
	suspended, settled bool
	reach, chunked     uint64
	damage             error // of the run's row
}

type foundRef struct {
	ref
	damaged string
	head    bool // it holds the head of its run
	settled bool // according to that head
}

// deferred reports whether the run has no row because that is deferred.
func (r *scanned) deferred() bool {
	return !r.known && len(r.refs) > 0 && r.refs[0].head && r.refs[0].first == 1
}

// A lostRow is a row whose records cannot be attributed to runs, from off on.
type lostRow struct {
	row int64
	off int
}

// scan reads the journal once, at the first use that needs the index. The
// caller holds w.
func (s *Store) scan() error {
	if s.scanned.Load() {
		return nil
	}
	x := &s.x
	x.Lock()
	defer x.Unlock()
	err := s.scanJournal(context.Background())
	if err != nil {
		x.init() // half an index must not be used
		_, err = s.explain(err)
		return err
	}
	s.scanned.Store(true)
	return nil
}

func (s *Store) scanJournal(ctx context.Context) error {
	s.x.index = index{}
	s.x.init()
	s.feed.BeginScan()
	runs := map[store.Key]*scanned{}
	known := format.Texts{}
	orphans := map[uint32][]foundRef{} // damaged records, by the hash of their run
	var lost []lostRow

	rows, err := s.read.QueryContext(ctx, s.t.journalRows)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var data []byte
		if err := rows.Scan(&id, &data); err != nil {
			return err
		}
		info := s.x.addRow(id, int64(len(data)))
		off := format.ParseRow(data, known, func(r format.Record) {
			if r.Damaged == "" && r.Key.Run == "" {
				s.feed.FoundRecord(id, &r)
				return
			}
			f := foundRef{ref{id, r.Off, r.N, r.First, r.Last}, r.Damaged, r.HasHead(), false}
			if f.head {
				h, err := r.Head()
				f.head, f.settled = err == nil, h.Settled()
			}
			if r.Damaged != "" {
				orphans[r.Hash] = append(orphans[r.Hash], f)
				s.feed.FoundDamage(&r)
				return
			}
			run := runs[r.Key]
			if run == nil {
				run = &scanned{}
				runs[r.Key] = run
			}
			run.refs = append(run.refs, f)
		})
		if off >= 0 {
			lost = append(lost, lostRow{id, off})
			s.feed.FoundLoss()
			info.live++ // a damaged row stays
		}
		if s.x.rowBytes <= maxKept {
			s.keep(id, data)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(orphans) > 0 || len(lost) > 0 {
		if err := s.findDamaged(ctx, runs, orphans, lost); err != nil {
			return err
		}
	}
	if err := s.lookUp(ctx, runs); err != nil {
		return err
	}
	gone, err := s.deletedRuns(ctx)
	if err != nil {
		return err
	}
	for key, run := range runs {
		if !run.known {
			before := gone[key]
			run.refs = slices.DeleteFunc(run.refs, func(r foundRef) bool { return r.row < before })
		}
		s.enter(key, run, lost)
	}
	kept, err := s.feed.EndScan()
	if err != nil {
		return err
	}
	for _, id := range kept {
		s.keepFor(id)
	}
	for id, info := range s.x.rows {
		if info.live == 0 {
			s.x.markDead(id, info)
		}
	}
	sortQueue(s.x.queue)
	return nil
}

// findDamaged attributes damaged records to their runs. After a row without a readable
// directory it adds every live run.
func (s *Store) findDamaged(ctx context.Context, runs map[store.Key]*scanned, orphans map[uint32][]foundRef, lost []lostRow) error {
	rows, err := s.read.QueryContext(ctx, s.t.liveness)
	if err != nil {
		return err
	}
	defer rows.Close()
	stored, accounts := map[store.Key]bool{}, map[string]bool{}
	for rows.Next() {
		var key store.Key
		var live bool
		if err := rows.Scan(&key.Account, &key.Run, &live); err != nil {
			return err
		}
		if !accounts[key.Account] {
			accounts[key.Account] = true
			for _, r := range orphans[format.KeyHash(store.Key{Account: key.Account})] {
				s.x.rows[r.row].live++ // of changes: their numbers are not to be used again
			}
		}
		stored[key] = true
		hurt := orphans[format.KeyHash(key)]
		if len(hurt) == 0 && (len(lost) == 0 || !live) {
			continue
		}
		run := runs[key]
		if run == nil {
			run = &scanned{}
			runs[key] = run
		}
		run.refs = append(run.refs, hurt...)
		sortRefs(run.refs)
	}
	for key, run := range runs {
		if hurt := orphans[format.KeyHash(key)]; len(hurt) > 0 && !stored[key] && run.deferred() {
			run.refs = append(run.refs, hurt...)
			sortRefs(run.refs)
		}
	}
	return rows.Err()
}

// lookUp reads the rows of the runs, many at a time and in the order of the table.
func (s *Store) lookUp(ctx context.Context, runs map[store.Key]*scanned) error {
	keys := slices.SortedFunc(maps.Keys(runs), store.Key.Compare)
	const bulk = 250
	var ask *sql.Stmt
	defer func() {
		if ask != nil {
			_ = ask.Close()
		}
	}()
	for some := range slices.Chunk(keys, bulk) {
		if ask == nil || len(some) < bulk { // the first ones and the last
			next, err := s.read.PrepareContext(ctx, s.lookUpQuery(len(some)))
			if err != nil {
				return err
			}
			if ask != nil {
				_ = ask.Close()
			}
			ask = next
		}
		args := make([]any, 0, 2*bulk)
		for _, key := range some {
			args = append(args, key.Account, key.Run)
		}
		rows, err := ask.QueryContext(ctx, args...)
		if err != nil {
			return err
		}
		err = conn.EachRow(rows, func() error {
			var key store.Key
			var found scanned
			var f compacted
			if err := rows.Scan(append([]any{&key.Account, &key.Run, &found.suspended, &found.settled}, f.columns()...)...); err != nil {
				return err
			}
			run := runs[key]
			if run == nil {
				return damagedRow(fmt.Sprintf("run %q (account %q)", key.Run, key.Account), "key")
			}
			found.reach, found.chunked, found.damage = f.reach, f.last(), f.check(key)
			found.known, found.refs = true, run.refs
			*run = found
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lookUpQuery returns the text lookUp for a number of runs.
func (s *Store) lookUpQuery(runs int) string {
	const one = "(?,?)"
	return strings.Replace(s.t.lookUp, one, strings.TrimSuffix(strings.Repeat(one+",", runs), ","), 1)
}

// enter puts a run into the index: the refs that no chunk covers, up to the first gap
// or damage, and what is wrong there.
func (s *Store) enter(key store.Key, run *scanned, lost []lostRow) {
	e := &entry{key: key, last: run.chunked, chunked: run.chunked, suspended: run.suspended, settled: run.settled, damage: run.damage}
	deferred := run.deferred()
	if deferred {
		run.known, e.open, e.startSum = true, true, format.NoSum
	}
	proven := int64(0) // no row before this one can have held more of the run
	for _, r := range run.refs {
		switch {
		case run.known && r.last <= run.chunked:
			continue
		case !run.known, e.damage != nil:
			s.x.rows[r.row].live++ // keep what there is
		case r.damaged != "":
			e.damage = damagedAt(key, r.row, int(r.off), r.damaged)
			s.x.rows[r.row].live++
		case r.first != e.last+1:
			e.damage = lostEvents(key, e.last+1, r.first-1)
			s.x.rows[r.row].live++
		default:
			e.last = r.last
			s.x.addRef(e, r.ref)
			proven = r.row
		}
	}
	if e.damage == nil && run.reach > e.last {
		e.damage = lostEvents(key, e.last+1, run.reach)
	}
	if deferred {
		s.x.deferRow(e)
		for _, r := range run.refs {
			if r.head && r.last <= e.last {
				e.headAt, e.settled = r.first, r.settled && e.damage == nil
			}
		}
		if run.settled = e.settled; e.settled {
			e.open = false
			s.x.noteEnded(e)
		}
	}
	if live := !run.suspended && !run.settled; e.damage == nil && live {
		for _, l := range lost {
			if l.row > proven {
				e.damage = damagedAt(key, l.row, l.off, "the row is damaged and may have held events of this run")
				break
			}
		}
	}
	if run.known && (len(e.refs) > 0 || e.damage != nil) {
		s.x.add(e)
	}
}

func damagedAt(key store.Key, row int64, off int, why string) error {
	return fault.New(fault.StoreCorrupt, "run %s: journal row %d at byte %d: %s", key.Run, row, off, why)
}

func lostEvents(key store.Key, first, last uint64) error {
	return fault.New(fault.StoreCorrupt, "run %s: events %d to %d are missing from the journal (offset: event %d)", key.Run, first, last, first)
}

// recoverAhead is how many runs are read ahead while fn handles one. Each may have
// megabytes.
const recoverAhead = 4

// A readRun is a live run, read when start commits had been made.
type readRun struct {
	head  store.Head
	saved *store.Saved
	err   error
	start int64
}

// Recover implements store.Store. It reads the next runs while fn handles one.
func (s *Store) Recover(ctx context.Context, fn func(*store.Saved) error) error {
	defer s.forget()
	if err := s.flushDeferred(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ahead := make(chan readRun, recoverAhead)
	var reader sync.WaitGroup
	var ended error // of the reader, once ahead is closed
	reader.Go(func() {
		defer close(ahead)
		ended = s.readLive(ctx, ahead)
	})
	defer reader.Wait()
	defer stop()
	for run := range ahead {
		if err := ctx.Err(); err != nil {
			return err
		}
		saved, err := s.recovered(ctx, &run)
		if err != nil {
			_, err = s.explain(err)
			return err
		}
		if saved == nil {
			continue // it ended meanwhile
		}
		if err := fn(saved); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.explain(ended)
	return err
}

// readLive reads the live runs, page after page.
func (s *Store) readLive(ctx context.Context, ahead chan<- readRun) error {
	var after store.Key
	for {
		start := s.commits()
		page, err := s.livePage(ctx, after)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			run := readRun{head: page[i].head.orDamage(), start: start}
			run.saved, run.err = s.complete(ctx, &page[i], s.view(run.head.Key))
			select {
			case ahead <- run:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		after = page[len(page)-1].head.Key
	}
}

// livePage reads the next heads of live runs with their snapshots.
func (s *Store) livePage(ctx context.Context, after store.Key) (page []savedRow, err error) {
	rows, err := s.read.QueryContext(ctx, s.t.liveRuns, after.Account, after.Run)
	if err != nil {
		return nil, err
	}
	err = conn.EachRow(rows, func() error {
		var row savedRow
		if err := row.scan(rows); err != nil {
			return err
		}
		page = append(page, row)
		return nil
	})
	return page, err
}

func (s *Store) commits() int64 {
	s.x.RLock()
	defer s.x.RUnlock()
	return s.x.commits
}

// recovered reads a run again if there were commits since. Damage becomes Saved.Err.
func (s *Store) recovered(ctx context.Context, run *readRun) (*store.Saved, error) {
	saved, err := run.saved, run.err
	if errors.Is(err, errMoved) || s.commits() != run.start {
		saved, err = s.Load(ctx, run.head.Key)
		if err == nil && (saved.Suspension != nil || saved.Head.Settled()) {
			return nil, nil
		}
	}
	switch {
	case errors.Is(err, fault.StoreCorrupt):
		return &store.Saved{Head: run.head, Err: err}, nil
	case errors.Is(err, fault.RunNotFound):
		return nil, nil
	}
	return saved, err
}
