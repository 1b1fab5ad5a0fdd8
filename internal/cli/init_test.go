// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/examples"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/userfile"
)

// TestInitEveryExample: a project made of any example holds together: its
// recipe compiles without a warning, and what its command names is there.
func TestInitEveryExample(t *testing.T) {
	actions := node.Catalogue(builtin.Actions(builtin.Config{}))
	for _, e := range examples.All() {
		t.Run(e.Name, func(t *testing.T) {
			files, run, err := project(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			p, err := userfile.OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for _, f := range files {
				if done, err := p.Offer(f.name, f.text, f.ours); err != nil || done.Done != userfile.Written {
					t.Errorf("%s: %+v, %v", f.name, done, err)
				}
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Recipe))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(text), "# yaml-language-server: $schema=") || strings.Contains(string(text), "examples/") {
				t.Errorf("the recipe begins without its schema, or still names examples/:\n%s", text)
			}
			plan, _, _, diags := compile.Source(e.Recipe, text, compile.Options{Actions: actions})
			if plan == nil || len(diags) > 0 {
				t.Error(diags)
			}
			if !strings.HasPrefix(run, "roux run "+e.Recipe) {
				t.Errorf("it says to run %q", run)
			}
			words := strings.Fields(run)
			for i, w := range words {
				name := strings.Trim(w, `'"`)
				switch {
				case i > 0 && words[i-1] == "--file":
				case strings.HasPrefix(name, "@"):
					name = name[1:]
				default:
					continue
				}
				if found, err := filepath.Glob(filepath.Join(dir, name)); err != nil || len(found) == 0 {
					t.Errorf("%q names %s, which init has not written", run, name)
				}
			}
		})
	}
}
