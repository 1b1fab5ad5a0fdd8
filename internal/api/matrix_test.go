// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// resources are what one account has: values for the parameters of paths.
type resources map[string]string

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// fill puts resources into the path of an operation. kind tells what {id} means.
func (r resources) fill(o *operation) string {
	path := o.path
	if o.ID == "recipes-diff" {
		path += "?with=1.0.0"
	}
	return parameter.ReplaceAllStringFunc(path, func(name string) string {
		name = name[1 : len(name)-1]
		if name == "id" {
			name = strings.Split(o.ID, "-")[0]
			if strings.HasPrefix(o.path, "/v1/recipes") {
				name = "recipes"
			}
		}
		return r[name]
	})
}

// own makes the resources of an account.
func (s *server) own(account string, token string) resources {
	s.t.Helper()
	s.register(token, greet)
	s.register(token, waits)
	run := s.execute(token, "waits", `{}`)
	hash := s.call(token, "POST", "/v1/files?name=a.txt", "of "+account, "Content-Type", "text/plain").want(201).text("hash")
	hook := s.call(token, "POST", "/v1/webhooks", refusedHook).want(201).text("id")
	delivery := s.call(token, "POST", "/v1/webhooks/"+hook+"/test", nil).want(202).text("id")
	return resources{
		"lenses":    s.call(token, "PUT", "/v1/lenses/of-"+account, `{"template":"x"}`).want(201).text("id"),
		"approvals": s.asked(token), "token": strings.Repeat("A", 43),
		"triggers":  s.call(token, "POST", "/v1/triggers", `{"name":"of-`+account+`","recipe":"waits","signature":{"scheme":"hmac","secret":"hook"}}`).want(201).text("id"),
		"schedules": s.call(token, "POST", "/v1/schedules", `{"name":"of-`+account+`","recipe":"waits","cron":"@yearly"}`).want(201).text("id"),
		"webhooks":  hook, "delivery": delivery, "secret": "api-token", "provider": "renderer", "job": "job-1",
		"bulk":    s.call(token, "POST", "/v1/bulk", `{"verb":"unpause","ids":["`+run+`"]}`).want(202).text("id"),
		"recipes": "waits", "executions": run, "jobs": run, "workflows": run, "hash": hash, "account": account, "lot": "lot", "plan": "none", "name": "file-inspect",
		"keys": s.call(token, "GET", "/v1/me", nil).want(200).text("key"),
	}
}

// asked starts a run that asks a person, and returns the id of what it asks.
func (s *server) asked(token string) string {
	s.t.Helper()
	s.register(token, `{"name":"asks","version":"1.0.0","steps":[{"id":"ask","wait":{"approval":{"title":"Go on?"}}}]}`)
	s.execute(token, "asks", `{}`)
	for {
		if list := s.call(token, "GET", "/v1/approvals", nil).want(200).get("data").([]any); len(list) > 0 {
			return list[0].(map[string]any)["id"].(string)
		}
		runtime.Gosched()
	}
}

// refusedHook is a webhook of which the guard of outgoing connections refuses the address.
const refusedHook = `{"url":"http://127.0.0.1:1/","events":["*"]}`

// bodyFor is a body that the operation takes.
func bodyFor(o *operation) any {
	switch {
	case o.RequestBody == nil:
		return nil
	case o.ID == "recipes-create", o.ID == "workflows-create", o.ID == "recipes-replace", o.ID == "recipes-check":
		return greet
	case o.ID == "recipes-validate":
		return nil
	case o.ID == "secrets-set":
		return `{"value":"of-somebody"}`
	case o.ID == "approvals-answer":
		return `{"decision":"approved"}`
	case o.ID == "approvals-link":
		return `{"for":"zoe"}`
	case o.ID == "workflows-execute":
		return `{"workflowId":"greet"}`
	case o.ID == "lenses-put":
		return `{"template":"another"}`
	case o.ID == "lenses-current":
		return `{"version":"1"}`
	case o.ID == "webhooks-create":
		return refusedHook
	case o.ID == "triggers-create":
		return `{"name":"another","recipe":"greet","signature":{"scheme":"hmac","secret":"hook"}}`
	case o.ID == "triggers-rotate":
		return `{"secret":"another"}`
	case o.ID == "schedules-create":
		return `{"name":"another","recipe":"greet","cron":"@yearly"}`
	case o.ID == "bulk-create":
		return `{"verb":"unpause","ids":["run_00000000000000000000000000"]}`
	case o.ID == "keys-create":
		return `{"name":"another","role":"viewer"}`
	case o.ID == "executions-signal":
		return `{"name":"approved"}`
	case o.ID == "accounts-grant":
		return `{"key":"g","amount":1}`
	case o.ID == "accounts-adjust":
		return `{"key":"g","runId":"run_00000000000000000000000000","amount":1}`
	case o.ID == "server-backup":
		return `{"directory":"/nowhere"}`
	case o.ID == "files-upload":
		return "text"
	}
	return `{}`
}

