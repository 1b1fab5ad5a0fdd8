// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

const withSecrets = `name: secrets
inputSchema:
  type: object
  properties:
    plain: {type: string}
    token: {type: string, writeOnly: true}
    login: {type: object, properties: {user: {type: string}, password: {type: string, writeOnly: true}}}
    keys: {type: array, items: {type: object, properties: {key: {type: string, writeOnly: true}}}}
steps:
  - {id: size, transform: {expression: 'size(input.token)', outputBinding: size}}
  - {id: use, transform: {expression: '"Bearer " + input.token + input.login.password', outputBinding: used}}
  - {id: each, loop: {over: 'input.keys', as: k, steps: [{id: inner, transform: {expression: k.key, outputBinding: v}}]}}
  - {id: stop, fail: {code: STEP_FAILED, message: 'no more of {{ input.token }}'}}
`

// A value that the input schema marks as writeOnly, nested or not, appears in no view
// and in no export, even where a step passed it on. The run itself sees it.
func TestWriteOnlyIsMasked(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ROUX_DATA", filepath.Join(dir, "data"))
	file, out := filepath.Join(dir, "r.yaml"), filepath.Join(dir, "b.zip")
	if err := os.WriteFile(file, []byte(withSecrets), 0o600); err != nil {
		t.Fatal(err)
	}
	input := filepath.Join(dir, "in.json")
	if err := os.WriteFile(input, []byte(`{"plain": "seen-by-all", "token": "hush-token", "login": {"user": "ana", "password": "hush-pass"}, "keys": [{"key": "hush-key-1"}, {"key": "hush-key-2"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	hidden := func(what, text string) {
		t.Helper()
		if strings.Contains(text, "hush") {
			t.Errorf("%s shows a secret:\n%s", what, text)
		}
	}
	for _, form := range []string{"table", "json", "jsonl"} {
		shown, talk, code := inProcess("", "run", file, "--input", "@"+input, "-o", form)
		if code != fault.ExitFailed {
			t.Fatalf("exit %d: %s", code, talk)
		}
		hidden("run -o "+form, shown+talk)
	}
	for _, args := range [][]string{
		{"runs", "list"}, {"events", "@last"}, {"runs", "get", "@last"}, {"explain", "@last", "use"}, {"explain", "@last", "stop"}, {"trace", "@last"},
		{"diff", "@last", "@last"}, {"replay", "@last"}, {"graph", "@last"}, {"logs", "@last"},
	} {
		for _, form := range []string{"table", "json"} {
			shown, talk, code := inProcess("", append(args, "-o", form)...)
			if code == fault.ExitInternal || args[0] == "replay" && code != 0 {
				t.Errorf("%v: exit %d: %s", args, code, talk)
			}
			hidden(strings.Join(args, " ")+" -o "+form, shown+talk)
		}
	}
	shown, _, _ := inProcess("", "events", "@last", "-o", "json")
	for _, want := range []string{"seen-by-all", "ana", "[masked]", "10"} {
		if !strings.Contains(shown, want) {
			t.Errorf("events do not show %q", want)
		}
	}
	shown, _, _ = inProcess("", "events", "@last", "--after", "3", "-o", "json")
	hidden("events --after 3", shown)
	exportHides(t, out, "hush")
}

// exportHides exports the last run to a bundle, which can be read and has word in none of its
// parts.
func exportHides(t *testing.T, out, word string) {
	t.Helper()
	if _, talk, code := inProcess("", "export", "@last", "--out", out); code != 0 {
		t.Fatal(talk)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range parts(t, data) {
		if bytes.Contains(text, []byte(word)) {
			t.Errorf("%s in the bundle holds a secret:\n%s", name, text)
		}
	}
	if _, err := readBundle(out, false); err != nil {
		t.Errorf("the bundle cannot be read: %v", err)
	}
}
