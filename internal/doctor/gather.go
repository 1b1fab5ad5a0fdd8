// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// An imageReport reports what can be read in an image. An image is a copy of the store
// that results from one way of reading the damaged log.
type imageReport struct {
	image      wal.Image
	good       map[store.Key]uint64    // the last event of a run; 0 when it is quarantined and was not read
	above      map[store.Key][2]string // the root and the parent of a child run
	damaged    map[store.Key]string    // why, for each run that does not verify
	deleted    map[store.Key]bool      // by the user or by retention
	complaints []string
}

func (j *imageReport) complain(err error) {
	if err != nil {
		j.complaints = append(j.complaints, fault.Message(err))
	}
}

// readImage checks an image as doctor checks a data directory.
func readImage(ctx context.Context, im wal.Image) *imageReport {
	j := &imageReport{image: im, good: map[store.Key]uint64{}, above: map[store.Key][2]string{}, damaged: map[store.Key]string{}}
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: im.Dir})
	if err != nil {
		j.complain(err)
		return j
	}
	_, j.complaints, err = st.Check(ctx)
	j.complain(err)
	j.deleted, err = st.Deleted(ctx)
	j.complain(err)
	accounts, err := st.Accounts(ctx)
	j.complain(err)
	for _, account := range accounts {
		j.complain(j.runs(ctx, st, account))
	}
	j.complain(st.Close())
	return j
}

// runs checks the runs of an account.
func (j *imageReport) runs(ctx context.Context, st *sqlite.Store, account string) error {
	q := store.Query{Account: account, All: true, Limit: 500}
	for {
		heads, err := st.List(ctx, q)
		if err != nil {
			return err
		}
		for _, h := range heads {
			if h.Damage != "" {
				j.damaged[h.Key] = h.Damage
			} else if last, err := CheckHead(ctx, st, h); err != nil {
				j.damaged[h.Key] = fault.Message(err)
			} else {
				j.good[h.Key] = last
				if h.Root != "" {
					j.above[h.Key] = [2]string{h.Root, h.Parent}
				}
			}
		}
		if len(heads) < q.Limit {
			return nil
		}
		q.After = heads[len(heads)-1].Run
	}
}

// A selection records from which image each run is taken.
type selection struct {
	best *imageReport               // the one in which most runs verify
	from map[store.Key]*imageReport // for each run that verifies anywhere, the image with most events of it
	lost map[store.Key]string       // why, of all others
}

// choose selects the best image, and for each run the image to take it from.
func choose(all []*imageReport) selection {
	c := selection{from: map[store.Key]*imageReport{}, lost: map[store.Key]string{}}
	for _, j := range all {
		maps.Copy(c.lost, j.damaged)
		if c.best == nil || len(j.good) > len(c.best.good) || len(j.good) == len(c.best.good) &&
			len(j.damaged)+len(j.complaints) < len(c.best.damaged)+len(c.best.complaints) {
			c.best = j
		}
	}
	maps.Copy(c.lost, c.best.damaged)
	for _, j := range append([]*imageReport{c.best}, all...) {
		for key, last := range j.good {
			if have := c.from[key]; have == nil || last > have.good[key] {
				c.from[key] = j
			}
		}
	}
	// The deletion of a run was committed last; it is not damage.
	for key := range c.best.deleted {
		delete(c.from, key)
		delete(c.lost, key)
	}
	for key := range c.from {
		delete(c.lost, key)
	}
	for c.dropOrphans() {
	}
	return c
}

// dropOrphans gives up the child runs whose root or parent is not saved, because nothing
// carries them on and no list shows them. It reports whether there were any.
func (c *selection) dropOrphans() (any bool) {
	for key, j := range c.from {
		above, child := j.above[key]
		for _, run := range above {
			missing := store.Key{Account: key.Account, Run: run}
			if !child || c.from[missing] != nil {
				continue
			}
			any = true
			delete(c.from, key)
			if !c.best.deleted[store.Key{Account: key.Account, Run: above[0]}] {
				c.lost[key] = fmt.Sprintf("it is a child run, and run %s is not saved", run)
			}
			break
		}
	}
	return any
}

// single reports whether all runs come from the best image.
func (c *selection) single() bool {
	for _, j := range c.from {
		if j != c.best {
			return false
		}
	}
	return true
}