// ofAccount reports whether the path of an operation names a resource of an account.
func ofAccount(o *operation) bool {
	return strings.Contains(o.path, "{id}") || strings.Contains(o.path, "{hash}")
}

// alike is what a client sees of a refusal, without the ids that it sent and without what
// names the request.
func alike(a answer, sent resources) string {
	fields := a.value().(map[string]any)
	delete(fields, "instance")
	delete(fields, "requestId")
	text := fmt.Sprint(a.status, fields)
	for _, name := range []string{"executions", "recipes", "hash", "keys", "bulk", "schedules", "triggers", "webhooks", "delivery", "approvals", "lenses"} {
		text = strings.ReplaceAll(text, sent[name], name)
	}
	return text
}

// A01, A27, I17: what belongs to another account looks like what does not exist, in every
// operation of the document: an id alone is worth nothing. A new route is covered on the day it appears.
func TestA01_AccountMatrix(t *testing.T) {
	s := start(t)
	acme, rival := s.key("acme", access.Owner), s.key("rival", access.Owner)
	theirs := s.own("acme", acme)
	missing := resources{
		"recipes": "no-such-recipe", "executions": "run_00000000000000000000000000", "jobs": "run_00000000000000000000000000", "workflows": "run_00000000000000000000000000",
		"hash": "sha256_" + strings.Repeat("0", 64), "keys": "key_00000000000000000000000000",
		"lenses": "no-such-lens", "bulk": "bulk_00000000000000000000000000", "schedules": "sched_00000000000000000000000000", "triggers": "trig_00000000000000000000000000", "approvals": "apr_00000000000000000000000000", "webhooks": "hook_00000000000000000000000000", "delivery": "run_00000000000000000000000000",
	}
	n := 0
	for _, o := range document().operations {
		if !ofAccount(o) || o.ID == "executions-release" || o.ID == "executions-continue" || o.ID == "lenses-put" /* which makes one of the account's own */ {
			continue
		}
		n++
		want := http.StatusNotFound
		if o.ID == "triggers-receive" { // its signature is its key
			want = http.StatusUnauthorized
		}
		got := s.call(rival, o.method, theirs.fill(o), bodyFor(o))
		none := s.call(rival, o.method, missing.fill(o), bodyFor(o))
		if got.status != want || none.status != want || alike(got, theirs) != alike(none, missing) {
			t.Errorf("%s %s: another account's answers %d %s, a missing one %d %s", o.method, o.path, got.status, got.body, none.status, none.body)
		}
	}
	if n < 20 {
		t.Errorf("only %d operations were tried", n)
	}
	// Nothing of that has changed anything.
	if got := s.call(acme, "GET", "/v1/recipe-executions/"+theirs["executions"], nil).want(200); got.text("status") == "cancelled" || got.get("paused") != false {
		t.Errorf("the run was changed: %s", got.body)
	}
	s.call(acme, "GET", "/v1/recipes/waits", nil).want(200)
	s.call(acme, "GET", "/v1/files/"+theirs["hash"], nil).want(200)
	s.call(acme, "GET", "/v1/webhooks/"+theirs["webhooks"], nil).want(200)
	s.call(acme, "GET", "/v1/lenses/"+theirs["lenses"], nil).want(200)
	for _, list := range []string{"/v1/lenses", "/v1/approvals", "/v1/webhooks", "/v1/schedules", "/v1/triggers", "/v1/bulk", "/v1/recipes", "/v1/recipe-executions", "/v1/files", "/v1/credits/entries", "/v1/credits/lots"} {
		if got := s.call(rival, "GET", list, nil).want(200); len(got.get("data").([]any)) != 0 {
			t.Errorf("%s shows what belongs to others: %s", list, got.body)
		}
	}
	if got := s.call(rival, "GET", "/v1/keys", nil).want(200); len(got.get("data").([]any)) != 1 {
		t.Errorf("keys of others: %s", got.body)
	}
	// A start that names a foreign file, and one with an idempotency key of another account
	// (A27).
	s.register(rival, greet)
	s.call(rival, "POST", "/v1/recipes/greet/execute", map[string]any{"fileHashes": []string{theirs["hash"]}, "parameters": map[string]any{"name": "a"}}).problem(fault.FileNotFound)
	a := s.call(acme, "POST", "/v1/recipes/greet/execute", `{"parameters":{"name":"a"}}`, "Idempotency-Key", "same").want(202).text("executionId")
	b := s.call(rival, "POST", "/v1/recipes/greet/execute", `{"parameters":{"name":"a"}}`, "Idempotency-Key", "same").want(202).text("executionId")
	if a == b {
		t.Error("a key of one account found a run of another")
	}
}

