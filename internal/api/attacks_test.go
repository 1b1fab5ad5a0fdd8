// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/api"
	"github.com/roux-engine/roux/internal/service"
)

// A02: a request that is allowed names something of another account inside: in its body, in a
// recipe, in a parameter, in a message of a socket. It is answered as if that did not exist, and
// nothing of the other account is read or changed.
func TestA02_InnerReferences(t *testing.T) {
	s := start(t)
	acme, rival := s.key("acme", access.Owner), s.key("rival", access.Owner)
	theirs := s.own("acme", acme)
	mine := s.own("rival", rival)
	missing := resources{"executions": "run_00000000000000000000000000", "recipes": "no-such-recipe", "hash": "sha256_" + strings.Repeat("0", 64)}
	foreign := resources{"executions": theirs["executions"], "recipes": "secret-recipe", "hash": theirs["hash"]}
	secret := s.register(acme, strings.Replace(greet, `"greet"`, `"secret-recipe"`, 1))

	// same sends a request that names a resource of acme, and one that names none.
	same := func(what, method, path, body string) {
		t.Helper()
		var sent any
		fill := func(text string, r resources) string {
			return strings.NewReplacer("RUN", r["executions"], "RECIPE", r["recipes"], "HASH", r["hash"]).Replace(text)
		}
		got, none := answer{}, answer{}
		for _, r := range []resources{foreign, missing} {
			if sent = nil; body != "" {
				sent = fill(body, r)
			}
			got, none = none, s.call(rival, method, fill(path, r), sent)
		}
		plain := func(a answer, r resources) string {
			return strings.NewReplacer(r["executions"], "RUN", r["recipes"], "RECIPE", r["hash"], "HASH", a.text("requestId"), "").Replace(fmt.Sprint(a.status, string(a.body)))
		}
		if a, b := plain(got, foreign), plain(none, missing); a != b {
			t.Errorf("%s: one of another account is answered with\n%s, a missing one with\n%s", what, a, b)
		}
	}
	same("a recipe that a step names", "POST", "/v1/recipes/validate", `{"name":"mine","steps":[{"id":"a","recipe":{"ref":"RECIPE"}}]}`)
	same("a recipe that a step names, registered", "POST", "/v1/recipes", `{"name":"mine","steps":[{"id":"a","recipe":{"ref":"RECIPE"}}]}`)
	same("a version to compare with", "GET", "/v1/recipes/greet/diff?with=RECIPE", "")
	same("a recipe of a trigger", "POST", "/v1/triggers", `{"name":"mine","recipe":"RECIPE","signature":{"scheme":"hmac","secret":"hook"}}`)
	same("a file of a start", "POST", "/v1/recipes/greet/execute", `{"fileHashes":["HASH"],"parameters":{"name":"a"}}`)
	same("a file of an estimate", "POST", "/v1/recipes/greet/estimate", `{"fileHashes":["HASH"],"parameters":{"name":"a"}}`)
	same("a file of an estimate by query", "GET", "/v1/recipes/greet/estimate?fileHashes=HASH&parameters=%7B%22name%22:%22a%22%7D", "")
	same("a file of a call", "POST", "/v1/actions/file-inspect/call", `{"fileHashes":["HASH"]}`)
	same("the runs of a recipe", "GET", "/v1/recipe-executions?recipe=RECIPE", "")
	same("the children of a run", "GET", "/v1/recipe-executions?parent=RUN", "")
	same("a bulk with the filter of a recipe", "POST", "/v1/bulk", `{"verb":"cancel","dryRun":true,"filter":{"recipe":"RECIPE"}}`)
	if got := s.call(rival, "GET", "/v1/recipe-executions?recipe="+secret, nil).want(200); len(got.get("data").([]any)) != 0 {
		t.Errorf("runs by the id of a foreign recipe: %s", got.body)
	}

	// A file that is named in a value: the action does not open it.
	s.grant("rival", 10)
	call := s.call(rival, "POST", "/v1/actions/file-inspect/call", `{"parameters":{"file":"`+theirs["hash"]+`"}}`)
	if call.text("execution.status") == "completed" || !strings.Contains(string(call.body), string(fault.FileNotFound)) {
		t.Errorf("a file that is named in a parameter: %d %s", call.status, call.body)
	}

	// Each item of a bulk is checked.
	bulk := s.bulkEnded(rival, s.call(rival, "POST", "/v1/bulk", `{"verb":"cancel","ids":["`+theirs["executions"]+`","`+missing["executions"]+`","`+mine["executions"]+`"]}`).want(202).text("id"))
	if bulk.get("done") != 1.0 || bulk.get("failed") != 2.0 {
		t.Errorf("a bulk: %s", bulk.body)
	}
	var results []string
	for _, x := range s.call(rival, "GET", "/v1/bulk/"+bulk.text("id")+"/items", nil).want(200).get("data").([]any) {
		it := x.(map[string]any)
		run := it["executionId"].(string)
		delete(it, "executionId")
		delete(it, "number")
		delete(it, "at")
		if text, _ := json.Marshal(it); run != mine["executions"] {
			results = append(results, strings.ReplaceAll(string(text), run, "RUN"))
		}
	}
	if len(results) != 2 || results[0] != results[1] || !strings.Contains(results[0], string(fault.RunNotFound)) {
		t.Errorf("the items: %v", results)
	}

	// A socket, a delivery under a hook of one's own, a cursor, and a header that names an account.
	c, err := s.dial(t, http.Header{"Authorization": {"Bearer " + rival}})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{theirs["executions"], missing["executions"]} {
		c.say(`{"type":"subscribe","runId":"` + run + `"}`)
		if m := c.hear(); m["type"] != "error" || m["code"] != string(fault.RunNotFound) {
			t.Errorf("a socket: %v", m)
		}
	}
	s.call(rival, "GET", "/v1/webhooks/"+mine["webhooks"]+"/deliveries/"+theirs["delivery"], nil).want(404)
	s.call(rival, "POST", "/v1/webhooks/"+mine["webhooks"]+"/deliveries/"+theirs["delivery"]+"/resend", nil).want(404)
	page := s.call(acme, "GET", "/v1/recipes?limit=1", nil).want(200)
	if s.call(acme, "GET", "/v1/recipes?limit=1&cursor="+page.text("nextCursor"), nil).want(200); page.text("nextCursor") == "" {
		t.Errorf("no cursor: %s", page.body)
	}
	s.call(rival, "GET", "/v1/recipes?limit=1&cursor="+page.text("nextCursor"), nil).problem(fault.RequestMalformed)
	if me := s.call(rival, "GET", "/v1/me", nil, "Roux-Account", "acme").want(200); me.text("account") != "rival" {
		t.Errorf("a header chooses the account: %s", me.body)
	}
	// The resume token of a run of one's own, for a foreign one: the path decides.
	s.call(rival, "POST", "/v1/recipe-executions/"+theirs["executions"]+"/signal", `{"name":"approved","resumeToken":"1.1"}`).problem(fault.RunNotFound)
	if run := s.call(acme, "GET", "/v1/recipe-executions/"+theirs["executions"], nil).want(200); run.text("status") != "running" {
		t.Errorf("the run of acme was changed: %s", run.body)
	}
}

