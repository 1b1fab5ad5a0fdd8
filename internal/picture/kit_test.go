// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// compiled reads and compiles a recipe of testdata.
func compiled(t *testing.T, name string) *plan.Plan {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return compiledText(t, name, text)
}

func compiledText(t *testing.T, name string, text []byte) *plan.Plan {
	t.Helper()
	decls := catalogue.New(&action.Action{Name: "work", Version: "1.0.0"}, &action.Action{Name: "undo", Version: "1.0.0"})
	p, _, _, diags := compile.Source(name+".yaml", text, compile.Options{Actions: decls})
	if p == nil {
		t.Fatal(diags)
	}
	return p
}

// story is a run whose journal is part of the machine's golden files.
func story(t *testing.T, name string) (*plan.Plan, []byte) {
	t.Helper()
	base := filepath.Join("..", "machine", "testdata", "journals", name)
	data, err := os.ReadFile(base + ".plan.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	frames, err := os.ReadFile(base + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	return p, frames
}

// until folds the events of a story up to a number.
func until(t *testing.T, p *plan.Plan, frames []byte, last uint64, critical bool) *Fold {
	t.Helper()
	f := NewFold(p, critical)
	err := journal.EachEvent(frames, func(ev *journal.Event) error {
		if last == 0 || ev.Seq <= last {
			f.Add(ev)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// all are the forms of a picture, by the extension of their files.
func all(t *testing.T, p *Picture, o Options) map[string]string {
	t.Helper()
	svg, err := p.SVG(o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.Text(o)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{".svg": svg, ".txt": text, ".mmd": p.Mermaid(o), ".dot": p.DOT(o)}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs (go test -rewrite, then look at the picture):\n%s", file, diff)
	}
}
