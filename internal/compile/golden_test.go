// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

const (
	diagMark = "\n==== diagnostics\n"
	planMark = "\n==== plan\n"
)

// TestGolden compiles the definition at the head of each file in testdata and compares
// diagnostics and plan with the rest of the file. Each file has the name of the rule that
// it shows; its first line lists the rows that it proves.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, _, _ := strings.Cut(string(data), diagMark)
			p, _, _, diags := Source(name+".yaml", []byte(text+"\n"), testOptions())
			got := text + diagMark + dumpDiagnostics(diags)
			if p != nil {
				got += planMark + dump(p)
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(data), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s differs (go test -rewrite, then read the diff):\n%s", file, diff)
			}
			for _, d := range diags {
				if d.Pos.Line == 0 {
					t.Errorf("a diagnostic without a place: %s", d)
				}
			}
		})
	}
}
