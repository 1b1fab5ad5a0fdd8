// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"testing"
)

// The document in the tree is the one that this program makes.
func TestReportIsUpToDate(t *testing.T) {
	want := makeReport()
	have, err := os.ReadFile("../../report.pdf")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("examples/report.pdf differs from its source: run go generate ./examples/...")
	}
	if len(want) > 200_000 {
		t.Errorf("the document has %d bytes, want less than 200 kB", len(want))
	}
}
