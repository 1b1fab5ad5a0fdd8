// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/service"
)

// asking is a server with a recipe that asks a person.
type asking struct {
	*place
	s   *service.Service
	url string
	log *lines

	owner, operator, approver, viewer, rival string
}

// lines are the lines of a log.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func newAsking(t *testing.T) *asking {
	t.Helper()
	a := &asking{place: newPlace(t), log: new(lines)}
	a.start()
	key := func(account, name string, role access.Role) string {
		status, out := ask(t, "POST", a.url+"/v1/keys", a.s.FirstKey, `{"account": "`+account+`", "name": "`+name+`", "role": "`+string(role)+`"}`)
		if status != 201 {
			t.Fatal(status, out)
		}
		return out["token"].(string)
	}
	a.owner, a.operator, a.approver = key("acme", "olga", access.Owner), key("acme", "otto", access.Operator), key("acme", "ana", access.Approver)
	a.viewer, a.rival = key("acme", "vera", access.Viewer), key("rival", "rita", access.Owner)
	if status, out := ask(t, "POST", a.url+"/v1/recipes", a.owner, `{"name": "r", "version": "1.0.0", "steps": [{"id": "ask", "wait": {"approval": {
		"title": "Publish <b>{{ input.what }}</b>?", "text": "three pages", "value": {"words": 3}, "remind": "1h",
		"form": {"type": "object", "required": ["channel"], "properties": {
			"channel": {"type": "string", "enum": ["blog", "list"]}, "budget": {"type": "number", "minimum": 1}, "urgent": {"type": "boolean"}, "note": {"type": "string", "title": "A \"note\""}, "more": {"type": "array"}}}},
		"timeout": "24h", "default": {"decision": "rejected"}}}], "outputs": {"answer": "steps.ask.output"}}`); status != 201 {
		t.Fatal(status, out)
	}
	return a
}

