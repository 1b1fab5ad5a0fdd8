// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sharedFile reads a file of the source documents, which are not part of the project. It
// skips the test if they are absent.
func sharedFile(t *testing.T, name string) string {
	t.Helper()
	dir := cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared")
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Skipf("the sources are not here (set ROUX_SHARED): %v", err)
	}
	return string(data)
}

// TestR40_SourceExample compiles the example of the recipe-system source: it is valid, with
// the one warning of R40.
func TestR40_SourceExample(t *testing.T) {
	doc := sharedFile(t, "sources/recipe-system.txt")
	at := strings.Index(doc, `"id": "recipe_pdf_to_translated_markdown"`)
	if at < 0 {
		t.Fatal("the example is not where it was")
	}
	at = strings.LastIndex(doc[:at], "{")
	var raw json.RawMessage
	if err := json.NewDecoder(strings.NewReader(doc[at:])).Decode(&raw); err != nil {
		t.Fatal(err)
	}
	p, _, _, diags := Source("example.json", raw, Options{Actions: testActions()})
	if p == nil || len(diags) != 1 {
		t.Fatalf("want a plan and one warning, got:\n%s", dumpDiagnostics(diags))
	}
	d := diags[0]
	if d.Rule != "maybe-unbound" || !strings.Contains(d.Msg, "bound on one branch only") || d.Pointer != "/steps/2/inputBindings/text" {
		t.Errorf("not the warning of R40: %+v", d)
	}
	if len(d.Related) != 1 {
		t.Errorf("the warning does not show where the binding is made: %+v", d.Related)
	}
}
