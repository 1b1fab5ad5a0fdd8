// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// TestDiagnostics parses every file of testdata/diagnostics and compares the diagnostics
// with the golden file next to it (X2, X3, X4, X5, X6, X7, X8, X9, X13, X44, X46, X106, X107, X108,
// X114, X147, A07, A09, A14).
func TestDiagnostics(t *testing.T) {
	files, err := filepath.Glob("testdata/diagnostics/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".golden" {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r, src, diags := Parse(filepath.Base(file), text, Options{})
			if r != nil || len(diags) == 0 {
				t.Fatalf("a recipe came out of it, with %d diagnostics", len(diags))
			}
			if !slices.IsSortedFunc(diags, func(a, b fault.Diagnostic) int {
				return 1000*(a.Pos.Line-b.Pos.Line) + a.Pos.Col - b.Pos.Col
			}) {
				t.Error("the diagnostics are not in the order of the text")
			}
			var b strings.Builder
			for _, d := range diags {
				b.WriteString(src.Format(d))
				if d.Pointer != "" {
					fmt.Fprintf(&b, "  @ %s\n", strings.ToValidUTF8(d.Pointer, "?"))
				}
			}
			golden(t, filepath.Join("diagnostics", filepath.Base(file)+".golden"), b.String())
		})
	}
}

// TestDiagnosticsAreCapped: the number of diagnostics is bounded.
func TestDiagnosticsAreCapped(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: x\nsteps:\n")
	for range 20_000 {
		b.WriteString("  - bad: 1\n")
	}
	_, _, diags := Parse("x.yaml", []byte(b.String()), Options{})
	if len(diags) != MaxDiagnostics || diags[0].Pos.Line != 3 {
		t.Errorf("%d diagnostics, the first at line %d; want %d from line 3", len(diags), diags[0].Pos.Line, MaxDiagnostics)
	}
}

// TestFormatKeepsTheTerminalSafe: control characters of a source do not reach the terminal.
func TestFormatKeepsTheTerminalSafe(t *testing.T) {
	text := "{\"name\": \"x\", \"steps\": [{\"wait\": {\"signal\": \"ok\"}}], \"\\u001b[2J\u202e\": \"" + strings.Repeat("ä", 300) + "\"}"
	_, src, diags := Parse("x.json", []byte(text), Options{})
	if len(diags) != 1 {
		t.Fatal(diags)
	}
	out := src.Format(diags[0])
	if strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("control characters reach the terminal: %q", out)
	}
	for _, line := range strings.Split(out, "\n")[1:] {
		if n := len([]rune(line)); n > 120+20 {
			t.Errorf("a line of the excerpt has %d characters", n)
		}
	}
}