// gather makes a store in the directory named by to. It holds every run that verifies
// in any of the images, which are then removed.
func gather(ctx context.Context, images []wal.Image, to string) (out Salvaged, err error) {
	var all []*imageReport
	for _, im := range images {
		all = append(all, readImage(ctx, im))
		if err := ctx.Err(); err != nil {
			return out, err
		}
	}
	c := choose(all)
	out = Salvaged{Dir: to, Read: c.best.image.Way, Store: c.best.complaints, Damaged: []LostRun{}}
	if c.single() {
		err = os.Rename(filepath.Join(c.best.image.Dir, datadir.Database), filepath.Join(to, datadir.Database))
		if err == nil {
			out.noteFeeds(endFeeds(ctx, to))
		}
	} else {
		err = c.rebuild(ctx, to, &out)
	}
	if err != nil {
		return out, err
	}
	out.Runs = len(c.from)
	for key, why := range c.lost {
		out.Damaged = append(out.Damaged, LostRun{runName(key), why})
	}
	for key, j := range c.from {
		if why := missed(key, all[slices.Index(all, j)+1:]); why != "" && j.good[key] > 0 {
			out.Damaged = append(out.Damaged, LostRun{runName(key), fmt.Sprintf("%s; it is saved up to event %d", why, j.good[key])})
		}
	}
	heap.Sort(out.Damaged, func(a, b LostRun) int { return strings.Compare(a.Run, b.Run) })
	for _, im := range images {
		if im.Dir == out.Rest {
			continue
		}
		if err := os.RemoveAll(im.Dir); err != nil {
			return out, err
		}
	}
	return out, nil
}

// endFeeds makes the feeds of a database that was made from a log go on at numbers that the
// damaged one cannot have used.
func endFeeds(ctx context.Context, dir string) error {
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		return err
	}
	return errors.Join(st.EndFeeds(ctx), st.Close())
}

// noteFeeds records that the numbers of changes may be used again.
func (out *Salvaged) noteFeeds(err error) {
	if err != nil {
		out.Store = append(out.Store, "the numbers of changes that were used cannot be read, and may be used again: "+fault.Message(err))
	}
}

// missed returns why a run may be saved incompletely; "" if it is complete. Images in
// later come from readings of more of the log than the one that the run is taken from;
// the run is incomplete if one of them has it damaged.
func missed(key store.Key, later []*imageReport) (why string) {
	for _, j := range later {
		why = cmp.Or(j.damaged[key], why)
	}
	return why
}

// runName names a run among those of all accounts.
func runName(key store.Key) string {
	if key.Account == config.Account {
		return key.Run
	}
	return key.Account + "/" + key.Run
}

// rebuild makes a new store and moves each run there from its image. It does not
// add runs to the best image, where damaged rows would be in the way.
func (c *selection) rebuild(ctx context.Context, to string, out *Salvaged) (err error) {
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: to})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	epoch, err := st.Own(ctx)
	if err != nil {
		return err
	}
	best, err := sqlite.Open(ctx, sqlite.Options{Dir: c.best.image.Dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, best.Close()) }()
	out.noteFeeds(st.TakeFeedEnds(ctx, c.best.image))
	m := &mover{ctx: ctx, to: st, epoch: epoch}
	for _, j := range c.sources() {
		from := best
		if j != c.best {
			if from, err = sqlite.Open(ctx, sqlite.Options{Dir: j.image.Dir}); err != nil {
				return err
			}
		}
		err = c.move(m, j, from, best, out)
		if j != c.best {
			err = errors.Join(err, from.Close())
		}
		if err == nil {
			err = m.flush()
		}
		if err != nil {
			return err
		}
		if err := st.TakeOver(ctx, j.image, j == c.best); err != nil {
			out.Store = append(out.Store, "what stands beside the runs of the log read "+j.image.Way+" is not saved: "+fault.Message(err))
		}
	}
	if len(c.lost) > 0 {
		out.Rest = c.best.image.Dir
	}
	return nil
}

// sources returns the images from which runs are taken, the best one first.
func (c *selection) sources() []*imageReport {
	sources := []*imageReport{c.best}
	for _, j := range c.from {
		if !slices.Contains(sources, j) {
			sources = append(sources, j)
		}
	}
	heap.Sort(sources[1:], func(a, b *imageReport) int { return strings.Compare(a.image.Dir, b.image.Dir) })
	return sources
}