// A06: fields that only the server sets are refused wherever a body is read, and what is read is
// what the key allows. A recipe may have them, because documents that the server has shown may
// be sent again (X2); they change nothing.
func TestA06_MassAssignment(t *testing.T) {
	s := start(t)
	token := s.key("acme", access.Owner)
	mine := s.own("acme", token)
	n := 0
	for _, o := range document().operations {
		if o.RequestBody == nil || o.ID == "files-upload" || strings.HasPrefix(o.path, "/v1/handovers") { // which no key may use
			continue
		}
		if o.ID == "providers-webhook" || o.ID == "triggers-receive" || o.ID == "approvals-decide" { // what a service sends is its own, and signed as a whole
			continue
		}
		who := token
		if strings.HasPrefix(o.ID, "accounts-") || strings.HasPrefix(o.ID, "server-") || o.ID == "executions-release" {
			who = s.admin
		}
		for _, field := range []string{"accountId", "createdBy", "creditsUsed", "effectKey", "status", "tokenHash", "ranAt", "__proto__"} {
			text, _ := bodyFor(o).(string)
			if text == "" {
				text = `{}`
			}
			body := `{"` + field + `":"rival",` + strings.TrimPrefix(text, "{")
			if body = strings.Replace(body, ",}", "}", 1); (strings.HasPrefix(o.ID, "recipes-") || o.ID == "workflows-create") && slices.Contains([]string{"createdBy", "status"}, field) {
				continue
			}
			n++
			got := s.call(who, o.method, mine.fill(o), body)
			if strings.HasPrefix(o.ID, "recipes-") && got.status == http.StatusOK { // what is wrong is the answer
				if got.get("valid") != false || !strings.Contains(string(got.body), field) {
					t.Errorf("%s %s takes %s: %s", o.method, o.path, field, got.body)
				}
				continue
			}
			if got.status != http.StatusUnprocessableEntity || !strings.Contains(string(got.body), `"pointer":"/`+field+`"`) {
				t.Errorf("%s %s with %s answers %d %s", o.method, o.path, field, got.status, got.body)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d requests", n)
	}
	made := s.call(token, "POST", "/v1/recipes", strings.Replace(greet, `{"name":"greet"`, `{"name":"other","createdBy":"rival","createdAt":"2001-01-01T00:00:00Z","id":"recipe_x"`, 1)).want(201)
	if got := s.call(token, "GET", "/v1/recipes/other", nil).want(200); got.text("createdBy") != "acme" || got.text("id") != made.text("id") || got.text("id") == "recipe_x" || strings.HasPrefix(got.text("createdAt"), "2001") {
		t.Errorf("a recipe takes what the server sets: %s", got.body)
	}
}

// A10: every operation reads bodies of the types that it declares and of no others, and a file is
// what was sent, under the hash that the server computed.
func TestA10_MediaTypes(t *testing.T) {
	s := start(t)
	token := s.key("acme", access.Owner)
	mine := s.own("acme", token)
	types := []string{
		"application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "text/html", "application/xml", "application/octet-stream", "application/yaml", "text/yaml",
		"application/jsonp", "application/json5", "image/png", "application/*", "*/*", "json", "application/json, text/plain", ";",
	}
	n := 0
	for _, o := range document().operations {
		if o.RequestBody == nil || o.ID == "files-upload" || o.ID == "approvals-decide" /* a form */ || strings.HasPrefix(o.path, "/v1/handovers") { // which no key may use
			continue
		}
		body, _ := bodyFor(o).(string)
		if body == "" {
			body = `{}`
		}
		for _, kind := range types {
			if _, declared := o.RequestBody.Content[kind]; declared {
				continue
			}
			n++
			who := token
			if strings.HasPrefix(o.ID, "accounts-") || strings.HasPrefix(o.ID, "server-") || o.ID == "executions-release" {
				who = s.admin
			}
			if got := s.call(who, o.method, mine.fill(o), body, "Content-Type", kind).problem(fault.MediaTypeUnsupported); !strings.Contains(got.text("detail"), "application/json") {
				t.Errorf("%s %s with %s does not say what it takes: %s", o.method, o.path, kind, got.body)
			}
		}
	}
	if n < 200 {
		t.Errorf("only %d requests", n)
	}
	text := `{"hash":"` + mine["hash"] + `","mimeType":"application/pdf","name":"x.pdf","account":"rival"}`
	up := s.call(token, "POST", "/v1/files?name=a.pdf", text, "Content-Type", "application/json").want(201)
	if up.text("hash") == mine["hash"] || up.text("mimeType") == "application/pdf" {
		t.Errorf("a body that says what it is: %s", up.body)
	}
	if got := s.call(token, "GET", "/v1/files/"+up.text("hash")+"/content", nil).want(200); string(got.body) != text {
		t.Errorf("stored: %s", got.body)
	}
}

// A08: an upload that comes drop by drop is cut off, and one that is only slow is not.
func TestA08_DripOfAnUpload(t *testing.T) {
	api.SetPatience(t, 300*time.Millisecond)
	s := start(t)
	token := s.key("acme", access.Owner)
	upload := func(body io.Reader) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/files", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "text/plain")
		return http.DefaultTransport.RoundTrip(req)
	}
	ended := make(chan struct{})
	r, w := io.Pipe()
	go func() {
		defer close(ended)
		for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
			if _, err := w.Write([]byte("x")); err != nil {
				tick.Stop()
				return
			}
		}
	}()
	res, err := upload(r)
	if err == nil { // else the connection was closed before the answer was read
		if res.Body.Close(); res.StatusCode != http.StatusRequestTimeout {
			t.Errorf("the answer is %d", res.StatusCode)
		}
	}
	_ = r.Close()
	<-ended
	if files := s.call(token, "GET", "/v1/files", nil).want(200).get("data").([]any); len(files) != 0 {
		t.Errorf("what came is kept: %v", files)
	}
	r, w = io.Pipe()
	go func() { // enough for its time, and longer than the patience
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range 50 {
			<-tick.C
			_, _ = w.Write(bytes.Repeat([]byte("x"), 4<<10))
		}
		_ = w.Close()
	}()
	if res, err = upload(r); err != nil {
		t.Fatal(err)
	}
	if res.Body.Close(); res.StatusCode != http.StatusCreated {
		t.Errorf("a slow upload is answered with %d", res.StatusCode)
	}
}

