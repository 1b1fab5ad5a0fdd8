// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"golang.org/x/sys/unix"

	"github.com/roux-engine/roux/internal/view"
)

// terminal100x30 opens a pseudo terminal of 100 columns and 30 lines.
func terminal100x30(t *testing.T) (screen, tty *os.File) { return terminalOf(t, 100) }

func terminalOf(t *testing.T, columns int) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal here: %v", err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	fd := int(screen.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("no terminal here: %v", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Skipf("no terminal here: %v", err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skipf("no terminal here: %v", err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	return screen, tty
}

// onTerminal runs a command whose standard error is a terminal and returns what it
// wrote there.
func onTerminal(t *testing.T, env []string, args ...string) (stdout, talk string) {
	t.Helper()
	screen, tty := terminal100x30(t)
	cmd := command(t, env, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	read := make(chan string)
	go func() {
		// Reading ends with an error when the last writer has gone.
		b, _ := io.ReadAll(screen)
		read <- string(b)
	}()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v", err)
	}
	return out.String(), <-read
}

const slowly = "name: slowly\nsteps:\n  - id: work\n    action: {name: effect, parameters: {n: 1, ms: 350}}\noutputs: {n: steps.work.output.n}\n"

// TestTerminal checks that on a terminal the tree is redrawn in place, in colour unless
// colour is turned off, and that the result on standard output has no control codes.
func TestTerminal(t *testing.T) {
	recipe := write(t, "slowly.yaml", slowly)
	colour := regexp.MustCompile(`\x1b\[38;`)
	up := regexp.MustCompile(`\x1b\[\dA`)
	for _, tt := range []struct {
		name   string
		env    string
		args   []string
		colour bool
		live   bool
	}{
		{"as it is", "X=", nil, true, true},
		{"light background", "COLORFGBG=0;15", nil, true, true},
		{"--no-color", "X=", []string{"--no-color"}, false, true},
		{"NO_COLOR", "NO_COLOR=1", nil, false, true},
		{"TERM=dumb", "TERM=dumb", nil, false, false},
		{"CI=1", "CI=1", nil, false, false},
		{"ROUX_COLOR=never", "ROUX_COLOR=never", nil, false, true},
		{"--quiet", "X=", []string{"--quiet"}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, env := dataEnv(t)
			env = append(env, "TERM=xterm-256color", "COLORTERM=truecolor", "NO_COLOR=", "CI=", tt.env)
			out, talk := onTerminal(t, env, append([]string{"run", recipe}, tt.args...)...)
			if out != "n: 1\n" {
				t.Errorf("the result is %q", out)
			}
			if got := colour.MatchString(talk); got != tt.colour {
				t.Errorf("colour %t, want %t:\n%q", got, tt.colour, talk)
			}
			if got := up.MatchString(talk); got != tt.live {
				t.Errorf("redrawn %t, want %t:\n%q", got, tt.live, talk)
			}
			if tt.live && !strings.Contains(talk, "completed") {
				t.Errorf("the last drawing is not the end:\n%q", talk)
			}
		})
	}
}

// files get writes text to a terminal and refuses binary content. A large file shows
// its progress.
func TestFilesOnATerminal(t *testing.T) {
	_, env := dataEnv(t)
	env = append(env, "TERM=xterm-256color", "CI=", "NO_COLOR=")
	large := write(t, "large.bin", strings.Repeat("\x00\x01", 10<<20))
	out, talk := onTerminal(t, env, "files", "put", large)
	if !regexp.MustCompile(`large\.bin  +[0-9]+ %  [0-9.]+ MB of 21 MB`).MatchString(talk) || !strings.HasSuffix(talk, "\r\x1b[K") {
		t.Errorf("progress:\n%q", talk)
	}
	show := func(hash string) (string, int) {
		screen, tty := terminal100x30(t)
		cmd := command(t, env, "files", "get", hash)
		cmd.Stdout, cmd.Stderr = tty, tty
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = tty.Close()
		b, _ := io.ReadAll(screen) // ends with an error when the last writer has gone
		_ = cmd.Wait()
		return string(b), cmd.ProcessState.ExitCode()
	}
	if text, code := show(out[:40]); code != 2 || !strings.Contains(text, "this file is no text: give -O large.bin") || strings.Contains(text, "\x00") {
		t.Errorf("binary on a terminal: exit %d, %.300q", code, text)
	}
	stdout, _, _ := roux(t, env, "files", "put", write(t, "a.txt", "some words\n"), "-o", "name")
	if text, code := show(strings.TrimSpace(stdout)); code != 0 || !strings.Contains(text, "some words") {
		t.Errorf("text on a terminal: exit %d, %q", code, text)
	}
}

