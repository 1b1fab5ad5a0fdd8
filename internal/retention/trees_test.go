// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A tree goes with its root, with the files that only its runs name. A dry run says so.
func TestTreesAreRemovedWithTheirRoot(t *testing.T) {
	ctx := t.Context()
	now := time.Now()
	blobs, err := blob.Open(blob.Config{Dir: t.TempDir(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	st := memory.New(memory.Options{})
	epoch, err := st.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	long := now.Add(30 * 24 * time.Hour) // after all of them have ended
	var batch []store.Transition
	add := func(run, root string, ended time.Time, file string) {
		t.Helper()
		info, err := blobs.Put(ctx, "acme", strings.NewReader(file), file, "text/plain")
		if err != nil {
			t.Fatal(err)
		}
		k := store.Key{Account: "acme", Run: run}
		batch = append(batch, store.Transition{
			Key: k, Epoch: epoch, First: 1, Last: 1, Frames: []byte("1"), Files: []string{info.Hash},
			Head:       &store.Head{Key: k, Root: root, Parent: root, Status: "completed", Created: 1, Updated: ended.UnixMicro(), Ended: ended.UnixMicro()},
			Compaction: &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")},
		})
	}
	add("old", "", now, "of the root")
	for i := range 700 {
		add(fmt.Sprint("old/", i), "old", now, fmt.Sprint("of child ", i%3))
	}
	add("young", "", long, "of the young root")
	add("young/1", "young", now, "of its child")
	if verdicts, err := st.Commit(ctx, batch); err != nil || verdicts[0].Err != nil {
		t.Fatal(err, verdicts)
	}
	c := &Cleaner{
		Store: st, Blobs: blobs, Epoch: epoch, Logger: slog.New(slog.DiscardHandler),
		Now: func() int64 { return long.UnixMicro() }, Wall: func() time.Time { return long },
	}
	c.Policy.SetDefaults()
	dry, err := c.Clean(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	removed, err := c.Clean(context.WithoutCancel(ctx), false)
	if err != nil || !reflect.DeepEqual(dry, removed) {
		t.Errorf("removed %+v, %v; a dry run says %+v", removed, err, dry)
	}
	if removed.Runs != 1 || removed.Files != 4 {
		t.Errorf("removed %d runs and %d files, want 1 and 4", removed.Runs, removed.Files)
	}
	left, err := st.List(ctx, store.Query{Account: "acme", All: true})
	if err != nil || len(left) != 2 || left[0].Run != "young" || left[1].Run != "young/1" {
		t.Errorf("left are %+v, %v", left, err)
	}
}
