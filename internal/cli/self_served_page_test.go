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

// runSelfServed runs the commands of a page, in order and in one shell, which starts the server of the
// page itself and ends it. Blocks in other languages are files, whose first line names them in a
// comment. Each line that the page shows of the output of commands is there; … stands for any text in
// it. shown is what the blocks of commands have shown.
func runSelfServed(t *testing.T, name, first string, least int, replace ...string) (shown []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
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
	// The server listens when its first line is there.
	replace = append(replace, "127.0.0.1:7420", freeAddress(t), " # ends with 1\n", " 2>&1 || test $? = 1\n",
		" &\nSERVER=$!\n", " > ready &\nSERVER=$!\necho $SERVER > server.pid\nuntil grep -q listening ready; do :; done\n")
	sh := newShell(t, dir, rouxOnPath(t)+"export ROUX_DATA=\n"+first)
	blocks := pageBlock.FindAllStringSubmatch(strings.NewReplacer(replace...).Replace(string(page)), -1)
	tried := 0
	for i, b := range blocks {
		switch kind, text := b[1], b[2]; kind {
		case "text":
		case "sh":
			tried += len(shownLines(text))
			out := sh.run(text)
			shown = append(shown, out)
			if i+1 < len(blocks) && blocks[i+1][1] == "text" {
				if missing := missingLine(out, shownLines(blocks[i+1][2])); missing != "" {
					t.Fatalf("it does not show %q but\n%s", missing, out)
				}
			}
		default:
			name, text, _ := strings.Cut(text, "\n")
			if err := os.WriteFile(filepath.Join(dir, strings.TrimLeft(name, "/# ")), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	sh.run("wait $SERVER\n")
	if tried < least {
		t.Errorf("%d commands on the page: it has lost some", tried)
	}
	return shown
}

// needs skips a test where a tool of a page is not installed.
func needs(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("a tool of the page is not installed: %s", tool)
		}
	}
}
