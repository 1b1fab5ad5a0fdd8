// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store/memory"
)

// countingFiles count how many are opened or written at once; each call takes a second.
type countingFiles struct {
	action.Files
	now, most atomic.Int64
}

func (c *countingFiles) enter() func() {
	c.most.Store(max(c.most.Load(), c.now.Add(1)))
	time.Sleep(time.Second)
	return func() { c.now.Add(-1) }
}

func (c *countingFiles) Put(ctx context.Context, r io.Reader, name, mime string) (action.FileInfo, error) {
	defer c.enter()()
	n, err := io.Copy(io.Discard, r)
	return action.FileInfo{Hash: "sha256_" + strings.Repeat("a", 64), Name: name, MimeType: mime, Size: n}, err
}

func (c *countingFiles) Open(ctx context.Context, hash string) (action.File, error) {
	defer c.enter()()
	return c.Files.Open(ctx, hash)
}

// TestI15_LoopsAreServedInTurn: of many loops that collect outputs, or read items, at
// the same time, only a few hold a page of the journal or a window of items.
func TestI15_LoopsAreServedInTurn(t *testing.T) {
	const wide = 40
	for name, tt := range map[string]struct {
		body string
		most int64
	}{
		"collecting": {"{id: inner, loop: {over: '[1, 2]', steps: [{id: x, transform: {expression: input.pad}}]}}", maxCollecting},
		"reading":    {"{id: inner, loop: {over: 'files[0].hash', steps: [{id: x, transform: {expression: '1'}}]}}", maxReading},
	} {
		t.Run(name, func(t *testing.T) {
			files := blobs(t)
			info, err := files.Put(t.Context(), acc, strings.NewReader("1\n2\n"), "rows.jsonl", "application/jsonl")
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				c := &countingFiles{Files: files.Files(acc)}
				e := openEngine(t, memory.New(memory.Options{}), Config{Files: func(string) action.Files { return c }})
				p := planOf(t, fmt.Sprintf("name: wide\nsteps:\n  - {id: outer, loop: {over: 'lists.range(%d)', maxConcurrency: %d, steps: [%s]}}\n", wide, wide, tt.body))
				s, err := e.Start(t.Context(), StartRequest{
					Account: acc, Plan: p, Parameters: map[string]any{"pad": strings.Repeat("x", 600_000)},
					Files: []journal.File{{Hash: info.Hash, Name: info.Name, MimeType: info.MimeType, Size: info.Size}},
				})
				if err != nil {
					t.Fatal(err)
				}
				if head := waitForEnd(t, e, s.Run); head.Status != "completed" {
					t.Errorf("the run is %s: %s %s", head.Status, head.Code, head.Message)
				}
				if got := c.most.Load(); got != tt.most {
					t.Errorf("%d loops were served at once, want %d", got, tt.most)
				}
			})
		})
	}
}
