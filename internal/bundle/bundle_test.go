// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/bundle"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A run that was written and read is the same, event by event, wherever it is stored.
// Storing it again changes nothing, and another run with its id is not touched. Marked
// values are never included. The command line's tests change and damage bundles.
func TestWriteReadCommit(t *testing.T) {
	const recipe = `
name: carried
inputSchema: {type: object, properties: {word: {type: string}, token: {type: string, writeOnly: true}}}
steps:
  - {id: say, name: Say it, action: {name: echo, parameters: {word: "{{ input.word }}", token: "{{ input.token }}"}}}
`
	run := func(word string) (*memory.Store, store.Head) {
		t.Helper()
		return runTree(t, recipe, map[string]any{"word": word, "token": "hunter2"})
	}
	from, head := run("spoken")
	var file bytes.Buffer
	if _, err := bundle.Write(t.Context(), from, head, &file, false); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Read(bytes.NewReader(file.Bytes()), int64(file.Len()), "carried.roux.zip", false)
	if err != nil {
		t.Fatal(err)
	}
	if b.Run != head.Run || b.Redacted || !b.Partial || b.State.Status() != journal.RunCompleted || b.Definition.Label(0) != "Say it" {
		t.Errorf("read: %+v", b)
	}
	to := memory.New(memory.Options{})
	for _, want := range []string{"imported", "unchanged"} {
		if state, err := b.Commit(t.Context(), to, "other"); err != nil || state != want {
			t.Errorf("commit: %s, %v; want %s", state, err, want)
		}
	}
	key := store.Key{Account: "other", Run: head.Run}
	copied, err := to.Head(t.Context(), key)
	if err != nil || !copied.Imported() || !strings.Contains(copied.Quarantine, bundle.WithoutMasked) || copied.Status != "completed" || copied.PlanHash != head.PlanHash {
		t.Errorf("the imported head is %+v, %v", copied, err)
	}
	var names []string
	if err := store.EachEvent(t.Context(), from, head.Key, 0, func(ev *journal.Event) error {
		names = append(names, ev.Name())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := store.EachEvent(t.Context(), to, key, 0, func(ev *journal.Event) error {
		if ev.Name() != names[ev.Seq-1] || bytes.Contains(ev.Data, []byte("hunter2")) {
			t.Errorf("event %d is %s: %s", ev.Seq, ev.Name(), ev.Data)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if last, err := to.Events(t.Context(), key, 0, 1); err != nil || last.Last != uint64(len(names)) {
		t.Errorf("%d events, %v; want %d", last.Last, err, len(names))
	}

	// A run with that id and another history.
	epoch, err := to.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	another := copied
	another.Account = "third"
	if _, err := to.Commit(t.Context(), []store.Transition{{Key: another.Key, Epoch: epoch, First: 1, Last: 1, Head: &another,
		Frames: journal.AppendFrame(nil, []journal.Event{{Seq: 1, Kind: journal.EvRunStarted, Step: -1, Data: []byte(`{}`)}})}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Commit(t.Context(), to, "third"); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("another run of the id: %v", err)
	}
}
