// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The commands of the page are run by one shell, with a server of the real binary on another
// port.
func TestAccountsPage(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	page, err := os.ReadFile("../../docs/accounts.md")
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	server := start(t, nil, "serve", "--data", shortDir(t), "--listen", address)
	server.until("curl -H")
	_, admin, _ := strings.Cut(server.said(), "Bearer ")
	admin, _, _ = strings.Cut(admin, "'")
	sh := newShell(t, t.TempDir(), "")
	tried := 0
	blocks := pageBlock.FindAllStringSubmatch(strings.ReplaceAll(string(page), "\r\n", "\n"), -1)
	for i, b := range blocks {
		if b[1] != "sh" || strings.HasPrefix(b[2], "roux serve") {
			continue
		}
		text := strings.NewReplacer("127.0.0.1:7420", address, "ADMIN=roux_…", "ADMIN="+admin).Replace(b[2])
		tried += len(shownLines(text))
		shown := sh.run(text)
		if i+1 < len(blocks) && blocks[i+1][1] == "text" {
			if missing := missingLine(shown, shownLines(blocks[i+1][2])); missing != "" {
				t.Fatalf("it does not show %q but\n%s", missing, shown)
			}
		}
	}
	if tried < 20 {
		t.Errorf("%d commands on the page: it has lost some", tried)
	}
	server.signal(syscall.SIGTERM)
	if code := server.wait(); code != 0 {
		t.Errorf("the server ends with %d: %s", code, server.said())
	}
}
