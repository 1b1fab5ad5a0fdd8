// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/action/actiontest"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/confine"
)

func TestMain(m *testing.M) {
	confine.Dispatch()
	os.Exit(m.Run())
}

// parsed returns the only command of a table, which is JSON.
func parsed(t *testing.T, text string) (*Set, action.Action) {
	t.Helper()
	specs, err := Parse(`{"it": ` + text + `}`)
	if err != nil {
		t.Fatal(err)
	}
	set, err := New(specs)
	if err != nil {
		t.Fatal(err)
	}
	return set, set.Actions()[0]
}

// opened returns an action that can run.
func opened(t *testing.T, text string) action.Action {
	t.Helper()
	return openedAll(t, text)[0]
}

// openedAll returns actions that can run, called exec-c100, exec-c101 and so on.
func openedAll(t *testing.T, texts ...string) []action.Action {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the programs of these tests are those of Unix")
	}
	table := "{"
	for i, text := range texts {
		// The account of these tests is not the local one.
		table += fmt.Sprintf(`%.*s"c%d": %s`, min(i, 1), ",", 100+i, strings.Replace(text, `{"run"`, `{"accounts": ["*"], "run"`, 1))
	}
	specs, err := Parse(table + "}")
	if err != nil {
		t.Fatal(err)
	}
	set, err := New(specs)
	if err != nil {
		t.Fatal(err)
	}
	if err = set.Open(t.Context(), t.TempDir()+"/commands"); errors.Is(err, fault.ConfineUnavailable) {
		t.Skip("this kernel does not confine:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return set.Actions()
}

// What an operator may not write is refused with the place and the reason.
func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ spec, want string }{
		{`{}`, "want the program and its arguments"},
		{`{"run": []}`, "want the program"},
		{`{"run": "ls -l"}`, "cannot unmarshal"},
		{`{"run": ["{p}"], "parameters": {"p": {}}}`, "the program is the operator's"},
		{`{"run": ["./tool"]}`, "want an absolute path"},
		{`{"run": ["/bin/../bin/ls"]}`, "want an absolute path"},
		{`{"run": ["ls", "--sort={p}"], "parameters": {"p": {}}}`, "a parameter is a whole argument"},
		{`{"run": ["ls", "{q}"], "parameters": {"p": {}}}`, `there is no parameter "q"`},
		{`{"run": ["ls"], "parameters": {"p": {}}}`, "nothing uses it"},
		{`{"run": ["sh", "-c", "{p}"], "parameters": {"p": {}}}`, "could run the value"},
		{`{"run": ["/usr/bin/python3", "-Ic", "{p}"], "parameters": {"p": {}}}`, "could run the value"},
		{`{"run": ["bash", "{p}"], "parameters": {"p": {}}}`, "could run the value"},
		{`{"run": ["perl", "-e", "{p}"], "parameters": {"p": {}}}`, "could run the value"},
		{`{"run": ["ls", {"if": "p", "args": ["-l"]}], "parameters": {"p": {}}}`, "want a parameter of type boolean"},
		{`{"run": ["ls", {"if": "p"}]}`, "want {if: PARAMETER"},
		{`{"run": ["ls", {"when": "p"}]}`, "unknown field"},
		{`{"run": ["ls"], "shell": true}`, "unknown field"},
		{`{"run": ["ls", "{p}"], "parameters": {"p": {"type": "path"}}}`, "want string, integer, boolean or file"},
		{`{"run": ["ls", "{p}"], "parameters": {"p": {"pattern": "("}}}`, "pattern"},
		{`{"run": ["ls", "{p}"], "parameters": {"p": {"type": "integer", "pattern": "a"}}}`, "pattern is of parameters of type string only"},
		{`{"run": ["ls", "{p}"], "parameters": {"p": {"type": "integer", "min": 2, "max": 1}}}`, "min is larger"},
		{`{"run": ["ls", "{p}"], "parameters": {"p": {"type": "integer", "default": "x"}}}`, "default: "},
		{`{"run": ["ls", "{p}"], "parameters": {"p": {"type": "file", "as": "../x"}}}`, "in the working directory"},
		{`{"run": ["ls", "{p}"], "parameters": {"p": {"type": "file", "as": "-rf"}}}`, "in the working directory"},
		{`{"run": ["ls", "{p}"], "parameters": {"p": {"type": "file", "as": "/etc/x"}}}`, "in the working directory"},
		{`{"run": ["ls", "{p}", "{q}"], "parameters": {"p": {"type": "file", "as": "x"}, "q": {"type": "file", "as": "x"}}}`, "another file is called"},
		{`{"run": ["ls"], "outputs": {"x": "../x"}}`, "in the working directory"},
		{`{"run": ["ls"], "outputs": {"stdout": "x"}}`, "none of"},
		{`{"run": ["ls"], "outputs": {"x": "[a"}}`, "syntax error"},
		{`{"run": ["ls"], "env": {"A=B": "x"}}`, "no name of a variable"},
		{`{"run": ["ls"], "env": {"LD_PRELOAD": "{p}"}, "parameters": {"p": {}}}`, "its value is the operator's"},
		{`{"run": ["ls"], "env": {"PYTHONPATH": "{p}"}, "parameters": {"p": {}}}`, "its value is the operator's"},
		{`{"run": ["ls"], "stdin": "text"}`, "stdin: want"},
		{`{"run": ["ls"], "stdout": "both"}`, "want text, json, file or log"},
		{`{"run": ["ls"], "confine": "maybe"}`, "want none"},
		{`{"run": ["ls"], "memory": "1MiB"}`, "memory: want a size"},
		{`{"run": ["ls"], "timeout": "5"}`, "timeout: want a duration"},
		{`{"run": ["ls"], "timeout": "48h"}`, "timeout: want a duration"},
		{`{"run": ["ls"], "processes": -1}`, "processes: want"},
		{`{"run": ["ls"], "read": ["/"]}`, "read: "},
		{`{"run": ["ls"], "read": ["/proc/1"]}`, "read: "},
		{`{"run": ["ls"], "accounts": ["no name"]}`, "accounts: "},
		{`{"run": ["ls"], "delivery": "exactly"}`, "delivery"},
		{`{"run": ["ls"], "retry_exit_codes": [256]}`, "exit code"},
		{`{"run": ["ls"], "version": "1"}`, "version"},
	} {
		if _, err := Parse(`{"it": ` + tt.spec + `}`); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.spec, err, tt.want)
		}
	}
	for _, name := range []string{"", "A", "a b", "a/b", "-a", strings.Repeat("a", 60)} {
		if _, err := Parse(`{"` + name + `": {"run": ["ls"]}}`); err == nil {
			t.Errorf("a command may be called %q", name)
		}
	}
}

