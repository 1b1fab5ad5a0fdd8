// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/term"
)

// hosted returns a host that holds a new data directory, and a client that is connected
// through its socket.
func hosted(t *testing.T) (*host, *remote.Holder) {
	t.Helper()
	return hostedAt(t, filepath.Join(t.TempDir(), "data"))
}

// hostedAt is hosted for a directory that may already exist.
func hostedAt(t *testing.T, dir string) (*host, *remote.Holder) {
	t.Helper()
	a := appAt(t, dir, new(bytes.Buffer))
	h, err := a.openHost(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.abandon)
	r := remote.Dial(t.Context(), h.dir, account, "test")
	if r == nil {
		t.Fatal("nobody listens")
	}
	return h, r
}

// appAt is a command on a data directory, in this process.
func appAt(t *testing.T, dir string, stderr io.Writer) *app {
	t.Helper()
	t.Setenv("ROUX_DATA", dir)
	a := &app{account: account,
		stdin: strings.NewReader(""), stdout: new(bytes.Buffer), stderr: stderr,
		getenv: os.Getenv, config: config.New(os.Getenv, new(string)), now: time.Now, more: testActions(),
	}
	a.screen = term.NewScreen(a.stderr, true, a.getenv)
	a.log = newLog(a.screen, false)
	if err := a.useActions(nil, nil, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	return a
}

// A process that hosts an engine keeps the user's GOGC, and sets 200 if there is none.
func TestAHostSetsTheCollector(t *testing.T) {
	before := debug.SetGCPercent(70)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, c := range []struct {
		gogc string
		want int
	}{{"70", 70}, {"", 200}} {
		t.Setenv("GOGC", c.gogc)
		hosted(t)
		if got := debug.SetGCPercent(70); got != c.want {
			t.Errorf("with GOGC=%q the collector is set to %d, want %d", c.gogc, got, c.want)
		}
	}
}

// F20: damage that is found while a file is streamed ends the stream with FILE_INVALID,
// also for a client of the socket.
func TestF20_DamageReachesTheOtherEnd(t *testing.T) {
	h, r := hosted(t)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // 8 MiB: two pieces
	info, err := r.PutFile(t.Context(), bytes.NewReader(content), "a")
	if err != nil {
		t.Fatal(err)
	}
	read := func(s remote.Files, from, n int64) (int, error) {
		f, err := s.ReadFile(t.Context(), info.Hash, from, n)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		return len(data), err
	}
	for _, s := range []remote.Files{h, r} {
		if n, err := read(s, 0, -1); n != len(content) || err != nil {
			t.Errorf("%T: %d bytes, %v", s, n, err)
		}
	}
	found, err := filepath.Glob(filepath.Join(h.dir, "files", "acct_*", "*", info.Hash))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	content[5<<20] ^= 1
	if err := os.WriteFile(found[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []remote.Files{h, r} {
		if n, err := read(s, 0, -1); !errors.Is(err, fault.FileInvalid) {
			t.Errorf("%T: a damaged file reads as %d bytes, %v", s, n, err)
		}
		if n, err := read(s, 0, 100); n != 100 || err != nil {
			t.Errorf("%T: a part before the damage reads as %d bytes, %v", s, n, err)
		}
		if n, err := read(s, 5<<20-10, 100); !errors.Is(err, fault.FileInvalid) || n != 0 {
			t.Errorf("%T: a damaged part reads as %d bytes, %v", s, n, err)
		}
	}
	// Nothing is left of a fetch that failed.
	t.Chdir(t.TempDir())
	if _, talk, code := inProcess("", "files", "get", info.Hash, "-O", "out"); code != fault.ExitFailed || !strings.Contains(talk, "FILE_INVALID") {
		t.Errorf("exit %d: %s", code, talk)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 0 {
		t.Errorf("a failed fetch leaves %v, %v", left, err)
	}
}

// When the source of an upload cannot be read, the error is that of the source and not
// SERVER_UNREACHABLE, and nothing of it is stored.
func TestSourceFailsWhileItIsSent(t *testing.T) {
	h, r := hosted(t)
	broken := errors.New("the disk under the source is bad")
	for _, s := range []remote.Files{h, r} {
		_, err := s.PutFile(t.Context(), io.MultiReader(strings.NewReader("begin"), iotest.ErrReader(broken)), "a")
		if !errors.Is(err, broken) || errors.Is(err, fault.ServerUnreachable) {
			t.Errorf("%T: %v", s, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(h.dir, "files", "acct_*", "*", "sha256_*")); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestParseRange(t *testing.T) {
	for _, tt := range []struct {
		text    string
		size    int64
		from, n int64 // -1 = refused
	}{
		{"0-1023", 5000, 0, 1024},
		{"0-0", 1, 0, 1},
		{"4999-", 5000, 4999, 1},
		{"10-9999", 5000, 10, 4990},
		{"-500", 5000, 4500, 500},
		{"-9999", 5000, 0, 5000},
		{"-9223372036854775807", 10, 0, 10},
		{"9223372036854775806-9223372036854775807", 10, -1, -1},
		{"5000-", 5000, -1, -1},
		{"0-", 0, -1, -1},
		{"-", 10, -1, -1},
		{"", 10, -1, -1},
		{"5", 10, -1, -1},
		{"5-4", 10, -1, -1},
		{"-0", 10, -1, -1},
		{"--5", 10, -1, -1},
		{"a-b", 10, -1, -1},
		{"+1-2", 10, -1, -1},
		{"1-2-3", 10, -1, -1},
		{"99999999999999999999-", 10, -1, -1},
	} {
		from, n, err := parseRange(tt.text, tt.size)
		if refused := tt.from < 0; refused != (err != nil) || !refused && (from != tt.from || n != tt.n) {
			t.Errorf("%q of %d: %d, %d, %v; want %d, %d", tt.text, tt.size, from, n, err, tt.from, tt.n)
		}
	}
}

func TestIsText(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "plain\ntext\twith\r\n\fall": true, "naïve 日本": true, "日本"[:4]: true,
		"\x00": false, "\x1b[31m": false, "\x89PNG\r\n": false, "\u202eevil": false, "\xff\xfex\x00": false, "a\xe2b": false,
	} {
		if got := isText([]byte(text)); got != want {
			t.Errorf("%q is text: %v", text, got)
		}
	}
}

func TestFactsText(t *testing.T) {
	for raw, want := range map[string]string{
		``: "", `{}`: "", `[1]`: "",
		`{"pageCount":1,"encrypted":false,"title":"A\u001b[31m B"}`:                                                 `1 page, title A\x1b[31m B`,
		`{"width":50,"height":70,"shownWidth":70,"shownHeight":50,"orientation":6,"format":"jpeg","hasAlpha":true}`: "70 × 50, format jpeg, hasAlpha, orientation 6",
		`{"width":5,"height":7,"orientation":1}`:                                                                    "5 × 7",
		`{"encrypted":true}`:                                                                                        "encrypted",
		`{"problem":{"code":"FILE_INVALID","message":"it is\r\nbroken"}}`:                                           "FILE_INVALID: it is broken",
	} {
		if got := factsText([]byte(raw)); got != want {
			t.Errorf("%s is told as %q, want %q", raw, got, want)
		}
	}
}
