// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFreshPDFs: small files with one fault each give the text that poppler
// reads. Where the page tree is broken, poppler finds only the number of pages,
// and the text is read all the same.
func TestFreshPDFs(t *testing.T) {
	const (
		hello   = "Hello page 1/Hello page 2"
		symbols = "Here follow symbols: γ π∀a∈π ≤ |a|"
		alice   = "First Name Alice"
	)
	want := map[string]string{
		"bi-type1": symbols, "bi-type1c": symbols, // 0 γ, 1 π and so on, by the built-in encoding
		"form-emptyap":        "First Name", // the empty appearance is intended
		"form-emptyap-needap": alice, "form-needap": alice, "form-v-ap": alice, "form-v-noap": alice, "form-v16-ap": alice, "form-v16-noap": alice,
	}
	dir := sharedData(t)
	paths, err := filepath.Glob(filepath.Join(dir, "pdf-fresh", "*.pdf"))
	if err != nil || len(paths) < 28 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".pdf")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			doc, err := Text(data, Options{MaxPages: maxPages})
			if err != nil {
				t.Fatal(err)
			}
			var pages []string
			for _, p := range doc.Pages {
				pages = append(pages, strings.Join(strings.Fields(p.Markdown), " "))
			}
			text, known := want[name]
			if !known {
				text = hello
			}
			if got := strings.Join(pages, "/"); got != text {
				t.Errorf("%q, want %q", got, text)
			}
			if info, err := Info(data, maxPages); err != nil || info.PageCount != len(pages) {
				t.Errorf("inspected: %d pages, %v; want %d", info.PageCount, err, len(pages))
			}
		})
	}
}
