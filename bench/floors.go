// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// floors repeat the commits of an engine without the engine, in three ways: as bytes
// appended to a growing file, as bytes written over an existing file, each followed by
// one fdatasync, and as commits of the store.
type floors struct {
	batches [][]store.Transition
	next    int
	round   int

	grow, over *os.File
	at         int64 // in over
	st         store.Store
	epoch      uint64
	buf        []byte

	append, overwrite, store []time.Duration
	used                     time.Duration // CPU time of the store's commits
	delay                    time.Duration // added to each sync
}

const preallocated = 64 << 20

func newFloors(ctx context.Context, dir string, batches [][]store.Transition) (f *floors, err error) {
	if len(batches) == 0 {
		return nil, errors.New("the floor has nothing to repeat")
	}
	f = &floors{batches: batches}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.grow, err = os.Create(filepath.Join(dir, "append")); err != nil {
		return nil, err
	}
	if f.over, err = os.Create(filepath.Join(dir, "overwrite")); err != nil {
		return nil, err
	}
	zeros := make([]byte, 1<<20)
	for range preallocated / len(zeros) {
		if _, err := f.over.Write(zeros); err != nil {
			return nil, err
		}
	}
	if err := f.over.Sync(); err != nil {
		return nil, err
	}
	if f.st, err = sqlite.Open(ctx, sqlite.Options{Dir: filepath.Join(dir, "store")}); err != nil {
		return nil, err
	}
	f.epoch, err = f.st.Own(ctx)
	return f, err
}

func (f *floors) close() error {
	var errs []error
	if f.grow != nil {
		errs = append(errs, f.grow.Close())
	}
	if f.over != nil {
		errs = append(errs, f.over.Close())
	}
	if f.st != nil {
		errs = append(errs, f.st.Close())
	}
	return errors.Join(errs...)
}

// repeat makes n commits, starting after those of the last call and wrapping around. It
// makes all of them in one way, then in the next, because an engine does not write to
// other files between two commits either.
func (f *floors) repeat(ctx context.Context, n int) error {
	if err := f.each(n, f.written, f.appendOne); err != nil {
		return err
	}
	if err := f.each(n, f.written, f.overwriteOne); err != nil {
		return err
	}
	if err := f.each(n, f.renamed, func(batch []store.Transition) error { return f.commitOne(ctx, batch) }); err != nil {
		return err
	}
	f.round += (f.next + n) / len(f.batches)
	f.next = (f.next + n) % len(f.batches)
	return nil
}

// each prepares and makes the next n commits in one way.
func (f *floors) each(n int, prepare func(round int, batch []store.Transition), do func([]store.Transition) error) error {
	for i := range n {
		at := f.next + i
		batch := f.batches[at%len(f.batches)]
		prepare(f.round+at/len(f.batches), batch)
		if err := do(batch); err != nil {
			return err
		}
	}
	return nil
}

// written encodes a commit into buf.
func (f *floors) written(_ int, batch []store.Transition) {
	f.buf = f.buf[:0]
	for i := range batch {
		t := &batch[i]
		f.buf = append(f.buf, t.Frames...)
		for _, p := range t.Plans {
			f.buf = append(f.buf, p.Data...)
		}
		if t.Compaction != nil {
			f.buf = append(append(f.buf, t.Compaction.Chunk...), t.Compaction.State...)
		}
	}
	if len(f.buf) == 0 {
		f.buf = append(f.buf, 0)
	}
}

// renamed gives the runs of a commit new names in each round.
func (f *floors) renamed(round int, batch []store.Transition) {
	for i := range batch {
		t := &batch[i]
		t.Epoch = f.epoch
		t.Run = fmt.Sprintf("%.30s.%d", t.Run, round)
		t.Entries = nil // the floor is a commit without rows of the ledger
		if t.Head != nil {
			t.Head.Key = t.Key
		}
	}
}

func (f *floors) appendOne([]store.Transition) error {
	began := time.Now()
	if _, err := f.grow.Write(f.buf); err != nil {
		return err
	}
	if err := datasync(f.grow); err != nil {
		return err
	}
	f.append = append(f.append, time.Since(began))
	return nil
}

func (f *floors) overwriteOne([]store.Transition) error {
	if f.at+int64(len(f.buf)) > preallocated {
		f.at = 0
	}
	began := time.Now()
	if _, err := f.over.WriteAt(f.buf, f.at); err != nil {
		return err
	}
	if err := datasync(f.over); err != nil {
		return err
	}
	f.overwrite = append(f.overwrite, time.Since(began))
	f.at += int64(len(f.buf))
	return nil
}

