// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/view"
)

const waiting = `name: approval
steps:
  - id: prepare
    action: {name: effect, parameters: {n: 1}}
  - id: approve
    wait: {signal: approved}
  - id: after
    transform: {expression: steps.approve.output}
outputs:
  by: steps.after.output.by
`

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func dataEnv(t *testing.T) (dir string, env []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	return dir, []string{"ROUX_DATA=" + dir, "EFFECTS=" + filepath.Join(t.TempDir(), "effects")}
}

var runID = regexp.MustCompile(`run_[0-9A-Z]{26}`)

// Ctrl-C stops gracefully, leaves the run resumable and says how to go on (F45).
func TestCtrlC(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			_, env := dataEnv(t)
			p := start(t, env, "run", write(t, "wait.yaml", waiting))
			p.until("node.waiting")
			p.signal(sig)
			if code := p.wait(); code != fault.ExitInterrupted {
				t.Errorf("exit code %d, want %d\n%s", code, fault.ExitInterrupted, p.said())
			}
			id := runID.FindString(p.said())
			for _, want := range []string{"stopping; Ctrl-C again stops at once", "`roux resume " + id + "` goes on", "`roux runs cancel " + id + "` ends it"} {
				if !strings.Contains(p.said(), want) {
					t.Errorf("it did not say %q:\n%s", want, p.said())
				}
			}
			if heads := object[[]headView](t, env, "runs", "list"); len(heads) != 1 || heads[0].Status != "running" {
				t.Errorf("after Ctrl-C: %+v, want one running run", heads)
			}
			q := start(t, env, "resume")
			q.until(`approval ` + id + ` goes on after event`)
			q.until(`approve waits for signal "approved"`)
			q.signal(sig)
			if code := q.wait(); code != fault.ExitInterrupted {
				t.Errorf("resume, interrupted: exit code %d\n%s", code, q.said())
			}
			// No process holds the directory, so `runs signal` continues the run in its
			// own process.
			out, talk, code := roux(t, env, "runs", "signal", id[:12], "approved", "--payload", `{"by":"ana"}`)
			if code != 0 || out != "by: ana\n" {
				t.Errorf("signal: exit %d, %q\n%s", code, out, talk)
			}
			if r := object[result](t, env, "runs", "get", id); r.Steps["prepare"].Attempts != 1 {
				t.Errorf("prepare took %d attempts: a recorded step was done again", r.Steps["prepare"].Attempts)
			}
		})
	}
}

// Ctrl-C twice does not wait for a step that will not stop.
func TestCtrlCTwice(t *testing.T) {
	_, env := dataEnv(t)
	p := start(t, env, "run", write(t, "stubborn.yaml", "name: stubborn\nsteps:\n  - id: work\n    action: {name: stubborn}\n"))
	p.until("not listening")
	p.signal(os.Interrupt)
	p.until("stopping")
	began := time.Now()
	p.signal(os.Interrupt)
	if code := p.wait(); code != fault.ExitInterrupted {
		t.Errorf("exit code %d, want %d\n%s", code, fault.ExitInterrupted, p.said())
	}
	if took := time.Since(began); took >= grace {
		t.Errorf("it took %v to stop at once", took)
	}
	if !strings.Contains(p.said(), "stopped at once") || !strings.Contains(p.said(), "roux resume run_") {
		t.Errorf("it said:\n%s", p.said())
	}
}

// F35, X87: a second process that wants the directory is refused, with the process id of the
// first. Commands that show or control runs reach the first through
// its socket.
func TestF35_SecondProcess(t *testing.T) {
	dir, env := dataEnv(t)
	file := write(t, "wait.yaml", waiting)
	p := start(t, env, "run", file)
	p.until("node.waiting")
	pid := strconv.Itoa(p.cmd.Process.Pid)
	// Runs are handed over (TestApprovalWhileOtherRunsStart); a server holds its directory alone.
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}} {
		_, talk, code := roux(t, env, args...)
		if code != fault.ExitConflict || !strings.Contains(talk, "process "+pid) {
			t.Errorf("a second roux %s: exit %d\n%s", args[0], code, talk)
		}
	}
	info, err := os.Stat(filepath.Join(dir, datadir.Socket))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, want 0600", info.Mode().Perm())
	}
	if heads := object[[]headView](t, env, "runs", "list"); len(heads) != 1 {
		t.Errorf("through the socket: %+v", heads)
	}
	// By the names that programs read, generation.version (X84).
	full := object[map[string]any](t, env, "runs", "get", "@last")
	if full["wait_state"] != "waiting_single" || full["resume_token"] != fmt.Sprintf("1.%v", full["events"]) {
		t.Errorf("X84: wait_state %v, resume_token %v of %v events", full["wait_state"], full["resume_token"], full["events"])
	}
	if x := object[view.Explanation](t, env, "explain", "@last", "approve"); x.Status != "waiting" || !strings.Contains(x.Next, "runs signal") {
		t.Errorf("explain through the socket: %+v", x)
	}
	if r := object[replayed](t, env, "replay", "@last"); !r.Same {
		t.Errorf("replay through the socket: %v", r.Differences)
	}
	if _, talk, code := roux(t, env, "runs", "get", "run_NONE"); code != fault.ExitNotFound || !strings.Contains(talk, "RUN_NOT_FOUND") {
		t.Errorf("an error through the socket: exit %d\n%s", code, talk)
	}
	if out, talk, code := roux(t, env, "runs", "signal", "@last", "approved", "--payload", `{"by":"bo"}`); code != 0 || !strings.Contains(out, `has the signal "approved"`) {
		t.Errorf("signal: exit %d %s\n%s", code, out, talk)
	}
	if code := p.wait(); code != 0 || p.stdout.String() != "by: bo\n" {
		t.Errorf("the first process: exit %d, %q\n%s", code, p.stdout.String(), p.said())
	}
	if _, err := os.Stat(filepath.Join(dir, datadir.Socket)); !os.IsNotExist(err) {
		t.Errorf("the socket was left behind: %v", err)
	}
}