// A25: an account has so many streams at once and no more, whether they are of runs, of changes,
// sockets, or runs that a socket follows. Those that have ended do not count, and those of
// others never do.
func TestA25_IdleStreams(t *testing.T) {
	const most = 5
	s := startService(t, t.TempDir(), nil, func(c *service.Config) { c.Streams = most })
	dev, rival := s.key("acme", access.Developer), s.key("rival", access.Developer)
	s.register(dev, waits)
	run := s.execute(dev, "waits", `{}`)
	events := "/v1/recipe-executions/" + run + "/events"
	open := func(token, path string) (*http.Response, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res, cancel
	}
	var ends []context.CancelFunc
	for _, path := range []string{events, "/v1/feed", "/jobs/" + run + "/events"} {
		res, end := open(dev, path)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s answers %d", path, res.StatusCode)
		}
		ends = append(ends, end)
	}
	c, err := s.dial(t, http.Header{"Authorization": {"Bearer " + dev}})
	if err != nil {
		t.Fatal(err)
	}
	subscribe := func(run string) any {
		c.say(`{"type":"subscribe","runId":"` + run + `"}`)
		for {
			if m := c.hear(); m["type"] == "subscribed" || m["type"] == "error" {
				return m["type"]
			}
		}
	}
	other := s.execute(dev, "waits", `{}`)
	if subscribe(run) != "subscribed" || subscribe(other) != "error" {
		t.Error("a socket follows more than the account may")
	}
	for _, path := range []string{events, "/v1/feed", "/execute/workflows/" + run + "/events"} {
		got := s.call(dev, "GET", path, nil).problem(fault.QuotaExceeded)
		if got.get("quota") != "streams" || got.get("used") != float64(most) || got.get("limit") != float64(most) || got.header.Get("Retry-After") != "" {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	if _, err := s.dial(t, http.Header{"Authorization": {"Bearer " + dev}}); err == nil {
		t.Error("one more socket")
	}
	if res, _ := open(rival, "/v1/feed"); res.StatusCode != http.StatusOK {
		t.Errorf("another account is answered with %d", res.StatusCode)
	}
	// Each that ends, in whatever way, makes room for one, and for one only.
	ends[0]()
	until(t, "a stream that ended does not count", func() bool {
		res, _ := open(dev, events)
		return res.StatusCode == http.StatusOK
	})
	s.call(dev, "GET", "/v1/feed", nil).problem(fault.QuotaExceeded)
	_ = c.conn.CloseNow()
	for range 2 { // the socket and its run
		until(t, "a socket that ended does not count", func() bool {
			res, _ := open(dev, "/v1/feed")
			return res.StatusCode == http.StatusOK
		})
	}
	s.call(dev, "GET", "/v1/feed", nil).problem(fault.QuotaExceeded)
	s.call(dev, "POST", "/v1/recipe-executions/"+run+"/signal", `{"name":"approved"}`).want(200) // of two streams: they end with the run
	until(t, "streams that ended do not count", func() bool {
		res, _ := open(dev, "/v1/recipe-executions/"+other+"/events")
		return res.StatusCode == http.StatusOK
	})
}

// A23: a page of another origin can neither send a request that counts nor read an answer, and
// no page can frame one of the server. Cookies are nobody's key.
func TestA23_PagesOfOtherOrigins(t *testing.T) {
	s := start(t)
	token := s.key("acme", access.Owner)
	mine := s.own("acme", token)
	open := startService(t, t.TempDir(), nil, func(c *service.Config) { c.Open, c.AdminToken = true, "" })
	open.register("", greet)
	open.register("", waits)
	for _, o := range document().operations {
		path := mine.fill(o)
		for _, origin := range []string{"http://elsewhere.example", "null", s.url} {
			for _, method := range []string{o.method, http.MethodOptions} {
				got := s.call("", method, path, bodyFor(o), "Origin", origin, "Access-Control-Request-Method", o.method, "Access-Control-Request-Headers", "authorization",
					"Cookie", "key="+token+"; Authorization=Bearer "+token)
				for name := range got.header {
					if strings.HasPrefix(name, "Access-Control-") || name == "Set-Cookie" {
						t.Errorf("%s %s has the header %s", method, path, name)
					}
				}
				if got.status < 300 && len(o.Security) > 0 {
					t.Errorf("%s %s with a cookie answers %d", method, path, got.status)
				}
			}
		}
		if len(o.Security) == 0 {
			continue
		}
		for _, headers := range [][]string{{"Origin", "http://elsewhere.example"}, {"Origin", "null"}, {"Origin", "http://127.0.0.1:1"}} {
			if got := open.call("", o.method, path, bodyFor(o), headers...).problem(fault.Forbidden); !strings.Contains(got.text("detail"), "checks no keys") {
				t.Errorf("%s %s with %v: %s", o.method, path, headers, got.body)
			}
		}
	}
	for _, host := range []string{"elsewhere.example", "127.0.0.1.elsewhere.example:80", "169.254.169.254"} { // a name that leads here
		req, err := http.NewRequestWithContext(t.Context(), "GET", open.url+"/v1/me", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusForbidden {
			t.Errorf("a request for %s is answered with %d", host, res.StatusCode)
		}
	}
	open.call("", "GET", "/v1/me", nil, "Origin", open.url).want(200)
	for _, page := range []string{"/docs", "/docs/errors"} {
		if got := s.call("", "GET", page, nil).want(200); !strings.Contains(got.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", page, got.header)
		}
	}
	if _, err := s.dial(t, http.Header{"Authorization": {"Bearer " + token}, "Origin": {"null"}}); err == nil {
		t.Error("a socket of a page without an origin")
	}
	if _, err := open.dial(t, http.Header{"Origin": {"http://elsewhere.example"}}); err == nil {
		t.Error("a socket of another origin where no keys are checked")
	}
}

// A24: what a client filters by is text and never a part of a statement, and a cursor continues
// only the list that it is of.
func TestA24_Filters(t *testing.T) {
	s := start(t)
	dev, owner := s.key("acme", access.Developer), s.key("acme", access.Owner)
	s.register(dev, waits)
	odd := []string{"100%", "a_b", `back\slash`, "O'Brien", `"quoted"`, "$.env", "';--", "é"}
	runs := map[string]string{}
	for _, value := range odd {
		runs[value] = s.execute(dev, "waits", map[string]any{"labels": map[string]string{"k": value}})
		s.call(dev, "POST", "/v1/files?name="+url.QueryEscape(value), value, "Content-Type", "text/plain").want(201)
	}
	s.execute(dev, "waits", `{"labels":{"k":"plain"}}`)
	count := func(path string) int {
		t.Helper()
		return len(s.call(dev, "GET", path, nil).want(200).get("data").([]any))
	}
	for _, value := range odd {
		for _, query := range []string{"label.k=" + url.QueryEscape(value), "q=" + url.QueryEscape(value)} {
			list := s.call(dev, "GET", "/v1/recipe-executions?"+query, nil).want(200).get("data").([]any)
			if len(list) != 1 || list[0].(map[string]any)["id"] != runs[value] {
				t.Errorf("%s finds %v, want %s", query, list, runs[value])
			}
		}
		if n := count("/v1/files?name=" + url.QueryEscape(strings.TrimPrefix(value, `back\`))); n != 1 { // the last part of a path is the name
			t.Errorf("the file %q is found %d times", value, n)
		}
	}
	// Whatever is filtered by, the answer is a list or says what is wrong, and all is there after.
	for _, o := range document().operations {
		if o.method != http.MethodGet || strings.Contains(o.path, "{") || strings.HasPrefix(o.ID, "accounts") {
			continue
		}
		for _, p := range o.Parameters {
			if p.In != "query" || strings.HasSuffix(o.ID, "-events") {
				continue
			}
			for _, hostile := range []string{`' OR '1'='1`, `%`, `_`, `*`, `1; DROP TABLE runs`, `") UNION SELECT * FROM records --`, "a\x00b", `\`, `$.x`, `[0]`, strings.Repeat("%", 150), "NULL", "-1", "1e9", "\xff"} {
				name := strings.ReplaceAll(p.Name, "{key}", "k")
				got := s.call(owner, "GET", o.path+"?"+url.QueryEscape(name)+"="+url.QueryEscape(hostile), nil)
				if got.status >= 500 {
					t.Errorf("%s?%s=%q answers %d %s", o.path, name, hostile, got.status, got.body)
				}
				if data, ok := got.value().(map[string]any)["data"].([]any); ok && got.status == 200 && p.Name != "deleted" && len(data) > 1 && hostile != `_` && hostile != `%` && hostile != `\` && p.Name != "type" {
					t.Errorf("%s?%s=%q selects %d", o.path, name, hostile, len(data))
				}
			}
			name := url.QueryEscape("label.') OR 1=1 --")
			if o.ID == "executions-list" && count("/v1/recipe-executions?"+name+"=x") != 0 {
				t.Error("the name of a label selects")
			}
		}
	}
	if n := count("/v1/recipe-executions"); n != len(odd)+1 {
		t.Errorf("%d runs are left", n)
	}

	cursor := s.call(dev, "GET", "/v1/recipe-executions?limit=2", nil).want(200).text("nextCursor")
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		bad := slices.Clone(data)
		bad[i] ^= 1 << (i % 8)
		s.call(dev, "GET", "/v1/recipe-executions?limit=2&cursor="+base64.RawURLEncoding.EncodeToString(bad), nil).problem(fault.RequestMalformed)
	}
	for _, list := range []string{"/v1/recipe-executions?status=running&cursor=", "/v1/recipes?cursor=", "/v1/files?cursor=", "/v1/credits/entries?cursor=", "/v1/recipe-executions?label.k=a&cursor="} {
		s.call(dev, "GET", list+cursor, nil).problem(fault.RequestMalformed)
	}
	s.call(dev, "GET", "/v1/recipe-executions?limit=3&cursor="+cursor, nil).want(200)
}
