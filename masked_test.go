// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/fault"
)

// An input that the recipe marks as writeOnly is masked in everything that a program
// sees: events from any number on, outputs, the message of a failure, and the error for
// an invalid input. The run itself sees the value.
func TestWriteOnlyIsMasked(t *testing.T) {
	const recipe = `
name: secrets
inputSchema:
  type: object
  properties:
    pin: {type: integer, minimum: 1000, writeOnly: true}
    login: {type: object, writeOnly: true, properties: {user: {type: string}, password: {type: string, pattern: '^hush'}}}
    keys: {type: array, items: {type: object, properties: {key: {type: string, writeOnly: true}}}}
    fail: {type: boolean}
steps:
  - {id: use, transform: {expression: '{"pin": input.pin + 0, "login": input.login, "key": input.keys[0].key}', outputBinding: used}}
  - {id: text, transform: {expression: '"user " + input.login.user + ", pin " + string(input.pin)', outputBinding: t}}
  - {id: stop, when: input.fail, fail: {code: STEP_FAILED, message: 'no more of {{ input.keys[0].key }}'}}
outputs: {used: used, text: t, size: 'size(input.login.password)'}
`
	e := open(t, t.TempDir())
	defer e.Close()
	ctx := t.Context()
	input := func(fail bool) map[string]any {
		return map[string]any{"pin": 471100, "login": map[string]any{"user": "hush-anna", "password": "hush-pass"},
			"keys": []any{map[string]any{"key": "hush-key"}}, "fail": fail}
	}
	hidden := func(what, text string) {
		t.Helper()
		if strings.Contains(text, "hush") || strings.Contains(text, "4711") {
			t.Errorf("%s shows a secret: %s", what, text)
		}
	}
	for _, fail := range []bool{false, true} {
		run, err := e.Start(ctx, roux.Request{Recipe: []byte(recipe), Input: input(fail)})
		if err != nil {
			t.Fatal(err)
		}
		res, err := e.Wait(ctx, run)
		if err != nil || (res.Status == "failed") != fail {
			t.Fatalf("%+v, %v", res, err)
		}
		if !fail && (!strings.Contains(string(res.Outputs), "[masked]") || !strings.Contains(string(res.Outputs), `"size":9`)) {
			t.Errorf("outputs: %s", res.Outputs)
		}
		hidden("the result", string(res.Outputs))
		if fail {
			if !strings.Contains(res.Err.Msg, "no more of [masked]") {
				t.Errorf("the error says %q", res.Err.Msg)
			}
			hidden("the error", res.Err.Error())
		}
		for _, after := range []uint64{0, 1, 4} {
			next := after
			for ev, err := range e.Watch(ctx, run, after) {
				if err != nil {
					t.Fatal(err)
				}
				if next++; ev.ID != next {
					t.Errorf("after %d: event %d, want %d", after, ev.ID, next)
				}
				text, err := json.Marshal(ev.Payload)
				if err != nil {
					t.Fatal(err)
				}
				hidden(ev.Type, string(text))
			}
			if next == after {
				t.Errorf("after %d: no events", after)
			}
		}
	}
	bad := input(false)
	bad["pin"] = 471 // the message would show it
	bad["login"] = map[string]any{"password": strings.Repeat("secret", 30)}
	_, err := e.Start(ctx, roux.Request{Recipe: []byte(recipe), Input: bad})
	if !errors.Is(err, fault.InputInvalid) || strings.Contains(err.Error(), "471") || strings.Contains(err.Error(), "secretsecret") || !strings.Contains(err.Error(), "writeOnly") {
		t.Errorf("an input that does not fit: %v", err)
	}
	var f *fault.Error
	if errors.As(err, &f) {
		for _, d := range f.Diags {
			if strings.Contains(d.Msg, "471") || strings.Contains(d.Msg, "secretsecret") {
				t.Errorf("an input that does not fit: %s", d.Msg)
			}
		}
	}
}
