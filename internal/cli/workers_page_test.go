// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The commands of the page work, in order and in one shell.
func TestWorkersPage(t *testing.T) {
	for _, tool := range []string{"curl", "python3", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("a tool of the page is not installed: %s", tool)
		}
	}
	page, err := os.ReadFile("../../docs/workers.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	for _, name := range []string{"python/worker.py", "python/conform.py", "typescript/worker.js", "typescript/package.json"} {
		text, err := os.ReadFile("../../workers/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return // the page has ended it
		}
		text, _ := os.ReadFile(filepath.Join(dir, "server.pid")) // it may not have begun
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	})
	sh := newShell(t, dir, rouxOnPath(t)+"export ROUX_DATA=\n")
	blocks := pageBlock.FindAllStringSubmatch(strings.ReplaceAll(string(page), "127.0.0.1:7420", freeAddress(t)), -1)
	tried := 0
	for i, b := range blocks {
		switch kind, text := b[1], b[2]; kind {
		case "yaml", "python", "js":
			name, text, _ := strings.Cut(text, "\n")
			if err := os.WriteFile(filepath.Join(dir, strings.TrimLeft(name, "/# ")), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			// The server listens when its first line is there.
			text = strings.Replace(text, " &\nSERVER=$!\n", " > ready &\nSERVER=$!\necho $SERVER > server.pid\nuntil grep -q listening ready; do :; done\n", 1)
			tried += len(shownLines(text))
			text = strings.ReplaceAll(text, " # ends with 1\n", " 2>&1 || test $? = 1\n")
			shown := sh.run(text)
			if i+1 < len(blocks) && blocks[i+1][1] == "text" {
				if missing := missingLine(shown, shownLines(blocks[i+1][2])); missing != "" {
					t.Fatalf("it does not show %q but\n%s", missing, shown)
				}
			}
		}
	}
	sh.run("wait $SERVER\n")
	if tried < 25 {
		t.Errorf("%d commands on the page: it has lost some", tried)
	}
}
