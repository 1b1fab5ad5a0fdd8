// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/node"
)

// A stalledPipe is a pipe whose reader accepts one write and blocks the rest until goOn
// is closed.
type stalledPipe struct {
	bytes.Buffer
	once    sync.Once
	stalled chan struct{}
	goOn    chan struct{}
}

func (p *stalledPipe) Write(b []byte) (int, error) {
	p.Buffer.Write(b)
	p.once.Do(func() {
		close(p.stalled)
		<-p.goOn
	})
	return len(b), nil
}

// F48: `roux export` and `roux events -f` write into pipes that nobody reads, while the
// process that holds the directory continues. They do not keep its log from being
// truncated, and once the pipes are read again their output is complete.
func TestF48_StalledExportAndEvents(t *testing.T) {
	h, _ := hosted(t)
	var src strings.Builder
	src.WriteString("name: long\nsteps:\n  - {id: go, wait: {signal: go}}\n")
	const steps = 12
	for i := range steps {
		fmt.Fprintf(&src, "  - {id: s%d, action: {name: large, parameters: {bytes: 700000}}}\n", i)
	}
	a := &app{account: account, stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, getenv: os.Getenv, actions: node.Catalogue(testActions())}
	c, err := a.compileFile(write(t, "long.yaml", src.String()), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	begin := func() string {
		run, err := h.start(t.Context(), c, nil, nil, payment{})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	finish := func(run string) {
		if err := h.Node.Engine.Signal(t.Context(), account, run, "go", nil); err != nil {
			t.Error(err)
		}
		if head, err := h.Node.Engine.Wait(t.Context(), account, run); err != nil || head.Status != "completed" {
			t.Errorf("run %s: %+v, %v", run, head, err)
		}
	}
	ended, live := begin(), begin()
	finish(ended)

	goOn := make(chan struct{})
	pipes := map[string]*stalledPipe{}
	var done sync.WaitGroup
	for _, line := range []string{
		"export " + ended + " --out -",
		"events " + ended + " -o jsonl",
		"events " + live + " -f -o jsonl",
	} {
		p := &stalledPipe{stalled: make(chan struct{}), goOn: goOn}
		pipes[line] = p
		done.Go(func() {
			var talk bytes.Buffer
			if code := execute(context.Background(), strings.Fields(line), strings.NewReader(""), p, &talk, testActions()); code != fault.ExitOK {
				t.Errorf("roux %s: exit %d\n%s", line, code, talk.String())
			}
		})
	}
	for _, p := range pipes {
		<-p.stalled
	}
	finish(live)
	most, written := int64(0), int64(0)
	for range 8 {
		finish(begin())
		written += steps * 700_000
		info, err := os.Stat(filepath.Join(h.dir, "roux.db-wal"))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, info.Size())
	}
	if most > 48<<20 {
		t.Errorf("the log grew to %d MiB while %d MiB were written", most>>20, written>>20)
	}
	if err := h.Node.Engine.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	nobodyReads(t, filepath.Join(h.dir, "roux.db"))
	t.Logf("%d MiB written, at most %d MiB of log", written>>20, most>>20)
	close(goOn)
	done.Wait()

	for line, p := range pipes {
		if strings.HasPrefix(line, "export") {
			path := write(t, "got.roux.zip", p.String())
			if b, err := readBundle(path, false); err != nil || b.Run != ended || b.Status != "completed" {
				t.Errorf("the bundle cannot be read: %v", err)
			}
			continue
		}
		next, last := 1, ""
		for text := range strings.Lines(p.String()) {
			var ev struct {
				Sequence int    `json:"sequence"`
				Type     string `json:"type"`
			}
			if err := json.Unmarshal([]byte(text), &ev); err != nil || ev.Sequence != next {
				t.Fatalf("roux %s: line %d is %.80s (%v)", line, next, text, err)
			}
			next, last = next+1, ev.Type
		}
		if last != "run.completed" {
			t.Errorf("roux %s ends with %q after %d events", line, last, next-1)
		}
	}
}

// nobodyReads fails the test if a transaction reads the database. SQLite can truncate
// the log only when none does. A checkpoint of the store may interfere for a moment.
func nobodyReads(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	busy, log, copied := 1, 0, 0
	for try := 0; busy != 0; try++ {
		if err := db.QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &copied); err != nil {
			t.Fatal(err)
		}
		if try == 100_000 {
			t.Fatalf("somebody holds a transaction: %d pages in the log, %d copied", log, copied)
		}
	}
}
