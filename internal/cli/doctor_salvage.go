// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// A salvaged says what came out of a damaged data directory.
type salvaged struct {
	Dir     string    `json:"dir"`
	Read    string    `json:"read"`    // how the log was read
	Runs    int       `json:"runs"`    // that verify
	Damaged []lostRun `json:"damaged"` // that do not
	Files   int       `json:"files"`   // that were copied
	Store   []string  `json:"store,omitempty"`
}

// A lostRun is a run that is not, or not whole, in the new directory.
type lostRun struct {
	Run string `json:"run"`
	Why string `json:"why"`
}

// salvage makes a new data directory of what verifies in a damaged one, which it
// leaves as it is.
func (a *app) salvage(ctx context.Context, to string) error {
	from, err := a.dataDir()
	if err != nil {
		return err
	}
	if err := mustExist(from); err != nil {
		return err
	}
	if to, err = emptyDir(to); err != nil {
		return err
	}
	a.say("reading %s; Ctrl-C ends it and changes nothing there", from)
	images, err := sqlite.Salvage(ctx, from, to)
	if err != nil {
		return storageError(from, err)
	}
	var best *judged
	seen := map[string]string{}
	for _, im := range images {
		j := judgeImage(ctx, im)
		if err := ctx.Err(); err != nil {
			return err
		}
		for run, why := range j.damaged {
			seen[run] = why
		}
		if best == nil || len(j.good) > len(best.good) || len(j.good) == len(best.good) && len(j.damaged)+len(j.complaints) < len(best.damaged)+len(best.complaints) {
			best = j
		}
	}
	out := salvaged{Dir: to, Read: best.image.Way, Runs: len(best.good), Damaged: []lostRun{}, Store: best.complaints}
	for run, why := range seen {
		if !best.good[run] {
			out.Damaged = append(out.Damaged, lostRun{run, why})
		}
	}
	slices.SortFunc(out.Damaged, func(a, b lostRun) int { return strings.Compare(a.Run, b.Run) })
	if err := os.Rename(filepath.Join(best.image.Dir, datadir.Database), filepath.Join(to, datadir.Database)); err != nil {
		return storageError(to, err)
	}
	for _, im := range images {
		if err := os.RemoveAll(im.Dir); err != nil {
			return storageError(to, err)
		}
	}
	if out.Files, err = copyFiles(ctx, filepath.Join(from, filesDir), filepath.Join(to, filesDir)); err != nil {
		return storageError(to, err)
	}
	a.show(out, func() { a.printSalvaged(out) })
	if len(out.Damaged) > 0 || len(out.Store) > 0 {
		return exit(fault.ExitFailed)
	}
	return nil
}

func (a *app) printSalvaged(out salvaged) {
	a.text("saved %s and %s to %s (the log was read: %s)\n", count(out.Runs, "run"), count(out.Files, "file"), out.Dir, out.Read)
	for _, d := range out.Damaged {
		a.text("  not saved, or not whole: %s: %s\n", d.Run, oneLine(d.Why))
	}
	for _, c := range out.Store {
		a.text("  store: %s\n", oneLine(c))
	}
	a.say("`roux doctor --data %s` checks it; `roux resume --data %s` goes on with it", shellWord(out.Dir), shellWord(out.Dir))
}

// emptyDir makes a directory, or takes one in which nothing is.
func emptyDir(path string) (string, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return "", fault.New(fault.Usage, "--salvage %q: want a path", path)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", storageError(dir, err)
	}
	if err := datadir.Check(dir); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", storageError(dir, err)
	}
	if len(entries) > 0 {
		return "", fault.New(fault.Usage, "%s is not empty: --salvage makes a new data directory", dir)
	}
	return dir, nil
}

// A judged is an image with what can be read in it.
type judged struct {
	image      sqlite.Image
	good       map[string]bool
	damaged    map[string]string // why, by run
	complaints []string
}

// judgeImage reads an image as doctor reads a data directory.
func judgeImage(ctx context.Context, im sqlite.Image) *judged {
	j := &judged{image: im, good: map[string]bool{}, damaged: map[string]string{}}
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: im.Dir})
	if err != nil {
		j.complaints = []string{fault.Message(err)}
		return j
	}
	if _, j.complaints, err = st.Check(ctx); err != nil {
		j.complaints = append(j.complaints, fault.Message(err))
	}
	q := store.Query{Account: account, Limit: 500}
	for {
		heads, err := st.List(ctx, q)
		if err != nil {
			j.complaints = append(j.complaints, fault.Message(err))
			break
		}
		for _, h := range heads {
			if err := headFits(ctx, st, h); err != nil {
				j.damaged[h.Run] = fault.Message(err)
			} else {
				j.good[h.Run] = true
			}
		}
		if len(heads) < q.Limit {
			break
		}
		q.After = heads[len(heads)-1].Run
	}
	if err := st.Close(); err != nil {
		j.complaints = append(j.complaints, fault.Message(err))
	}
	return j
}

// copyFiles copies the files of runs; each is held to its hash when it is read.
func copyFiles(ctx context.Context, from, to string) (n int, err error) {
	root, err := datadir.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	if err := os.Mkdir(to, 0o700); err != nil {
		return 0, err
	}
	if err := os.CopyFS(to, regular{ctx, root.FS()}); err != nil {
		return 0, err
	}
	err = filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return errors.Join(err, os.Chmod(path, 0o700))
		}
		if strings.HasPrefix(e.Name(), "sha256_") && filepath.Ext(e.Name()) == "" { // others say what is known of one
			n++
		}
		return os.Chmod(path, 0o600)
	})
	return n, err
}

// regular is a file system without what is neither a file nor a directory, which
// fails once its context has ended.
type regular struct {
	ctx context.Context
	fs.FS
}

// ReadDir implements fs.ReadDirFS.
func (r regular) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(r.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() && !e.Type().IsRegular() }), errors.Join(err, r.ctx.Err())
}
