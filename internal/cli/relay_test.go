// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	for name, tt := range map[string]struct {
		end  os.Signal
		name string // of a registered recipe
	}{"Ctrl-C": {end: syscall.SIGINT}, "kill -9": {end: os.Kill}, "kill -9, a registered recipe": {os.Kill, "approval"}} {
		t.Run(name, func(t *testing.T) {
			_, env := dataEnv(t)
			path := write(t, "approval.yaml", approvalRecipe)
			first := start(t, env, "run", path)
			first.until("node.waiting")
			if tt.name != "" {
				if _, talk, code := roux(t, env, "apply", path); code != fault.ExitOK {
					t.Fatal(talk)
				}
				path = tt.name
			}
			second := start(t, env, "run", path)
			second.until("carries it on")
			second.until("node.waiting")
			run := object[[]struct{ ID string }](t, env, "runs", "list")[0].ID
			first.signal(tt.end)
			first.wait()
			second.until("this one carries on")
			if said := first.said(); name == "Ctrl-C" && !strings.Contains(said, "1 run of other commands is here: it goes on in its command") {
				t.Errorf("the first run does not say what becomes of the second: %s", said)
			}
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

// A process stays until the runs that other commands have handed over have ended, too.
func TestHolderStays(t *testing.T) {
	for _, registered := range []bool{false, true} {
		t.Run(map[bool]string{false: "a file", true: "a registered recipe"}[registered], func(t *testing.T) {
			_, env := dataEnv(t)
			env = append(env, "ROUX_EGRESS_ALLOW=127.0.0.1/32")
			asked, release := make(chan struct{}, 1), make(chan struct{})
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked <- struct{}{}
				<-release
				answerJSON(w, map[string]any{"ok": true})
			}))
			defer receiver.Close() // waits for the answer
			answer := sync.OnceFunc(func() { close(release) })
			defer answer()
			first := start(t, env, "run", write(t, "approval.yaml", approvalRecipe))
			first.until("node.waiting")
			waits := object[[]struct{ ID string }](t, env, "runs", "list")[0].ID
			recipe := write(t, "calls.yaml", "name: calls\nsteps:\n  - {id: call, action: {name: http, parameters: {url: '"+receiver.URL+"'}}}\n")
			if registered {
				if _, talk, code := roux(t, env, "apply", recipe); code != fault.ExitOK {
					t.Fatal(talk)
				}
				recipe = "calls"
			}
			second := start(t, env, "run", recipe)
			<-asked
			if _, talk, code := roux(t, env, "runs", "signal", waits, "approved"); code != fault.ExitOK {
				t.Errorf("the approval: exit %d\n%s", code, talk)
			}
			first.until("what this command was for is done; it carries on 1 run of other commands")
			answer()
			for i, p := range []*process{second, first} {
				if code := p.wait(); code != fault.ExitOK {
					t.Errorf("command %d: exit %d\n%s", i, code, p.said())
				}
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
	left = start(t, env, "run", write(t, "nap.yaml", "name: nap\nsteps: [{id: nap, wait: {duration: 2s}}]\n"))
	left.until("node.waiting")
	left.signal(os.Kill)
	left.wait()
	napping := object[[]struct{ ID string }](t, env, "runs", "list", "--recipe", "nap")[0].ID
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
	// Nobody but the command asks for this one: its timer does not end before.
	if out, talk, code := roux(t, env, "resume", napping, "--timeout", "1m"); code != fault.ExitOK {
		t.Errorf("resume of a run that sleeps: exit %d\n%s%s", code, out, talk)
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

// What a recipe marks is hidden when its run is followed in another process, as it is when its
// own process follows it, and the files that its outputs name are saved all the same. Runs of
// child recipes go along.
func TestMaskedRunsAreHandedOver(t *testing.T) {
	_, env := dataEnv(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"child.yaml": "name: child\ninputSchema: {type: object, properties: {pin: {type: string, writeOnly: true}, text: {type: string}}}\n" +
			"steps:\n  - {id: joined, action: {name: text-join, parameters: {items: ['{{ input.text }}', 'and more'], output: file}}}\noutputs: {file: steps.joined.output.file}\n",
		"parent.yaml": "name: parent\ninputSchema: {type: object, properties: {token: {type: string, writeOnly: true}}}\n" +
			"steps:\n  - {id: below, recipe: {file: child.yaml, inputs: {pin: '{{ input.token }}', text: open}}}\n" +
			"  - {id: shown, transform: {expression: '\"got \" + input.token'}}\noutputs: {file: steps.below.output.file, shown: steps.shown.output}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"run", filepath.Join(dir, "parent.yaml"), "--input", "token=hush-hush", "-o", "json"}
	alone := t.TempDir()
	want, talk, code := roux(t, env, append(args, "--save", alone)...)
	if code != fault.ExitOK {
		t.Fatalf("alone: exit %d\n%s", code, talk)
	}
	holder := start(t, env, "run", write(t, "approval.yaml", approvalRecipe))
	holder.until("node.waiting")
	saved := t.TempDir()
	got, talk, code := roux(t, env, append(args, "--save", saved)...)
	if code != fault.ExitOK || !strings.Contains(talk, "holds the data directory and carries it on") {
		t.Fatalf("handed over: exit %d\n%s", code, talk)
	}
	if strings.Contains(want+got+talk, "hush-hush") || strings.Contains(got, "[masked]") != strings.Contains(want, "[masked]") {
		t.Errorf("alone:\n%s\nhanded over:\n%s%s", want, got, talk)
	}
	for _, in := range []string{alone, saved} {
		files, err := os.ReadDir(in)
		if err != nil || len(files) != 1 {
			t.Fatalf("saved in %s: %v, %v", in, files, err)
		}
		text, err := os.ReadFile(filepath.Join(in, files[0].Name()))
		if err != nil || !strings.Contains(string(text), "open") {
			t.Errorf("the file that was saved: %q, %v", text, err)
		}
	}
	runs := object[[]struct{ ID, Recipe string }](t, env, "runs", "list")
	for _, r := range runs {
		if r.Recipe != "parent" {
			continue
		}
		for _, look := range [][]string{{"events", r.ID, "-o", "jsonl"}, {"runs", "get", r.ID, "-o", "json"}, {"explain", r.ID, "below"}} {
			if out, talk, _ := roux(t, env, look...); strings.Contains(out+talk, "hush-hush") {
				t.Errorf("%v shows what is marked: %s%s", look, out, talk)
			}
		}
	}
	holder.signal(syscall.SIGINT)
	holder.wait()
}

// Several commands follow one run that was handed over. When its process is killed, one of them
// carries it on, and the others follow it there.
func TestFollowersRace(t *testing.T) {
	_, env := dataEnv(t)
	path := write(t, "approval.yaml", approvalRecipe)
	first := start(t, env, "run", path)
	first.until("node.waiting")
	second := start(t, env, "run", path)
	second.until("node.waiting")
	run := object[[]struct{ ID string }](t, env, "runs", "list")[0].ID
	followers := []*process{second}
	for range 3 {
		f := start(t, env, "resume", run)
		f.until("carries it on")
		followers = append(followers, f)
	}
	first.signal(os.Kill)
	first.wait()
	if _, talk, code := roux(t, env, "runs", "signal", run, "approved"); code != fault.ExitOK {
		t.Errorf("the approval: exit %d\n%s", code, talk)
	}
	for i, f := range followers {
		if code := f.wait(); code != fault.ExitOK || !strings.Contains(f.stdout.String(), "sum: 2") {
			t.Errorf("follower %d: exit %d\n%s%s", i, code, f.stdout.String(), f.said())
		}
	}
	if r := object[replayed](t, env, "replay", run); !r.Same {
		t.Errorf("replay: %v", r.Differences)
	}
}

// A run is handed over with its account, input, files, limit and key.
func TestHandedOverWhole(t *testing.T) {
	_, env := dataEnv(t)
	env = append(env, `ROUX_ACCOUNTS={"acme": {"keys": {"ci": {"limit": 50}}}}`)
	if _, talk, code := roux(t, env, "credits", "grant", "100", "--account", "acme"); code != fault.ExitOK {
		t.Fatal(talk)
	}
	holder := start(t, env, "run", write(t, "approval.yaml", approvalRecipe))
	holder.until("node.waiting")
	into := t.TempDir()
	r := object[paidRun](t, env, "run", write(t, "paid.yaml", paidCopy), "--account", "acme", "--key", "ci", "--max-credits", "7", "--input", "n=3",
		"--file", write(t, "report.txt", "a report"), "--save", into)
	r.copied(t, 3, 7, into)
	if bill := object[struct{ Account, Key string }](t, env, "credits", "explain", r.ID, "--account", "acme"); bill.Account != "acme" || bill.Key != "ci" {
		t.Errorf("the bill is %+v", bill)
	}
	holder.signal(syscall.SIGINT)
	holder.wait()
}
