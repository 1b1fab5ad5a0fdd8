// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/reference"
)

const actionsHead = `# Actions

Generated from the declarations of the actions by ` + "`make rewrite`" + `; do not edit. ` + "`roux actions list` and `roux actions get NAME`" + `
show the same at the command line.

A step calls an action by its name and gives it inputs under ` + "`parameters`" + ` (values and templates) or ` + "`inputBindings`" + `
(expressions). If a step does not set an input of type *file*, it gets the run's only file, unless the step sets an
alternative input. Credits are charged for completed calls.

`

const languageHead = `<!-- Generated from internal/reference by ` + "`make rewrite`" + `; do not edit. -->

# The recipe language

The reference of the recipe language, with tested examples. ` + "`roux help TOPIC`" + ` prints its parts.

`

// TestLanguagePage: docs/language.md is generated from the reference.
func TestLanguagePage(t *testing.T) {
	page(t, "docs/language.md", languageHead+reference.Page())
}

// TestActionPages: docs/actions.md and a page for each action are generated from the
// declarations (X10, X11, X12), and there is no page of a removed action.
func TestActionPages(t *testing.T) {
	actions := builtin.Actions(builtin.Config{})
	page(t, "docs/actions.md", actionsHead+builtin.Index(actions, "actions"))
	dir := filepath.Join(root, "docs", "actions")
	if *rewrite {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	known := map[string]bool{}
	for _, a := range actions {
		known[a.Name+".md"] = true
		head := "<!-- Generated from the action's declaration by `make rewrite`; do not edit. -->\n\n"
		page(t, "docs/actions/"+a.Name+".md", head+builtin.Page(a, "../errors.md"))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if known[e.Name()] || !strings.HasSuffix(e.Name(), ".md") {
			continue
		}
		if *rewrite {
			err = os.Remove(filepath.Join(dir, e.Name()))
		}
		if !*rewrite || err != nil {
			t.Errorf("docs/actions/%s describes no action: run `make rewrite` (%v)", e.Name(), err)
		}
	}
}