// A03: without a key nothing but what is public answers, however the path is written.
func TestA03_NoKey(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Owner)
	mine := s.own("acme", dev)
	for _, o := range document().operations {
		path := mine.fill(o)
		if o.ID == "providers-webhook" || o.ID == "triggers-receive" { // its signature is its key
			s.call("", o.method, path, bodyFor(o)).problem(fault.Unauthorized)
			continue
		}
		if strings.HasPrefix(o.path, "/v1/approval-links/") { // the link is its key
			s.call("", o.method, path, "decision=approved", "Content-Type", "application/x-www-form-urlencoded").want(404)
			continue
		}
		if len(o.Security) == 0 {
			s.call("", o.method, path, bodyFor(o)).want(200)
			continue
		}
		for _, variant := range []string{path, path + "/", "/" + path, strings.ToUpper(path), path + ".json", path + ";a=b", path + "%2f", path + "/configs", path + "/."} {
			got := s.call("", o.method, variant, bodyFor(o), "X-HTTP-Method-Override", "GET")
			if got.status < 300 {
				t.Errorf("%s %s answers %d without a key", o.method, variant, got.status)
			}
			if variant == path && got.status != http.StatusUnauthorized {
				t.Errorf("%s %s answers %d without a key, want 401", o.method, variant, got.status)
			}
		}
		for _, token := range []string{"x", "roux_", strings.Repeat("a", 5000), dev[:len(dev)-1], dev + "a", "roux_00000000000000000000000000_" + strings.Repeat("A", 43)} {
			if got := s.call(token, o.method, path, bodyFor(o)); got.status != http.StatusUnauthorized || bytes.Contains(got.body, []byte(token)) && len(token) > 5 {
				t.Errorf("%s %s answers %d to a wrong key: %s", o.method, path, got.status, got.body)
			}
		}
	}
}

// A05: an operation needs the scope that the document names, and no role has more than it
// should.
func TestA05_Scopes(t *testing.T) {
	s := start(t)
	tokens := map[access.Scope]string{}
	for _, scope := range access.Scopes() {
		others := slices.DeleteFunc(access.Scopes(), func(o access.Scope) bool { return o == scope })
		var names []string
		for _, o := range others {
			names = append(names, string(o))
		}
		tokens[scope] = s.call(s.admin, "POST", "/v1/keys", map[string]any{"account": "acme", "name": "all but one", "scopes": names}).want(201).text("token")
	}
	mine := s.own("acme", s.key("acme", access.Owner))
	for _, o := range document().operations {
		if len(o.Security) == 0 {
			continue
		}
		scope := o.Security[0]["key"][0]
		s.call(tokens[access.Scope(scope)], o.method, mine.fill(o), bodyFor(o)).problem(fault.Forbidden)
	}
	viewer, operator := s.key("acme", access.Viewer), s.key("acme", access.Operator)
	s.call(viewer, "POST", "/v1/recipes/greet/execute", `{"parameters":{"name":"a"}}`).problem(fault.Forbidden)
	s.call(operator, "POST", "/v1/recipes/greet/execute", `{"parameters":{"name":"a"}}`).want(202)
	s.call(operator, "PUT", "/v1/recipes/greet", greet).problem(fault.Forbidden)
	s.call(operator, "POST", "/v1/keys", `{"name":"x","role":"viewer"}`).problem(fault.Forbidden)
	// A plan is trusted: only the user of the data directory hands one over, through its socket.
	s.call(s.admin, "POST", "/v1/handovers", `{}`).problem(fault.Forbidden)
	s.call(s.admin, "POST", "/v1/backups", `{"directory":"/nowhere"}`).problem(fault.Forbidden)
	s.call(s.admin, "POST", "/v1/recipe-executions/run_x/continue", nil).problem(fault.Forbidden)
	owner := s.key("acme", access.Owner)
	s.call(owner, "POST", "/v1/keys", `{"name":"x","role":"admin"}`).problem(fault.Forbidden)
	s.call(owner, "POST", "/v1/keys", `{"name":"x","role":"viewer","account":"rival"}`).problem(fault.Forbidden)
	s.call(owner, "POST", "/v1/accounts/acme/grants", `{"key":"g","amount":1}`).problem(fault.Forbidden)
}

