// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/bundle"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// The reading speeds that a common machine at least reaches, in bytes per second. They
// include folding the events and hashing the files.
const (
	storeSpeed = 20 << 20
	fileSpeed  = 200 << 20
)

// worthSaying is the estimated reading time from which the user is told of it in
// advance.
const worthSaying = time.Second

// maxNamed bounds the damaged runs and files that are reported one by one.
const maxNamed = 20

// errEnough ends a check that has reported enough.
var errEnough = errors.New("enough is reported")

// readingTime estimates how long it takes to read a store and files of these
// sizes in bytes.
func readingTime(store, files int64) time.Duration {
	return time.Duration(float64(time.Second) * (float64(store)/storeSpeed + float64(files)/fileSpeed))
}

// contents reads everything in the data directory: the store, the files, and the
// journal of every run, which it compares with the head of the run.
func (d *checkup) contents(st node.Store) {
	files := filepath.Join(d.dir, datadir.Files)
	size, err := st.Size(d.ctx)
	if err != nil {
		d.fail("store", datadir.Error(d.dir, err))
		return
	}
	held := bytesUnder(files)
	if t := readingTime(size, held); t >= worthSaying {
		d.Say("reading %s, about %s; Ctrl-C ends it and changes nothing", byteText(uint64(size+held)), view.Took(t))
	}
	switch schema, complaints, err := st.Check(d.ctx); {
	case err != nil:
		d.fail("store", datadir.Error(d.dir, err))
	case len(complaints) > 0:
		for _, c := range complaints {
			d.problem("store", "restore the data directory from a backup; `roux export` still saves runs that can be read", "%s", c)
		}
	default:
		d.ok("store", "sound, schema version %d", schema)
	}
	d.files(files)
	d.heads(st)
}

// bytesUnder returns the size of the files below a directory, as far as it can be
// read.
func bytesUnder(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// files compares every file with its hash.
func (d *checkup) files(dir string) {
	bs, err := blob.Open(blob.Config{Dir: dir, KeepPartial: true})
	if err != nil {
		d.fail("files", datadir.Error(d.dir, err))
		return
	}
	named := 0
	read, err := bs.Check(d.ctx, func(damage error) error {
		d.problem("files", "put the file again (`roux files put`), or restore the data directory from a backup", "%s", fault.Message(damage))
		if named++; named == maxNamed {
			return errEnough
		}
		return nil
	})
	if err = errors.Join(err, bs.Close()); err != nil && !errors.Is(err, errEnough) {
		d.fail("files", datadir.Error(d.dir, err))
	} else if named == 0 {
		d.ok("files", "%s of %s as their hashes say", view.Count(read.Files, "file"), byteText(uint64(read.Bytes)))
	}
}

// heads folds the journal of every run of every account and compares the result with
// its head.
func (d *checkup) heads(st node.Store) {
	accounts, err := st.Accounts(d.ctx)
	if err != nil {
		d.fail("journals", err)
		return
	}
	runs, named := 0, 0
	for _, account := range accounts {
		if !d.headsOf(st, account, &runs, &named) {
			return
		}
	}
	if named == 0 {
		d.ok("journals", "%s as lists show them", view.Count(runs, "run"))
	}
}

// headsOf is heads for one account. It counts the runs it read and the problems it
// named, and reports whether to go on.
func (d *checkup) headsOf(j store.Reader, account string, runs, named *int) bool {
	q := store.Query{Account: account, All: true, Limit: 500}
	for {
		heads, err := j.List(d.ctx, q)
		if err != nil {
			d.fail("journals", err)
			return false
		}
		for _, h := range heads {
			if h.Damage != "" {
				*named++ // the check of the store reports it
				continue
			}
			*runs++
			_, err := CheckHead(d.ctx, j, h)
			if d.ctx.Err() != nil {
				d.fail("journals", d.ctx.Err())
				return false
			}
			if err == nil {
				continue
			}
			d.problem("journals", "restore the data directory from a backup; `"+d.Hint("trace", h.Run)+"` shows what can be read", "%s", fault.Message(err))
			if *named++; *named >= maxNamed {
				return false
			}
		}
		if len(heads) < q.Limit {
			return true
		}
		q.After = heads[len(heads)-1].Run
	}
}

// CheckHead compares a head with the journal of its run and returns the number of
// the last event. It returns 0 when the journal is not read: the journal of a
// quarantined run may be unreadable, and of an interrupted import only a part is
// stored.
func CheckHead(ctx context.Context, j store.Reader, h store.Head) (last uint64, err error) {
	if h.Quarantine == bundle.Importing {
		return 0, nil
	}
	run, err := folded(ctx, j, h)
	if err != nil && h.Quarantine != "" && !h.Imported() {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var code fault.Code
	var message string
	ended := run.Status().Terminal()
	if ended {
		code, message = run.Failure()
	}
	if h.Status != run.Status().String() || h.Code != code || h.Message != message || (h.Ended != 0) != ended ||
		ended && (h.Used != run.Used() || h.Failures != run.HasFailures()) {
		return 0, fault.New(fault.StoreCorrupt, "run %s: lists show it as %q, its journal says %q", h.Run,
			view.Join(" ", h.Status, string(h.Code)), view.Join(" ", run.Status().String(), string(code)))
	}
	return run.Last(), nil
}

// folded returns the state that follows from the journal of a run.
func folded(ctx context.Context, j store.Reader, h store.Head) (run *view.State, err error) {
	defer func() {
		if v := recover(); v != nil { // this may be why the run is quarantined (I16)
			err = fault.New(fault.StoreCorrupt, "run %s: its journal cannot be folded: %v", h.Run, v)
		}
	}()
	p, err := store.LoadPlan(ctx, j, h)
	if err != nil {
		return nil, err
	}
	run = view.NewState(p)
	return run, store.EachEvent(ctx, j, h.Key, 0, run.Apply)
}
