// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/action/actiontest"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/confine"
)

var none = map[string]any{}

// put stores a file and returns its hash.
func put(t *testing.T, files *actiontest.Files, text string) string {
	t.Helper()
	info, err := files.Put(t.Context(), strings.NewReader(text), "../evil -name", "text/plain")
	if err != nil {
		t.Fatal(err)
	}
	return info.Hash
}

// What a command prints and leaves behind is the output of its step.
func TestOutputs(t *testing.T) {
	files := actiontest.NewFiles(t)
	doc := put(t, files, "one\ntwo\nthree\n")
	tests := []struct {
		name, spec string
		input      map[string]any
		want       string // is in the output
	}{
		{"text", `{"run": ["printf", "%s|%s", "{a}", "x y"], "parameters": {"a": {}}}`, map[string]any{"a": "$HOME; id"}, `"stdout":"$HOME; id|x y","stdoutBytes":13`},
		{"no shell", `{"run": ["printf", "%s", "a;b $(id) > c"]}`, nil, `"stdout":"a;b $(id) > c"`},
		{"JSON", `{"run": ["printf", "%s", "{\"n\": [1, 2]}"], "stdout": "json"}`, nil, `"result":{"n":[1,2]}`},
		{"the standard input is a text", `{"run": ["tr", "a-z", "A-Z"], "stdin": "{text}", "parameters": {"text": {}}}`, map[string]any{"text": "abc"}, `"stdout":"ABC"`},
		{"the standard input is a file", `{"run": ["wc", "-l"], "stdin": "{doc}", "parameters": {"doc": {"type": "file"}}}`, map[string]any{"doc": doc}, `"stdout":"3\n"`},
		{"the standard input by its name", `{"run": ["cat", "/dev/stdin"], "stdin": "{text}", "parameters": {"text": {}}}`, map[string]any{"text": "abc"}, `"stdout":"abc"`},
		{"a file by that name", `{"run": ["cat", "/dev/stdin"], "stdin": "{doc}", "parameters": {"doc": {"type": "file"}}}`, map[string]any{"doc": doc}, `"stdout":"one\ntwo\nthree\n"`},
		{"no standard input", `{"run": ["cat"]}`, nil, `"stdout":""`},
		{"a file has the operator's name", `{"run": ["sh", "-c", "ls; cat dir/in.txt", "x", "{doc}"], "parameters": {"doc": {"type": "file", "as": "dir/in.txt"}}}`, map[string]any{"doc": doc}, `"stdout":"dir\none\ntwo\nthree\n"`},
		{"the environment is what is listed", `{"run": ["sh", "-c", "echo $A $B $USER"], "env": {"A": "x", "B": "{b}"}, "parameters": {"b": {}}}`, map[string]any{"b": "$A -y"}, `"stdout":"x $A -y\n"`},
		{"an exit code that is no failure", `{"run": ["sh", "-c", "exit 1"], "ok_exit_codes": [1]}`, nil, `"exitCode":1`},
		{"binary output is a file", `{"run": ["printf", "\\000\\377\\001"]}`, nil, `"stdout":"","stdoutBytes":3,"stdoutFile":"sha256_`},
		{"binary diagnostics are counted", `{"run": ["sh", "-c", "printf '\\000\\377\\001' >&2"]}`, nil, `"stderr":"(3 bytes that are not text)"`},
		{"control codes are removed", `{"run": ["sh", "-c", "printf '\\033[31mred\\033[0m\\007\\n' >&2"]}`, nil, `"stderr":"[31mred[0m"`},
		{"output as a file", `{"run": ["printf", "abc"], "stdout": "file"}`, nil, `"stdoutBytes":3,"stdoutFile":"sha256_ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"`},
		{"a file", `{"run": ["sh", "-c", "printf abc >out; chmod 0 out"], "outputs": {"it": "out"}}`, nil, `"it":"sha256_ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"`},
		{"many files", `{"run": ["sh", "-c", "mkdir d; printf abc >d/b.x; printf abc >d/a.x; printf x >d/c.y"], "outputs": {"them": "d/*.x"}}`, nil,
			`"them":["sha256_ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","sha256_ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"]`},
		{"no files", `{"run": ["true"], "outputs": {"them": "*.x", "it": {"path": "out", "optional": true}}}`, nil, `"them":[]`},
	}
	var specs []string
	for _, tt := range tests {
		specs = append(specs, tt.spec)
	}
	acts := openedAll(t, specs...)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			input := none
			if tt.input != nil {
				input = tt.input
			}
			out, err := actiontest.Call(t, acts[i], input, actiontest.WithFiles(files))
			if err != nil || !strings.Contains(string(out.JSON), tt.want) {
				t.Errorf("%s, %v; want %s", out.JSON, err, tt.want)
			}
		})
	}
}

