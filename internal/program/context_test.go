// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"testing"

	"github.com/roux-engine/roux/internal/jsonx"
)

// TestSameContext: a context is the same however the journal has escaped it, also with references to large values.
func TestSameContext(t *testing.T) {
	large := jsonx.Large{Hash: "sha256_" + string(bytes.Repeat([]byte("a"), 64)), Size: 300_000, Bytes: 300_002}
	canonical, err := jsonx.Canonical(map[string]any{"input": map[string]any{"large": large, "text": "a < b"}})
	if err != nil {
		t.Fatal(err)
	}
	journalled := bytes.ReplaceAll(canonical, []byte("<"), []byte(`\u003c`))
	if bytes.Equal(journalled, canonical) || !sameContext(journalled, canonical) {
		t.Errorf("%s is not %s", journalled, canonical)
	}
	if sameContext(bytes.ReplaceAll(journalled, []byte("300000"), []byte("300001")), canonical) || sameContext([]byte("{"), canonical) || sameContext(nil, canonical) {
		t.Error("another context is the same")
	}
}
