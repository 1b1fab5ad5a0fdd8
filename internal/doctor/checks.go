// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/examples"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/confine"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/masks"
	"github.com/roux-engine/roux/internal/media"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// The limits beyond which something is reported.
const (
	lowSpace  = 1 << 30 // bytes
	noSpace   = 64 << 20
	slowSync  = 50 * time.Millisecond
	clockSkew = 5 * time.Second
	syncTries = 9
)

// releaseYear is the year of this release. A clock that shows an earlier year is
// wrong.
const releaseYear = 2026

// machine checks what does not depend on the data directory.
func (d *checkup) machine() {
	d.ok("version", "%s", d.Version)
	if d.Broken != "" {
		d.problem("guards", "build without the tag mutation", "%s", d.Broken)
	}
	if now := d.Now(); now.Year() < releaseYear {
		d.problem("clock", "set the clock of this machine: times of runs, waits and retries come from it", "it says %s", now.UTC().Format(time.RFC3339))
	} else {
		d.ok("clock", "it says %s", now.UTC().Format(time.RFC3339))
	}
	s := d.Screen
	columns, lines := s.Size()
	switch lang := d.locale(); {
	case !s.Live():
		d.ok("terminal", "standard error is none: one line an event, no control codes")
	case !strings.Contains(strings.ToLower(strings.ReplaceAll(lang, "-", "")), "utf8"):
		d.note("terminal", "set LANG to a locale such as C.UTF-8", "its language is %q, and signs such as ✓ may not show", lang)
	default:
		d.ok("terminal", "%d columns, %d lines, colours %s", columns, lines, map[bool]string{true: "on", false: "off"}[s.Coloured()])
	}
}

// settings checks the configuration.
func (d *checkup) settings() {
	if err := d.ConfigErr; err != nil {
		var e *fault.Error
		text := fault.Message(err)
		if errors.As(err, &e) && len(e.Diags) > 0 {
			text = e.Diags[0].String()
		}
		d.problem("settings", "correct the file; `roux config list` shows all settings", "%s", text)
	} else {
		from := d.Config.Files()
		if len(from) == 0 {
			from = []string{"no file of configuration"}
		}
		d.ok("settings", "%s", strings.Join(from, ", "))
	}
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "ROUX_") || slices.ContainsFunc(config.All(), func(s config.Setting) bool { return s.Env == name }) || slices.Contains(otherVariables, name) ||
			mutation.Removable && name == mutation.Variable {
			continue
		}
		var known []string
		for _, s := range config.All() {
			known = append(known, s.Env)
		}
		fix := "unset it; `roux config list -o json` names all variables"
		if near := spell.Nearest(name, known); near != "" {
			fix = "did you mean " + near + "?"
		}
		d.note("settings", fix, "nothing reads the variable %s", view.OneLine(name))
	}
	if v := d.Config.Get("egress.allow"); v.Origin != "default" {
		d.note("egress", "take out of egress.allow what recipes need not reach", "actions may reach %s beside public addresses (%s)", v.Value, v.Where)
	} else {
		d.ok("egress", "actions may reach public addresses only")
	}
}

// otherVariables are variables of Roux that are not settings.
var otherVariables = []string{"ROUX_MEDIA_CHILD", "ROUX_SHARED", "ROUX_LONG"}

// data checks the data directory and what is in it.
func (d *checkup) data() {
	dir, err := d.Config.DataDir()
	if err != nil {
		d.fail("data", err)
		return
	}
	d.dir = dir
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.ok("data", "%s does not exist yet; the first run makes it", dir)
		return
	case err != nil:
		d.fail("data", datadir.Error(dir, err))
		return
	case !info.IsDir():
		d.problem("data", "name a directory with --data or ROUX_DATA", "%s is not a directory", dir)
		return
	}
	if err := datadir.Check(dir); err != nil {
		d.fail("data", err)
		return
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o022 != 0 {
		d.repair("data", "`chmod go-w "+term.ShellQuote(dir)+"`", fmt.Sprintf("others may write into %s (mode %04o)", dir, mode),
			func() error { return datadir.Chmod(dir, info, mode&^0o022) })
	} else {
		d.ok("data", "%s%s", dir, d.chosen())
	}
	d.socket()
	d.disk()
	d.leftovers()
	d.store()
}

// chosen says why a data directory is used that the user has not named.
func (d *checkup) chosen() string {
	if d.Config.ByDefault() && filepath.Base(d.dir) == config.LocalDir {
		return " is used because it is here; if it came with somebody's project, so did the runs in it"
	}
	return ""
}

// socket reports why the socket of the directory is not used.
func (d *checkup) socket() {
	there := false
	for _, name := range []string{datadir.Socket, datadir.Pointer} {
		_, err := os.Lstat(filepath.Join(d.dir, name))
		there = there || err == nil
	}
	if _, err := local.Socket(d.dir); there && err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.problem("socket", "end the command that holds the directory, see that only you may write in it (`chmod go-w`), and remove the socket; another directory is named with --data",
			"the socket of the data directory is not used: %v", err)
	}
}

