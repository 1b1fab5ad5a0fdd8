// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The commands of the page are run by one shell, with a server of the real binary and the
// receiver of the page, on other ports.
func TestWebhooksPage(t *testing.T) {
	for _, tool := range []string{"curl", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("a tool of the page is not installed: %s", tool)
		}
	}
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	address, receiver, files := freeAddress(t), freeAddress(t), t.TempDir()
	_, port, err := net.SplitHostPort(receiver)
	if err != nil {
		t.Fatal(err)
	}
	var server *process
	admin, tried := "", 0
	sh := newShell(t, files, "trap 'kill $RECEIVER 2>/dev/null' EXIT\n")
	blocks := pageBlock.FindAllStringSubmatch(strings.ReplaceAll(string(page), "\r\n", "\n"), -1)
	for i, b := range blocks {
		switch {
		case b[1] == "python":
			name, text, _ := strings.Cut(b[2], "\n")
			if err := os.WriteFile(filepath.Join(files, strings.TrimPrefix(name, "# ")), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case b[1] != "sh":
		case strings.Contains(b[2], "roux serve"):
			setting, _, _ := strings.Cut(b[2], " ")
			server = start(t, []string{setting}, "serve", "--data", shortDir(t), "--listen", address)
			server.until("curl -H")
			_, key, _ := strings.Cut(server.said(), "Bearer ")
			admin, _, _ = strings.Cut(key, "'")
		default:
			text := strings.NewReplacer("127.0.0.1:7420", address, "127.0.0.1:8000", receiver, "receiver.py 8000", "receiver.py "+port, "KEY=roux_…", "KEY="+admin).Replace(b[2])
			tried += len(shownLines(text))
			shown := sh.run(text)
			if i+1 < len(blocks) && blocks[i+1][1] == "text" {
				want := strings.ReplaceAll(blocks[i+1][2], "127.0.0.1:8000", receiver)
				if missing := missingLine(shown, shownLines(want)); missing != "" {
					t.Fatalf("it does not show %q but\n%s", missing, shown)
				}
			}
		}
	}
	if tried < 25 {
		t.Errorf("%d commands on the page: it has lost some", tried)
	}
	server.signal(syscall.SIGTERM)
	if code := server.wait(); code != 0 {
		t.Errorf("the server ends with %d: %s", code, server.said())
	}
}

// A shell runs the blocks of a page, one after the other.
type shell struct {
	t     *testing.T
	in    *os.File
	lines chan string
	n     int
}

func newShell(t *testing.T, dir, first string) *shell {
	t.Helper()
	cmd := exec.Command("sh", "-e")
	cmd.Dir = dir
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = out
	shown, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &shell{t: t, in: in, lines: make(chan string, 1000)}
	go func() {
		lines := bufio.NewScanner(shown)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			s.lines <- lines.Text()
		}
		close(s.lines)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // it may have ended early, which run has reported
		_ = out.Close()
	})
	if _, err := in.WriteString(first); err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a block to its end and returns what it shows.
func (s *shell) run(text string) string {
	s.t.Helper()
	s.n++
	end := fmt.Sprintf("--- end of block %d", s.n)
	if _, err := s.in.WriteString(strings.ReplaceAll(text, "\n", "\necho\n") + "echo '" + end + "'\n"); err != nil {
		s.t.Fatal(err)
	}
	deadline := time.After(time.Minute)
	var shown []string
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the shell ended:\n%s\n%s", text, strings.Join(shown, "\n"))
			}
			if line == end {
				return strings.Join(shown, "\n")
			}
			shown = append(shown, line)
		case <-deadline:
			s.t.Fatalf("it does not end:\n%s\n%s", text, strings.Join(shown, "\n"))
		}
	}
}