// The declaration is one that recipes are checked against.
func TestDeclaration(t *testing.T) {
	_, act := parsed(t, `{"description": "Makes a small picture.", "run": ["convert", "{picture}", "{size}", {"if": "grey", "args": ["-grayscale"]}, "{n}", "out.png"],
		"parameters": {"picture": {"type": "file", "as": "in.png"}, "size": {"pattern": "[0-9]+x[0-9]+", "default": "10x10"}, "grey": {"type": "boolean", "default": false}, "n": {"type": "integer", "min": 1, "max": 9}},
		"outputs": {"small": "out.png", "more": "x/*.png"}}`)
	actiontest.Check(t, act, actiontest.NoRun("there is no example of a command"))
	if act.Name != "exec-it" || act.Version != "1.0.0" {
		t.Errorf("it is %s@%s", act.Name, act.Version)
	}
	var in struct {
		Required   []string
		Properties map[string]map[string]any
	}
	if err := json.Unmarshal(act.Input, &in); err != nil || !slices.Equal(in.Required, []string{"n", "picture"}) || in.Properties["picture"]["format"] != "file" {
		t.Errorf("%v: the input is %s", err, act.Input)
	}
}

// What may change a result of a command changes its revision, which is part of the key of cached
// results; what bounds it, and who may use it, does not.
func TestRevision(t *testing.T) {
	revision := func(text string) string {
		_, act := parsed(t, text)
		if act.Revision == "" {
			t.Fatalf("%s has no revision", text)
		}
		return act.Revision
	}
	was := revision(`{"run": ["cat", "{a}"], "parameters": {"a": {"type": "string"}}}`)
	seen := map[string]string{was: "as it was"}
	for name, text := range map[string]string{
		"another program":        `{"run": ["tac", "{a}"], "parameters": {"a": {"type": "string"}}}`,
		"another argument":       `{"run": ["cat", "-n", "{a}"], "parameters": {"a": {"type": "string"}}}`,
		"another parameter":      `{"run": ["cat", "{a}"], "parameters": {"a": {"type": "string", "default": "x"}}}`,
		"another environment":    `{"run": ["cat", "{a}"], "env": {"LANG": "C"}, "parameters": {"a": {"type": "string"}}}`,
		"standard input":         `{"run": ["cat", "{a}"], "stdin": "{a}", "parameters": {"a": {"type": "string"}}}`,
		"standard output":        `{"run": ["cat", "{a}"], "stdout": "json", "parameters": {"a": {"type": "string"}}}`,
		"files that it makes":    `{"run": ["cat", "{a}"], "outputs": {"out": "out.png"}, "parameters": {"a": {"type": "string"}}}`,
		"a network":              `{"run": ["cat", "{a}"], "network": true, "parameters": {"a": {"type": "string"}}}`,
		"files that it reads":    `{"run": ["cat", "{a}"], "read": ["/srv"], "parameters": {"a": {"type": "string"}}}`,
		"no confinement":         `{"run": ["cat", "{a}"], "confine": "none", "parameters": {"a": {"type": "string"}}}`,
		"other codes of success": `{"run": ["cat", "{a}"], "ok_exit_codes": [0, 1], "parameters": {"a": {"type": "string"}}}`,
	} {
		got := revision(text)
		if other, taken := seen[got]; taken {
			t.Errorf("%s: its revision is that of %s", name, other)
		}
		seen[got] = name
	}
	for _, text := range []string{
		`{"run": ["cat", "{a}"], "parameters": {"a": {"type": "string"}}}`,
		`{"run": ["cat", "{a}"], "parameters": {"a": {"type": "string"}}, "accounts": ["acme"], "timeout": "5s", "slots": 2, "description": "Shows it."}`,
	} {
		if got := revision(text); got != was {
			t.Errorf("%s has another revision", text)
		}
	}
}