// A command that fails says why, with the end of what it has printed.
func TestFailures(t *testing.T) {
	files := actiontest.NewFiles(t)
	tests := []struct {
		name, spec string
		code       fault.Code
		want       string
	}{
		{"exit code", `{"run": ["sh", "-c", "echo why >&2; exit 3"]}`, fault.CommandFailed, "command c100 ended with exit code 3: why"},
		{"nothing printed", `{"run": ["false"]}`, fault.CommandFailed, "ended with exit code 1, and printed nothing"},
		{"temporary", `{"run": ["sh", "-c", "exit 75"], "retry_exit_codes": [75]}`, fault.CommandTemporary, "exit code 75, which is temporary"},
		{"signal", `{"run": ["sh", "-c", "kill -SEGV $$"]}`, fault.CommandFailed, "was ended by the signal SIGSEGV"},
		{"time", `{"run": ["sh", "-c", "echo begun >&2; sleep 1000"], "timeout": "300ms"}`, fault.StepTimeout, "was killed after 300ms, the limit `timeout` of the command; it has printed: begun"},
		{"output", `{"run": ["yes"], "output": "100KiB"}`, fault.CommandLimit, "more than 100KiB, the limit `output`"},
		{"output to a file", `{"run": ["yes"], "stdout": "file", "disk": "100KiB"}`, fault.CommandLimit, "more than 100KiB, the limit `disk`"},
		{"memory", `{"run": ["sh", "-c", "for i in 1 2 3 4 5; do (head -c 30000000 /dev/zero; sleep 1000) | tail >/dev/null & done; sleep 1000"], "memory": "64MiB"}`, fault.CommandLimit, "more than 64MiB, the limit `memory`"},
		{"disk", `{"run": ["sh", "-c", "head -c 3000000 /dev/zero >a"], "disk": "1MiB"}`, fault.CommandLimit, "the limit `disk`"},
		{"not JSON", `{"run": ["echo", "x"], "stdout": "json"}`, fault.CommandFailed, "not JSON"},
		{"no file", `{"run": ["true"], "outputs": {"it": "out"}}`, fault.CommandFailed, `left no file out, which is its output "it"`},
		{"a link to a file of the machine", `{"run": ["ln", "-s", "/etc/passwd", "out"], "outputs": {"it": "out"}}`, fault.CommandFailed, "is no regular file"},
		{"a link in a list", `{"run": ["ln", "-s", "/etc/passwd", "out"], "outputs": {"it": "o*"}}`, fault.CommandFailed, "is no regular file"},
		{"a link to a directory", `{"run": ["ln", "-s", "/etc", "out"], "outputs": {"it": "out/passwd"}}`, fault.CommandFailed, "left no file"},
		{"a pipe", `{"run": ["mkfifo", "out"], "outputs": {"it": "out"}}`, fault.CommandFailed, "is no regular file"},
		{"a directory", `{"run": ["mkdir", "out"], "outputs": {"it": "out"}}`, fault.CommandFailed, "is no regular file"},
		{"too large outputs", `{"run": ["sh", "-c", "truncate -s 900000 a; truncate -s 900000 b"], "outputs": {"it": "?"}, "disk": "1MiB"}`, fault.CommandLimit, "the limit `disk`"},
	}
	var specs []string
	for _, tt := range tests {
		specs = append(specs, tt.spec)
	}
	acts := openedAll(t, specs...)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := actiontest.Call(t, acts[i], none, actiontest.WithFiles(files))
			if fault.CodeOf(err) != tt.code || !strings.Contains(fault.Message(err), tt.want) {
				t.Errorf("%v, want %s with %q", err, tt.code, tt.want)
			}
		})
	}
}

