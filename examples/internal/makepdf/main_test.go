// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"testing"
)

// The documents in the tree are the ones that this program generates.
func TestDocumentsAreUpToDate(t *testing.T) {
	total := 0
	for name, want := range documents() {
		have, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want) {
			t.Errorf("examples/%s differs from its source: run go generate ./examples/...", name)
		}
		total += len(want)
	}
	if total > 200_000 {
		t.Errorf("the documents have %d bytes, want less than 200 kB", total)
	}
}
