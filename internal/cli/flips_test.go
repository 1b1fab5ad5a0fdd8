// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/bundle"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/doctor"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// strangers is a second account, whose rows fill the tables that small runs of the
// commands' account leave empty.
const strangers = "acme"

// strangeReason is why the runs of strangers are quarantined: their journals are noise.
const strangeReason = "its journal is noise"

// flipsEach is how many bits are flipped in each table, index and kind of file.
func flipsEach() int {
	switch {
	case os.Getenv("ROUX_LONG") != "":
		return 50
	case testing.Short():
		return 2
	}
	return 4
}

// A flipper flips bits of a closed data directory and checks what follows from each.
type flipper struct {
	t     *testing.T
	dir   string
	whole map[string][]byte // the files whose bits are flipped
	want  map[string]string // what is shown of them
	rand  *rand.Rand
	tally map[string]int
	n     int
}

// TestFlippedBits flips single bits of a data directory that real commands and the
// store made, some in every table and index and in every kind of file. After each
// one everything is shown as before, or reading fails, or doctor names the damage.
func TestFlippedBits(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs without -short")
	}
	f := newFlipper(t)
	db := filepath.Join(f.dir, datadir.Database)
	for _, tree := range treesOf(t, db) {
		for i := range flipsEach() {
			f.flip(datadir.Database, tree.name, tree.pick(f.rand, i))
		}
	}
	for range flipsEach() {
		f.flip(datadir.Database, "file header", f.rand.IntN(100))
	}
	kinds := f.kinds()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		names := kinds[kind]
		for i := range flipsEach() {
			name := names[i%len(names)]
			f.flip(name, kind, f.rand.IntN(len(f.whole[name])))
		}
	}
	f.flipBundle()
	t.Logf("%d flips: %v", f.n, f.tally)
	if f.n < 44*flipsEach() {
		t.Errorf("%d flips are too few", f.n)
	}
}

// newFlipper makes the data directory.
func newFlipper(t *testing.T) *flipper {
	t.Setenv("HOME", t.TempDir())
	dir := unpackStore(t, filepath.Join("testdata", "stores", "2026-11-21-schema-3.zip"))
	fillByCommands(t, dir)
	fillByStore(t, dir)
	f := &flipper{t: t, dir: dir, whole: map[string][]byte{}, rand: rand.New(rand.NewPCG(14, 3)), tally: map[string]int{}}
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(p, datadir.Database+"-") {
			return err
		}
		f.whole[p], err = os.ReadFile(filepath.Join(dir, p))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range f.whole {
		f.restore(name)
	}
	var problems []string
	f.want, problems = f.look()
	if len(problems) > 0 {
		t.Fatalf("before any flip: %q", problems)
	}
	for what, text := range f.want {
		if strings.HasPrefix(text, failed) {
			t.Fatalf("before any flip: %s: %s", what, text)
		}
	}
	return f
}