// disk checks the disk under the data directory.
func (d *checkup) disk() {
	if free, kind, ok := diskOf(d.dir); ok {
		switch {
		case free < noSpace:
			d.problem("space", "free some space, or move the data directory", "%s are free", byteText(free))
		case free < lowSpace:
			d.note("space", "free some space before large runs", "%s are free", byteText(free))
		default:
			d.ok("space", "%s are free", byteText(free))
		}
		if kind != "" {
			d.problem("disk", "use a directory on a disk of this machine: locks and syncs of network disks are not to be relied on",
				"%s lies on a network file system (%s)", d.dir, kind)
		}
	}
	took, err := syncTime(d.dir)
	switch {
	case err != nil:
		d.fail("disk", datadir.Error(d.dir, err))
	case took > slowSync:
		d.note("disk", "use a faster disk for the data directory: each step of a run waits for one sync", "a sync takes %s", fine(took))
	default:
		d.ok("disk", "a sync takes %s", fine(took))
	}
}

// syncTime returns how long it takes to make 4 KiB durable: the median of
// syncTries.
func syncTime(dir string) (took time.Duration, err error) {
	f, err := os.CreateTemp(dir, "doctor-*.tmp")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	var all []time.Duration
	for i := range syncTries {
		begin := time.Now()
		if _, err := f.WriteAt(bytes.Repeat([]byte{byte(i)}, 4<<10), int64(i)*4<<10); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		all = append(all, time.Since(begin))
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// fine formats a duration, a short one with microseconds.
func fine(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000)
	}
	return view.Took(d)
}

