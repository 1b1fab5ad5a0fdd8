// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzSource: for any text there is a plan or an error with a position, never a panic.
func FuzzSource(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		text, _, _ := strings.Cut(string(data), diagMark)
		f.Add([]byte(text))
	}
	f.Add([]byte(whole))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, r, src, diags := Source("x.yaml", text, Options{Actions: testActions()})
		if (p == nil) != HasErrors(diags) {
			t.Errorf("plan %v, diagnostics %s", p != nil, dumpDiagnostics(diags))
		}
		if src == nil {
			t.Error("no source")
		}
		if r == nil {
			return
		}
		for _, d := range diags {
			if d.Pos.Line == 0 || d.Msg == "" || d.Rule == "" || d.Code == "" {
				t.Errorf("an incomplete diagnostic: %+v", d)
			}
		}
	})
}
