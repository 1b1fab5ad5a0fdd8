// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/zip"
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestF46_Freeze leaves a data directory for later releases to read, made by the
// binary that ROUX_FREEZE names. What is there already is not touched.
func TestF46_Freeze(t *testing.T) {
	binary := os.Getenv("ROUX_FREEZE")
	if binary == "" {
		t.Skip("ROUX_FREEZE names no binary that is to leave a store")
	}
	binary, err := filepath.Abs(filepath.Join("..", "..", binary))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Env = filepath.Join("testdata", "stores"), append(os.Environ(), "ROUX_DATA="+dir, "NO_COLOR=1")
		return cmd
	}
	hold := func(args ...string) { // starts a run and kills the process once the run waits
		cmd := command(append([]string{"run"}, args...)...)
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && !strings.Contains(lines.Text(), "node.waiting") {
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
	}
	for _, args := range [][]string{
		{"run", "done.yaml", "--input", `words=["a","b","c","d"]`}, {"run", "failed.yaml"}, {"runs", "retry", "@last"}, {"run", "flaky.yaml"},
	} {
		if out, err := command(args...).CombinedOutput(); err != nil && !bytes.Contains(out, []byte("on purpose")) {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	hold("waiting.yaml")
	if out, err := command("runs", "cancel", "@last").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	hold("waiting.yaml")
	hold("timer.yaml")
	hold("busy.yaml")
	hold("filed.yaml", "--file", "filed.yaml")

	base := filepath.Join("testdata", "stores", time.Now().UTC().Format("2006-01-02-1504"))
	if err := packStore(base+".zip", dir); err != nil {
		t.Fatal(err)
	}
	ids, err := command("runs", "list", "-o", "name").Output() // opening the directory changes it, so it is packed before this
	if err != nil {
		t.Fatal(err)
	}
	var events []byte
	for _, run := range slices.Sorted(slices.Values(strings.Fields(string(ids)))) {
		some, err := command("events", run, "-o", "jsonl").Output()
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, some...)
	}
	if err := os.WriteFile(base+".jsonl", events, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("wrote %s.zip and .jsonl", base)
}

// packStore packs what a killed process left, without the files that are useless once
// the process has ended.
func packStore(path, dir string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	z := zip.NewWriter(f)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || name == "lock" || strings.HasSuffix(name, "-shm") {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, "-wal") {
			data = append(bytes.TrimRight(data, "\x00"), make([]byte, 64)...)
		}
		w, err := z.Create(name)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	return z.Close()
}
