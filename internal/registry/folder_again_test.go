// SPDX-License-Identifier: Apache-2.0

//go:build !small

package registry

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/store"
)

// unwritable are records that cannot be written as long as err is set.
type unwritable struct {
	allRecords
	err error
}

type allRecords interface{ Records }

func (r *unwritable) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.allRecords.PutRecords(ctx, changes...)
}

// What the store refused is tried again without a change of the files, and said once: a registration, and
// the deprecation of what no file has any more.
func TestFolderTriesAgain(t *testing.T) {
	f := newFolderFixture(t)
	full := &unwritable{allRecords: f.Recipes.cfg.Records, err: fault.New(fault.StoreFull, "the disk is full")}
	f.Recipes.cfg.Records = full
	f.write("a.yaml", text("a", "1.0.0", 1))
	if problems := f.look("a.yaml broken"); !strings.Contains(problems, "the disk is full") {
		t.Errorf("the problems are %s", problems)
	}
	f.now = f.now.Add(time.Minute)
	f.look()
	full.err = nil
	f.now = f.now.Add(time.Minute)
	f.look("a.yaml registered a@1.0.0")

	full.err = fault.New(fault.StoreFull, "the disk is full")
	if err := os.Remove(filepath.Join(f.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 3 {
		if _, failed := f.Look(t.Context()); failed != nil {
			err = failed
		}
	}
	if fault.CodeOf(err) != fault.StoreFull {
		t.Fatalf("the deprecation: %v", err)
	}
	full.err = nil
	f.now = f.now.Add(time.Minute)
	f.look()
	if v := f.find("acme", "a@1.0.0", "1.0.0"); v.Status != StatusDeprecated {
		t.Errorf("the version of a removed file is %s", v.Status)
	}
}

// Recipes and lenses that were refused are looked at again when they may be admitted.
func TestFolderAsksAgain(t *testing.T) {
	f := newFolderFixture(t)
	var refused error = fault.New(fault.Conflict, "it is not locked")
	asked := map[string]bool{}
	f.cfg.Admit = func(text Found, draft bool) error {
		asked[fmt.Sprintf("%s %s@%s %v %x", text.Kind, text.Name, text.Version, draft, text.Text[:4])] = true
		return refused
	}
	recipe, note := text("a", "1.0.0", 1), []byte("lens: l\ntemplate: x\n")
	f.write("a.yaml", recipe)
	f.write("l.yaml", note)
	f.look("l.yaml broken", "a.yaml broken")
	one, two := sha256.Sum256(recipe), sha256.Sum256(note)
	if want := []string{fmt.Sprintf("recipe a@1.0.0 false %x", one[:4]), fmt.Sprintf("lens l@ false %x", two[:4])}; len(asked) != 2 || !asked[want[0]] || !asked[want[1]] {
		t.Errorf("asked for %v, want %q", asked, want)
	}
	refused = nil
	f.now = f.now.Add(time.Minute)
	f.look() // nothing says that it may be admitted now
	f.Again()
	f.look("l.yaml registered l@1", "a.yaml registered a@1.0.0")
}

// The directory is another one from one look to the next. What has the same text is no change.
func TestFolderMoves(t *testing.T) {
	f := newFolderFixture(t)
	f.write("a.yaml", text("a", "1.0.0", 1))
	f.write("b.yaml", text("b", "1.0.0", 1))
	f.look("a.yaml registered a@1.0.0", "b.yaml registered b@1.0.0")
	f.dir = t.TempDir()
	f.write("a.yaml", text("a", "1.0.0", 1))
	f.write("c.yaml", text("c", "1.0.0", 1))
	f.Move(f.dir)
	f.look("b.yaml removed b@1.0.0", "c.yaml registered c@1.0.0")
}

// A file is compiled a few times however many there are, in whatever order they name one another.
func TestFolderOfManyRecipes(t *testing.T) {
	f := newFolderFixture(t)
	checks := 0
	actions := f.Recipes.cfg.Actions
	f.Recipes.cfg.Actions = func(account string) catalogue.Actions { checks++; return actions(account) }
	const many, deep = 60, 8
	var want []string
	for i := range many {
		name := fmt.Sprintf("r%02d", i)
		body := text(name, "1.0.0", i)
		if i < deep {
			body = fmt.Appendf(nil, "name: %s\nversion: 1.0.0\nsteps: [{recipe: {ref: r%02d}}]\n", name, i+1)
		}
		f.write(name+".yaml", body)
		want = append(want, name+".yaml registered "+name+"@1.0.0")
	}
	f.look(want...)
	if most := 4*many + deep*deep; checks > most {
		t.Errorf("%d files were compiled %d times, want at most %d", many, checks, most)
	}
}
