// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

// Help fits a terminal of 80 columns, all but commands, which are to be copied.
func TestHelpFits(t *testing.T) {
	pages := 0
	for _, c := range allCommands((&app{getenv: func(string) string { return "" }}).command()) {
		var page bytes.Buffer
		words := append(strings.Fields(c.Command)[1:], "--help")
		if code := execute(context.Background(), words, nil, &page, io.Discard, nil); code != 0 {
			t.Fatalf("%s --help exits with %d", c.Command, code)
		}
		pages++
		for line := range strings.Lines(page.String()) {
			line = strings.TrimRight(line, "\n")
			if n := utf8.RuneCountInString(line); n > helpColumns && (!strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "  -")) {
				t.Errorf("%s --help has a line of %d columns:\n%s", c.Command, n, line)
			}
		}
	}
	if pages < 20 {
		t.Errorf("only %d pages were looked at", pages)
	}
}

// beginning shortens a long document among the outputs, so that it does not fill the
// terminal.
func TestBeginning(t *testing.T) {
	forty := strings.Repeat("a line\n", mostLines)
	if got := beginning(forty, 80); got != forty {
		t.Errorf("%d lines became %q", mostLines, got)
	}
	got := beginning(forty+"and more\nto come\n", 80)
	if want := forty + "… 2 more lines with 4 words: add `| less`, or `-o json > FILE`, to have them\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// A document of one very long line counts as the lines that it takes on the screen.
	wide := "text: " + strings.Repeat("é word ", 5_000) + "\n"
	if got := beginning(wide, 80); len([]rune(got)) > 80*mostLines || !strings.HasPrefix(wide, got[:400]) || !strings.Contains(got, "… 1 more line with ") {
		t.Errorf("a line of %d bytes became one of %d: %.200q", len(wide), len(got), got)
	}
}
