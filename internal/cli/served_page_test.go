// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A servedPage is a page whose commands are run by one shell, with a server of the real binary
// on another port. Blocks in other languages are files, whose first line names them in a
// comment. Each line that the page shows of the output of commands is there; … stands for any
// text in it. A block in the language log is what the server says meanwhile.
type servedPage struct {
	name    string   // of the page
	tools   []string // the programs that it needs
	least   int      // how many commands it has
	data    string   // the data directory; "" = a new one
	files   string   // the working directory of the shell; "" = a new one
	folder  bool     // the page starts `roux dev` in that directory, not `roux serve`
	args    []string // further arguments of the server
	first   string   // what the shell does first
	replace []string // texts of the page, each followed by what is in its place
	ended   func()   // called before the server is stopped; nil = nothing
}

// runServed runs a page. address is that of the server.
func runServed(t *testing.T, address string, p servedPage) {
	t.Helper()
	for _, tool := range p.tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("a tool of the page is not installed: %s", tool)
		}
	}
	page, err := os.ReadFile("../../docs/" + p.name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	if p.data == "" {
		p.data = shortDir(t)
	}
	if p.files == "" {
		p.files = t.TempDir()
	}
	files, tried, starts := p.files, 0, "roux serve"
	if p.folder {
		starts = "roux dev"
	}
	sh := newShell(t, files, p.first)
	var server *process
	differs := strings.NewReplacer(p.replace...)
	blocks := pageBlock.FindAllStringSubmatch(strings.ReplaceAll(string(page), "\r\n", "\n"), -1)
	for i, b := range blocks {
		switch kind, text := b[1], b[2]; {
		case kind == "text":
		case kind == "log":
			server.shows(shownLines(differs.Replace(text)))
		case kind != "sh":
			name, text, _ := strings.Cut(text, "\n")
			if err := os.WriteFile(filepath.Join(files, strings.TrimLeft(name, "/# ")), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case strings.Contains(text, starts):
			if server != nil {
				t.Fatal("the page starts two servers")
			}
			settings, _, _ := strings.Cut(text, starts)
			words, ready := []string{"serve"}, "curl -H"
			if p.folder {
				words, ready = []string{"dev", files}, "curl -s"
			}
			server = start(t, strings.Fields(settings), append(append(words, "--data", p.data, "--listen", address), p.args...)...)
			server.until(ready)
			_, key, _ := strings.Cut(server.said(), "Bearer ")
			key, _, _ = strings.Cut(key, "'")
			differs = strings.NewReplacer(append(p.replace, "127.0.0.1:7420", address, "=roux_…", "="+key)...)
		default:
			text = differs.Replace(text)
			tried += len(shownLines(text))
			shown := sh.run(text)
			if i+1 < len(blocks) && blocks[i+1][1] == "text" {
				if missing := missingLine(shown, shownLines(differs.Replace(blocks[i+1][2]))); missing != "" {
					t.Fatalf("it does not show %q but\n%s", missing, shown)
				}
			}
		}
	}
	if tried < p.least {
		t.Errorf("%d commands on the page: it has lost some", tried)
	}
	if p.ended != nil {
		p.ended()
	}
	server.stop()
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
		if t.Failed() {
			_ = cmd.Process.Kill() // it may be in a command that does not end
		}
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

// rouxOnPath is a line for a shell that finds roux, with a home of its own.
func rouxOnPath(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(exe, filepath.Join(bin, "roux")); err != nil { // the test binary is roux by that name
		t.Fatal(err)
	}
	return "PATH=" + bin + ":$PATH; HOME=$PWD; XDG_CONFIG_HOME=$PWD; export PATH HOME XDG_CONFIG_HOME\n"
}

// freeAddress is an address of this machine with a port that nobody listens at. The port is below those that
// Linux chooses by itself (32768 and above), so that none of the connections and servers of other tests takes it
// between this check and its use.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(20000))
		ln, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		return address
	}
	t.Fatal("none of 100 ports is free")
	return ""
}