// fillByCommands runs recipes with and without files, imports a run, and deletes one.
func fillByCommands(t *testing.T, dir string) {
	t.Helper()
	roux := func(want int, args ...string) string {
		t.Helper()
		out, talk, code := inProcess("", append(args, "--data", dir)...)
		if code != want {
			t.Fatalf("roux %v: exit %d\n%s%s", args, code, out, talk)
		}
		return strings.TrimSpace(out)
	}
	tmp := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(tmp, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bundle := write("b.zip", string(exportedBundle(t)))
	roux(fault.ExitOK, "import", bundle)
	for i := range 3 {
		recipe := write("r.yaml", fmt.Sprintf("name: r%d\nsteps:\n  - {id: a, transform: {expression: '%d', outputBinding: out}}\n", i, i))
		roux(fault.ExitOK, "run", recipe, "-q")
	}
	roux(fault.ExitFailed, "run", write("f.yaml", "name: f\nsteps:\n  - {id: a, fail: {code: STEP_FAILED, message: 'no more'}}\n"), "-q")
	roux(fault.ExitOK, "files", "put", filepath.Join("..", "..", "examples", "report.pdf"), filepath.Join("testdata", "stores", "filed.yaml"), write("notes.md", "# Notes\n\nSome text.\n"))
}

// fillByStore fills every table, most of them with several pages.
func fillByStore(t *testing.T, dir string) {
	t.Helper()
	ctx := t.Context()
	s, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := s.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	commit := func(batch ...store.Transition) {
		t.Helper()
		verdicts, err := s.Commit(ctx, batch)
		for _, v := range verdicts {
			err = errors.Join(err, v.Err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + r.IntN(26))
		}
		return b
	}
	var gone []store.Key
	for i := range 150 {
		key := store.Key{Account: strangers, Run: fmt.Sprintf("run_%026d", i)}
		at := int64(1_700_000_000_000_000 + i*1_000_000)
		// The doctor does not read the journal of a quarantined run.
		head := store.Head{Key: key, Recipe: "r", Version: "1", PlanHash: fmt.Sprintf("plan %d", i%40), Status: "running", Created: at, Updated: at,
			Quarantine: strangeReason}
		plan := noise(300)
		start := store.Transition{Key: key, Epoch: epoch, First: 1, Last: 2, Frames: noise(200), Head: &head,
			Plans: []store.EncodedPlan{{Key: head.PlanHash, Data: plan}}, Files: []string{fmt.Sprintf("sha256_%064d", i%7)},
			Idempotency: &store.Idempotency{Key: fmt.Sprintf("key %d", i), BodyHash: string(noise(40)), Until: at + 1<<40}}
		commit(start)
		chunk := noise(150)
		if i%5 == 0 {
			chunk = noise(20 << 10) // has a row of its own
		}
		next := store.Transition{Key: key, Epoch: epoch, First: 3, Last: 4, Frames: noise(100)}
		switch i % 4 {
		case 0: // live, with a snapshot
			next.Compaction = &store.Compaction{First: 1, Last: 4, Chunk: chunk, Format: 1, State: noise(100)}
			commit(next, store.Transition{Key: key, Epoch: epoch, First: 5, Last: 5, Frames: noise(50)})
		case 1: // ended
			head.Status, head.Ended, head.Used = "completed", at+5_000_000, 3
			next.Head = &head
			next.Compaction = &store.Compaction{First: 1, Last: 4, Chunk: chunk}
			commit(next)
			if i%3 == 0 {
				gone = append(gone, key)
			}
		case 2: // suspended, compacted twice
			next.Compaction = &store.Compaction{First: 1, Last: 4, Chunk: chunk, Format: 1, State: noise(80)}
			next.Suspension = &store.Suspension{WakeAt: at + 1<<42}
			commit(next)
			commit(store.Transition{Key: key, Epoch: epoch, First: 5, Last: 6, Frames: noise(60),
				Compaction: &store.Compaction{First: 5, Last: 6, Chunk: noise(160), Format: 1, State: noise(90)}, Suspension: &store.Suspension{WakeAt: at + 1<<43}})
		}
	}
	verdicts, err := s.Delete(ctx, epoch, 0, gone)
	for _, v := range verdicts {
		err = errors.Join(err, v.Err)
	}
	for i := range 3 {
		err = errors.Join(err, s.SetNote(ctx, epoch, fmt.Sprintf("note %d", i), noise(200)))
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// kinds are the files beside the database, by what they hold.
func (f *flipper) kinds() map[string][]string {
	kinds := map[string][]string{}
	for name, data := range f.whole {
		kind := ""
		switch base := filepath.Base(name); {
		case name == datadir.Database || len(data) == 0:
			continue
		case strings.HasSuffix(base, ".json"):
			kind = "record of a file"
		case strings.HasPrefix(base, "sha256_"):
			kind = "file"
		default:
			kind = base
		}
		kinds[kind] = append(kinds[kind], name)
	}
	for _, names := range kinds {
		slices.Sort(names)
	}
	return kinds
}

// flip flips one bit, looks, and puts the bit back.
func (f *flipper) flip(name, part string, at int) {
	data := f.whole[name]
	bit := f.rand.IntN(8)
	data[at] ^= 1 << bit
	f.restore(name)
	got, problems := f.look()
	data[at] ^= 1 << bit
	f.restore(name)
	f.n++
	var wrong []string
	loud := false
	for what, text := range f.want {
		switch now := got[what]; {
		case now == text:
		case strings.HasPrefix(now, failed):
			loud = true
		default:
			wrong = append(wrong, what)
		}
	}
	slices.Sort(wrong)
	switch {
	case len(problems) > 0:
		f.tally["named"]++
	case len(wrong) == 0 && loud:
		f.tally["loud"]++
	case len(wrong) == 0:
		f.tally["harmless"]++
	default:
		f.tally["silent"]++
		what := wrong[0]
		f.t.Errorf("bit %d of byte %d of %s (%s) is silent: %d differ; %s: %s", bit, at, name, part, len(wrong), what, whereTheyPart(f.want[what], got[what]))
	}
}

// flipBundle flips bits of an exported run, each of which is refused.
func (f *flipper) flipBundle() {
	data := exportedBundle(f.t)
	for range flipsEach() {
		at, bit := f.rand.IntN(len(data)), f.rand.IntN(8)
		data[at] ^= 1 << bit
		if _, err := readBundle(writeTemp(f.t, data), false); err == nil {
			f.t.Errorf("bit %d of byte %d of a bundle is silent", bit, at)
		}
		data[at] ^= 1 << bit
		f.n++
		f.tally["loud"]++
	}
}

func whereTheyPart(want, got string) string {
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	from := max(at-30, 0)
	return fmt.Sprintf("%q, want %q", got[min(from, len(got)):min(at+30, len(got))], want[min(from, len(want)):min(at+30, len(want))])
}

// restore writes a file as it is in f.whole. The log of the database begins with
// zeros, as after a clean end.
func (f *flipper) restore(name string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	info, err := os.Stat(path)
	if err == nil {
		err = os.WriteFile(path, f.whole[name], info.Mode().Perm())
	}
	if err == nil {
		err = os.Chtimes(path, flippedAt, flippedAt)
	}
	if err == nil && name == datadir.Database {
		var log *os.File
		if log, err = os.OpenFile(path+"-wal", os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			_, err = log.WriteAt(make([]byte, 32), 0)
			err = errors.Join(err, log.Close())
		}
		if gone := os.Remove(path + "-shm"); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// flippedAt is the modification time that every file is given.
var flippedAt = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// failed begins what is shown in place of something that cannot be read.
const failed = "failed: "

// look reads everything: what is shown, by name, and what doctor says is wrong.
func (f *flipper) look() (shown map[string]string, problems []string) {
	shown = map[string]string{}
	ctx := f.t.Context()
	none := func(string) string { return "" }
	a := &app{account: account, now: time.Now, getenv: none, config: config.New(none, new(string)), screen: term.NewScreen(new(bytes.Buffer), true, none), stderr: io.Discard}
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: f.dir})
	if err != nil {
		return shown, []string{err.Error()}
	}
	// The rows are read before doctor runs, because doctor may write to the log.
	for what, text := range rowsOf(f.t, filepath.Join(f.dir, datadir.Database)) {
		shown[what] = text
	}
	showRuns(ctx, st, shown)
	showStrangers(ctx, st, shown)
	f.showFiles(ctx, shown)
	list := doctor.Contents(ctx, a.doctorOptions(false), f.dir, st)
	if err := st.Close(); err != nil {
		problems = append(problems, err.Error())
	}
	for _, found := range list {
		// That the strangers' runs are quarantined is so before any flip.
		if found.Status == doctor.Problem && !strings.HasSuffix(found.Text, strangeReason) {
			problems = append(problems, found.Check+": "+found.Text)
		}
	}
	return shown, problems
}

// show notes what is shown, or that it cannot be.
func show(shown map[string]string, what string, v any, err error) {
	if err != nil {
		shown[what] = failed + err.Error()
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		shown[what] = failed + err.Error()
		return
	}
	shown[what] = string(text)
}

// showRuns does what the commands do that look at runs.
func showRuns(ctx context.Context, j store.Reader, shown map[string]string) {
	heads, err := j.List(ctx, store.Query{Account: account})
	views := make([]headView, len(heads))
	for i, h := range heads {
		views[i] = viewOfHead(h)
	}
	show(shown, "runs list", views, err)
	for _, status := range statuses() {
		heads, err := j.List(ctx, store.Query{Account: account, Status: status})
		var ids []string
		for _, h := range heads {
			ids = append(ids, h.Run)
		}
		show(shown, "runs list --status "+status, ids, err)
	}
	for _, h := range heads {
		head, err := (&app{account: account}).findRun(ctx, j, h.Run)
		if err == nil {
			var v *view.Run
			if v, _, err = stateOf(ctx, j, head); err == nil {
				show(shown, "runs get "+h.Run, resultOf(v), nil)
			}
		}
		if err != nil {
			show(shown, "runs get "+h.Run, nil, err)
			continue
		}
		p, err := store.LoadPlan(ctx, j, head)
		var lines bytes.Buffer
		if err == nil {
			err = eachShown(ctx, j, h.Key, p, 0, func(ev *journal.Event) error {
				return writeJSON(&lines, journal.Render(p, h.Run, ev), false)
			})
		}
		show(shown, "events "+h.Run, lines.String(), err)
		var packed bytes.Buffer
		_, err = bundle.Write(ctx, j, head, &packed, false)
		show(shown, "export "+h.Run, sha256.Sum256(packed.Bytes()), err)
	}
}

// showStrangers reads the account strangers, which no command shows, directly from the
// store.
func showStrangers(ctx context.Context, s store.Store, shown map[string]string) {
	heads, err := s.List(ctx, store.Query{Account: strangers, Limit: 500})
	show(shown, "list of "+strangers, heads, err)
	for _, h := range heads {
		page, err := s.Events(ctx, h.Key, 0, 1<<30)
		show(shown, "events "+h.Run, page, err)
		saved, err := s.Load(ctx, h.Key)
		show(shown, "load "+h.Run, saved, err)
	}
	for i := range 40 {
		hash := fmt.Sprintf("plan %d", i)
		plan, err := s.Plan(ctx, hash)
		show(shown, hash, plan, err)
	}
	for i := range 7 {
		hash := fmt.Sprintf("sha256_%064d", i)
		naming, err := s.References(ctx, strangers, hash, 500)
		show(shown, "naming "+hash, naming, err)
	}
	for i := range 3 {
		name := fmt.Sprintf("note %d", i)
		note, err := s.Note(ctx, name)
		show(shown, name, note, err)
	}
	for _, of := range []string{strangers, account} {
		changes, err := s.Changes(ctx, of, 0, 10_000)
		show(shown, "changes of "+of, changes, err)
		last, expired, err := s.Newest(ctx, of)
		show(shown, "newest change of "+of, []uint64{last, expired}, err)
	}
	due, err := s.Due(ctx, 1<<62, 500)
	show(shown, "due", due, err)
	ended, err := s.Ended(ctx, 1<<62, store.Wake{}, 500)
	show(shown, "ended", ended, err)
}

// showFiles lists and reads the files.
func (f *flipper) showFiles(ctx context.Context, shown map[string]string) {
	bs, err := blob.Open(blob.Config{Dir: filepath.Join(f.dir, datadir.Files), KeepPartial: true})
	if err != nil {
		show(shown, "files ls", nil, err)
		return
	}
	defer bs.Close()
	found, err := bs.List(ctx, account, blob.Query{})
	show(shown, "files ls", found, err)
	for _, e := range found {
		file, err := bs.Open(ctx, account, e.Info.Hash)
		var data []byte
		if err == nil {
			data, err = io.ReadAll(file)
			err = errors.Join(err, file.Close())
		}
		show(shown, "files get "+e.Info.Hash, sha256.Sum256(data), err)
	}
}
