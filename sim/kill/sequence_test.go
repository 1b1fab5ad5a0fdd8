// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestSequenceCatches: what a client was sent is compared with what is stored, byte for byte.
func TestSequenceCatches(t *testing.T) {
	for _, tt := range []struct{ name, sent, stored, want string }{
		{"the same", "a b c", "a b c", ""},
		{"the end is missing", "a b", "a b c", "was sent up to number 2, and 3 are stored"},
		{"more than is stored", "a b c", "a b", "was sent up to number 3, and 2 are stored"},
		{"two are swapped", "a c b", "a b c", "number 2 of the feed"},
		{"one is repeated", "a a b", "a b c", "number 2 of the feed"},
		{"a space", "a b{} c", "a b{\t} c", "number 2 of the feed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var found []string
			(&sequence{way: byFeed, frames: strings.Split(tt.sent, " ")}).compare(strings.Split(tt.stored, " "), func(format string, args ...any) {
				found = append(found, fmt.Sprintf(format, args...))
			})
			if got := strings.Join(found, "\n"); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("compare reports %q, want %q", got, tt.want)
			}
		})
	}
}

// TestChangesOf: a change of the server and of the command line is the same one, and each fact
// makes a difference.
func TestChangesOf(t *testing.T) {
	const server = `{"number":7,"type":"run.changed","timestamp":"2026-01-02T03:04:05.678901Z","runId":"r","rootRunId":"r","recipe":"x","status":"running","state":"running"}`
	const printed = `{"id":7,"at":"2026-01-02T03:04:05.678Z","run":"r","recipe":"x","status":"running"}`
	const entry = `{"number":8,"type":"credits.entry","timestamp":"2026-01-02T03:04:05Z","entry":3,"kind":"settle"}`
	const printedEntry = `{"id":8,"at":"2026-01-02T03:04:05.000Z","entry":{"number":3,"key":"settle/r","kind":"settle"}}`
	a, err := changesOf([]string{server, entry})
	if err != nil {
		t.Fatal(err)
	}
	b, err := changesOf([]string{printed, printedEntry})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a, b) {
		t.Errorf("the server has\n%q\nand the command line\n%q", a, b)
	}
	for _, r := range [][2]string{{`"id":7`, `"id":8`}, {".678", ".679"}, {`"r"`, `"s"`}, {`"x"`, `"y"`}, {"running", "waiting"}, {`"status"`, `"hidden":true,"status"`}} {
		other, err := changesOf([]string{strings.Replace(printed, r[0], r[1], 1)})
		if err != nil || other[0] == a[0] {
			t.Errorf("%s instead of %s makes no difference (%v)", r[1], r[0], err)
		}
	}
}