// A06, A07, A08, A10: what is wrong with a request is said with its place; nothing that was
// sent is repeated.
func TestBadRequests(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, greet)
	run := "/v1/recipes/greet/execute"
	deep := `{"parameters":` + strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat(`}`, 70) + `}`
	for _, tt := range []struct {
		name    string
		body    any
		headers []string
		code    fault.Code
		pointer string
	}{
		{"no JSON", `{"parameters":`, nil, fault.RequestMalformed, ""},
		{"text behind", `{} {}`, nil, fault.RequestMalformed, ""},
		{"a name twice", `{"async":true,"async":false}`, nil, fault.RequestMalformed, ""},
		{"a large number", `{"maxCredits":1e999}`, nil, fault.RequestMalformed, ""},
		{"unknown field", `{"parametres":{}}`, nil, fault.RequestInvalid, "/parametres"},
		{"wrong case", `{"Parameters":{}}`, nil, fault.RequestInvalid, "/Parameters"},
		{"read-only field", `{"creditsUsed":0}`, nil, fault.RequestInvalid, "/creditsUsed"},
		{"account", `{"accountId":"rival"}`, nil, fault.RequestInvalid, "/accountId"},
		{"wrong type", `{"async":"yes"}`, nil, fault.RequestInvalid, "/async"},
		{"negative", `{"maxCredits":-1}`, nil, fault.RequestInvalid, "/maxCredits"},
		{"parameters", `{"parameters":[1]}`, nil, fault.RequestInvalid, ""},
		{"too deep", deep, nil, fault.RequestMalformed, ""},
		{"too large", `{"parameters":{"name":"` + strings.Repeat("a", 2<<20) + `"}}`, nil, fault.RequestTooLarge, ""},
		{"form", `a=b`, []string{"Content-Type", "application/x-www-form-urlencoded"}, fault.MediaTypeUnsupported, ""},
		{"compressed", `{}`, []string{"Content-Encoding", "gzip"}, fault.MediaTypeUnsupported, ""},
		{"no body", nil, nil, fault.RequestMalformed, ""},
		{"input", `{"parameters":{}}`, nil, fault.InputInvalid, ""},
		{"no file", `{"parameters":{"name":"a"},"fileHashes":["sha256_00"]}`, nil, fault.FileNotFound, ""},
		{"labels", `{"parameters":{"name":"a"},"labels":{"a b":"c"}}`, nil, fault.RequestInvalid, ""},
		{"long key", `{}`, []string{"Idempotency-Key", strings.Repeat("k", 300)}, fault.RequestMalformed, ""},
		{"correlation", `{}`, []string{"X-Correlation-ID", "a b"}, fault.RequestMalformed, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &server{t: t, url: s.url}
			p := s.call(dev, "POST", run, tt.body, tt.headers...).problem(tt.code)
			if tt.pointer != "" && !strings.Contains(string(p.body), `"pointer":"`+tt.pointer+`"`) {
				t.Errorf("no place %s: %s", tt.pointer, p.body)
			}
			if text, ok := tt.body.(string); ok && len(text) > 30 && bytes.Contains(p.body, []byte(text[:30])) {
				t.Errorf("the request is repeated: %s", p.body)
			}
		})
	}
	p := s.call(dev, "GET", "/v1/recipes?stauts=active", nil).problem(fault.RequestMalformed)
	if !strings.Contains(string(p.body), `"pointer":"stauts"`) {
		t.Errorf("the parameter is not named: %s", p.body)
	}
	s.call(dev, "GET", "/v1/recipes?limit=0", nil).problem(fault.RequestInvalid)
	s.call(dev, "GET", "/v1/recipes?limit=10&limit=20", nil).problem(fault.RequestMalformed)
	s.call(dev, "GET", "/v1/recipes?cursor=AAAAAAAAAAAAAAAAAAAAAAAAAAAA", nil).problem(fault.RequestMalformed)
	s.call(dev, "PATCH", "/v1/recipes", `{}`).problem(fault.MethodNotAllowed)
	s.call(dev, "GET", "/v1/nothing", nil).problem(fault.NotFound)
	// A31: what a client says of itself is sent back only if it is harmless.
	if id := s.call(dev, "GET", "/v1/me", nil, "X-Request-Id", "mine-1").header.Get("X-Request-Id"); id != "mine-1" {
		t.Errorf("the id of the request is %q", id)
	}
	if id := s.call(dev, "GET", "/v1/me", nil, "X-Request-Id", "a\tb").header.Get("X-Request-Id"); strings.Contains(id, "\t") {
		t.Errorf("the id of the request is %q", id)
	}
}

