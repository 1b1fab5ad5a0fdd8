// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

const devRecipeText = `name: greet
version: 1.0.0
inputSchema: {type: object, required: [name], properties: {name: {type: string, examples: [Ana]}}}
steps:
  - {id: hello, transform: {expression: "'Hello ' + input.name", outputBinding: greeting}}
outputs: {greeting: greeting}
`

func TestDevPage(t *testing.T) {
	files := t.TempDir()
	runServed(t, freeAddress(t), servedPage{
		name: "dev", tools: []string{"curl", "sed"}, least: 7, files: files, folder: true, replace: []string{"greet.yaml:", files + "/greet.yaml:"},
	})
}

// The real process: a recipe is executed, changed, broken and mended while the server runs.
func TestDev(t *testing.T) {
	folder, address := t.TempDir(), freeAddress(t)
	save := func(old, now string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, "greet.yaml"), []byte(strings.ReplaceAll(devRecipeText, old, now)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save("", "")
	server := start(t, nil, "dev", folder, "--data", shortDir(t), "--listen", address)
	server.until("/v1/recipes/greet/execute -H 'Content-Type: application/json' -d '{\"async\":false,\"parameters\":{\"name\":\"Ana\"}}'")
	greets := func(want, version string) {
		t.Helper()
		answer, err := http.Post("http://"+address+"/v1/recipes/greet/execute", "application/json", strings.NewReader(`{"parameters": {"name": "Ana"}, "async": false}`))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if got, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(got), want) || !strings.Contains(string(got), `"recipeVersion":"`+version+`"`) {
			t.Errorf("the run is not of version %s, with %q: %s %v", version, want, got, err)
		}
	}
	greets("Hello Ana", "1.0.0")
	save("Hello", "Good day")
	server.until("registered greet@1.0.1")
	greets("Good day Ana", "1.0.1")
	save("input.name", "input.nme")
	server.until("invalid; greet@1.0.1 goes on")
	if said := server.said(); !strings.Contains(said, filepath.Join(folder, "greet.yaml")+":5:") {
		t.Errorf("it does not say where the recipe is broken:\n%s", said)
	}
	greets("Good day Ana", "1.0.1")
	save("Hello", "Good evening")
	server.until("registered greet@1.0.2")
	test := "recipe: greet.yaml\ninput: {name: Ana}\ntests: [{name: the greeting, expect: {output: {greeting: Good evening Ana}}}]\n"
	if err := os.WriteFile(filepath.Join(folder, "greet.test.yaml"), []byte(test), 0o600); err != nil {
		t.Fatal(err)
	}
	server.until("tests: 1 passed")
	save("Hello", "Good night")
	server.until("tests: 1 failed")
	server.until("replaced greet@1.0.2")
	if said := server.said(); !strings.Contains(said, `want "Good evening Ana", got "Good night Ana"`) || strings.Contains(said, "greet.test.yaml: invalid") {
		t.Errorf("it does not say what failed, or takes tests for a recipe:\n%s", said)
	}
	if err := os.Remove(filepath.Join(folder, "greet.yaml")); err != nil {
		t.Fatal(err)
	}
	server.until("removed; greet@1.0.2 is deprecated")
	if err := os.WriteFile(filepath.Join(folder, "tone.yaml"), []byte("lens: tone\ntemplate: Be kind.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server.until("tone.yaml: the lens tone@1 is registered")
	server.stop()
}

// Without keys the server is for this machine only, and a folder that is not there is refused.
func TestDevRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"loopback only":       {"dev", t.TempDir(), "--listen", "0.0.0.0:0"},
		"cannot be read":      {"dev", filepath.Join(t.TempDir(), "none"), "--listen", "127.0.0.1:0"},
		"roux dev does not t": {"dev", "a", "b"},
	} {
		var out, log strings.Builder
		if code := Main(t.Context(), append(args, "--data", shortDir(t)), strings.NewReader(""), &out, &log, nil); code == fault.ExitOK || !strings.Contains(log.String(), want) {
			t.Errorf("%v ends with %d: %s", args, code, log.String())
		}
	}
}

// The command that dev prints gives what the schema of the input requires.
func TestRequiredInput(t *testing.T) {
	schema := `{"required": ["a", "b", "c", "d", "e", "f", "g", "h"], "properties": {"a": {"type": "string"}, "b": {"type": "integer", "minimum": 3}, "c": {"enum": ["x"]},
		"d": {"type": "array"}, "e": {"default": false}, "f": {"type": ["boolean", "null"]}, "g": {"type": "object"}, "h": {"type": "number"}, "not": {"type": "string"}}}`
	got, err := json.Marshal(requiredInput(json.RawMessage(schema)))
	if want := `{"a":"…","b":3,"c":"x","d":[],"e":false,"f":true,"g":{},"h":1}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
