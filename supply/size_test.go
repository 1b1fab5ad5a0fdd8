// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The binary has at most 56 MB without symbols, and 40 MB with -tags small. The linker leaves out what
// nothing calls only as long as nothing imports html/template, which calls methods by their names: with
// it the binary has 9 MB more.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		tags string
		most int64 // MB
	}{{"", 56}, {"small", 40}} {
		path := filepath.Join(t.TempDir(), "roux")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", c.tags, "-o", path, "../cmd/roux")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build -tags %q: %v\n%s", c.tags, err, text)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Size(); got > c.most*1_000_000 {
			t.Errorf("-tags %q: the binary has %d bytes, want at most %d MB: see internal/house/small_test.go for what a small binary leaves out", c.tags, got, c.most)
		}
	}
}
