// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var dump = flag.String("dump", "", "write the Markdown of every shared PDF into this folder, to be read by eye")

func TestDump(t *testing.T) {
	if *dump == "" {
		t.Skip("no folder to write to: this test is for reading by eye, set -dump")
	}
	dir, _ := sharedData(t)
	names, _ := filepath.Glob(filepath.Join(dir, "pdf", "*.pdf"))
	for _, extra := range flag.Args() {
		names = append(names, extra)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := New(Config{}).Text(context.Background(), bytes.NewReader(data), TextOptions{})
		var out strings.Builder
		for _, p := range doc.Pages {
			out.WriteString("\n\n=== page\n" + p.Problem + "\n" + p.Markdown)
		}
		if err != nil {
			out.WriteString(err.Error())
		}
		os.WriteFile(filepath.Join(*dump, filepath.Base(name)+".md"), []byte(out.String()), 0o644)
	}
}
