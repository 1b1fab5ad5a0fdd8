// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestLanguageServerSession replays recorded sessions of editors against the real process: in testdata/lsp,
// lines that begin with > are what the editor says, and those with < are what the server must say to it.
// -rewrite records the answers anew.
func TestLanguageServerSession(t *testing.T) {
	files, err := filepath.Glob("testdata/lsp/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := played(t, archive, nil)
			if bytes.Equal(got, archive.Comment) {
				return
			}
			if *rewrite {
				archive.Comment = got
				if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			was, is := strings.Split(string(archive.Comment), "\n"), strings.Split(string(got), "\n")
			for i := range is {
				if i >= len(was) || was[i] != is[i] {
					t.Fatalf("%s:%d: the server says\n%s\nrun the test with -rewrite and read the diff", file, i+1, is[i])
				}
			}
			t.Fatalf("%s: the server says less than it did", file)
		})
	}
}

// played returns the session with what the server says now.
func played(t *testing.T, archive *txtar.Archive, env []string) []byte {
	t.Helper()
	cmd := command(t, env, "lsp", "--stdio")
	for _, f := range archive.Files {
		name := filepath.Join(cmd.Dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	s := &session{t: t, in: in, out: bufio.NewReader(out), dir: cmd.Dir, opened: map[string]bool{}}
	for line := range strings.Lines(string(archive.Comment)) {
		said, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "> ")
		if !ok {
			if !strings.HasPrefix(line, "< ") {
				s.log.WriteString(line)
			}
			continue
		}
		s.say(said)
	}
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Fatalf("the server ended with %v and said %q", err, stderr.String())
	}
	return s.log.Bytes()
}

// TestLanguageServerUsesNoNetwork: of recipes from elsewhere it knows what another command has fetched, and
// it asks nobody, however often a text is checked.
func TestLanguageServerUsesNoNetwork(t *testing.T) {
	var asked atomic.Int32
	const text = "name: digest\nversion: 1.0.0\nsteps: [{id: a, transform: {expression: '1'}}]\n"
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(srv.Close)
	home := t.TempDir()
	authority := filepath.Join(home, "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + home, "XDG_CACHE_HOME=" + filepath.Join(home, "cache"), "SSL_CERT_FILE=" + authority, "ROUX_EGRESS_ALLOW=127.0.0.1/32"}
	const main = "name: main\nsteps: [{id: a, recipe: {ref: digest}}]\n"
	opens, err := json.Marshal(main)
	if err != nil {
		t.Fatal(err)
	}
	edit := `> {"jsonrpc":"2.0","method":"textDocument/didChange","params":{"textDocument":{"uri":"file:///DIR/main.yaml","version":%d},"contentChanges":[{"text":` + string(opens) + "}]}}\n"
	files := []txtar.File{
		{Name: "roux.yaml", Data: []byte("recipes: " + srv.URL + "/digest.yaml\n")}, {Name: "main.yaml", Data: []byte(main)},
		{Name: "roux.lock", Data: fmt.Appendf(nil, "lock: 1\nsources:\n  - {source: %s/digest.yaml, sha256: %x}\n"+
			"references:\n  - {kind: recipe, ref: digest, version: 1.0.0, sha256: %[2]x}\n", srv.URL, sha256.Sum256([]byte(text)))},
	}
	session := &txtar.Archive{Files: files, Comment: []byte(`> {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}
> {"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"file:///DIR/main.yaml","languageId":"yaml","version":1,"text":` + string(opens) + "}}}\n" +
		fmt.Sprintf(edit, 2) + fmt.Sprintf(edit, 3) + `> {"jsonrpc":"2.0","id":2,"method":"shutdown"}
> {"jsonrpc":"2.0","method":"exit"}
`)}
	const missing = "/digest.yaml is not kept on this machine, and is not fetched here"
	if got := string(played(t, session, env)); strings.Count(got, missing) != 3 || asked.Load() != 0 {
		t.Errorf("before anything was fetched: %d requests\n%s", asked.Load(), got)
	}
	cmd := command(t, env, "validate", "main.yaml")
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(cmd.Dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil || asked.Load() != 1 {
		t.Fatalf("validate: %v, %d requests\n%s", err, asked.Load(), out)
	}
	if got := string(played(t, session, env)); strings.Count(got, `"diagnostics":[]`) != 3 || asked.Load() != 1 {
		t.Errorf("after that: %d requests\n%s", asked.Load(), got)
	}
}

// A session is that of one editor.
type session struct {
	t      *testing.T
	in     io.Writer
	out    *bufio.Reader
	dir    string
	log    bytes.Buffer
	opened map[string]bool
}

// said is what a message has that tells which others follow from it.
type said struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		TextDocument struct {
			URI     string `json:"uri"`
			Version *int   `json:"version"`
		} `json:"textDocument"`
		URI     string `json:"uri"`
		Version *int   `json:"version"`
	} `json:"params"`
}

// say sends a message and reads until the server has said what follows from it: the answer of a request,
// the problems of a document.
func (s *session) say(text string) {
	s.log.WriteString("> " + text + "\n")
	var m said
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	body := strings.ReplaceAll(text, "/DIR", s.dir)
	if _, err := fmt.Fprintf(s.in, "Content-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		s.t.Fatal(err)
	}
	doc := m.Params.TextDocument
	switch m.Method {
	case "textDocument/didOpen", "textDocument/didChange":
		s.opened[doc.URI] = true
		s.until(func(got said) bool {
			return got.Method == "textDocument/publishDiagnostics" && got.Params.URI == doc.URI && *got.Params.Version == *doc.Version
		})
	case "textDocument/didClose":
		delete(s.opened, doc.URI)
		s.until(func(got said) bool {
			return got.Method == "textDocument/publishDiagnostics" && got.Params.URI == doc.URI
		})
	case "textDocument/didSave":
		for range s.opened {
			s.until(func(got said) bool { return got.Method == "textDocument/publishDiagnostics" })
		}
	default:
		if m.ID != nil {
			s.until(func(got said) bool { return string(got.ID) == string(m.ID) })
		}
	}
}

// until reads messages up to one.
func (s *session) until(last func(said) bool) {
	for {
		length := 0
		for {
			line, err := s.out.ReadString('\n')
			if err != nil {
				s.t.Fatalf("the server ended: %v\n%s", err, s.log.String())
			}
			if line = strings.TrimSpace(line); line == "" {
				break
			}
			if value, ok := strings.CutPrefix(line, "Content-Length: "); ok {
				if length, err = strconv.Atoi(value); err != nil {
					s.t.Fatal(err)
				}
			}
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(s.out, body); err != nil {
			s.t.Fatal(err)
		}
		var got said
		if err := json.Unmarshal(body, &got); err != nil {
			s.t.Fatalf("%s: %v", body, err)
		}
		got.Params.URI = strings.ReplaceAll(got.Params.URI, s.dir, "/DIR")
		s.log.WriteString("< " + strings.ReplaceAll(string(body), s.dir, "/DIR") + "\n")
		if last(got) {
			return
		}
	}
}
