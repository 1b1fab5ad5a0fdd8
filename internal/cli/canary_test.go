// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/store"
)

// leak returns, reports and fails with whatever it is given, in every way there is.
func leak(ctx context.Context, t *action.Task) (action.Result, error) {
	var in struct{ Text, How string }
	if err := t.Decode(&in); err != nil {
		return action.Result{}, err
	}
	coded := base64.StdEncoding.EncodeToString([]byte(in.Text))
	switch in.How {
	case "error":
		return action.Result{}, fmt.Errorf("the service says: %q is wrong (%s)", in.Text, coded)
	case "long error":
		return action.Result{}, errors.New(strings.Repeat("x", 4<<10-len(in.Text)/2) + in.Text)
	case "code":
		return action.Result{}, fault.New(fault.Code(in.Text), "%s", in.Text)
	case "panic":
		panic("no more of " + in.Text)
	case "panic with a value":
		panic(map[string]any{"token": in.Text})
	}
	t.Report.Log("info", "token "+in.Text)
	t.Report.Log("debug", fmt.Sprintf("%q %x", in.Text, in.Text))
	t.Report.Progress(0.5, "half of "+url.QueryEscape(in.Text))
	for _, r := range "streaming " + in.Text + " and " + coded + "." {
		t.Report.Delta(string(r))
	}
	t.Report.Preview(map[string]any{"so far": in.Text})
	info, err := t.Files.Put(ctx, strings.NewReader("kept: "+in.Text+" "+coded), "a "+in.Text, "text/plain")
	if err != nil {
		return action.Result{}, err
	}
	long := ""
	if in.How == "much" {
		long = strings.Repeat("much of it ", 200_000) + in.Text
	}
	return action.Result{Output: map[string]any{
		"plain": in.Text, in.Text: "as a name", "list": []any{"x" + in.Text + "y"}, "json": map[string]any{"again": inJSON(in.Text)},
		"coded": coded, "hex": hex.EncodeToString([]byte(in.Text)), "query": url.QueryEscape(in.Text), "path": url.PathEscape(in.Text),
		"basic": base64.StdEncoding.EncodeToString([]byte("user:" + in.Text)), "file": info.Hash, "long": long,
	}}, nil
}

func inJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts can be encoded
	}
	return string(b)
}

// The three canaries come from the three sources. One has every character that some form
// escapes.
var canaries = map[string]string{
	"canary":     "cana\"ry\\<s3cr\u20act>&+/=?%25#@: 7",
	"env-canary": "env-0123456789-canary",
	"dir_canary": "d1r/canary+\u00fc\u00df~and more",
}

const canaryRecipe = `name: canaries
order: none
steps:
`

// leakSteps are the steps that use a secret.
func leakSteps(secret, server string) string {
	ref := "{{ secret('" + secret + "') }}"
	var b strings.Builder
	step := func(id, action, params, more string) {
		fmt.Fprintf(&b, "  - {id: %s-%s, action: {name: %s, parameters: {%s}}, continue_on_error: true%s}\n", strings.ReplaceAll(secret, "_", "-"), id, action, params, more)
	}
	step("header", "http", "url: '"+server+"/echo', method: POST, headers: {Authorization: \"Bearer "+ref+"\", X-Key: \""+ref+"\"}, body: hello, keepHeaders: [x-echo]", "")
	step("query", "http", "url: '"+server+"/echo', query: {key: \""+ref+"\", other: \"a "+ref+" b\"}", "")
	step("body", "http", "url: '"+server+"/echo', method: POST, body: {token: \""+ref+"\", list: [\""+ref+"\"]}", "")
	step("saved", "http", "url: '"+server+"/echo', method: POST, body: \""+ref+"\", saveAs: answer.txt", "")
	step("userinfo", "http", "url: \"http://user:"+ref+"@127.0.0.1/\"", "")
	step("address", "http", "url: \""+server+"/fail/"+ref+"\"", "")
	step("refused", "http", "url: '"+server+"/fail', method: POST, body: \""+ref+"\"", "")
	for _, how := range []string{"output", "much", "error", "long error", "code", "panic", "panic with a value"} {
		step(strings.ReplaceAll(how, " ", "-"), "leak", "how: "+how+", text: \""+ref+"\"", "")
	}
	step("contract", "leak", "text: \""+ref+"\"", ", contracts: {output: {type: object, properties: {plain: {enum: [nothing]}}}}")
	step("input", "leak", "text: \""+ref+"\"", ", contracts: {input: {type: object, properties: {text: {enum: [nothing]}}}}")
	step("retried", "leak", "how: error, text: \""+ref+"\"", ", retryPolicy: {maxAttempts: 2, initialDelay: 1ms, retryableErrors: [STEP_FAILED]}")
	return b.String()
}

