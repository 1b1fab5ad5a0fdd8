// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The commands of the page are run by a shell, with a server of the real binary on another
// port.
func TestServicePage(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	page, err := os.ReadFile("../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	address, metrics := freeAddress(t), freeAddress(t)
	dir, files := shortDir(t), t.TempDir()
	var server *process
	admin, tried := "", 0
	var script strings.Builder
	blocks := pageBlock.FindAllStringSubmatch(strings.ReplaceAll(string(page), "\r\n", "\n"), -1)
	for i, b := range blocks {
		if b[1] != "sh" {
			continue
		}
		var want []string
		if i+1 < len(blocks) && blocks[i+1][1] == "text" {
			want = shownLines(blocks[i+1][2])
		}
		if strings.HasPrefix(b[2], "roux serve") {
			if server != nil {
				t.Fatal("the page starts two servers")
			}
			server = start(t, nil, "serve", "--data", dir, "--listen", address, "--admin", metrics)
			server.until("curl -H")
			_, key, _ := strings.Cut(server.said(), "Bearer ")
			admin, _, _ = strings.Cut(key, "'")
			continue
		}
		text := strings.NewReplacer("127.0.0.1:7420", address, "ADMIN=roux_…", "ADMIN="+admin, "./data/socket", dir+"/socket").Replace(b[2])
		tried += len(shownLines(text))
		fmt.Fprintf(&script, "echo '--- %d'\n%s\n", i, text)
		// The shell starts anew for each block, so it repeats those before.
		sh := exec.Command("sh", "-e")
		sh.Dir = files
		sh.Stdin = strings.NewReader(strings.ReplaceAll(script.String(), "\n", "\necho\n"))
		var out bytes.Buffer
		sh.Stdout, sh.Stderr = &out, &out
		if err := sh.Run(); err != nil {
			t.Fatalf("%v:\n%s", err, out.String())
		}
		_, shown, _ := strings.Cut(out.String(), fmt.Sprintf("--- %d\n", i))
		if missing := missingLine(shown, want); missing != "" {
			t.Errorf("it does not show %q but\n%s", missing, shown)
		}
	}
	if tried < 12 {
		t.Errorf("%d commands on the page: it has lost some", tried)
	}
	// X223: the runs of the page are counted, on the other listener only.
	for url, want := range map[string]string{
		"http://" + metrics + "/metrics":    `recipe_executions_total{recipe="greet",status="completed"} 1`,
		"http://" + metrics + "/readyz":     `{"status":"ok"}`,
		"http://" + address + "/metrics":    "NOT_FOUND",
		"http://" + metrics + "/v1/credits": "404",
	} {
		out, err := exec.Command("curl", "-s", url).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s does not have %q, %v:\n%.2000s", url, want, err, out)
		}
	}
	server.signal(syscall.SIGTERM)
	if code := server.wait(); code != 0 {
		t.Errorf("the server ends with %d: %s", code, server.said())
	}
}

// freeAddress is an address of this machine with a port that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
