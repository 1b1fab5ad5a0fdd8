// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	library "github.com/roux-engine/roux"
	"github.com/roux-engine/roux/fault"
)

// The texts are made of two parts, because the recipe itself is shown as it is.
const sensitiveOutputs = `name: outputs
inputSchema: {properties: {pin: {type: integer, x-sensitive: true}}}
outputSchema: {properties: {token: {x-sensitive: true}, size: {type: integer}}}
steps:
  - {id: login, action: {name: text-join, parameters: {items: ["hu{{ 'sh' }}-of-the-contract"]}}, contracts: {output: {properties: {text: {x-sensitive: true}}}}, outputBinding: login}
  - {id: make, transform: {expression: '{"deep": {"token": "hu" + "sh-of-the-result"}, "pin": input.pin}', outputBinding: made}}
  - {id: use, transform: {expression: '"Bearer " + login.text + made.deep.token', outputBinding: used}}
  - {id: inside, recipe: {inline: {name: inner, inputSchema: {properties: {given: {}}}, outputSchema: {properties: {key: {writeOnly: true}}},
      steps: [{id: key, transform: {expression: '"hu" + "sh-of-the-child " + input.given', outputBinding: key}}], outputs: {key: key}}, inputs: {given: "{{ login.text }}"}}, outputBinding: below}
  - {id: wrong, action: {name: text-join, parameters: {items: ["hu{{ 'sh' }}-of-the-violation"]}}, contracts: {output: {properties: {text: {x-sensitive: true, enum: [nothing]}}}}, continue_on_error: true}
  - {id: last, transform: {expression: 'below.key'}}
outputs:
  token: made.deep.token
  size: size(used)
`

// Outputs that a schema marks, of the run, of a step, of a child run, are masked in every
// view, export and stream, also where a later step passes them on.
func TestSensitiveOutputs(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ROUX_DATA", filepath.Join(dir, "data"))
	file, out := filepath.Join(dir, "r.yaml"), filepath.Join(dir, "b.zip")
	if err := os.WriteFile(file, []byte(sensitiveOutputs), 0o600); err != nil {
		t.Fatal(err)
	}
	hidden := func(what, text string) {
		t.Helper()
		if strings.Contains(text, "hush") || strings.Contains(text, "471147") {
			t.Errorf("%s shows a secret:\n%s", what, text)
		}
	}
	for _, form := range []string{"table", "json", "jsonl"} {
		shown, talk, code := inProcess("", "run", file, "--input", "pin=471147", "-o", form, "-v")
		if code != fault.ExitOK {
			t.Fatalf("exit %d: %s", code, talk)
		}
		hidden("run -o "+form, shown+talk)
		if !strings.Contains(shown, "[masked]") || !strings.Contains(shown, "45") {
			t.Errorf("run -o %s shows %s", form, shown)
		}
	}
	for _, args := range [][]string{
		{"runs", "list"}, {"events", "@last"}, {"events", "@last", "--after", "9"}, {"runs", "get", "@last"}, {"explain", "@last"}, {"explain", "@last", "login"}, {"explain", "@last", "wrong"}, {"trace", "@last"},
		{"diff", "@last", "@last"}, {"replay", "@last"}, {"graph", "@last"}, {"logs", "@last"},
	} {
		for _, form := range []string{"table", "json"} {
			shown, talk, code := inProcess("", append(slices.Clone(args), "-o", form)...)
			if code == fault.ExitInternal || args[0] == "replay" && code != 0 {
				t.Errorf("%v: exit %d: %s", args, code, talk)
			}
			hidden(strings.Join(args, " ")+" -o "+form, shown+talk)
		}
	}
	exportHides(t, out, "hush")
	e, err := library.Open(t.Context(), library.Options{Dir: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	run, err := e.Start(t.Context(), library.Request{Recipe: []byte(sensitiveOutputs), Input: map[string]any{"pin": 471147}})
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range e.Watch(t.Context(), run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		hidden("a stream", inJSON(ev.Payload))
	}
}