func byteText(n uint64) string {
	for _, u := range []struct {
		name  string
		bytes uint64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if n >= u.bytes {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// leftovers looks for temporary files of processes that were killed.
func (d *checkup) leftovers() {
	if local.Find(d.ctx, d.dir) != nil {
		return // the holder may be using them
	}
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		d.fail("leftovers", datadir.Error(d.dir, err))
		return
	}
	defer func() { _ = root.Close() }()
	var found []string
	for _, in := range []string{".", datadir.Files + "/tmp"} {
		entries, err := entriesOf(root, in)
		if err != nil {
			continue
		}
		for _, name := range entries {
			if in != "." || strings.HasSuffix(name, ".tmp") {
				found = append(found, path.Join(in, name))
			}
		}
	}
	slices.Sort(found)
	if len(found) == 0 {
		d.ok("leftovers", "no temporary files")
		return
	}
	d.repair("leftovers", "the next run removes those of uploads", view.Count(len(found), "temporary file")+" of commands that were killed", func() error {
		// The lock makes sure that no other process uses them.
		st, err := node.OpenStore(d.ctx, d.dir)
		if err != nil {
			return err
		}
		for _, name := range found {
			err = errors.Join(err, root.Remove(name))
		}
		return errors.Join(err, st.Close())
	})
}

// entriesOf lists a data directory or a directory in it. It leaves the mode of
// the data directory alone, because there may be other things in it.
func entriesOf(root *os.Root, dir string) (names []string, err error) {
	var f *os.File
	if dir == "." {
		f, err = root.Open(dir)
	} else {
		f, err = datadir.OpenBelow(root, dir, fs.ModeDir)
	}
	if err != nil {
		return nil, err
	}
	names, err = f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}

// store checks the store, or only the runs when another process holds it.
func (d *checkup) store() {
	if _, err := os.Stat(filepath.Join(d.dir, datadir.Database)); errors.Is(err, fs.ErrNotExist) {
		d.ok("store", "there is none yet; the first run makes it")
		return
	}
	if r := remote.Dial(d.ctx, d.dir, config.Account, "roux/doctor"); r != nil {
		d.ok("holder", "another command holds the data directory and answers; the store is not checked meanwhile")
		// Runs of an account without credits cannot be found this way, except the default one's.
		accounts, err := r.MeteredAccounts(d.ctx)
		d.runs(r, append(accounts, config.Account), err)
		return
	}
	st, err := node.OpenStore(d.ctx, d.dir)
	if err != nil {
		d.fail("store", datadir.Error(d.dir, err))
		return
	}
	defer func() {
		if err := st.Close(); err != nil {
			d.fail("store", datadir.Error(d.dir, err))
		}
	}()
	if n := st.Unfinished(); n > 0 {
		d.note("log", "nothing is to be done: what it was for was never answered, and is done again", "%s of a commit that a power cut or a kill left unfinished dropped", view.Count(n, "page"))
	}
	d.openStore(st)
}

// openStore checks what is in an open store, and its runs.
func (d *checkup) openStore(st node.Store) {
	d.contents(st)
	accounts, err := st.Accounts(d.ctx)
	d.runs(st, accounts, err)
}

// runs looks for runs of the accounts that no process carries on. err is why the accounts
// are not known.
func (d *checkup) runs(j store.Reader, accounts []string, err error) {
	var all foundRuns
	slices.Sort(accounts)
	for _, account := range slices.Compact(accounts) {
		err = errors.Join(err, all.add(d.ctx, j, account))
	}
	if err != nil {
		d.fail("runs", err)
		return
	}
	newestFirst := func(x, y store.Head) int {
		return cmp.Or(cmp.Compare(y.Created, x.Created), cmp.Compare(y.Run, x.Run))
	}
	heap.Sort(all.open, newestFirst)
	heap.Sort(all.quarantined, newestFirst)
	if ahead := view.UTC(all.seen).Sub(d.Now()); ahead > clockSkew {
		d.problem("clock", "set the clock of this machine; until then new events take the journal's time", "it is %s behind what the journal has seen", view.Took(ahead))
	}
	if n := len(all.quarantined); n > 0 {
		first := &all.quarantined[0]
		masks.NewHeads(j).Hide(d.ctx, first)
		d.problem("runs", "`"+d.hint("runs get", first.Key)+"` says why, `"+d.hint("runs release", first.Key)+"` lets it go on",
			"%s quarantined, the newest %s: %s", view.CountAre(n, "run"), first.Run, view.OneLine(view.Cut(first.Quarantine, 100)))
	}
	switch n := len(all.open); {
	case n == 0 && len(all.quarantined) == 0:
		d.ok("runs", "none stands still")
	case n == 0:
	case local.Find(d.ctx, d.dir) != nil:
		d.ok("runs", "%s not ended", have(n))
	default:
		newest := &all.open[0]
		d.note("runs", "`"+d.hint("resume", store.Key{Account: newest.Account})+"` goes on with all of them",
			"%s not ended and %s still, the newest %s (%s)", have(n), stand(n), newest.Run, view.OneLine(view.Cut(newest.Recipe, 32)))
	}
}

// hint is Hint for a run of any account.
func (d *checkup) hint(command string, key store.Key) string {
	text := d.Hint(command, key.Run)
	if flag := " --account " + key.Account; key.Account != config.Account && !strings.HasSuffix(text, flag) {
		text += flag
	}
	return text
}

// foundRuns are the root runs that have not ended and all runs that are quarantined.
type foundRuns struct {
	open, quarantined []store.Head
	seen              int64 // the latest time of any run, UTC µs
}

func (f *foundRuns) add(ctx context.Context, j store.Reader, account string) error {
	q := store.Query{Account: account, All: true, Limit: 500}
	for {
		heads, err := j.List(ctx, q)
		if err != nil {
			return err
		}
		for _, h := range heads {
			f.seen = max(f.seen, h.Created, h.Updated)
			switch {
			case h.Damage != "": // the check of the store reports it
			case h.Imported(): // it is there to be read
			case h.Quarantine != "":
				f.quarantined = append(f.quarantined, h)
			case !h.Settled() && h.Root == "":
				f.open = append(f.open, h)
			}
		}
		if len(heads) < q.Limit {
			return nil
		}
		q.After = heads[len(heads)-1].Run
	}
}

// parser has the child process read a PDF that is part of Roux.
func (d *checkup) parser() {
	report, err := examples.Read("report.pdf")
	if err != nil {
		d.fail("parser", err)
		return
	}
	begin := time.Now()
	doc, err := media.New(media.Config{}).Info(d.ctx, bytes.NewReader(report))
	switch {
	case err != nil:
		d.problem("parser", "this program must be able to start itself: check limits of processes and memory (ulimit -a), and that its file is still there",
			"the child process that reads files failed: %s", fault.Message(err))
	case doc.PageCount < 1:
		d.problem("parser", "use an official build", "the child process that reads files found no page in a PDF that has some")
	default:
		d.ok("parser", "a child process read a PDF of %d pages in %s", doc.PageCount, fine(time.Since(begin)))
	}
}

// commands checks whether commands of the operator could run. Without any it is only a note.
func (d *checkup) commands() {
	set, err := d.Config.Commands()
	if err == nil {
		err = set.Resolve()
	}
	if err != nil {
		d.fail("commands", err)
		return
	}
	err = confine.Check(d.ctx)
	n := len(set.Names())
	switch {
	case err == nil && n == 0:
		d.ok("commands", "this system can confine commands; none are configured")
	case err == nil:
		d.ok("commands", "this system confines commands; %d configured: %s", n, strings.Join(set.Names(), ", "))
	case set.Confined():
		d.fail("commands", err)
	default:
		d.note("commands", fault.RemedyOf(err), "%s", fault.Message(err))
	}
}

func stand(n int) string {
	if n == 1 {
		return "stands"
	}
	return "stand"
}

func have(n int) string {
	if n == 1 {
		return "1 run has"
	}
	return fmt.Sprintf("%d runs have", n)
}