func (f *floors) commitOne(ctx context.Context, batch []store.Transition) error {
	used := cpu()
	began := time.Now()
	verdicts, err := f.st.Commit(ctx, batch)
	if err != nil {
		return err
	}
	f.store = append(f.store, time.Since(began))
	f.used += cpu() - used
	for _, v := range verdicts {
		if v.Err != nil {
			return fmt.Errorf("the store refuses what it took from the engine: %w", v.Err)
		}
	}
	return nil
}

// whole repeats every commit once.
func (f *floors) whole(ctx context.Context) error { return f.repeat(ctx, len(f.batches)) }

// floors records the commits of one round and returns floors for them, in dir.
func (w *instance) floors(ctx context.Context, dir string, round func() error) (*floors, error) {
	w.st.record(true)
	err := round()
	batches := w.st.record(false)
	if err != nil {
		return nil, err
	}
	return newFloors(ctx, filepath.Join(dir, "floors"), batches)
}

// denominators adds floors to the line of a shape whose own commits cannot be repeated.
// It repeats the commits of one run of r, in this process and with act as action,
// instead. shape is the argument of describe.
func (b *bench) denominators(ctx context.Context, l *Line, r *recipe.Recipe, act action.Func, shape time.Duration) (err error) {
	dir := b.fresh()
	w, err := open(ctx, filepath.Join(dir, "data"), act, engine.Config{})
	if err != nil {
		return err
	}
	defer func() { err = closing(w.close, err) }()
	pl, err := planOf(r, w.act)
	if err != nil {
		return err
	}
	f, err := w.floors(ctx, dir, func() error { return w.once(ctx, pl, map[string]any{"n": int64(1)}) })
	if err != nil {
		return err
	}
	defer func() { err = closing(f.close, err) }()
	for range floorRounds {
		if err := f.whole(ctx); err != nil {
			return err
		}
	}
	f.describe(l, shape)
	_, err = memoryFloor(l, func() (int, error) { return walkGraph(pl, func() {}) })
	return err
}

// roundTimes has the time of each round, and the CPU time and the bytes written of all
// rounds.
type roundTimes struct {
	times []time.Duration
	cpu   time.Duration
	wrote int64
}

// rounds measures a round n times, and the floors after each of the first
// rounds.
func (f *floors) rounds(ctx context.Context, n int, round func() error) (l roundTimes, err error) {
	for i := range n {
		began, used, disk := time.Now(), cpu(), written()
		if err := round(); err != nil {
			return l, err
		}
		l.times = append(l.times, time.Since(began))
		l.cpu, l.wrote = l.cpu+cpu()-used, l.wrote+written()-disk
		if i < floorRounds {
			if err := f.whole(ctx); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// floorRounds is how often the floors of a whole run, or of a round of runs, are
// measured, each time after such a round.
const floorRounds = 5

// describe adds the floors to a line. shape is how long the shape took for the commits
// that the floors repeat. If it is set, ratio compares those times; otherwise it compares
// the line's p50 with that of a commit.
func (f *floors) describe(l *Line, shape time.Duration) {
	l.FsyncP50US = us(quantile(f.append, 0.5))
	l.put("overwrite_p50_us", us(quantile(f.overwrite, 0.5)))
	l.put("store_p50_us", us(quantile(f.store, 0.5)))
	l.put("store_cpu_us", us(f.used)/float64(len(f.store))) // a commit
	l.put("store_over_append", l.More["store_p50_us"]/l.FsyncP50US)
	if shape == 0 {
		l.Ratio = l.P50US / l.FsyncP50US
		return
	}
	rounds := float64(len(f.store)) / float64(len(f.batches))
	each := func(ds []time.Duration) float64 {
		return (sum(ds) + time.Duration(len(ds))*f.delay).Seconds() / rounds
	}
	l.put("append_s", each(f.append))
	l.put("overwrite_s", each(f.overwrite))
	l.put("store_s", each(f.store))
	l.Ratio = shape.Seconds() / each(f.append)
	l.put("over_store", shape.Seconds()/each(f.store))
	if f.delay > 0 {
		l.put("delay_us", us(f.delay))
	}
}

func sum(ds []time.Duration) (total time.Duration) {
	for _, d := range ds {
		total += d
	}
	return total
}
