// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	library "github.com/roux-engine/roux"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/store"
)

const manySecrets = `name: secrets
inputSchema:
  type: object
  properties:
    pin: {type: integer, writeOnly: true}
    login: {type: object, writeOnly: true}
    codes: {type: array, writeOnly: true}
    keys: {type: array, items: {type: object, properties: {key: {type: string, writeOnly: true}, n: {type: integer, writeOnly: true}}}}
steps:
  - {id: use, transform: {expression: '{"pin": input.pin, "login": input.login, "text": "pin " + string(input.pin)}', outputBinding: used}}
  - {id: each, loop: {over: 'input.keys', as: k, steps: [{id: inner, transform: {expression: k, outputBinding: v}}]}}
  - {id: codes, loop: {over: 'input.codes', as: c, steps: [{id: code, transform: {expression: c, outputBinding: v}}]}}
  - {id: ask, wait: {signal: go}}
  - {id: stop, fail: {code: STEP_FAILED, message: 'no more of {{ input.pin }}, {{ input.login.password }}'}}
`

const manySecretsInput = `{"pin": 471100, "login": {"user": "hush-ana", "password": "hush-pass", "n": 471101}, "codes": [471102, "hush-code"],
	"keys": [{"key": "hush-key", "n": 471103}]}`

// A run with writeOnly values of all types is masked by every command in the same way,
// whether it reads through the socket of the process that holds the data directory or
// opens the directory itself. No answer on the socket contains such a value, whoever
// sends the request.
func TestWriteOnlyOverTheSocket(t *testing.T) {
	h, r := hosted(t)
	file := filepath.Join(t.TempDir(), "r.yaml")
	if err := os.WriteFile(file, []byte(manySecrets), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{account: account, stderr: new(bytes.Buffer), actions: node.Catalogue(testActions())}
	c, err := a.compileFile(file, defaultSource)
	if err != nil {
		t.Fatal(err)
	}
	var input map[string]any
	if err := json.Unmarshal([]byte(manySecretsInput), &input); err != nil {
		t.Fatal(err)
	}
	input["pin"] = int64(471100) // as the command line reads it
	run, err := h.start(t.Context(), c, input, nil, payment{})
	if err != nil {
		t.Fatal(err)
	}
	hidden := func(what, text string) {
		t.Helper()
		if strings.Contains(text, "hush") || strings.Contains(text, "4711") {
			t.Errorf("%s shows a secret:\n%s", what, text)
		}
	}
	for ev, err := range h.Node.Engine.Watch(t.Context(), account, run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == journal.EvNodeWaiting {
			break
		}
	}
	look := func() {
		t.Helper()
		for _, args := range [][]string{
			{"runs", "list"}, {"events", run}, {"events", run, "--after", "3"}, {"runs", "get", run}, {"explain", run, "use"}, {"explain", run, "stop"},
			{"trace", run}, {"diff", run, run}, {"replay", run}, {"graph", run}, {"logs", run},
		} {
			for _, form := range [][]string{nil, {"-o", "json"}} {
				shown, talk, code := inProcess("", append(slices.Clone(args), form...)...)
				if code != 0 {
					t.Errorf("%v: exit %d: %s", args, code, talk)
				}
				hidden(strings.Join(append(args, form...), " "), shown+talk)
			}
		}
		out := filepath.Join(t.TempDir(), "b.zip")
		if _, talk, code := inProcess("", "export", run, "--out", out); code != 0 {
			t.Fatal(talk)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range parts(t, data) {
			hidden("the bundle's "+name, string(text))
		}
		if _, err := readBundle(out, false); err != nil {
			t.Errorf("the bundle cannot be read: %v", err)
		}
	}
	look()
	// The same after the run has failed, again through the socket: its message is now
	// in lists.
	if _, talk, code := inProcess("", "runs", "signal", run, "go"); code != 0 {
		t.Fatal(talk)
	}
	if head, err := h.Node.Engine.Wait(t.Context(), account, run); err != nil || head.Status != "failed" {
		t.Fatalf("%+v, %v", head, err)
	}
	look()
	key := store.Key{Run: run}
	of := "v1/recipe-executions/" + run
	for _, path := range []string{"v1/journals", "v1/journals?all=true", of, of + "/journal?maxBytes=0", of + "/journal?snapshot=true", of + "/journal", "v1/recipe-executions", "v1/changes", of + "/explain"} {
		answer, err := askSocket(t, h.dir, path)
		if err != nil {
			t.Error(err)
		}
		hidden("the answer to "+path, answer)
	}
	saved, err := r.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	hidden("the state", string(saved.State)+string(saved.Tail))
	// Frames are binary in the answer, so the pages are decoded: all of them, from any
	// event on, in any order.
	last := uint64(0)
	for _, after := range []uint64{0, 9, 2, 5, 0, 100} {
		page, err := r.Events(t.Context(), key, after, 200)
		if err != nil {
			t.Error(err)
		}
		hidden("a page of events", string(page.Frames))
		last = max(last, page.Last)
	}
	whole, err := h.Reader.Events(t.Context(), store.Key{Account: account, Run: run}, 0, store.PageBytes)
	if err != nil || !bytes.Contains(whole.Frames, []byte("hush")) || whole.Last != last {
		t.Errorf("the journal itself: %d events, want %d: %v", last, whole.Last, err)
	}
	h.abandon()
	if _, err := os.Stat(filepath.Join(h.dir, datadir.Socket)); err == nil {
		t.Error("the socket is still there")
	}
	look()
}

// The reason for a quarantine may contain the text of a panic. If the recipe marks
// inputs, every command shows only the place of the panic, through the socket or not.
// The reason that an import gives is shown.
func TestReasonsAreMasked(t *testing.T) {
	const why, imported = "the machine panicked after event 3: no hush-token", store.ImportedReason + ", not verified"
	for _, tt := range []struct{ recipe, reason, want string }{
		{withSecrets, why, "the machine panicked after event 3: [masked]"},
		{strings.ReplaceAll(withSecrets, ", writeOnly: true", ""), why, why},
		{withSecrets, "the process died 3 times", "the process died 3 times"},
		{withSecrets, imported, "not verified"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		t.Setenv("ROUX_DATA", dir)
		recipe := strings.Replace(tt.recipe, "steps:\n", "steps:\n  - {id: hold, wait: {signal: go}}\n", 1)
		run := startedIn(t, dir, recipe, map[string]any{"token": "hush-token", "login": map[string]any{"password": "p"}, "keys": []any{}})
		inHead(t, dir, run, func(head *store.Head) { head.Quarantine = tt.reason })
		look := func(where string) {
			t.Helper()
			for _, args := range [][]string{
				{"runs", "list"}, {"runs", "list", "-o", "json"}, {"runs", "get", run}, {"runs", "get", run, "-o", "json"}, {"doctor"},
				{"resume", run}, {"trace", run}, {"explain", run, "hold"}, {"replay", run},
			} {
				out, talk, _ := inProcess("", args...)
				if strings.Contains(tt.want, "masked") && strings.Contains(out+talk, "hush") {
					t.Errorf("%s %v shows a secret:\n%s%s", where, args, out, talk)
				}
				if args[0] == "runs" && args[1] == "get" && !strings.Contains(out, tt.want) {
					t.Errorf("%s %v does not say %q:\n%s%s", where, args, tt.want, out, talk)
				}
			}
		}
		look("alone")
		h, _ := hostedAt(t, dir)
		look("beside a host")
		for _, path := range []string{"v1/journals", "v1/recipe-executions/" + run + "/journal?maxBytes=0", "v1/recipe-executions/" + run + "/journal?snapshot=true"} {
			answer, err := askSocket(t, h.dir, path)
			if err != nil || !strings.Contains(answer, tt.want) {
				t.Errorf("the answer to %s: %v, %s", path, err, answer)
			}
		}
		h.abandon()
	}
}

// startedIn starts a run in a data directory that nobody holds afterwards.
func startedIn(t *testing.T, dir, recipe string, input map[string]any) (run string) {
	t.Helper()
	e, err := library.Open(t.Context(), library.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if run, err = e.Start(t.Context(), library.Request{Source: "r.yaml", Recipe: []byte(recipe), Input: input}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return run
}

// An input that is refused is not shown in the refusal.
func TestRefusedWriteOnly(t *testing.T) {
	t.Setenv("ROUX_DATA", filepath.Join(t.TempDir(), "data"))
	file := filepath.Join(t.TempDir(), "r.yaml")
	recipe := "name: r\ninputSchema: {type: object, properties: {pin: {type: integer, minimum: 900000, writeOnly: true}, word: {type: string, pattern: '^x', writeOnly: true}}}\n" +
		"steps: [{id: a, transform: {expression: '1'}}]\n"
	if err := os.WriteFile(file, []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"table", "json"} {
		out, talk, code := inProcess("", "run", file, "--input", "pin=471100", "--input", "word=hush-hush", "-o", form)
		if code != fault.ExitUsage || strings.Contains(out+talk, "4711") || strings.Contains(out+talk, "hush") || !strings.Contains(out+talk, "writeOnly") {
			t.Errorf("-o %s: exit %d: %s%s", form, code, out, talk)
		}
	}
}

// askSocket asks the holder of a directory for a path and returns its answer.
func askSocket(t *testing.T, dir, where string) (string, error) {
	t.Helper()
	path, err := local.Socket(dir)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://roux/"+where, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(text), err
}
