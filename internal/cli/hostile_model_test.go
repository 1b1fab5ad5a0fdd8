// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A29: what a model answers is data. A hostile one tries to choose a step, a recipe, an address, a file
// and a tool, to have its text evaluated, to read a secret, and to spend more than the step may cost.
func TestA29_HostileModel(t *testing.T) {
	hostile := map[string]any{
		"type": "danger", "next": "danger", "recipe": "other", "action": "exec-rm", "url": "http://169.254.169.254/latest/meta-data",
		"file": "../../etc/passwd", "expression": "{{ secret('canary') }} {{ 6 * 7 }} ${ROUX_MODEL_KEY}", "loop": []string{"a", "b"},
	}
	answer, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	inside := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" {
			inside++
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		text, _ := json.Marshal(string(answer))
		_, _ = fmt.Fprintf(w, `{"choices": [{"message": {"content": %s, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "http", "arguments": "{\"url\": \"http://%s/tool\"}"}}]},
			"finish_reason": "stop"}], "usage": {"prompt_tokens": 900000, "completion_tokens": 900000}}`, text, r.Host)
	}))
	t.Cleanup(srv.Close)
	t.Setenv("ROUX_EGRESS_ALLOW", "127.0.0.1/32")
	t.Setenv("ROUX_MODEL_KEY", "key-of-the-operator")
	t.Setenv("ROUX_SECRET_CANARY", "canary-value")
	t.Setenv("ROUX_PROVIDERS", `{"m": {"kind": "openai", "url": "`+srv.URL+`/v1", "key_env": "ROUX_MODEL_KEY", "model": "small", "max_tokens": 1000, "max_input_tokens": 1000, "prices": {"small": {"input": 1000, "output": 1000}}}}`)
	t.Setenv("ROUX_DATA", shortDir(t))

	const ask = "  - {id: ask, action: {name: llm, parameters: {prompt: hello, stream: false}}, outputBinding: answer}\n"
	run := func(t *testing.T, steps string, want int) (outputs map[string]any, used float64, talk string) {
		t.Helper()
		name := filepath.Join(t.TempDir(), "r.yaml")
		if err := os.WriteFile(name, []byte("name: r\nsteps:\n"+steps), 0o600); err != nil {
			t.Fatal(err)
		}
		out, talk, code := inProcess("", "run", name, "-o", "json")
		if code != want {
			t.Fatalf("exit %d, want %d: %s", code, want, talk)
		}
		for _, secret := range []string{"canary-value", "key-of-the-operator"} {
			if strings.Contains(out+talk, secret) {
				t.Errorf("the answer has got %s", secret)
			}
		}
		var res struct {
			Outputs map[string]any
			Credits struct{ Used float64 }
		}
		if err := json.Unmarshal([]byte(out), &res); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return res.Outputs, res.Credits.Used, talk
	}
	t.Run("text", func(t *testing.T) {
		outputs, used, _ := run(t, ask+"  - {id: echo, transform: {expression: \"'say ' + answer.json.expression\", outputBinding: said}}\n"+
			"  - {id: join, action: {name: text-join, parameters: {items: [\"{{ said }}\"]}}, outputBinding: joined}\noutputs: {said: said, joined: joined.text}\n", 0)
		if want := "say " + hostile["expression"].(string); outputs["said"] != want || outputs["joined"] != want {
			t.Errorf("%v, want %q as it is", outputs, want)
		}
		// The most of the step: two calls of a thousand tokens each way, at a thousand credits a million.
		if used != 4+1 {
			t.Errorf("it used %v credits, want 4 for the model and 1 for text-join", used)
		}
	})
	t.Run("edge", func(t *testing.T) {
		outputs, _, _ := run(t, ask+`  - id: check
    condition:
      expression: answer.json.type == "text"
      then: [{id: danger, fail: {code: CHOSEN, message: the model has chosen a step}}]
      else: [{id: safe, transform: {expression: "'safe'", outputBinding: way}}]
outputs: {way: way}
`, 0)
		if outputs["way"] != "safe" {
			t.Errorf("%v", outputs)
		}
	})
	t.Run("schema", func(t *testing.T) {
		_, _, talk := run(t, strings.Replace(ask, "stream: false", "stream: false, outputSchema: {type: object, properties: {type: {enum: [text, image]}}}", 1), 1)
		if !strings.Contains(talk, "OUTPUT_CONTRACT_VIOLATION") {
			t.Errorf("an answer that is no declared choice: %s", talk)
		}
	})
	for what, step := range map[string]struct{ step, code string }{
		"address": {`{name: http, parameters: {url: "{{ answer.json.url }}"}}`, "EGRESS_REFUSED"},
		"file":    {`{name: file-inspect, parameters: {file: "{{ answer.json.file }}"}}`, "INPUT_CONTRACT_VIOLATION"},
	} {
		t.Run(what, func(t *testing.T) {
			_, _, talk := run(t, ask+"  - {id: use, action: "+step.step+"}\n", 1)
			if !strings.Contains(talk, step.code) {
				t.Errorf("want %s: %s", step.code, talk)
			}
		})
	}
	// A recipe may let a value choose which registered recipe runs, or make the text of one (X251). Then it chooses
	// among what is registered, and the text has neither secrets nor files, nor a way past the guard of addresses.
	made := func(step string) string {
		return `{id: use, recipe: {definition: "{'name': 'made', 'steps': [` + step + `]}", maxCredits: 1}}`
	}
	for what, step := range map[string]struct{ step, code string }{
		"recipe":       {`{id: use, recipe: {ref: "{{ answer.json.recipe }}"}}`, "RECIPE_NOT_FOUND"},
		"made action":  {made(`{'id': 'a', 'action': {'name': answer.json.action}}`), "no action"},
		"made address": {made(`{'id': 'a', 'action': {'name': 'http', 'parameters': {'url': answer.json.url}}}`), "EGRESS_REFUSED"},
		"made secret":  {made(`{'id': 'a', 'action': {'name': 'text-join', 'parameters': {'items': [answer.json.expression]}}}`), "uses no secrets"},
		"made file":    {made(`{'id': 'a', 'recipe': {'file': answer.json.file}}`), "RECIPE_INVALID"},
	} {
		t.Run(what, func(t *testing.T) {
			_, _, talk := run(t, ask+"  - "+step.step+"\n", 1)
			if !strings.Contains(talk, step.code) {
				t.Errorf("want %s: %s", step.code, talk)
			}
		})
	}
	t.Run("action", func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "r.yaml")
		if err := os.WriteFile(name, []byte("name: r\nsteps:\n"+ask+"  - {id: use, action: {name: \"{{ answer.json.action }}\"}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, talk, code := inProcess("", "run", name); code == 0 || !strings.Contains(talk, "nothing was run") {
			t.Errorf("exit %d: a recipe lets a value choose its action: %s%s", code, out, talk)
		}
	})
	if inside != 0 {
		t.Errorf("the model has called a tool %d times", inside)
	}
}