// Without confinement commands have the same results, and links still lead nowhere.
func TestUnconfined(t *testing.T) {
	files := actiontest.NewFiles(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := actiontest.Call(t, opened(t, `{"run": ["sh", "-c", "printf abc >out; cat; echo $HOME | grep -c files"], "stdin": "{text}", "parameters": {"text": {}}, "outputs": {"it": "out"}, "confine": "none"}`),
		map[string]any{"text": "hello "}, actiontest.WithFiles(files))
	if err != nil || !strings.Contains(string(out.JSON), `"stdout":"hello 1\n"`) || !strings.Contains(string(out.JSON), `"it":"sha256_ba78`) {
		t.Errorf("%s, %v", out.JSON, err)
	}
	for _, spec := range []string{`{"run": ["ln", "-s", "` + secret + `", "out"], "outputs": {"it": "out"}, "confine": "none"}`, `{"run": ["ln", "-s", "` + filepath.Dir(secret) + `", "d"], "outputs": {"it": "d/secret"}, "confine": "none"}`,
		`{"run": ["ln", "-s", "` + filepath.Dir(secret) + `", "d"], "outputs": {"it": "d/s*"}, "confine": "none"}`} {
		out, err := actiontest.Call(t, opened(t, spec), none, actiontest.WithFiles(files))
		if err == nil && !strings.Contains(string(out.JSON), `"it":[]`) {
			t.Errorf("%s: a link was followed: %s", spec, out.JSON)
		}
	}
	if _, err := os.ReadFile(secret); err != nil {
		t.Errorf("a link was followed when the directory was removed: %v", err)
	}
	_, err = actiontest.Call(t, opened(t, `{"run": ["sh", "-c", "echo no >&2; (sleep 1000 &); exit 4"], "confine": "none"}`), none, actiontest.WithFiles(files))
	if fault.CodeOf(err) != fault.CommandFailed || !strings.Contains(fault.Message(err), "exit code 4: no") {
		t.Errorf("it failed with %v", err)
	}
}

// What the operator calls a secret is in nothing that the command prints.
func TestI18_SecretOfACommand(t *testing.T) {
	files := actiontest.NewFiles(t)
	act := opened(t, `{"run": ["sh", "-c", "echo \"$1\" >&2; echo \"$1\"; printf %s \"$1\" >out; exit $2", "x", "{token}", "{code}"],
		"parameters": {"token": {"secret": true}, "code": {"type": "integer"}}, "outputs": {"it": "out"}}`)
	for _, code := range []int{0, 1} {
		var reports actiontest.Reports
		out, err := actiontest.Call(t, act, map[string]any{"token": "hunter2\nhunter3", "code": code}, actiontest.WithFiles(files), actiontest.Capture(&reports))
		text := string(out.JSON) + fmt.Sprint(err)
		for _, l := range reports.Logs {
			text += l.Text
		}
		if strings.Contains(text, "hunter") || !strings.Contains(text, "[redacted]") || code == 0 && err != nil {
			t.Errorf("exit code %d: %s, %v", code, text, err)
		}
	}
}

// A secret is not in a JSON output either, however its letters are written, and what is left is
// JSON.
func TestI18_SecretInJSON(t *testing.T) {
	act := opened(t, `{"run": ["sh", "-c", "cat >/dev/null; printf %s \"$0\"", "{\"n\": 47114711, \"t\": \"a \\u0034711471\\u0031\", \"o\": 1}"],
		"stdin": "{token}", "stdout": "json", "parameters": {"token": {"secret": true}}}`)
	out, err := actiontest.Call(t, act, map[string]any{"token": "47114711"}, actiontest.WithFiles(actiontest.NewFiles(t)))
	if want := `"result":{"n":"[redacted]","o":1,"t":"a [redacted]"}`; err != nil || !strings.Contains(string(out.JSON), want) {
		t.Errorf("%s, %v; want %s", out.JSON, err, want)
	}
}

// Exit codes and signals mean what the operator says, and else what the limits say.
func TestJudge(t *testing.T) {
	confined, unconfined := confine.Box{}, confine.Box{None: true}
	for _, tt := range []struct {
		name string
		box  confine.Box
		spec Spec
		res  confine.Result
		want fault.Code
	}{
		{"a shell's code for a file that is too large", confined, Spec{}, confine.Result{Exit: 153}, fault.CommandLimit},
		{"it has a meaning", confined, Spec{OKExitCodes: []int{153}}, confine.Result{Exit: 153}, ""},
		{"it is temporary", confined, Spec{RetryExitCodes: []int{153}}, confine.Result{Exit: 153}, fault.CommandTemporary},
		{"there is no limit", unconfined, Spec{}, confine.Result{Exit: 153}, fault.CommandFailed},
		{"the signal", confined, Spec{}, confine.Result{Signal: "SIGXFSZ"}, fault.CommandLimit},
		{"the signal, and no limit", unconfined, Spec{}, confine.Result{Signal: "SIGXFSZ"}, fault.CommandFailed},
	} {
		j := &job{command: &command{name: "it", spec: tt.spec}, box: tt.box, stdout: &output{}, stderr: newDiagnostics(nil, nil, "info")}
		if err := j.judge(tt.res); fault.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	j := &job{command: &command{name: "it"}, stdout: &output{}, stderr: newDiagnostics(nil, nil, "info")}
	if err := j.judge(confine.Result{Limit: confine.LimitEntries}); fault.CodeOf(err) != fault.CommandLimit || !strings.Contains(fault.Message(err), "more than 100000 files and directories") {
		t.Errorf("too many files: %v", err)
	}
}

// An output that was not written is not counted, and the step fails.
func TestOutputFails(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	o := &output{mode: stdoutFile, limit: 100, file: f}
	if _, err := o.Write([]byte("abc")); err != nil || o.n != 3 {
		t.Errorf("%d bytes, %v", o.n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := o.Write([]byte("def")); err == nil || n != 0 || o.n != 3 {
		t.Errorf("%d bytes of %d were written to a file that is closed, %v", n, o.n, err)
	}
	j := &job{command: &command{name: "it"}, stdout: o, stderr: newDiagnostics(nil, nil, "info")}
	if err := j.judge(confine.Result{}); fault.CodeOf(err) != fault.InternalError || !errors.Is(err, os.ErrClosed) {
		t.Errorf("the step ends with %v", err)
	}
}

// Lines are logged as they come, within bounds.
func TestLogs(t *testing.T) {
	var reports actiontest.Reports
	_, err := actiontest.Call(t, opened(t, `{"run": ["sh", "-c", "echo one; echo two >&2; sleep 0; seq 2000"], "stdout": "log"}`), none,
		actiontest.WithFiles(actiontest.NewFiles(t)), actiontest.Capture(&reports))
	if err != nil || len(reports.Logs) < 900 || len(reports.Logs) > 1001 {
		t.Errorf("%d lines, %v", len(reports.Logs), err)
	}
}

// A canceller is a Reporter that cancels at the first line of the log.
type canceller struct {
	action.Reporter
	cancel context.CancelFunc
}

func (c canceller) Log(string, string) { c.cancel() }

// A command that is cancelled ends, and its directory goes.
func TestCancelled(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs of these tests are those of Unix")
	}
	set, act := parsed(t, `{"run": ["sh", "-c", "mkdir -p a/b; chmod 0 a; echo up >&2; sleep 1000"]}`)
	dir := filepath.Join(t.TempDir(), "commands")
	if err := set.Open(t.Context(), dir); errors.Is(err, fault.ConfineUnavailable) {
		t.Skip("this kernel does not confine:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report := canceller{cancel: func() {
		if made, err := filepath.Glob(filepath.Join(dir, "run-*", "files", "a")); err != nil || len(made) != 1 {
			t.Errorf("there is no working directory in use: %q, %v", made, err)
		}
		cancel()
	}}
	_, err := act.Run(ctx, &action.Task{Account: "local", Input: []byte(`{}`), Files: actiontest.NewFiles(t), Report: report})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%d working directories are left, %v", len(left), err)
	}
}

// A server does not start with a command that could not run, and leaves nothing of the last.
func TestOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs of these tests are those of Unix")
	}
	for spec, want := range map[string]string{
		`{"run": ["no-such-program"], "confine": "none"}`:                            `there is no program "no-such-program" in `,
		`{"run": ["/no/such/program"], "confine": "none"}`:                           "there is no program /no/such/program",
		`{"run": ["/usr"], "confine": "none"}`:                                       "/usr is not a program",
		`{"run": ["` + filepath.ToSlash(notExecutable(t)) + `"], "confine": "none"}`: "cannot be executed",
	} {
		set, _ := parsed(t, spec)
		if err := set.Open(t.Context(), t.TempDir()+"/commands"); !errors.Is(err, fault.ConfigInvalid) || !strings.Contains(fault.Message(err), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	dir := filepath.Join(t.TempDir(), "commands")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "run-1", "files"), 0o700), os.Chmod(filepath.Join(dir, "run-1"), 0o500)); err != nil {
		t.Fatal(err)
	}
	set, _ := parsed(t, `{"run": ["true"], "confine": "none"}`)
	if err := set.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%d directories of the last process are left, %v", len(entries), err)
	}
}

func notExecutable(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
