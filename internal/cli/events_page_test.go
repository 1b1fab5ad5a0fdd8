// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The commands of the page are run by a shell, and its program by Node, with a server of the
// real binary on another port.
func TestEventsPage(t *testing.T) {
	for _, tool := range []string{"curl", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("a tool of the page is not installed: %s", tool)
		}
	}
	page, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	address, files := freeAddress(t), t.TempDir()
	var server *process
	admin, tried := "", 0
	sh := newShell(t, files, "")
	blocks := pageBlock.FindAllStringSubmatch(strings.ReplaceAll(string(page), "\r\n", "\n"), -1)
	for i, b := range blocks {
		switch {
		case b[1] == "js":
			name, text, _ := strings.Cut(b[2], "\n")
			if err := os.WriteFile(filepath.Join(files, strings.TrimPrefix(name, "// ")), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case b[1] != "sh":
		case strings.Contains(b[2], "roux serve"):
			server = start(t, nil, "serve", "--data", shortDir(t), "--listen", address)
			server.until("curl -H")
			_, key, _ := strings.Cut(server.said(), "Bearer ")
			admin, _, _ = strings.Cut(key, "'")
		default:
			text := strings.NewReplacer("127.0.0.1:7420", address, "KEY=roux_…", "KEY="+admin).Replace(b[2])
			tried += len(shownLines(text))
			shown := sh.run(text)
			if i+1 < len(blocks) && blocks[i+1][1] == "text" {
				if missing := missingLine(shown, shownLines(blocks[i+1][2])); missing != "" {
					t.Fatalf("it does not show %q but\n%s", missing, shown)
				}
			}
		}
	}
	if tried < 13 {
		t.Errorf("%d commands on the page: it has lost some", tried)
	}
	server.signal(syscall.SIGTERM)
	if code := server.wait(); code != 0 {
		t.Errorf("the server ends with %d: %s", code, server.said())
	}
}