// A cancel from another process ends the run, and the process that holds it exits with
// code 10.
func TestCancelFromOutside(t *testing.T) {
	_, env := dataEnv(t)
	p := start(t, env, "run", write(t, "wait.yaml", waiting), "-o", "json")
	p.until("node.waiting")
	if out, talk, code := roux(t, env, "runs", "cancel", "@last", "--reason", "wrong file"); code != 0 || !strings.Contains(out, "is cancelled") {
		t.Errorf("cancel: exit %d %s\n%s", code, out, talk)
	}
	if code := p.wait(); code != fault.ExitCancelled || !strings.Contains(p.stdout.String(), `"status": "cancelled"`) {
		t.Errorf("the first process: exit %d\n%s", code, p.stdout.String())
	}
}

// Without another process, cancel ends the run here, and that is success.
func TestCancelHere(t *testing.T) {
	_, env := dataEnv(t)
	p := start(t, env, "run", write(t, "wait.yaml", waiting))
	p.until("node.waiting")
	p.signal(os.Kill)
	p.wait()
	if _, talk, code := roux(t, env, "runs", "cancel", "@last"); code != 0 {
		t.Errorf("cancel: exit %d\n%s", code, talk)
	}
	if full := object[fullView](t, env, "runs", "get", "@last"); full.Status != "cancelled" {
		t.Errorf("status %q", full.Status)
	}
}

// A long path of the data directory has its socket elsewhere.
func TestLongDataDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	env := []string{"ROUX_DATA=" + dir}
	p := start(t, env, "run", write(t, "wait.yaml", waiting))
	p.until("node.waiting")
	if heads := object[[]headView](t, env, "runs", "list"); len(heads) != 1 {
		t.Errorf("through the socket: %+v", heads)
	}
	p.signal(os.Interrupt)
	p.wait()
	if _, err := os.Stat(filepath.Join(dir, datadir.Pointer)); !os.IsNotExist(err) {
		t.Errorf("the pointer was left behind: %v", err)
	}
	// A pointer file that a killed process left behind is ignored, although it names no
	// socket.
	if err := os.WriteFile(filepath.Join(dir, datadir.Pointer), []byte("/nowhere/socket"), 0o600); err != nil {
		t.Fatal(err)
	}
	if heads := object[[]headView](t, env, "runs", "list"); len(heads) != 1 {
		t.Errorf("without the socket: %+v", heads)
	}
}

// An interrupted run stays interrupted until it is resumed: starting or controlling
// another run in the same directory does not continue it.
func TestOthersRest(t *testing.T) {
	_, env := dataEnv(t)
	p := start(t, env, "run", write(t, "slow.yaml", "name: slow\nsteps:\n  - id: work\n    action: {name: effect, parameters: {n: 1, ms: 20000}}\n"))
	p.until("node.started")
	p.signal(os.Kill)
	p.wait()
	before := object[fullView](t, env, "runs", "get", "@last")
	if _, talk, code := roux(t, env, "run", write(t, "small.yaml", small)); code != 0 {
		t.Fatalf("exit %d\n%s", code, talk)
	}
	if _, talk, code := roux(t, env, "runs", "retry", "@last", "--from", "work"); code != 0 {
		t.Fatalf("exit %d\n%s", code, talk)
	}
	after := object[fullView](t, env, "runs", "get", before.ID)
	if after.Events != before.Events || after.Status != "running" {
		t.Errorf("the interrupted run went on: %s with %d events, had %d", after.Status, after.Events, before.Events)
	}
	if _, talk, code := roux(t, env, "runs", "cancel", before.ID); code != 0 {
		t.Errorf("cancel: exit %d\n%s", code, talk)
	}
}

// Many interrupted runs are not many lines.
func TestCtrlCManyRuns(t *testing.T) {
	dir, env := dataEnv(t)
	recipe := write(t, "wait.yaml", waiting)
	for range fewHints + 2 {
		p := start(t, env, "run", recipe)
		p.until("node.waiting")
		p.signal(os.Kill)
		p.wait()
	}
	p := start(t, env[1:], "resume", "--data", dir)
	p.until("goes on after event")
	p.signal(os.Interrupt)
	if code := p.wait(); code != fault.ExitInterrupted {
		t.Errorf("exit code %d\n%s", code, p.said())
	}
	if n := strings.Count(p.said(), "has not ended"); n != fewHints || !strings.Contains(p.said(), "nor have 2 more: `roux resume --data "+dir+"` goes on with all of them") {
		t.Errorf("%d hints:\n%s", n, p.said())
	}
}