// A document among the outputs does not fill a terminal; a pipe gets all of it.
func TestLongOutputOnATerminal(t *testing.T) {
	_, env := dataEnv(t)
	recipe := write(t, "long.yaml", "name: long\nsteps:\n  - {id: a, transform: {expression: '[1,2,3,4,5,6,7,8,9,0].map(x, [1,2,3,4,5,6,7,8,9,0])'}}\noutputs: {rows: steps.a.output}\n")
	screen, tty := terminal100x30(t)
	cmd := command(t, append(env, "TERM=xterm-256color", "CI="), "run", "-q", recipe)
	cmd.Stdout, cmd.Stderr = tty, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	b, _ := io.ReadAll(screen) // ends with an error when the last writer has gone
	_ = cmd.Wait()
	if n := strings.Count(string(b), "\n"); n != mostLines+1 || !strings.Contains(string(b), "… 82 more lines with 82 words: add `| less`") {
		t.Errorf("%d lines on the terminal:\n%s", n, b)
	}
	if piped, _, _ := roux(t, env, "run", "-q", recipe); strings.Count(piped, "\n") != 122 {
		t.Errorf("%d lines through a pipe", strings.Count(piped, "\n"))
	}
}

// TestResultsFitTheTerminal checks that on a terminal tables fit the width with whole
// ids, and that JSON escapes characters that could control the terminal or change the
// direction of text. Through a pipe both are unchanged.
func TestResultsFitTheTerminal(t *testing.T) {
	dir := t.TempDir()
	env := []string{"ROUX_DATA=" + dir, "TERM=xterm", "CI=", "NO_COLOR="}
	odd := "\u202eabc\u009b\u061c"
	recipe := write(t, "wide.yaml", "name: "+strings.Repeat("long", 12)+"\nsteps:\n  - id: "+strings.Repeat("step", 12)+
		"\n    transform: {expression: \"'"+strings.Repeat("word ", 12)+"'\"}\n  - {id: odd, transform: {expression: input.odd}}\n  - {id: stop, fail: {message: "+strings.Repeat("because ", 12)+"}}\n")
	if _, talk, code := roux(t, env, "run", recipe, "-q", "--input", "odd="+odd); code != 1 {
		t.Fatalf("exit %d: %s", code, talk)
	}
	shownIn := func(columns int, args ...string) string {
		t.Helper()
		screen, tty := terminalOf(t, columns)
		cmd := command(t, env, args...)
		cmd.Stdout = tty
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = tty.Close()
		text, _ := io.ReadAll(screen) // which ends with an error when the writer has gone
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, text)
		}
		return string(text)
	}
	shown := func(args ...string) string { return shownIn(100, args...) }
	deep := write(t, "deep.yaml", "name: "+strings.Repeat("deep", 12)+"\nsteps:\n  - id: outer-"+strings.Repeat("loop", 5)+"\n    loop:\n      over: lists.range(2)\n      steps:\n"+
		"        - {id: inner, loop: {over: lists.range(25), steps: [{id: "+strings.Repeat("work", 8)+", transform: {expression: item}}]}}\n")
	if _, talk, code := roux(t, env, "run", deep, "-q"); code != 0 {
		t.Fatalf("exit %d: %s", code, talk)
	}
	widths := []int{40, 80, 120}
	if testing.Short() {
		widths = []int{80}
	}
	for _, args := range [][]string{{"runs", "list"}, {"runs", "get", "@last"}, {"trace", "@last"}, {"trace", "@last", "--flame"},
		{"actions", "list"}, {"files", "ls"}} {
		for _, columns := range widths {
			text := shownIn(columns, args...)
			for line := range strings.Lines(text) {
				if line = strings.TrimRight(line, "\r\n"); lipgloss.Width(line) > columns {
					t.Errorf("%v in %d columns: a line of %d: %s", args, columns, lipgloss.Width(line), line)
				}
			}
			if args[0] == "runs" && args[1] == "get" && columns == 80 && !strings.Contains(text, "[24]") && !strings.Contains(text, "r[19]."+strings.Repeat("work", 8)+" ") {
				t.Errorf("%v does not tell the items from one another:\n%s", args, text)
			}
			if (args[0] == "trace" || args[1] == "get") && strings.Count(text, "5 more items: 5 completed") != 2 && columns > 40 {
				t.Errorf("%v in %d columns does not count what is left out:\n%s", args, columns, text)
			}
		}
	}
	if _, talk, code := roux(t, env, "run", recipe, "-q", "--input", "odd="+odd); code != 1 {
		t.Fatalf("exit %d: %s", code, talk)
	}
	for _, args := range [][]string{{"runs", "list"}, {"runs", "get", "@last"}, {"trace", "@last"}, {"trace", "@last", "--flame"}} {
		text := shown(args...)
		for line := range strings.Lines(text) {
			if line = strings.TrimRight(line, "\r\n"); lipgloss.Width(line) > 100 {
				t.Errorf("%v: a line of %d columns: %s", args, lipgloss.Width(line), line)
			}
		}
		if !regexp.MustCompile(`run_[0-9A-Z]{26}`).MatchString(text) || !strings.Contains(text, "…") && args[0] != "trace" {
			t.Errorf("%v:\n%s", args, text)
		}
		if piped, _, _ := roux(t, env, args...); args[0] == "runs" && args[1] == "list" && !strings.Contains(piped, strings.Repeat("long", 8)[:31]) {
			t.Errorf("%v through a pipe is cut:\n%s", args, piped)
		}
	}
	for _, args := range [][]string{{"runs", "get", "@last", "-o", "json"}, {"events", "@last", "-o", "jsonl"}} {
		text := shown(args...)
		if strings.ContainsFunc(text, func(r rune) bool { return view.Unprintable(r) && r != '\r' }) {
			t.Errorf("%v: %q", args, text)
		}
		piped, _, _ := roux(t, env, args...)
		if args[0] == "events" && (!strings.Contains(piped, odd) || !strings.Contains(text, `\u202eabc\u009b\u061c`)) {
			t.Errorf("%v: %q through a pipe, %q on a terminal", args, piped, text)
		}
	}
}

// `roux top` redraws a terminal in place until Ctrl-C, which ends it with exit code 0.
func TestTopIsRedrawn(t *testing.T) {
	dir := shortDir(t)
	server := start(t, nil, "serve", "--data", dir, "--listen", "127.0.0.1:0")
	server.until("/v1/me")
	screen, tty := terminal100x30(t)
	cmd := command(t, []string{"CI=", "TERM=xterm-256color"}, "top", "--data", dir, "--interval", "100ms")
	cmd.Stdout, cmd.Stderr = tty, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	up := regexp.MustCompile(`\x1b\[\d+A\r`)
	var shown []byte
	for buf := make([]byte, 4096); !up.Match(shown); {
		n, err := screen.Read(buf)
		if err != nil {
			t.Fatalf("it ended after %q: %v", shown, err)
		}
		shown = append(shown, buf[:n]...)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(screen) // until the last writer has gone
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if text := string(shown); !strings.Contains(text, "roux ") || !strings.Contains(text, "since the start") {
		t.Errorf("it shows %q", text)
	}
}