// Whatever is sent, no request fails inside, and every refusal has a code of the table.
func TestNegativeFuzz(t *testing.T) {
	s := start(t)
	token := s.key("acme", access.Owner)
	mine := s.own("acme", token)
	r := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "null", "0", "[]", "{}", `""`, `{"a":1}`, `{"name":null}`, `{"parameters":{"name":[]}}`, `{"name":"` + strings.Repeat("x", 1000) + `"}`, "\x00\xff", `{"key":"","amount":0}`,
		`{"name":"a","role":"viewer","limit":{"credits":-5}}`, `{"limits":{"max_total_steps":-1}}`, `{"from":"../../x"}`, `{"note":5}`, strings.Repeat("[", 1000), `{"steps":[]}`, "name: x\nsteps: [", "a: &a [*a]"}
	ids := []string{"", ".", "..", "%00", "%2e%2e", "a b", "run_", "recipe_", "key_", "x@1", "@", "@@", "greet@1", "waits@9.9", strings.Repeat("9", 400), "%F0%9F%98%80", "'; DROP TABLE runs--", "*", "?"}
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		for _, o := range document().operations {
			if strings.HasSuffix(o.ID, "-events") || o.ID == "keys-revoke" || o.ID == "keys-rotate" {
				continue // streams wait, and the key is needed
			}
			path := mine.fill(o)
			if r.IntN(2) == 0 && strings.Contains(o.path, "{") {
				path = parameter.ReplaceAllStringFunc(o.path, func(string) string { return strings.ReplaceAll(ids[r.IntN(len(ids))], " ", "%20") })
			}
			if r.IntN(3) == 0 {
				path += fmt.Sprintf("?%s=%s", []string{"limit", "cursor", "status", "at", "q", "x", "createdAfter"}[r.IntN(7)], []string{"", "1", "-1", "%00", "999999999999999999999", "a"}[r.IntN(6)])
			}
			var body any
			if o.method != http.MethodGet {
				body = texts[r.IntN(len(texts))]
			}
			got, err := s.send(token, o.method, path, body, "Content-Type", []string{"application/json", "application/yaml", "text/plain", ""}[r.IntN(4)])
			if err != nil {
				continue // a path that no client can send
			}
			if got.status >= 500 {
				t.Errorf("%s %s with %q answers %d: %s", o.method, path, body, got.status, got.body)
			}
			if got.status >= 400 && !page(got.header) {
				if _, known := fault.Lookup(fault.Code(got.text("code"))); !known {
					t.Errorf("%s %s: the code %q is in no table", o.method, path, got.text("code"))
				}
			}
		}
	}
}

// page reports whether an answer is a page for people.
func page(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "text/html") }