func (a *asking) start() {
	a.s, a.url = a.must(func(cfg *service.Config) {
		cfg.Node.Logger = slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
}

// asked starts a run, and returns it and what it asks.
func (a *asking) asked() (run, id string) {
	a.t.Helper()
	status, out := ask(a.t, "POST", a.url+"/v1/recipes/r/execute", a.operator, `{"parameters": {"what": "Roux"}}`)
	if status != 202 {
		a.t.Fatal(status, out)
	}
	run = out["executionId"].(string)
	untilEventOf(a.t, a.url, run, a.operator, "node.waiting")
	status, list := ask(a.t, "GET", a.url+"/v1/approvals", a.approver, "")
	for _, one := range list["data"].([]any) {
		if r := one.(map[string]any); r["executionId"] == run {
			return run, r["id"].(string)
		}
	}
	a.t.Fatal(status, list)
	return "", ""
}

// untilEventOf waits until a run has an event with a text, and returns its events.
func untilEventOf(t testing.TB, url, run, key, text string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/v1/recipe-executions/"+run+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for buf, seen := make([]byte, 4096), ""; ; {
		n, err := res.Body.Read(buf)
		if seen += string(buf[:n]); strings.Contains(seen, text) {
			return seen
		}
		if err != nil {
			t.Fatalf("no event of %s has %q: %v\n%s", run, text, err, seen)
		}
	}
}

// ended waits for the end of a run, and returns what it says.
func (a *asking) ended(run, status string) string {
	a.t.Helper()
	if head, err := a.s.Node.Engine.Wait(a.t.Context(), "acme", run); err != nil || head.Status != status {
		a.t.Fatalf("%+v, %v", head, err)
	}
	_, out := ask(a.t, "GET", a.url+"/v1/recipe-executions/"+run, a.owner, "")
	text, err := json.Marshal(out)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(text)
}

func (a *asking) answer(id, key, body string) (int, map[string]any) {
	a.t.Helper()
	return ask(a.t, "POST", a.url+"/v1/approvals/"+id+"/answer", key, body)
}

const fine = `{"decision": "approved", "comment": "fine", "values": {"channel": "blog"}}`

// Approvals over HTTP: who answers, when, twice; over a restart; and after the cancel of the run.
func TestApprovals(t *testing.T) {
	a := newAsking(t)
	run, id := a.asked()
	a.close(a.s)
	a.start()
	if status, out := ask(t, "GET", a.url+"/v1/approvals/"+id, a.approver, ""); status != 200 || out["text"] != "three pages" || out["state"] != "open" || out["title"] != "Publish <b>Roux</b>?" || out["expiresAt"] == nil || out["remindAt"] == nil {
		t.Fatal(status, out)
	}
	for _, tt := range []struct {
		key, body string
		want      int
		code      string
	}{
		{a.viewer, fine, 403, "FORBIDDEN"}, {a.rival, fine, 404, "RECORD_NOT_FOUND"}, {"", fine, 401, "UNAUTHORIZED"},
		{a.approver, `{"decision": "approved"}`, 422, "INPUT_INVALID"}, {a.approver, `{"decision": "approved", "values": {"channel": "tv"}}`, 422, "INPUT_INVALID"},
		{a.approver, `{"decision": "edited", "value": 1}`, 422, "INPUT_INVALID"}, {a.approver, `{"decision": "so"}`, 422, "REQUEST_INVALID"}, {a.approver, `{"decision": "approved", "by": "eve"}`, 422, "REQUEST_INVALID"},
	} {
		if status, out := a.answer(id, tt.key, tt.body); status != tt.want || out["code"] != tt.code {
			t.Errorf("%s: %d %v", tt.body, status, out)
		}
	}
	if status, out := a.answer(id, a.approver, fine); status != 200 || out["state"] != "approved" || out["answer"].(map[string]any)["by"] != "ana" {
		t.Fatal(status, out)
	}
	if text := a.ended(run, "completed"); !strings.Contains(text, `"by":"ana"`) || !strings.Contains(text, `"channel":"blog"`) {
		t.Error(text)
	}
	if status, out := a.answer(id, a.operator, fine); status != 409 || out["code"] != "CONFLICT" || !strings.Contains(fmt.Sprint(out["detail"]), "approved by ana at ") {
		t.Errorf("a second answer: %d %v", status, out)
	}
	// What the journal and its readers know.
	if text := untilEventOf(t, a.url, run, a.owner, "run.completed"); !strings.Contains(text, id) || strings.Contains(text, "three pages") {
		t.Error(text)
	}

	run, id = a.asked()
	if status, out := ask(t, "POST", a.url+"/v1/recipe-executions/"+run+"/cancel", a.operator, ""); status != 202 && status != 200 {
		t.Fatal(status, out)
	}
	a.ended(run, "cancelled")
	if status, out := a.answer(id, a.approver, fine); status != 409 || out["code"] != "TOO_LATE" {
		t.Errorf("after the cancel: %d %v", status, out)
	}
	if status, out := ask(t, "GET", a.url+"/v1/approvals", a.approver, ""); status != 200 || len(out["data"].([]any)) != 0 {
		t.Errorf("%d %v", status, out)
	}
	a.close(a.s)
}

// A05: an approver does nothing but answer.
func TestA05_Approvers(t *testing.T) {
	a := newAsking(t)
	run, id := a.asked()
	for _, path := range []string{"/v1/recipe-executions", "/v1/recipe-executions/" + run, "/v1/recipes", "/v1/files", "/v1/keys", "/v1/credits", "/v1/triggers", "/v1/secrets"} {
		if status, out := ask(t, "GET", a.url+path, a.approver, ""); status != 403 {
			t.Errorf("%s: %d %v", path, status, out)
		}
	}
	if status, out := ask(t, "POST", a.url+"/v1/recipe-executions/"+run+"/cancel", a.approver, ""); status != 403 {
		t.Errorf("%d %v", status, out)
	}
	for _, key := range []string{a.viewer, ""} {
		if status, _ := ask(t, "GET", a.url+"/v1/approvals/"+id, key, ""); status != 403 && status != 401 {
			t.Errorf("%d", status)
		}
	}
	for _, path := range []string{"", "/" + id} {
		if status, out := ask(t, "GET", a.url+"/v1/approvals"+path, a.rival, ""); path != "" && status != 404 || path == "" && len(out["data"].([]any)) != 0 {
			t.Errorf("another account: %d %v", status, out)
		}
	}
	if status, out := ask(t, "POST", a.url+"/v1/approvals/"+id+"/link", a.rival, `{"for": "eve"}`); status != 404 {
		t.Errorf("another account makes a link: %d %v", status, out)
	}
	a.close(a.s)
}

// page gets or posts a page of a link.
func (a *asking) page(method, path string, form url.Values) (*http.Response, string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		a.t.Fatal(err)
	}
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return res, string(body)
}