// Only the accounts that are named have a command, and the account local without any.
func TestX205_Accounts(t *testing.T) {
	set, act := parsed(t, `{"run": ["ls"], "accounts": ["acme"]}`)
	for account, want := range map[string]bool{"acme": true, "local": false, "other": false} {
		if got := set.Permits(account, "exec-it"); got != want {
			t.Errorf("%s: %v", account, got)
		}
	}
	if set, _ := parsed(t, `{"run": ["ls"]}`); !set.Permits("local", "exec-it") || set.Permits("acme", "exec-it") || !set.Permits("acme", "hash") {
		t.Error("a command that names no account is the account local's alone")
	}
	// The action itself refuses, too.
	if _, err := act.Run(t.Context(), &action.Task{Account: "other", Input: json.RawMessage(`{}`)}); fault.CodeOf(err) != fault.ActionNotFound {
		t.Errorf("the action answers %v", err)
	}
}

func argvOf(t testing.TB, spec, input string) ([]string, error) {
	t.Helper()
	specs, err := Parse(`{"it": ` + spec + `}`)
	if err != nil {
		t.Fatal(err)
	}
	s := specs["it"]
	v, err := s.read(json.RawMessage(input))
	if err != nil {
		return nil, err
	}
	return s.argv(v)
}

const twoTexts = `{"run": ["ls", "--color", "{a}", "--", "{b}"], "parameters": {"a": {"max_length": 20}, "b": {}}}`

