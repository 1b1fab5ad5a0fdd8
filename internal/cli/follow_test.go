// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/term"
)

// A panic in the code that shows a run is an error of that run: the engine, which is in
// the same process, and the other runs continue (I16). The first error is the one that
// is reported.
func TestI16_PanicWhileShowing(t *testing.T) {
	p, _, _, diags := compile.Source("p.yaml", []byte("name: p\nsteps:\n  - {id: w, wait: {duration: 1s}}\n"), compile.Options{Actions: node.Catalogue(testActions())})
	if p == nil {
		t.Fatal(diags)
	}
	begun := journal.Event{Seq: 1, Kind: journal.EvRunStarted, Step: -1, Data: []byte(`{"recipe":"p"}`)}
	ended := journal.Event{Seq: 3, Kind: journal.EvRunCompleted, Step: -1, At: 7}
	foreign := journal.Event{Seq: 2, Kind: journal.EvNodeOpened, Step: 99}
	stories := map[string][]*journal.Event{
		"sound":   {&begun, &ended},
		"foreign": {&begun, &foreign, &ended}, // the plan has no such step
		"gone":    {nil},                      // panics in the mask
		"torn":    {{Seq: 1, Kind: journal.EvRunStarted, Step: -1, Data: []byte(`{`)}, &ended},
		"closed":  nil, // panics in the watcher
	}
	watch := func(_ context.Context, run string, _ uint64, fn func(*journal.Event) error) error {
		if run == "closed" {
			panic("hunter2")
		}
		for _, ev := range stories[run] {
			if err := fn(ev); err != nil {
				return err
			}
		}
		return nil
	}
	var out, talk bytes.Buffer
	a := &app{account: account, stdout: &out, stderr: &talk, now: time.Now, getenv: func(string) string { return "" }, actions: node.Catalogue(testActions())}
	a.screen = term.NewScreen(a.stderr, true, a.getenv)
	a.log = newLog(a.screen, false)
	runs := map[string]*followed{}
	var list []*followed
	for name := range stories {
		runs[name] = &followed{id: name, plan: p}
		list = append(list, runs[name])
	}
	if interrupted, err := a.follow(t.Context(), watch, nil, nil, list); interrupted || err != nil {
		t.Fatal(interrupted, err)
	}
	for name, want := range map[string]fault.Code{
		"foreign": fault.InternalError, "gone": fault.InternalError, "closed": fault.InternalError, "torn": fault.StoreCorrupt,
	} {
		if err := runs[name].err; err == nil || fault.CodeOf(err) != want || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if r := runs["sound"]; r.err != nil || !r.view.Done() {
		t.Errorf("the run beside them: done %v, %v", r.view.Done(), r.err)
	}
}
