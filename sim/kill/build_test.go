// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/roux-engine/roux/internal/failpoint"
)

// TestFailpointsAreNotInTheBinary: what the tag adds is not in a build without it, not
// even as text. It is in a build with the tag; otherwise this test and the whole bench
// would prove nothing.
func TestFailpointsAreNotInTheBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two binaries")
	}
	builds := map[string]string{"plain": ""}
	if os.Getenv("ROUX_LONG") != "" { // nightly; it compiles everything once more
		builds["failpoints"] = "failpoints"
	}
	for name, tags := range builds {
		exe, err := build(t.Context(), t.TempDir(), name, tags)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(exe)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{failpoint.Setting, string(failpoint.CommitBefore), "failpoint.inject"} {
			if has := bytes.Contains(data, []byte(text)); has != (tags != "") {
				t.Errorf("the binary built with tags %q holds %q: %t", tags, text, has)
			}
		}
	}
}