// canaryForms are the forms in which the canaries are looked for, as other programs write
// them.
func canaryForms(t *testing.T, v string) map[string]string {
	t.Helper()
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	inside := strings.TrimSpace(plain.String())
	marshaled := inJSON(v)
	return map[string]string{
		"plain": v, "json": inside[1 : len(inside)-1], "json for html": marshaled[1 : len(marshaled)-1],
		"quoted": strings.Trim(fmt.Sprintf("%q", v), `"`),
		"base64": base64.RawStdEncoding.EncodeToString([]byte(v)), "base64 url": base64.RawURLEncoding.EncodeToString([]byte(v)),
		"basic": base64.StdEncoding.EncodeToString([]byte("user:" + v))[8 : 8+len(v)],
		"hex":   hex.EncodeToString([]byte(v)), "HEX": fmt.Sprintf("%X", v),
		"query": url.QueryEscape(v), "path": url.PathEscape(v), "userinfo": url.UserPassword("u", v).String()[2:],
		"twice in json": strings.Trim(inJSON(inside), `"`),
	}
}

// A20: secrets that a recipe uses in requests, errors, logs, outputs, files and panics are in
// no byte that Roux writes or prints, in no form. The services get them.
func TestA20_I18_Canary(t *testing.T) {
	var mu sync.Mutex
	var got strings.Builder
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&got, "%s %s %s %s\n", r.Header.Get("Authorization"), r.Header.Get("X-Key"), r.URL.Query(), body)
		w.Header().Set("X-Echo", r.Header.Get("X-Key"))
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if strings.HasPrefix(r.URL.Path, "/fail") {
			w.WriteHeader(http.StatusTeapot)
		}
		text := fmt.Sprintf("%v %v %s", r.Header, r.URL, body)
		if r.URL.Path == "/again" {
			text = got.String() // what other steps have sent
		}
		_, _ = io.WriteString(w, text)
	}))
	defer server.Close()

	work := t.TempDir()
	data, kept := filepath.Join(work, "data"), filepath.Join(work, "kept")
	if err := os.MkdirAll(filepath.Join(kept, account), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kept, account, "dir_canary"), []byte(canaries["dir_canary"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"ROUX_DATA=" + data, "HOME=" + work, "ROUX_EGRESS_ALLOW=127.0.0.1/32", "ROUX_SECRETS_DIR=" + kept, "ROUX_SECRET_ENV_CANARY=" + canaries["env-canary"]}
	produced := map[string][]byte{}
	call := func(stdin string, args ...string) int {
		t.Helper()
		cmd := command(t, env, args...)
		var out, talk bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &talk
		err := cmd.Run()
		if exit := cmd.ProcessState.ExitCode(); err != nil && exit < 0 || exit == fault.ExitInternal {
			t.Errorf("%v: %v\n%s", args, err, talk.String())
		}
		produced[strings.Join(args, " ")] = slices.Concat(out.Bytes(), talk.Bytes())
		return cmd.ProcessState.ExitCode()
	}
	if code := call(canaries["canary"]+"\n", "secrets", "set", "canary"); code != 0 {
		t.Fatal(string(produced["secrets set canary"]))
	}
	recipe := canaryRecipe
	var ids []string
	for _, name := range []string{"canary", "env-canary", "dir_canary"} {
		steps := leakSteps(name, server.URL)
		recipe += steps
		for line := range strings.Lines(steps) {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, "  - {id: "), ",")
			ids = append(ids, id)
		}
	}
	// A step that uses no secret reads what the others have sent.
	recipe += "  - {id: reads, dependsOn: [canary-header, env-canary-header, dir-canary-header], action: {name: http, parameters: {url: '" + server.URL + "/again'}}}\n"
	file := filepath.Join(work, "canaries.yaml")
	if err := os.WriteFile(file, []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"validate", file}, {"graph", file}, {"estimate", file}, {"run", file, "-v"}, {"run", file, "-o", "json"}, {"runs", "list"}, {"secrets", "list", "-o", "json"},
		{"config", "list"}, {"doctor"}, {"files", "list"},
	} {
		call("", args...)
	}
	if code := call("", "runs", "get", "@last"); code != 0 {
		t.Fatalf("no run: %s", produced["run "+file+" -v"])
	}
	bundle := filepath.Join(work, "bundle.zip")
	for _, args := range [][]string{
		{"runs", "get", "@last"}, {"events", "@last"}, {"trace", "@last"}, {"graph", "@last"}, {"logs", "@last"}, {"replay", "@last"}, {"explain", "@last"},
	} {
		call("", args...)
		call("", append(args, "-o", "json")...)
	}
	for _, id := range ids {
		call("", "explain", "@last", id)
	}
	call("", "export", "@last", "--out", bundle)
	call("", "secrets", "rotate")

	mu.Lock()
	sent := got.String()
	mu.Unlock()
	if want := "Bearer " + canaries["canary"] + " "; !strings.Contains(sent, want) {
		t.Errorf("the service did not get the secret:\n%s", sent)
	}
	collectCanary(t, produced, data, bundle)
	if n := bytes.Count(produced["the journal"], []byte("[redacted]")); n < 100 || !bytes.Contains(produced["the streams"], []byte("streaming [redacted] and [redacted].")) {
		t.Errorf("the journal has %d marks: do the steps still run?\n%s\n%s", n, produced["the streams"], produced["run "+file+" -v"])
	}
	for name, v := range canaries {
		for form, text := range canaryForms(t, v) {
			for where, bytesOf := range produced {
				if at := bytes.Index(bytesOf, []byte(text)); at >= 0 {
					t.Errorf("%s has %s as %s: …%q…", where, name, form, bytesOf[max(0, at-60):min(len(bytesOf), at+len(text)+20)])
				}
			}
		}
	}
}

// collectCanary adds the files of a data directory and of a bundle, and the events in it,
// which are compressed in the files.
func collectCanary(t *testing.T, produced map[string][]byte, data, bundle string) {
	t.Helper()
	err := filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		produced[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range parts(t, packed) {
		produced["the bundle's "+name] = text
	}
	st, err := node.OpenStore(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	heads, err := st.HeadsAfter(t.Context(), account, "")
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	streams := map[string]string{} // by attempt
	for _, head := range heads {
		fmt.Fprintf(&all, "%+v\n", head)
		if err := store.EachEvent(t.Context(), st, head.Key, 0, func(ev *journal.Event) error {
			fmt.Fprintf(&all, "%d %s %s %s\n", ev.Seq, ev.Code, ev.Text, ev.Data)
			if ev.Kind == journal.EvNodeDelta {
				streams[fmt.Sprint(head.Run, ev.Path, ev.Step, ev.Attempt)] += ev.Text
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	produced["the journal"], produced["the streams"] = all.Bytes(), fmt.Append(nil, streams)
}
