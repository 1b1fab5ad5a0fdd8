// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	library "github.com/roux-engine/roux"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// The image with the most runs is selected. A run that verifies only in another image,
// or has more events there, is taken from that image. A run that verifies in none is
// reported as lost; a deleted run is not.
func TestSelection(t *testing.T) {
	key := func(run string) store.Key { return store.Key{Account: config.Account, Run: run} }
	good := func(runs string) map[store.Key]uint64 {
		m := map[store.Key]uint64{}
		for run := range strings.FieldsSeq(runs) {
			m[key(run[:1])] = uint64(run[1] - '0')
		}
		return m
	}
	all := []*imageReport{
		{image: wal.Image{Way: "1"}, good: good("a3 b3 c3 i3")},
		{image: wal.Image{Way: "2"}, good: good("b3 d3 e3 f3"), damaged: map[store.Key]string{key("c"): "a gap", key("g"): "a gap"}, complaints: []string{"odd"}},
		{image: wal.Image{Way: "3"}, good: good("b3 d4 e3 f2 j1"), damaged: map[store.Key]string{key("c"): "a gap", key("g"): "torn", key("h"): "torn"},
			deleted: map[store.Key]bool{key("i"): true}},
	}
	c := choose(all)
	var from []string
	for key, j := range c.from {
		from = append(from, key.Run+j.image.Way)
	}
	slices.Sort(from)
	if got := strings.Join(from, " "); c.best != all[2] || got != "a1 b3 c1 d3 e3 f2 j3" {
		t.Errorf("the best is %s, taken are %s", c.best.image.Way, got)
	}
	if want := map[store.Key]string{key("g"): "torn", key("h"): "torn"}; !maps.Equal(c.lost, want) {
		t.Errorf("lost are %v", c.lost)
	}
}

// A child run whose root or parent is not saved is lost with it, and with the runs below it.
// The runs below a deleted root go with that.
func TestSelectionOfTrees(t *testing.T) {
	key := func(run string) store.Key { return store.Key{Account: config.Account, Run: run} }
	j := &imageReport{
		good: map[store.Key]uint64{}, above: map[store.Key][2]string{},
		damaged: map[store.Key]string{key("lost"): "torn", key("c2"): "torn"}, deleted: map[store.Key]bool{key("gone"): true},
	}
	for _, run := range []string{"r/r/", "c1/r/r", "d1/r/c2", "e1/r/d1", "f1/r/c1", "x/lost/lost", "y/gone/gone", "z/gone/y"} {
		part := strings.Split(run, "/")
		j.good[key(part[0])] = 1
		if part[2] != "" {
			j.above[key(part[0])] = [2]string{part[1], part[2]}
		}
	}
	c := choose([]*imageReport{j})
	var from, lost []string
	for key := range c.from {
		from = append(from, key.Run)
	}
	for key, why := range c.lost {
		lost = append(lost, key.Run+": "+why)
	}
	slices.Sort(from)
	slices.Sort(lost)
	if got := strings.Join(from, " "); got != "c1 f1 r" {
		t.Errorf("taken are %s", got)
	}
	if got := strings.Join(lost, "; "); got != "c2: torn; d1: it is a child run, and run c2 is not saved; "+
		"e1: it is a child run, and run d1 is not saved; lost: torn; x: it is a child run, and run lost is not saved" {
		t.Errorf("lost are %s", got)
	}
}

