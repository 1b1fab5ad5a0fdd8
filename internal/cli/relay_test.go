// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/roux-engine/roux/fault"
)

const approvalRecipe = `name: approval
steps:
  - {id: go, wait: {signal: approved}}
  - {id: sum, transform: {expression: 1 + 1}}
outputs: {sum: steps.sum.output}
`

// A run waits in one terminal; another is started in a second one, in the same directory, and
// ends as any other; the approval comes from a third.
func TestApprovalWhileOtherRunsStart(t *testing.T) {
	_, env := dataEnv(t)
	first := start(t, env, "run", write(t, "approval.yaml", approvalRecipe))
	first.until("node.waiting")
	waits := object[[]struct{ ID string }](t, env, "runs", "list")[0].ID

	out, talk, code := roux(t, env, "run", write(t, "plain.yaml", plainRecipe))
	if code != fault.ExitOK || !strings.Contains(talk, "holds the data directory and carries it on") || !strings.Contains(talk, "run.completed") {
		t.Errorf("the second run: exit %d\n%s%s", code, out, talk)
	}
	if _, talk, code := roux(t, env, "runs", "signal", waits, "approved"); code != fault.ExitOK {
		t.Errorf("the approval: exit %d\n%s", code, talk)
	}
	if code := first.wait(); code != fault.ExitOK || !strings.Contains(first.stdout.String(), "sum: 2") {
		t.Errorf("the first run: exit %d\n%s%s", code, first.stdout.String(), first.said())
	}
}

// When the process that carries on the run of another command ends, that command does so itself.
func TestHandedBack(t *testing.T) {
	for name, end := range map[string]os.Signal{"Ctrl-C": syscall.SIGINT, "kill -9": os.Kill} {
		t.Run(name, func(t *testing.T) {
			_, env := dataEnv(t)
			path := write(t, "approval.yaml", approvalRecipe)
			first := start(t, env, "run", path)
			first.until("node.waiting")
			second := start(t, env, "run", path)
			second.until("node.waiting")
			run := object[[]struct{ ID string }](t, env, "runs", "list")[0].ID
			first.signal(end)
			first.wait()
			second.until("this one carries on")
			if _, talk, code := roux(t, env, "runs", "signal", run, "approved"); code != fault.ExitOK {
				t.Errorf("the approval: exit %d\n%s", code, talk)
			}
			if code := second.wait(); code != fault.ExitOK || !strings.Contains(second.stdout.String(), "sum: 2") {
				t.Errorf("the second run: exit %d\n%s%s", code, second.stdout.String(), second.said())
			}
			if r := object[replayed](t, env, "replay", run); !r.Same {
				t.Errorf("replay: %v", r.Differences)
			}
		})
	}
}

// Resume hands over, too: what an earlier process has left is carried on by the one that holds
// the directory.
func TestResumeIsHandedOver(t *testing.T) {
	_, env := dataEnv(t)
	path := write(t, "approval.yaml", approvalRecipe)
	left := start(t, env, "run", path)
	left.until("node.waiting")
	run := object[[]struct{ ID string }](t, env, "runs", "list")[0].ID
	left.signal(os.Kill)
	left.wait()
	first := start(t, env, "run", path)
	first.until("node.waiting")
	second := start(t, env, "resume", run)
	second.until("carries it on")
	if _, talk, code := roux(t, env, "runs", "signal", run, "approved"); code != fault.ExitOK {
		t.Errorf("the approval: exit %d\n%s", code, talk)
	}
	if code := second.wait(); code != fault.ExitOK {
		t.Errorf("resume: exit %d\n%s", code, second.said())
	}
	first.signal(syscall.SIGINT)
	if code := first.wait(); code != fault.ExitInterrupted {
		t.Errorf("the first run: exit %d", code)
	}
}

// A command that changes a run asks the process that holds the directory, however it and the
// command come and go.
func TestChangesWhileHoldersComeAndGo(t *testing.T) {
	_, env := dataEnv(t)
	path := write(t, "approval.yaml", approvalRecipe)
	first := start(t, env, "run", path)
	first.until("node.waiting")
	run := object[[]struct{ ID string }](t, env, "runs", "list")[0].ID
	for range 8 {
		pause := start(t, env, "runs", "pause", run) // while the holder goes …
		first.signal(syscall.SIGINT)
		if code := pause.wait(); code != fault.ExitOK {
			t.Fatalf("pause: exit %d\n%s", code, pause.said())
		}
		first.wait()
		unpause := start(t, env, "runs", "pause", run, "--reason", "again") // … and comes
		first = start(t, env, "resume", run)
		if code := unpause.wait(); code != fault.ExitOK {
			t.Fatalf("pause: exit %d\n%s", code, unpause.said())
		}
		first.until("goes on after event")
	}
	first.signal(os.Kill)
	first.wait()
}
