// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/term"
)

// hostileNames are names that have a special meaning to some file system, shell,
// terminal or protocol.
var hostileNames = []string{
	"..", ".", "../up", "../../up", "a/../../up", "/absolute", `..\up`, `C:\up`, `\\host\share`, "%2e%2e/up", "%2e%2e%2fup",
	"nul\x00byte", "CON", "con.txt", "NUL", "aux.pdf", "COM1", "lpt9.md", "conin$", "point.", "space ", ".hidden", "-rf", "~", "link",
	"line\r\nSet-Cookie: a=b", "\x1b]0;owned\x07\x1b[31m", "\u202egnp.exe", "\u2066iso\u2069", "\xff\xfe", "a\tb", strings.Repeat("x", 5_000),
	"sha256_..", "sha256_" + strings.Repeat("../", 21) + "a", "run_../../x", "=HYPERLINK(\"http://x\")",
}

// inProcess runs a command in this process, where names may hold any byte.
func inProcess(stdin string, args ...string) (stdout, stderr string, code int) {
	var out, talk bytes.Buffer
	code = execute(context.Background(), args, strings.NewReader(stdin), &out, &talk, testActions())
	return out.String(), talk.String(), code
}

// fingerprint returns a hash of everything below a directory except the directories
// data and out in it.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == filepath.Join(dir, "data") || p == filepath.Join(dir, "out") {
			return fs.SkipDir
		}
		fmt.Fprintf(h, "%q %s ", p, d.Type())
		if d.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(p)
			fmt.Fprintf(h, "%q", to)
			return err
		}
		if d.Type().IsRegular() {
			data, err := os.ReadFile(p)
			fmt.Fprintf(h, "%q", data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// places matches every path that a data directory may have.
var places = regexp.MustCompile(`^(roux\.db(-wal|-shm)?|lock|reserve|socket|socket\.path|files|files/tmp|files/acct_[0-9a-f]{32}(/account|/[0-9a-f]{2}(/sha256_[0-9a-f]{64}(\.json)?)?)?)$`)

func wellFormed(t *testing.T, data string) {
	t.Helper()
	err := filepath.WalkDir(data, func(p string, _ fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(data, p)
		if rel = filepath.ToSlash(rel); err == nil && rel != "." && !places.MatchString(rel) {
			t.Errorf("the data directory has a path %q", rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// harmless fails the test when text would act on a terminal (A31).
func harmless(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if unicode.IsControl(r) && r != '\n' || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 {
			t.Errorf("%s shows %q", what, text)
			return
		}
	}
}

// yard makes a directory with files that must not change, and a data directory in it.
// It changes to the directory in.
func yard(t *testing.T) (dir, data string) {
	t.Helper()
	dir = t.TempDir()
	data = filepath.Join(dir, "data")
	for name, text := range map[string]string{"up": "outside", "secret": "hush", "in/up": "inside", "out/link-target": "kept"} {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ROUX_DATA", data)
	t.Chdir(filepath.Join(dir, "in"))
	return dir, data
}

// A15, A31, I19: a name from outside is data. When a file is stored, its name becomes
// no path. When the file is written out, the name becomes a plain file name in the
// named directory. It sends no control characters to a terminal.
func TestA15_A31_HostileNames(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: it starts hundreds of processes, one after the other")
	}
	dir, data := yard(t)
	before := fingerprint(t, dir)
	type stored struct{ Hash, Name string }
	for i, name := range hostileNames {
		t.Run(fmt.Sprintf("%.20q", name), func(t *testing.T) {
			content := fmt.Sprint("content ", i)
			check := func(entry string, v stored) {
				t.Helper()
				if strings.ContainsAny(v.Name, "/\\\x00\r\n\x1b\u202e") || v.Name == ".." || v.Name == "." || len(v.Name) > 255 {
					t.Errorf("%s keeps the name %q", entry, v.Name)
				}
				if !blob.ValidHash(v.Hash) {
					t.Errorf("%s: hash %q", entry, v.Hash)
				}
			}
			// Upload by name, shown to people and to programs.
			out, talk, code := inProcess(content, "files", "put", "-", "--name", name)
			if code != 0 {
				t.Fatalf("put: exit %d, %s", code, talk)
			}
			harmless(t, "files put", out+talk)
			out, _, _ = inProcess(content, "files", "put", "-", "--name", name, "-o", "json")
			var list []stored
			if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
				t.Fatalf("%v: %s", err, out)
			}
			check("files put", list[0])
			for _, args := range [][]string{{"files", "ls"}, {"files", "inspect", list[0].Hash}} {
				out, talk, code := inProcess("", args...)
				if code != 0 {
					t.Errorf("%v: exit %d", args, code)
				}
				harmless(t, strings.Join(args[:2], " "), out+talk)
			}
			// Out of the store into a directory, under the stored name.
			to := filepath.Join(dir, "out", fmt.Sprint(i))
			if err := os.MkdirAll(to, 0o700); err != nil {
				t.Fatal(err)
			}
			if _, talk, code := inProcess("", "files", "get", list[0].Hash, "-O", to); code != 0 {
				t.Errorf("get -O: exit %d, %s", code, talk)
			}
			if entries, err := os.ReadDir(to); err != nil || len(entries) != 1 || !entries[0].Type().IsRegular() {
				t.Errorf("get -O makes %v, %v, want one file", entries, err)
			} else if n := entries[0].Name(); strings.ContainsAny(n[:1], ".-~ ") || strings.TrimRight(n, ". ") != n || strings.ContainsAny(n, "\r\n\x1b\u202e:") {
				t.Errorf("get -O makes a file %q", n)
			}
			// Given as a hash or as a run id, the name is not found.
			for _, args := range [][]string{
				{"files", "get", name}, {"files", "inspect", name}, {"files", "rm", name}, {"files", "get", name, "-O", to},
				{"runs", "get", name}, {"events", name}, {"runs", "cancel", name}, {"runs", "release", name},
			} {
				out, talk, code := inProcess("", append(args[:2:2], append([]string{"--"}, args[2:]...)...)...)
				if args[0] == "files" && len(args) > 3 || args[0] == "events" {
					out, talk, code = inProcess("", args...)
				}
				if code != fault.ExitNotFound && code != fault.ExitUsage {
					t.Errorf("%.60q: exit %d\n%s", args, code, talk)
				}
				harmless(t, fmt.Sprintf("%.60q", args), out+talk)
			}
		})
	}
	if after := fingerprint(t, dir); after != before {
		t.Error("something outside the data directory has changed")
	}
	wellFormed(t, data)
}

// The same names, but from an action, through the socket, and as --file.
func TestA15_A31_HostileNamesFromInside(t *testing.T) {
	dir, data := yard(t)
	outside := "out" // not part of the fingerprint
	recipe := filepath.Join(dir, outside, "r.yaml")
	err := os.WriteFile(recipe, []byte("name: r\ninputSchema: {type: object, properties: {name: {type: string}}}\noutputs: {name: c.name, file: c.file}\n"+
		"steps:\n  - {id: c, action: {name: copy-file, parameters: {name: '{{ input.name }}'}}, outputBinding: c}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	given := filepath.Join(dir, outside, "given.txt")
	if err := os.WriteFile(given, []byte("given"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := fingerprint(t, dir)
	for i, name := range hostileNames {
		if err := os.WriteFile(given, []byte(fmt.Sprint("given ", i)), 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.ToValidUTF8(name, "") == name && len(name) < 1_000 && i%4 == 0 { // runs are slow, so only every fourth name is tried
			out, talk, code := inProcess("", "run", recipe, "--file", given, "--input", "name="+name, "-o", "json", "-q")
			var res struct{ Outputs struct{ Name string } }
			if err := json.Unmarshal([]byte(out), &res); err != nil || code != 0 {
				t.Errorf("run with name %q: exit %d, %v\n%s", name, code, err, talk)
			} else if n := res.Outputs.Name; strings.ContainsAny(n, "/\\\x00\r\n\x1b\u202e") || n == ".." {
				t.Errorf("an action's file %q keeps the name %q", name, n)
			}
		}
		if name == "." || name == ".." || name == "../up" || name == `..\up` || name == "link" {
			continue // these exist, or are directories
		}
		out, talk, code := inProcess("", "run", recipe, "--file="+name)
		if code != fault.ExitNotFound && code != fault.ExitUsage && code != fault.ExitFailed {
			t.Errorf("run --file %.40q: exit %d\n%s", name, code, talk)
		}
		harmless(t, fmt.Sprintf("run --file %.40q", name), out+talk)
	}

	// A process that holds the directory, with requests to its socket.
	a := &app{account: account,
		stdin: strings.NewReader(""), stdout: new(bytes.Buffer), stderr: new(bytes.Buffer),
		getenv: os.Getenv, config: config.New(os.Getenv, new(string)), now: time.Now, more: testActions(),
	}
	a.screen = term.NewScreen(a.stderr, true, a.getenv)
	a.log = newLog(a.screen, false)
	if err := a.useActions(nil, nil, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	h, err := a.openHost(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.abandon()
	r := remote.Dial(t.Context(), h.dir, account, "test")
	if r == nil {
		t.Fatal("nobody listens")
	}
	kept, err := r.PutFile(t.Context(), strings.NewReader("kept"), "kept.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range hostileNames {
		info, err := r.PutFile(t.Context(), strings.NewReader(fmt.Sprint("socket ", i)), name)
		if err != nil || strings.ContainsAny(info.Name, "/\\\x00\r\n\x1b\u202e") || info.Name == ".." {
			t.Errorf("put %q through the socket = %+v, %v", name, info, err)
		}
		if _, err := r.ReadFile(t.Context(), name, 0, -1); fault.CodeOf(err) != fault.FileNotFound {
			t.Errorf("read %q through the socket: %v", name, err)
		}
		if _, err := r.ReadFile(t.Context(), name, 0, 1); fault.CodeOf(err) != fault.FileNotFound {
			t.Errorf("read a part of %q through the socket: %v", name, err)
		}
		if err := r.RemoveFile(t.Context(), name); fault.CodeOf(err) != fault.FileNotFound {
			t.Errorf("remove %q through the socket: %v", name, err)
		}
		if _, err := r.FindFile(t.Context(), name); fault.CodeOf(err) != fault.FileNotFound {
			t.Errorf("find %q through the socket: %v", name, err)
		}
	}
	// A path in place of an operation is not found: no operation answers, not even with an error.
	for _, op := range []string{"../files", "v1/files/..%2f..%2fsecret", "v1/files/" + url.PathEscape("../secret") + "/content", "files/" + kept.Hash} {
		if _, err := askSocket(t, h.dir, op); err == nil || err.Error() != "404 Not Found" {
			t.Errorf("operation %q: %v", op, err)
		}
	}
	if after := fingerprint(t, dir); after != before {
		t.Error("something outside the data directory has changed")
	}
	wellFormed(t, data)
}

// files get -O replaces a file only with --force and only a regular one. It does not
// write through a link, and a failed download leaves nothing.
func TestA15_FetchedFilesStayInTheirPlace(t *testing.T) {
	dir, _ := yard(t)
	if err := os.Symlink(filepath.Join(dir, "secret"), "way-out"); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if err := os.Mkdir("folder", 0o700); err != nil {
		t.Fatal(err)
	}
	out, _, _ := inProcess("content", "files", "put", "-", "-o", "name")
	hash := strings.TrimSpace(out)
	before := fingerprint(t, dir)
	for _, args := range [][]string{
		{"way-out"}, {"way-out", "--force"}, {"up"}, {"../secret"}, {"nowhere/x"}, {"up/x"},
	} {
		_, talk, code := inProcess("", append([]string{"files", "get", hash, "-O"}, args...)...)
		if code != fault.ExitConflict && code != fault.ExitNotFound {
			t.Errorf("get -O %v: exit %d\n%s", args, code, talk)
		}
	}
	if after := fingerprint(t, dir); after != before {
		t.Error("a refused fetch has changed something")
	}
	if _, talk, code := inProcess("", "files", "get", hash, "-O", "up", "--force"); code != 0 {
		t.Errorf("exit %d: %s", code, talk)
	}
	if text, err := os.ReadFile("up"); err != nil || string(text) != "content" {
		t.Errorf("up is %q, %v", text, err)
	}
}
