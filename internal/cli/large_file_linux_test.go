// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const largeFileRecipe = `name: large-file
outputs: {hex: steps.sum.output.hex, file: steps.copy.output.file, size: "files[0].sizeBytes"}
steps:
  - {id: sum, action: {name: hash, parameters: {algorithm: sha512}}}
  - {id: copy, action: {name: copy-file}}
`

// peakOf runs a command and returns its output and the most memory it has held
// (VmHWM, in MiB).
func peakOf(t *testing.T, env []string, stdout io.Writer, args ...string) (out string, peak int) {
	t.Helper()
	note := filepath.Join(t.TempDir(), "peak")
	cmd := command(t, append(slices.Clone(env), "PEAK="+note), args...)
	var text, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &talk
	if stdout != nil {
		cmd.Stdout = stdout
	}
	began := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("roux %s: %v\n%s", strings.Join(args, " "), err, talk.String())
	}
	peak = noted(t, note)
	t.Logf("roux %s: %s, %d MiB", args[0]+" "+args[1], time.Since(began).Round(time.Millisecond), peak)
	return text.String(), peak
}

// noted returns the peak memory, in MiB, that a process wrote to the file note.
func noted(t *testing.T, note string) int {
	t.Helper()
	raw, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kb >> 10
		}
	}
	t.Fatalf("no VmHWM in\n%s", raw)
	return 0
}

// A large file passes through upload, an action that reads it, an action that
// makes one, and back out, and is never held whole: 96 MiB here within 100 MiB
// of memory, 2 GiB within 150 MiB with ROUX_LONG=1 (F21).
func TestF21_LargeFileIsStreamed(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: it measures memory, of which the race detector needs more")
	}
	size, limit := int64(96<<20), 100
	if os.Getenv("ROUX_LONG") != "" {
		size, limit = 2<<30, 150
	}
	src := filepath.Join(t.TempDir(), "large.pdf")
	f, err := os.Create(src)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// A sparse file with content at both ends only. It begins like a PDF, so its
	// inspection must refuse it.
	if _, err := f.WriteString("%PDF-1.7\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("the end"), size-7); err != nil {
		t.Fatal(err)
	}
	_, env := dataEnv(t)
	within := func(what string, peak int) {
		if peak > limit {
			t.Errorf("%s held %d MiB of memory, want at most %d", what, peak, limit)
		}
	}
	out, peak := peakOf(t, env, nil, "files", "put", src, "-q", "-o", "name")
	within("upload", peak)
	hash := strings.TrimSpace(out)
	if sum := sumOf(t, f, size); hash != "sha256_"+sum {
		t.Fatalf("uploaded as %s, want the hash %s", hash, sum)
	}
	out, peak = peakOf(t, env, nil, "run", write(t, "large.yaml", largeFileRecipe), "--file", hash, "-q", "-o", "template={{ outputs.file }} {{ outputs.size }}")
	within("hash and copy", peak)
	made, said, _ := strings.Cut(strings.TrimSpace(out), " ")
	if said != strconv.FormatInt(size, 10) {
		t.Errorf("the run saw %s bytes, want %d", said, size)
	}
	h := sha256.New()
	_, peak = peakOf(t, env, h, "files", "get", made)
	within("download", peak)
	if got := "sha256_" + hex.EncodeToString(h.Sum(nil)); got != made {
		t.Errorf("downloaded %s, want %s", got, made)
	}
	var end bytes.Buffer
	_, peak = peakOf(t, env, &end, "files", "get", made, "--range", "-7")
	within("a range", peak)
	if end.String() != "the end" {
		t.Errorf("the last 7 bytes are %q", end.String())
	}
	_, env = dataEnv(t) // and through the socket of a process that holds the directory
	note := filepath.Join(t.TempDir(), "peak")
	p := start(t, append(slices.Clone(env), "PEAK="+note), "run", write(t, "wait.yaml", waiting))
	p.until("node.waiting")
	out, peak = peakOf(t, env, nil, "files", "put", src, "-q", "-o", "name")
	within("upload through the socket", peak)
	if strings.TrimSpace(out) != hash {
		t.Errorf("uploaded through the socket as %s, want %s", out, hash)
	}
	h.Reset()
	_, peak = peakOf(t, env, h, "files", "get", hash)
	within("download through the socket", peak)
	if got := "sha256_" + hex.EncodeToString(h.Sum(nil)); got != hash {
		t.Errorf("downloaded %s through the socket, want %s", got, hash)
	}
	p.signal(os.Interrupt)
	p.wait()
	within("the process that holds the directory", noted(t, note))
}

func sumOf(t *testing.T, f *os.File, size int64) string {
	t.Helper()
	h := sha256.New()
	if n, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil || n != size {
		t.Fatalf("%d bytes, %v", n, err)
	}
	return hex.EncodeToString(h.Sum(nil))
}