// An argument of a recipe is one argument, whatever is in it, and no option.
func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		spec, input string
		want        []string
		code        fault.Code
	}{
		{twoTexts, `{"a": "x; rm -rf / $(id) | cat > y", "b": "-rf"}`, []string{"--color", "", "--", "-rf"}, fault.InputInvalid}, // too long
		{twoTexts, `{"a": "x; $(id) 'y' \"", "b": "-rf"}`, []string{"--color", `x; $(id) 'y' "`, "--", "-rf"}, ""},
		{twoTexts, `{"a": "{b}", "b": "{a}"}`, []string{"--color", "{b}", "--", "{a}"}, ""},
		{twoTexts, `{"a": "", "b": ""}`, []string{"--color", "", "--", ""}, ""},
		{twoTexts, `{"a": "-l", "b": "x"}`, nil, fault.InputInvalid},
		{twoTexts, `{"a": "--", "b": "x"}`, nil, fault.InputInvalid},
		{twoTexts, `{"a": "x\u0000y", "b": "x"}`, nil, fault.InputInvalid},
		{twoTexts, `{"a": ["x"], "b": "x"}`, nil, fault.InputInvalid},
		{twoTexts, `{"a": 1, "b": "x"}`, nil, fault.InputInvalid},
		{twoTexts, `{"a": "x"}`, nil, fault.InputMissing},
		{twoTexts, `{"a": "x", "b": "x", "c": "x"}`, nil, fault.InputInvalid},
		{`{"run": ["ls", "{a}"], "parameters": {"a": {"max_length": 100000}}}`, `{"a": "` + strings.Repeat("é", 50_001) + `"}`, nil, fault.InputInvalid}, // the kernel counts bytes
		{`{"run": ["ls", "{n}"], "parameters": {"n": {"type": "integer", "max": 5}}}`, `{"n": -5}`, nil, fault.InputInvalid},
		{`{"run": ["ls", "{n}"], "parameters": {"n": {"type": "integer", "max": 5}}}`, `{"n": 6}`, nil, fault.InputInvalid},
		{`{"run": ["ls", "{n}"], "parameters": {"n": {"type": "integer", "leading_dash": true}}}`, `{"n": -5}`, []string{"-5"}, ""},
		{`{"run": ["ls", "{n}"], "parameters": {"n": {"enum": ["a", "b"]}}}`, `{"n": "c"}`, nil, fault.InputInvalid},
		{`{"run": ["ls", "{n}"], "parameters": {"n": {"pattern": "a|b"}}}`, `{"n": "ab"}`, nil, fault.InputInvalid},
		{`{"run": ["ls", "{n}"], "parameters": {"n": {"pattern": "[a-z]+"}}}`, `{"n": "ab\n"}`, nil, fault.InputInvalid},
		{`{"run": ["ls", {"if": "v", "args": ["-v"]}, "x"], "parameters": {"v": {"type": "boolean", "default": false}}}`, `{}`, []string{"x"}, ""},
		{`{"run": ["ls", {"if": "v", "args": ["-v"]}, "x"], "parameters": {"v": {"type": "boolean", "default": false}}}`, `{"v": true}`, []string{"-v", "x"}, ""},
		{`{"run": ["ls", "{f}"], "parameters": {"f": {"type": "file", "as": "in.txt"}}}`, `{"f": "sha256_x"}`, []string{"in.txt"}, ""},
	} {
		got, err := argvOf(t, tt.spec, tt.input)
		if tt.code != "" && fault.CodeOf(err) != tt.code || tt.code == "" && (err != nil || !slices.Equal(got, tt.want)) {
			t.Errorf("%.200s: %.200q, %v", tt.input, got, err)
		}
	}
}

// However an argument is written, there is one for each parameter, it is the value, and before
// -- it does not begin with -.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{"", "-", "--", "-rf", "a b", "$(id)", "`id`", "{b}", "\n-x", "\x00", "\xff", "—dash"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		input, err := json.Marshal(map[string]string{"a": a, "b": b})
		if err != nil {
			t.Skip("no JSON")
		}
		args, err := argvOf(t, twoTexts, string(input))
		if err != nil {
			return
		}
		var sent struct{ A, B string }
		if json.Unmarshal(input, &sent) != nil || !slices.Equal(args, []string{"--color", sent.A, "--", sent.B}) || strings.HasPrefix(sent.A, "-") {
			t.Errorf("%q, %q: %q", a, b, args)
		}
	})
}
