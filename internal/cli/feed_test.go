// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// A followedFeed is `roux feed -f` in a process of its own.
type followedFeed struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func followFeed(t *testing.T, env []string, args ...string) *followedFeed {
	t.Helper()
	f := &followedFeed{t: t, cmd: command(t, env, append([]string{"feed", "-f"}, args...)...), lines: make(chan string, 100)}
	f.cmd.Stderr = os.Stderr
	out, err := f.cmd.StdoutPipe()
	if err == nil {
		err = f.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.cmd.Process.Kill() })
	go func() {
		defer close(f.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			f.lines <- s.Text()
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	return f
}

// next fails the test unless the next lines match the patterns, in order.
func (f *followedFeed) next(patterns ...string) {
	f.t.Helper()
	for _, p := range patterns {
		select {
		case line, ok := <-f.lines:
			if !ok || !regexp.MustCompile(p).MatchString(line) {
				f.t.Fatalf("the feed says %q; want %q", line, p)
			}
		case <-time.After(30 * time.Second):
			f.t.Fatalf("the feed does not say %q", p)
		}
	}
}

// interrupt presses Ctrl-C, and fails the test unless the command ends well and has said
// everything.
func (f *followedFeed) interrupt() {
	f.t.Helper()
	if err := f.cmd.Process.Signal(os.Interrupt); err != nil {
		f.t.Fatal(err)
	}
	for line := range f.lines {
		f.t.Errorf("it also says %q", line)
	}
	if err := f.cmd.Wait(); err != nil {
		f.t.Errorf("after Ctrl-C: %v", err)
	}
}

// `roux feed -f` follows the process that holds the data directory, waits while none does,
// and continues with the next one. Ctrl-C ends it with exit code 0.
func TestFeedIsFollowed(t *testing.T) {
	_, env := dataEnv(t)
	p := start(t, env, "run", write(t, "wait.yaml", waiting))
	p.until("node.waiting")
	f, late := followFeed(t, env), followFeed(t, env, "--after", "1", "-o", "jsonl")
	f.next(`^ +1 .* running +run_\w+  approval$`)
	id := runID.FindString(p.said())
	if _, talk, code := roux(t, env, "runs", "signal", id, "approved", "--payload", `{"by":"ana"}`); code != 0 {
		t.Fatal(talk)
	}
	if code := p.wait(); code != fault.ExitOK {
		t.Fatal(p.said())
	}
	f.next(`^ +2 .* completed +` + id + `  approval$`)
	late.next(`^\{"id":2,.*"run":"` + id + `".*"status":"completed"`)
	// No process holds the directory now, until another one comes.
	if _, talk, code := roux(t, env, "run", write(t, "plain.yaml", plainRecipe), "-q"); code != 0 {
		t.Fatal(talk)
	}
	f.next(`^ +3 .* completed +run_\w+  plain$`)
	late.next(`^\{"id":3,.*"recipe":"plain","status":"completed"`)
	f.interrupt()
	late.interrupt()
}

// Old changes are gone: a command that needs them says the oldest that is kept, and one
// without a number begins there.
func TestFeedWithoutOldChanges(t *testing.T) {
	dir, env := dataEnv(t)
	plain := write(t, "plain.yaml", plainRecipe)
	for range 3 {
		if _, talk, code := roux(t, env, "run", plain, "-q"); code != 0 {
			t.Fatal(talk)
		}
	}
	st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := st.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	changes, err := st.Changes(t.Context(), account, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.ForgetChanges(t.Context(), epoch, changes[0].At, "", 100); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	_, talk, code := roux(t, env, "feed", "--after", "1")
	if code != fault.ExitConflict || !strings.Contains(talk, "the oldest kept is 3, so start after 2") || !strings.Contains(talk, "CURSOR_EXPIRED") {
		t.Errorf("exit %d\n%s", code, talk)
	}
	if list := object[[]changeView](t, env, "feed"); len(list) != 1 || list[0].ID != 3 || list[0].Run == "" {
		t.Errorf("the feed has %+v", list)
	}
}

// Every kind of change on a line of its own, without control codes, and in JSON.
func TestChangeLines(t *testing.T) {
	a := &app{times: timeRelative}
	for _, c := range []struct {
		change store.Change
		want   string
	}{
		{store.Change{N: 7, At: 1, Run: "run_1", Status: "running", Recipe: "x\n\x1b[31my"}, `     7  1970-01-01 00:00:00.000  running      run_1  x \x1b[31my`},
		{store.Change{N: 1234567, Run: "run_1", Status: "failed", Recipe: "x", Code: fault.StepTimeout, Quarantined: true}, `1234567  1970-01-01 00:00:00.000  failed       run_1  x  STEP_TIMEOUT, quarantined`},
		{store.Change{N: 8, Run: "run_1", Status: "failed", Recipe: "x", Quarantined: true, Imported: true}, `     8  1970-01-01 00:00:00.000  failed       run_1  x  imported`},
		{store.Change{N: 8, Run: "run_1", Deleted: true}, `     8  1970-01-01 00:00:00.000  deleted      run_1`},
		{store.Change{N: 9, Entry: 3, Key: "run_1/settle", Kind: ledger.Settle}, `     9  1970-01-01 00:00:00.000  settle       run_1/settle  entry 3`},
	} {
		if got := a.changeLine(&c.change); got != c.want {
			t.Errorf("%+v is shown as\n%q, want\n%q", c.change, got, c.want)
		}
	}
	v := viewOfChange(&store.Change{N: 9, Entry: 3, Key: "k", Kind: ledger.Settle})
	if v.Entry == nil || *v.Entry != (changedEntry{3, "k", "settle"}) {
		t.Errorf("an entry is %+v", v.Entry)
	}
}