// The page of a link: it asks and escapes, decides nothing when it is fetched, answers once, runs no
// script, and its token is in no log.
func TestA30_LinkPage(t *testing.T) {
	a := newAsking(t)
	run, id := a.asked()
	status, out := ask(t, "POST", a.url+"/v1/approvals/"+id+"/link", a.approver, `{"for": "zoe@example.com", "expiresIn": "2h"}`)
	if status != 201 || out["url"] != nil {
		t.Fatal(status, out)
	}
	path := out["path"].(string)
	for _, method := range []string{"GET", "GET", "HEAD", "GET"} { // as programs do that look at the links of a message
		res, body := a.page(method, path, nil)
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/html; charset=utf-8" || res.Header.Get("Cache-Control") != "no-store" ||
			!strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'") || res.Header.Get("Referrer-Policy") != "same-origin" {
			t.Fatalf("%s: %d %v", method, res.StatusCode, res.Header)
		}
		if method == "HEAD" {
			continue
		}
		for _, want := range []string{"Publish &lt;b&gt;Roux&lt;/b&gt;?", "three pages", "zoe@example.com", `name="v.channel" required`, `<option value="blog">`, `type="number" name="v.budget"`, `type="checkbox" value="true" name="v.urgent"`, "A &#34;note&#34;", `placeholder="JSON" name="v.more"`} {
			if !strings.Contains(body, want) {
				t.Errorf("the page lacks %s:\n%s", want, body)
			}
		}
		if strings.Contains(body, "<script") || strings.Contains(body, "<b>Roux") {
			t.Errorf("%s", body)
		}
	}
	if status, out := ask(t, "GET", a.url+"/v1/approvals/"+id, a.approver, ""); status != 200 || out["state"] != "open" {
		t.Fatalf("looking at it has decided: %v", out)
	}
	for _, tt := range []struct {
		form url.Values
		want string
	}{
		{url.Values{"comment": {"no"}}, "Choose one of the buttons"},
		{url.Values{"decision": {"edited"}}, "Choose one of the buttons"},
		{url.Values{"decision": {"approved"}}, "Missing property"},
		{url.Values{"decision": {"approved"}, "v.channel": {`"><script>`}}, "one of the possible values"},
		{url.Values{"decision": {"approved"}, "v.channel": {"blog"}, "v.budget": {"much"}}, "the value is no number"},
		{url.Values{"decision": {"approved"}, "v.channel": {"blog"}, "v.budget": {"0"}, "v.note": {`"><script>`}}, "Budget: want at least 1"},
		{url.Values{"decision": {"approved"}, "v.channel": {"blog"}, "v.more": {"{}"}}, "More: want array"},
	} {
		res, body := a.page("POST", path, tt.form)
		if res.StatusCode != 422 || !strings.Contains(body, tt.want) || strings.Contains(body, "<script") || !strings.Contains(body, "<form") {
			t.Errorf("%v: %d %s", tt.form, res.StatusCode, body)
		}
	}
	form := url.Values{"decision": {"approved"}, "comment": {"a\r\nb"}, "v.channel": {"list"}, "v.budget": {"2.5"}, "v.urgent": {"true"}, "v.more": {"[1]"}, "by": {"eve"}}
	if res, body := a.page("POST", path+"A", form); res.StatusCode != 404 {
		t.Errorf("an altered link: %d %s", res.StatusCode, body)
	}
	if res, body := a.page("POST", path, form); res.StatusCode != 200 || !strings.Contains(body, "zoe@example.com has approved this") {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if text := a.ended(run, "completed"); !strings.Contains(text, `"by":"zoe@example.com","comment":"a\nb","decision":"approved","values":{"budget":2.5,"channel":"list","more":[1],"urgent":true}`) {
		t.Error(text)
	}
	for _, method := range []string{"GET", "POST"} {
		if res, body := a.page(method, path, form); res.StatusCode != 409 || !strings.Contains(body, "approved by zoe@example.com at") {
			t.Errorf("%s again: %d %s", method, res.StatusCode, body)
		}
	}
	if res, _ := a.page("POST", path, url.Values{"comment": {strings.Repeat("x", 1<<20)}}); res.StatusCode != 413 {
		t.Errorf("a body of 1 MiB: %d", res.StatusCode)
	}
	a.close(a.s)
	token := path[strings.LastIndexByte(path, '/')+1:]
	if text := a.log.String(); !strings.Contains(text, "approvals-decide") || strings.Contains(text, token) {
		t.Error("a token is in the log, or the request is not")
	}
}

// A form without required fields needs no form on reject, and a rejection is an output.
func TestLinkRejects(t *testing.T) {
	a := newAsking(t)
	run, id := a.asked()
	_, out := ask(t, "POST", a.url+"/v1/approvals/"+id+"/link", a.operator, `{"for": "zoe"}`)
	if res, body := a.page("POST", out["path"].(string), url.Values{"decision": {"rejected"}, "v.budget": {"much"}}); res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if text := a.ended(run, "completed"); !strings.Contains(text, `"by":"zoe","comment":"","decision":"rejected","values":{}`) {
		t.Error(text)
	}
	a.close(a.s)
}
