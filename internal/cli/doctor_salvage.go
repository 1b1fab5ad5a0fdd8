// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store/sqlite"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// A salvaged says what came out of a damaged data directory.
type salvaged struct {
	Dir     string     `json:"dir"`
	Read    string     `json:"read"`             // how the log was read
	Runs    int        `json:"runs"`             // that verify
	Others  []otherRun `json:"others,omitempty"` // those of them for which it was read otherwise
	Damaged []lostRun  `json:"damaged"`          // that do not
	Rest    string     `json:"rest,omitempty"`   // a data directory with what can be read of those
	Files   int        `json:"files"`            // that were copied
	Store   []string   `json:"store,omitempty"`
}

// An otherRun is a run that another reading of the log has, or has more of.
type otherRun struct {
	Run  string `json:"run"`
	Read string `json:"read"`
}

// A lostRun is a run that is not, or not whole, in the new directory.
type lostRun struct {
	Run string `json:"run"`
	Why string `json:"why"`
}

// salvage makes a new data directory of what verifies in a damaged one, which it
// leaves as it is.
func (a *app) salvage(ctx context.Context, to string) error {
	from, err := a.config.DataDir()
	if err != nil {
		return err
	}
	if err := datadir.MustExist(from); err != nil {
		return err
	}
	if to, err = emptyDir(to, from); err != nil {
		return err
	}
	a.say("reading %s; Ctrl-C ends it and changes nothing there", from)
	images, err := sqlite.Salvage(ctx, from, to)
	if err != nil {
		return datadir.Error(from, err)
	}
	out, err := gather(ctx, images, to)
	if err != nil {
		return datadir.Error(to, err)
	}
	copied, err := copyFiles(ctx, filepath.Join(from, filesDir), filepath.Join(to, filesDir))
	if err != nil {
		return datadir.Error(to, err)
	}
	out.Files, out.Store = copied.files, append(out.Store, copied.odd...)
	a.show(out, func() { a.printSalvaged(out) })
	if len(out.Damaged) > 0 || len(out.Store) > 0 {
		return exit(fault.ExitFailed)
	}
	return nil
}

func (a *app) printSalvaged(out salvaged) {
	a.text("saved %s and %s to %s (the log was read: %s)\n", view.Count(out.Runs, "run"), view.Count(out.Files, "file"), out.Dir, out.Read)
	for _, o := range out.Others {
		a.text("  the log was read %s for %s\n", o.Read, o.Run)
	}
	for _, d := range out.Damaged {
		a.text("  not saved, or not whole: %s: %s\n", d.Run, view.OneLine(d.Why))
	}
	for _, c := range out.Store {
		a.text("  store: %s\n", view.OneLine(c))
	}
	if out.Rest != "" {
		a.say("what can be read of runs that are not saved is in %s: `roux events RUN --data %s`", out.Rest, term.ShellQuote(out.Rest))
	}
	a.say("`roux doctor --data %s` checks it; `roux resume --data %s` goes on with it", term.ShellQuote(out.Dir), term.ShellQuote(out.Dir))
}

// emptyDir makes a directory, or takes one in which nothing is. It must not lie in the
// damaged one, which would be changed, and copied into itself.
func emptyDir(path, damaged string) (string, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return "", fault.New(fault.Usage, "--salvage %q: want a path", path)
	}
	if liesIn(dir, damaged) {
		return "", fault.New(fault.Usage, "--salvage %s: it lies in %s, where nothing is to be changed", dir, damaged)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", datadir.Error(dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", datadir.Error(dir, err)
	}
	if len(entries) > 0 {
		return "", fault.New(fault.Usage, "%s is not empty: --salvage makes a new data directory", dir)
	}
	// From here on nobody else can put anything into it.
	return dir, datadir.Error(dir, datadir.Secure(dir))
}

// liesIn says whether a path, of which not all need be there, is a directory or below it.
func liesIn(path, dir string) bool {
	want, err := os.Stat(dir)
	if err != nil {
		return false
	}
	for {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if info, err := os.Stat(path); err == nil && os.SameFile(info, want) {
			return true
		}
		above := filepath.Dir(path)
		if above == path {
			return false
		}
		path = above
	}
}

// A copier copies the files of runs; each is held to its hash when it is read.
type copier struct {
	ctx      context.Context
	from, to *os.Root
	files    int      // copied, beside what is known of each
	odd      []string // what is not copied because Roux did not make it
}

// copyFiles copies a directory of files into a new one.
func copyFiles(ctx context.Context, from, to string) (c *copier, err error) {
	c = &copier{ctx: ctx}
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) { // it is not made there
		return c, nil
	}
	if c.from, err = datadir.OpenRoot(from); err != nil {
		return c, err
	}
	defer func() { _ = c.from.Close() }()
	if c.to, err = datadir.OpenRoot(to); err != nil {
		return c, err
	}
	defer func() { _ = c.to.Close() }()
	return c, c.dir(".")
}

// passOver notes what datadir refuses.
func (c *copier) passOver(err error) error {
	if odd := new(datadir.Refusal); errors.As(err, &odd) {
		c.odd = append(c.odd, filesDir+"/"+odd.Error()+" and was not copied")
		return nil
	}
	return err
}

func (c *copier) dir(name string) error {
	d, err := datadir.OpenBelow(c.from, name, fs.ModeDir)
	if err != nil {
		return c.passOver(err)
	}
	entries, err := d.ReadDir(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	if name != "." {
		if err := c.to.Mkdir(name, 0o700); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		one := c.file
		if e.IsDir() {
			one = c.dir
		}
		if err := one(path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) file(name string) error {
	in, err := datadir.OpenBelow(c.from, name, 0)
	if err != nil {
		return c.passOver(err)
	}
	defer func() { _ = in.Close() }()
	out, err := c.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	if strings.HasPrefix(path.Base(name), "sha256_") && path.Ext(name) == "" { // others say what is known of one
		c.files++
	}
	return nil
}