// move moves the runs of one image.
func (c *selection) move(m *mover, j *imageReport, from, best *sqlite.Store, out *Salvaged) error {
	keys := slices.SortedFunc(maps.Keys(c.from), func(a, b store.Key) int {
		return cmp.Or(strings.Compare(a.Account, b.Account), strings.Compare(a.Run, b.Run))
	})
	for _, key := range keys {
		switch {
		case c.from[key] != j:
			continue
		case j.good[key] == 0:
			c.lost[key] = "it is quarantined, and its journal cannot be read"
			delete(c.from, key)
			continue
		}
		source := from
		if had := c.best.good[key]; had > 0 && j != c.best {
			same, err := continues(m.ctx, from, best, key, had)
			if err != nil {
				return err
			}
			if !same {
				out.Damaged = append(out.Damaged, LostRun{runName(key), "where the log is read " + j.image.Way + " it has other events, and more; those are not saved"})
				source = best
			}
		}
		if err := m.run(source, key); err != nil {
			return err
		}
		if source != best {
			out.Others = append(out.Others, OtherRun{runName(key), j.image.Way})
		}
	}
	return nil
}

// continues reports whether the events of a run in the store short, up to last, are
// the first ones in the store long.
func continues(ctx context.Context, long, short store.Reader, key store.Key, last uint64) (bool, error) {
	var sums [2]hash.Hash
	for i, j := range []store.Reader{long, short} {
		sums[i] = sha256.New()
		err := store.EachEvent(ctx, j, key, 0, func(ev *journal.Event) error {
			if ev.Seq > last {
				return errEnough
			}
			_, err := sums[i].Write(journal.AppendFrame(nil, []journal.Event{*ev}))
			return err
		})
		if err != nil && !errors.Is(err, errEnough) {
			return false, err
		}
	}
	return string(sums[0].Sum(nil)) == string(sums[1].Sum(nil)), nil
}

const (
	movedPiece = 1 << 20 // bytes of the journal in one transition
	movedBytes = 4 << 20 // bytes in one commit
	movedRuns  = 512     // transitions in one commit
)

// A mover moves runs of other stores into one.
type mover struct {
	ctx   context.Context
	to    *sqlite.Store
	epoch uint64
	batch []store.Transition
	bytes int
}

// run moves a run as it is. The journal of one that has ended or is suspended is
// written in chunks alone.
func (m *mover) run(from *sqlite.Store, key store.Key) error {
	head, err := from.Head(m.ctx, key)
	if err != nil {
		return err
	}
	text, err := from.Plan(m.ctx, head.PlanHash)
	if err != nil {
		return err
	}
	var park *store.Suspension
	if !head.Settled() {
		saved, err := from.Load(m.ctx, key)
		switch {
		case err == nil:
			park = saved.Suspension
		case !errors.Is(err, fault.StoreCorrupt): // a corrupt state counts as not suspended
			return err
		}
	}
	t := store.Transition{Key: key, Epoch: m.epoch, First: 1, Head: &head, Plans: []store.EncodedPlan{{Key: head.PlanHash, Data: text}}}
	put := func() error {
		if park != nil || head.Settled() {
			t.Compaction = &store.Compaction{First: t.First, Last: t.Last, Chunk: t.Frames}
		}
		t.Files = retention.FilesNamed(&t)
		err := m.put(t)
		t = store.Transition{Key: key, Epoch: m.epoch, First: t.Last + 1, Head: &head}
		return err
	}
	err = store.EachEvent(m.ctx, from, key, 0, func(ev *journal.Event) error {
		if len(t.Frames) > movedPiece {
			if err := put(); err != nil {
				return err
			}
		}
		t.Last = ev.Seq
		t.Frames = journal.AppendFrame(t.Frames, []journal.Event{*ev})
		return nil
	})
	if err != nil {
		return err
	}
	t.Suspension = park
	return put()
}

func (m *mover) put(t store.Transition) error { //nolint:gocritic // it is kept
	m.batch = append(m.batch, t)
	m.bytes += len(t.Frames)
	for _, p := range t.Plans {
		m.bytes += len(p.Data)
	}
	if m.bytes < movedBytes && len(m.batch) < movedRuns {
		return nil
	}
	return m.flush()
}

func (m *mover) flush() error {
	verdicts, err := m.to.Commit(m.ctx, m.batch)
	for _, v := range verdicts {
		err = errors.Join(err, v.Err)
	}
	m.batch, m.bytes = nil, 0
	return err
}