// Given images of a store at several times, one of them damaged, each run is taken from
// the image in which it is intact, whatever its state and account.
func TestGatherFromImages(t *testing.T) {
	base := t.TempDir()
	one, two := filepath.Join(base, "image-1"), filepath.Join(base, "image-2")
	start := func(e *library.Engine, recipe, once string) string {
		t.Helper()
		run, err := e.Start(t.Context(), library.Request{Source: "r.yaml", Recipe: []byte(recipe), IdempotencyKey: once})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	end := func(e *library.Engine, run string) {
		t.Helper()
		if _, err := e.Wait(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	signal := func(e *library.Engine, run, name string, data int) {
		t.Helper()
		if err := e.Signal(t.Context(), run, name, data); err != nil {
			t.Fatal(err)
		}
	}
	within := func(dir, account string, fn func(e *library.Engine)) {
		t.Helper()
		e, err := library.Open(t.Context(), library.Options{Dir: dir, Account: account})
		if err != nil {
			t.Fatal(err)
		}
		fn(e)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	const waits = "name: w\nsteps: [{id: go, wait: {signal: go}}, {id: on, wait: {signal: on}}]\n"
	const long = "name: l\nsteps: [{id: t, transform: {expression: \"range(60000).map(i, 'number ' + string(i))\"}}]\n"
	var other, ended, waiting, parted, lost string
	within(one, "other", func(e *library.Engine) { other = start(e, long, ""); end(e, other) })
	within(one, "", func(e *library.Engine) {
		ended, lost, waiting, parted = start(e, long, "once"), start(e, waits, ""), start(e, waits, ""), start(e, waits, "")
		end(e, ended)
	})
	if err := os.CopyFS(two, os.DirFS(one)); err != nil {
		t.Fatal(err)
	}
	within(two, "", func(e *library.Engine) {
		for i := range 4 {
			end(e, start(e, fmt.Sprintf("name: r%d\nsteps: [{id: t, transform: {expression: '1'}}]\n", i), ""))
		}
		signal(e, lost, "go", 1)
		signal(e, parted, "go", 2)
	})
	within(one, "", func(e *library.Engine) {
		signal(e, waiting, "go", 1)
		signal(e, parted, "go", 1)
		signal(e, parted, "on", 1)
		end(e, parted)
	})
	alter := func(dir, query string, args ...any) {
		t.Helper()
		db, err := sql.Open("sqlite", filepath.Join(dir, datadir.Database))
		if err == nil {
			_, err = db.ExecContext(t.Context(), query, args...)
		}
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	alter(two, `UPDATE runs SET status = 'bompleted' WHERE run IN (?, ?)`, ended, lost)
	alter(one, `UPDATE runs SET status = 'bompleted' WHERE run = ?`, lost)
	alter(two, `DELETE FROM runs WHERE run = ?`, other)

	to := filepath.Join(base, "saved")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := gather(t.Context(), []wal.Image{{Dir: one, Way: "one"}, {Dir: two, Way: "two"}}, to)
	if err != nil {
		t.Fatal(err)
	}
	var others, damaged []string
	for _, o := range out.Others {
		others = append(others, o.Run+" "+o.Read)
	}
	for _, d := range out.Damaged {
		damaged = append(damaged, d.Run)
	}
	slices.Sort(others)
	want := []string{ended + " one", waiting + " one", "other/" + other + " one"}
	slices.Sort(want)
	if !slices.Equal(others, want) || out.Runs != 8 || out.Read != "two" || out.Rest != two {
		t.Errorf("%+v, want from the other image %q", out, want)
	}
	want = slices.Sorted(slices.Values([]string{ended, lost, parted}))
	if !slices.Equal(damaged, want) {
		t.Errorf("damaged are %q, want %q", damaged, want)
	}
	if _, err := os.Stat(one); err == nil {
		t.Error("an image that nobody needs is left")
	}
	for _, f := range contentsOf(t, to) {
		if f.Status == Problem {
			t.Errorf("what was saved: %+v", f)
		}
	}
	if !slices.ContainsFunc(contentsOf(t, two), func(f Finding) bool { return strings.Contains(f.Text, lost) }) {
		t.Errorf("nothing is left of %s", lost)
	}
	within(to, "other", func(e *library.Engine) { end(e, other) })
	within(to, "", func(e *library.Engine) {
		if run := start(e, long, "once"); run != ended {
			t.Errorf("the same request started %s", run)
		}
		for _, run := range []string{ended, waiting, parted} {
			if run != ended {
				signal(e, run, "on", 1) // it has already received "go"
			}
			end(e, run)
		}
	})
}

// A run is moved unchanged, whether it has ended, is suspended or is running, in one
// transition or in several.
func TestMoverTakesRunsAsTheyAre(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	var stores [2]*sqlite.Store
	var epochs [2]uint64
	for i, dir := range []string{from, to} {
		st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
		if err == nil {
			epochs[i], err = st.Own(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		stores[i] = st
	}
	m := &mover{ctx: t.Context(), to: stores[1], epoch: epochs[1]}
	var keys []store.Key
	for _, what := range []string{"live", "parked", "ended"} {
		for _, size := range []int{10, movedPiece / 3} {
			key := store.Key{Account: config.Account, Run: fmt.Sprintf("%s-%d", what, size)}
			keys = append(keys, key)
			head := store.Head{Key: key, Recipe: "r", Version: "1", PlanHash: "plan", Status: "running", Created: 5, Updated: 6, Quarantine: "a reason"}
			tr := store.Transition{Key: key, Epoch: epochs[0], First: 1, Last: 10, Head: &head, Plans: []store.EncodedPlan{{Key: "plan", Data: []byte("a plan")}}}
			for seq := range uint64(10) {
				ev := journal.Event{Seq: seq + 1, Kind: journal.EvNodeProgress, At: 7, Text: strings.Repeat("x", size)}
				tr.Frames = journal.AppendFrame(tr.Frames, []journal.Event{ev})
			}
			if what == "ended" {
				head.Status, head.Ended = "completed", 9
			}
			if what == "parked" {
				tr.Compaction, tr.Suspension = &store.Compaction{First: 1, Last: 10, Chunk: tr.Frames}, &store.Suspension{WakeAt: 12}
			}
			verdicts, err := stores[0].Commit(t.Context(), []store.Transition{tr})
			if err = errors.Join(err, verdicts[0].Err); err != nil {
				t.Fatal(err)
			}
			if err := m.run(stores[0], key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.flush(); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		was, err := stores[0].Load(t.Context(), key)
		is, err2 := stores[1].Load(t.Context(), key)
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if was.Head != is.Head || !bytes.Equal(was.Tail, is.Tail) || was.Last != is.Last || !reflect.DeepEqual(was.Suspension, is.Suspension) {
			t.Errorf("%s is %+v with %d bytes, parked %v, and was %+v with %d, parked %v", key.Run, is.Head, len(is.Tail), is.Suspension, was.Head, len(was.Tail), was.Suspension)
		}
		if covered := is.Chunked == is.Last; covered != !strings.HasPrefix(key.Run, "live") {
			t.Errorf("%s: chunks reach event %d of %d", key.Run, is.Chunked, is.Last)
		}
	}
}

// contentsOf checks a data directory that nobody holds.
func contentsOf(t *testing.T, dir string) []Finding {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	list := Contents(t.Context(), Options{
		Now: time.Now, Say: func(string, ...any) {}, Hint: func(command, run string) string { return command + " " + run },
	}, dir, st)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return list
}
