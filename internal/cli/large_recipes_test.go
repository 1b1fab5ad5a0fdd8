// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// TestA09_HugeFiles: whatever a command reads a text for, it refuses one of 100 MB without reading it all, and says what
// the limit is.
func TestA09_HugeFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("ROUX_DATA", filepath.Join(dir, "data"))
	for _, name := range []string{"huge.yaml", "huge.json"} {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("{\"name\": \"x\", \"steps\": ["); err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(100 << 20); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"validate", "run", "fmt --check", "convert --to dag", "lint", "graph", "refactor", "import", "apply", "rehearse", "estimate", "lint --compat huge.json"} {
		for _, name := range []string{"huge.yaml", "huge.json"} {
			args := append(strings.Fields(command), name)
			out, talk, code := inProcess("", args...)
			if code != fault.ExitDefinition || !strings.Contains(talk+out, "larger than") {
				t.Errorf("%v ends with %d: %.300s", args, code, talk+out)
			}
		}
	}
}
