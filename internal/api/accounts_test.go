// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// set changes the settings of an account as the operator.
func (s *server) set(account, body string) answer {
	s.t.Helper()
	return s.call(s.admin, "PATCH", "/v1/accounts/"+account, body).want(200)
}

// quota fails unless the problem names a quota with its numbers.
func (a answer) quota(name string, used, limit int) {
	a.t.Helper()
	if a.get("quota") != name || a.get("used") != float64(used) || a.get("limit") != float64(limit) {
		a.t.Errorf("want the quota %s, %d of %d: %s", name, used, limit, a.body)
	}
}

// What is set for an account comes before the configuration, applies at once and after a
// restart, and is guarded by its revision.
func TestAccounts(t *testing.T) {
	dir := t.TempDir()
	s := startAt(t, dir)
	viewer := s.key("acme", access.Viewer)
	own := s.call(viewer, "GET", "/v1/account", nil).want(200)
	if own.get("limits.liveRunLimit") != float64(1000) || own.get("limits.runLimit") != float64(10_000) || own.get("limits.maxCredits") != float64(10_000) || own.get("limits.retainRuns") != "P7D" {
		t.Errorf("by the configuration: %s", own.body)
	}
	s.call(s.admin, "GET", "/v1/accounts/nobody", nil).problem(fault.AccountNotFound)
	got := s.call(s.admin, "GET", "/v1/accounts/acme", nil).want(200)
	etag := got.header.Get("ETag")
	put := s.call(s.admin, "PUT", "/v1/accounts/acme", `{"liveRunLimit":5,"maxCredits":50,"timeZone":"Europe/Berlin","dayBudget":{"credits":9},"lowBalance":[3],"storageBytes":1000,"retainRuns":"30d","retainFiles":"forever"}`, "If-Match", etag).want(200)
	s.call(s.admin, "PUT", "/v1/accounts/acme", `{}`, "If-Match", etag).problem(fault.PreconditionFailed)
	if put.header.Get("ETag") == etag {
		t.Error("a change has the revision of before")
	}
	s.set("acme", `{"liveRunLimit":6,"actions":[]}`)
	for _, when := range []string{"at once", "after a restart"} {
		own = s.call(viewer, "GET", "/v1/account", nil).want(200)
		for field, want := range map[string]any{
			"liveRunLimit": 6.0, "runLimit": 60.0, "maxCredits": 50.0, "timeZone": "Europe/Berlin", "dayBudget.credits": 9.0, "storageBytes": 1000.0, "retainRuns": "P30D", "retainFiles": "forever", "retainUploads": "P1D",
		} {
			if own.get("limits."+field) != want {
				t.Errorf("%s: %s is %v, want %v", when, field, own.get("limits."+field), want)
			}
		}
		if list, _ := own.get("limits.actions").([]any); list == nil || len(list) != 0 {
			t.Errorf("%s: the actions are %v", when, own.get("limits.actions"))
		}
		if when == "at once" {
			s.stop()
			s = startAt(t, dir)
		}
	}
	if got := s.call(s.admin, "PUT", "/v1/accounts/acme", `{}`).want(200); got.get("effective.liveRunLimit") != float64(1000) || got.get("effective.actions").([]any)[0] != "*" {
		t.Errorf("what is not set is that of the configuration: %s", got.body)
	}
	s.set("zeta", `{}`)
	var names []string
	for next := "/v1/accounts?limit=1"; next != ""; {
		page := s.call(s.admin, "GET", next, nil).want(200)
		names = append(names, page.get("data").([]any)[0].(map[string]any)["account"].(string))
		next = page.text("next")
	}
	if !slices.Equal(names, []string{"acme", "local", "zeta"}) {
		t.Errorf("the accounts are %v", names)
	}
	for _, bad := range []string{`{"timeZone":"Mars"}`, `{"retainRuns":"1s"}`, `{"actions":["a b"]}`, `{"liveRunLimit":-1}`, `{"dayBudget":{"credits":0}}`, `{"lowBalance":[0]}`, `{"live_runs":1}`} {
		s.call(s.admin, "PATCH", "/v1/accounts/acme", bad).problem(fault.RequestInvalid)
	}
	s.call(s.admin, "PUT", "/v1/accounts/a%20b", `{}`).problem(fault.RequestInvalid)
	s.call(viewer, "PUT", "/v1/accounts/acme", `{}`).problem(fault.Forbidden)
}

// Who pays is not changed while runs go on.
func TestMeteredWithRuns(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	run := s.execute(dev, "waits", `{}`)
	s.call(s.admin, "PATCH", "/v1/accounts/acme", `{"metered":false}`).problem(fault.Conflict)
	s.call(dev, "POST", "/v1/recipe-executions/"+run+"/cancel", `{}`)
	for s.call(dev, "GET", "/v1/account", nil).want(200).get("usage.liveRuns") != 0.0 {
	}
	if got := s.set("acme", `{"metered":false}`); got.get("effective.metered") != false {
		t.Errorf("%s", got.body)
	}
}

// X206: above the limit of live runs, runs are queued, and above ten times as many refused
// with 429 and a time to wait. Raising it admits those that wait, at once.
func TestX206_LiveRuns(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	first := s.execute(dev, "waits", `{}`) // while there is another limit
	s.set("acme", `{"liveRunLimit":1}`)
	var queued []string
	for range 9 {
		got := s.call(dev, "POST", "/v1/recipes/waits/execute", `{}`).want(202)
		if got.text("state") != "queued" {
			t.Errorf("above the limit: %s", got.body)
		}
		queued = append(queued, got.text("executionId"))
	}
	p := s.call(dev, "POST", "/v1/recipes/waits/execute", `{}`).problem(fault.QuotaExceeded)
	if p.quota("live_runs", 10, 10); p.status != http.StatusTooManyRequests || p.header.Get("Retry-After") != "1" {
		t.Errorf("%v %s", p.header, p.body)
	}
	s.set("acme", `{"liveRunLimit":0}`)
	for _, run := range queued {
		for s.call(dev, "GET", "/v1/recipe-executions/"+run, nil).want(200).text("state") == "queued" {
		}
	}
	s.execute(dev, "waits", `{}`)
	s.set("acme", `{"liveRunLimit":11}`) // those that began without a limit are counted
	if got := s.call(dev, "POST", "/v1/recipes/waits/execute", `{}`).want(202); got.text("state") != "queued" {
		t.Errorf("the twelfth: %s", got.body)
	}
	s.call(dev, "POST", "/v1/recipe-executions/"+first+"/cancel", `{}`)
	for s.call(dev, "GET", "/v1/account", nil).want(200).get("usage.queuedRuns") != 0.0 {
	}
}

// X157, X207: one run reserves no more than the account allows, and no more than there is.
func TestX157X207_Reservation(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, paidWaits)
	s.grant("acme", 100)
	s.set("acme", `{"maxCredits":7}`)
	got := s.call(dev, "POST", "/v1/recipes/paid-waits/execute", `{}`).want(202)
	if got.get("creditsReserved") != float64(7) {
		t.Errorf("reserved: %s", got.body)
	}
	s.set("acme", `{"maxCredits":1000,"dayBudget":{"credits":12}}`)
	p := s.call(dev, "POST", "/v1/recipes/paid-waits/execute", `{}`).problem(fault.InsufficientCredits)
	if p.text("limitSource") != "day" || p.get("missing") != float64(5) || p.text("until") == "" || p.header.Get("Retry-After") != "" {
		t.Errorf("over the budget of a day: %v %s", p.header, p.body)
	}
	s.set("acme", `{"dayBudget":{"credits":100000}}`)
	for range 9 {
		s.call(dev, "POST", "/v1/recipes/paid-waits/execute", `{}`).want(202)
	}
	p = s.call(dev, "POST", "/v1/recipes/paid-waits/execute", `{}`).problem(fault.InsufficientCredits)
	if p.text("limitSource") != "account" || p.get("missing") != float64(7) {
		t.Errorf("without credits: %s", p.body)
	}
}

// paidWaits reserves 10 credits, and none of its runs ends.
const paidWaits = `{"name":"paid-waits","version":"1.0.0","creditEstimation":{"strategy":"fixed","fixedCredits":8,"maxCredits":10},
"steps":[{"id":"ask","wait":{"signal":"approved"}},{"id":"pay","action":{"name":"costly"},"dependsOn":["ask"]}]}`

// X207: of a thousand starts at once that reserve 10 credits each, a balance of 100 admits
// ten.
func TestX207_ConcurrentStarts(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, paidWaits)
	s.grant("acme", 100)
	var all sync.WaitGroup
	var accepted, refused atomic.Int32
	gate := make(chan struct{}, 64)
	for range 1000 {
		all.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			got, err := s.send(dev, "POST", "/v1/recipes/paid-waits/execute", `{}`)
			switch {
			case err != nil:
				t.Error(err)
			case got.status == http.StatusAccepted:
				accepted.Add(1)
			case got.status == http.StatusPaymentRequired && got.text("code") == string(fault.InsufficientCredits):
				refused.Add(1)
			default:
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	all.Wait()
	if accepted.Load() != 10 || refused.Load() != 990 {
		t.Errorf("%d starts were accepted and %d refused, want 10 and 990", accepted.Load(), refused.Load())
	}
	if got := s.call(dev, "GET", "/v1/credits", nil).want(200); got.get("credits.available") != 0.0 || got.get("credits.held") != 100.0 {
		t.Errorf("%s", got.body)
	}
}

// X205: what an account may not call looks as if it did not exist, wherever recipes are read.
func TestX205_AllowedActions(t *testing.T) {
	s := start(t)
	dev, rival := s.key("acme", access.Developer), s.key("rival", access.Developer)
	s.register(dev, gated)
	running := s.execute(dev, "gated", `{}`)
	s.call(dev, "POST", "/v1/recipes/gated/estimate", `{}`).want(200) // the server has compiled it
	s.set("acme", `{"actions":["costly","text-*"]}`)

	var names []string
	for _, a := range s.call(dev, "GET", "/v1/actions", nil).want(200).get("data").([]any) {
		names = append(names, a.(map[string]any)["name"].(string))
	}
	if !slices.Contains(names, "costly") || !slices.Contains(names, "text-join") || slices.ContainsFunc(names, func(n string) bool { return n != "costly" && !strings.HasPrefix(n, "text-") }) {
		t.Errorf("the actions are %v", names)
	}
	unknown := func(name string) string { return strings.ReplaceAll(gated, `"gate"`, `"`+name+`"`) }
	for _, at := range []struct {
		method, path string
		withdrawn    any
		missing      any
	}{
		{"GET", "/v1/actions/gate", nil, nil},
		{"POST", "/v1/actions/gate/call", `{}`, `{}`},
		{"POST", "/v1/recipes", strings.ReplaceAll(gated, "gated", "other"), strings.ReplaceAll(unknown("gzzz"), "gated", "other")},
		{"PUT", "/v1/recipes/gated", strings.ReplaceAll(gated, "1.0.0", "2.0.0"), strings.ReplaceAll(unknown("gzzz"), "1.0.0", "2.0.0")},
	} {
		withdrawn := s.call(dev, at.method, at.path, at.withdrawn).problem(fault.ActionNotFound)
		missing := s.call(dev, at.method, strings.ReplaceAll(at.path, "gate/", "gzzz/"), at.missing).problem(fault.ActionNotFound)
		same := func(a answer) string {
			return strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(string(a.body), a.text("requestId"), ""), "gzzz", "gate"), "gate/", "")
		}
		if at.path != "/v1/actions/gate" && same(withdrawn) != same(missing) {
			t.Errorf("%s %s tells a withdrawn action from one that never was:\n%s\n%s", at.method, at.path, withdrawn.body, missing.body)
		}
	}
	if p := s.call(dev, "POST", "/v1/recipes", strings.ReplaceAll(unknown("gat"), "gated", "other")).problem(fault.ActionNotFound); bytes.Contains(p.body, []byte("gate")) {
		t.Errorf("a suggestion names it: %s", p.body)
	}
	if v := s.call(dev, "POST", "/v1/recipes/gated/validate", nil).want(200); v.get("valid") != false || !bytes.Contains(v.body, []byte("ACTION_NOT_FOUND")) {
		t.Errorf("validate: %s", v.body)
	}
	s.call(dev, "POST", "/v1/recipes/gated/estimate", `{}`).problem(fault.ActionNotFound)
	s.call(dev, "POST", "/v1/recipes/gated/execute", `{"dryRun":true}`).problem(fault.ActionNotFound)
	s.call(dev, "POST", "/v1/recipes/gated/execute", `{}`).problem(fault.ActionNotFound)
	s.register(rival, gated) // another account may

	close(s.gate) // a run in progress goes on
	for {
		got := s.call(dev, "GET", "/v1/recipe-executions/"+running, nil).want(200).text("state")
		if got == "completed" {
			break
		}
		if got == "failed" || got == "cancelled" {
			t.Fatalf("the run in progress is %s", got)
		}
	}
	s.set("acme", `{"actions":["gate"]}`)
	s.call(dev, "POST", "/v1/recipes/gated/execute", `{}`).want(202)
}

// A disabled account makes no requests and its streams end; what runs goes on, and the
// operator sees it.
func TestDisabledAccount(t *testing.T) {
	s := start(t)
	dev, rival := s.key("acme", access.Developer), s.key("rival", access.Viewer)
	s.register(dev, gated)
	run := s.execute(dev, "gated", `{}`)
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/recipe-executions/"+run+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+dev)
	stream, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || stream.StatusCode != 200 {
		t.Fatal(stream, err)
	}
	s.set("acme", `{"disabled":true,"disabledReason":"unpaid"}`)
	begin := time.Now()
	var rest bytes.Buffer
	_, _ = rest.ReadFrom(stream.Body) // it ends, cleanly or not
	stream.Body.Close()
	if d := time.Since(begin); d > time.Second {
		t.Errorf("the stream ended after %v", d)
	}
	for _, path := range []string{"/v1/me", "/v1/recipes", "/v1/account"} {
		if p := s.call(dev, "GET", path, nil).problem(fault.AccountDisabled); !strings.Contains(p.text("detail"), "unpaid") {
			t.Errorf("no reason: %s", p.body)
		}
	}
	s.call(rival, "GET", "/v1/me", nil).want(200)
	close(s.gate)
	for s.call(s.admin, "GET", "/v1/accounts/acme/credits", nil).want(200).get("liveRuns") != 0.0 {
	}
	s.set("acme", `{"disabled":false}`)
	if got := s.call(dev, "GET", "/v1/recipe-executions/"+run, nil).want(200); got.text("state") != "completed" {
		t.Errorf("the run that was in progress is %s", got.text("state"))
	}
}

// An account has a rate of its own, from the next request on.
func TestRateOfAccount(t *testing.T) {
	s := start(t)
	acme, rival := s.key("acme", access.Viewer), s.key("rival", access.Viewer)
	s.set("acme", `{"requestsPerSecond":0.01,"requestBurst":2}`)
	for range 2 {
		s.call(acme, "GET", "/v1/me", nil).want(200)
	}
	p := s.call(acme, "GET", "/v1/me", nil).problem(fault.RequestRateExceeded)
	if p.quota("requests", 2, 2); p.text("resetAt") == "" || p.header.Get("Retry-After") == "" {
		t.Errorf("%v %s", p.header, p.body)
	}
	s.call(rival, "GET", "/v1/me", nil).want(200)
	s.set("acme", `{"requestsPerSecond":1000,"requestBurst":1000}`)
	for s.call(acme, "GET", "/v1/me", nil).status != 200 {
	}
}

// Uploads beyond the storage of an account are refused; deleting makes room, at once and
// after a restart.
func TestStorageQuota(t *testing.T) {
	dir := t.TempDir()
	s := startAt(t, dir)
	dev := s.key("acme", access.Developer)
	up := func(text string) answer { return s.call(dev, "POST", "/v1/files", text, "Content-Type", "text/plain") }
	hash := up(strings.Repeat("a", 60)).want(201).text("hash")
	s.set("acme", `{"storageBytes":100}`)
	for _, when := range []string{"at once", "after a restart"} {
		p := up(strings.Repeat("b", 41)).problem(fault.QuotaExceeded)
		if p.quota("storage_bytes", 60, 100); p.header.Get("Retry-After") != "" {
			t.Errorf("%s: waiting alone does not help: %v", when, p.header)
		}
		up(strings.Repeat("c", 1000)).problem(fault.QuotaExceeded)
		up(strings.Repeat("a", 60)).want(201) // it is there
		if got := s.call(dev, "GET", "/v1/account", nil).want(200); got.get("usage.storageBytes") != 60.0 {
			t.Errorf("%s: %s", when, got.body)
		}
		if when == "at once" {
			s.stop()
			s = startAt(t, dir)
		}
	}
	up(strings.Repeat("d", 40)).want(201)
	s.call(dev, "DELETE", "/v1/files/"+hash, nil).want(204)
	up(strings.Repeat("e", 60)).want(201)
	up("f").problem(fault.QuotaExceeded).quota("storage_bytes", 100, 100)
}

// A20: a secret that is kept over HTTP is used by runs of its account and of no other; its
// value is in no answer and in no file.
func TestA20_Secrets(t *testing.T) {
	dir := t.TempDir()
	s := startAt(t, dir)
	owner, rival, viewer := s.key("acme", access.Owner), s.key("rival", access.Owner), s.key("acme", access.Viewer)
	s.set("acme", `{"metered":false}`)
	s.set("rival", `{"metered":false}`)
	const canary = "canary-5f1e9b7c03"
	var seen bytes.Buffer
	call := func(token, method, path string, body any, headers ...string) answer {
		a := s.call(token, method, path, body, headers...)
		seen.Write(a.body)
		fmt.Fprint(&seen, a.header)
		return a
	}
	call(owner, "PUT", "/v1/secrets/api-token", `{"value":"first-value-of-it"}`).want(200)
	call(owner, "PUT", "/v1/secrets/api-token", `{"value":"`+canary+`"}`, "Idempotency-Key", "same").want(200)
	list := call(owner, "GET", "/v1/secrets", nil).want(200)
	if e := list.get("data").([]any); len(e) != 1 || e[0].(map[string]any)["name"] != "api-token" || e[0].(map[string]any)["updatedAt"] == nil {
		t.Errorf("%s", list.body)
	}
	use := `{"name":"use","version":"1.0.0","steps":[{"id":"a","action":{"name":"text-join","parameters":{"items":["x {{ secret('api-token') }}"]}},"outputBinding":"a"}],"outputs":{"text":"a.text"}}`
	for token, want := range map[string]string{owner: "completed", rival: "failed"} {
		s.register(token, use)
		got := call(token, "POST", "/v1/recipes/use/execute", `{"async":false}`).want(200)
		if got.text("state") != want {
			t.Errorf("the run is %s, want %s: %s", got.text("state"), want, got.body)
		}
		if want == "completed" && !bytes.Contains(got.body, []byte("[redacted]")) {
			t.Errorf("%s", got.body)
		}
		call(token, "GET", "/v1/recipe-executions/"+got.text("executionId")+"/events", nil).want(200)
	}
	for _, bad := range []string{`{"value":"short"}`, `{"value":"` + canary + `","x":1}`, `{"value":["` + canary + `"]}`, `{"valu":"` + canary + `"}`} {
		call(owner, "PUT", "/v1/secrets/other", bad).problem(fault.RequestInvalid)
	}
	call(owner, "PUT", "/v1/secrets/"+strings.Repeat("a", 70), `{"value":"`+canary+`"}`).problem(fault.RequestInvalid)
	call(viewer, "PUT", "/v1/secrets/api-token", `{"value":"another-value"}`).problem(fault.Forbidden)
	call(viewer, "GET", "/v1/secrets", nil).problem(fault.Forbidden)
	// A01: those of another account look like what does not exist.
	if got := call(rival, "GET", "/v1/secrets", nil).want(200); len(got.get("data").([]any)) != 0 {
		t.Errorf("secrets of others: %s", got.body)
	}
	call(rival, "DELETE", "/v1/secrets/api-token", nil).problem(fault.RecordNotFound)
	call(owner, "DELETE", "/v1/secrets/api-token", nil).want(204)
	call(owner, "DELETE", "/v1/secrets/api-token", nil).problem(fault.RecordNotFound)
	if got := call(owner, "POST", "/v1/recipes/use/execute", `{"async":false}`).want(200); got.text("state") != "failed" {
		t.Errorf("with a deleted secret: %s", got.body)
	}
	s.stop()
	seen.WriteString(everything(t, dir))
	for _, form := range []string{canary, "Y2FuYXJ5LTVmMWU5Yjdj", "63616e6172792d35"} {
		if strings.Contains(seen.String(), form) {
			t.Errorf("%s is in an answer or in a file", form)
		}
	}
}

// A key is rotated: the new one does what the earlier one did, which ends when it is told to,
// and what is spent with both counts against one limit.
func TestRotateKey(t *testing.T) {
	s := start(t)
	owner := s.key("acme", access.Owner)
	dev := s.key("acme", access.Developer)
	s.register(dev, paidWaits)
	s.grant("acme", 100)
	s.call(dev, "POST", "/v1/recipes/paid-waits/execute", `{}`).want(202) // the engine knows the account already
	limited := s.call(owner, "POST", "/v1/keys", `{"name":"ci","role":"operator","limit":{"credits":25,"reset":"monthly"}}`).want(201)
	execute := func(token string) answer {
		return s.call(token, "POST", "/v1/recipes/paid-waits/execute", `{}`)
	}
	execute(limited.text("token")).want(202)
	id := limited.text("id")
	usage := func(id string) answer { return s.call(owner, "GET", "/v1/keys/"+id, nil).want(200) }
	if got := usage(id); got.get("usage.used") != 10.0 || got.get("usage.left") != 15.0 || got.text("usage.resetAt") == "" {
		t.Errorf("%s", got.body)
	}
	fresh := s.call(owner, "POST", "/v1/keys/"+id+"/rotate", `{"overlapSeconds":3600}`).want(200)
	if fresh.text("id") == id || fresh.text("role") != "operator" || fresh.get("limit.credits") != 25.0 {
		t.Errorf("%s", fresh.body)
	}
	if usage(id).text("expiresAt") == "" {
		t.Error("the earlier key does not end")
	}
	execute(limited.text("token")).want(202)
	p := execute(fresh.text("token")).problem(fault.InsufficientCredits)
	if p.text("limitSource") != "key:"+id || p.get("missing") != 5.0 || p.text("until") == "" {
		t.Errorf("%s", p.body)
	}
	if got := usage(fresh.text("id")); got.get("usage.used") != 20.0 {
		t.Errorf("%s", got.body)
	}
	last := s.call(owner, "POST", "/v1/keys/"+fresh.text("id")+"/rotate", nil).want(200)
	s.call(fresh.text("token"), "GET", "/v1/me", nil).problem(fault.Unauthorized)
	s.call(last.text("token"), "GET", "/v1/me", nil).want(200)
	if p := execute(last.text("token")).problem(fault.InsufficientCredits); p.text("limitSource") != "key:"+id {
		t.Errorf("%s", p.body)
	}
	s.call(owner, "POST", "/v1/keys/"+fresh.text("id")+"/rotate", nil).problem(fault.Conflict)
	s.call(s.key("rival", access.Owner), "POST", "/v1/keys/"+last.text("id")+"/rotate", nil).problem(fault.KeyNotFound)
}

// A21: a stream ends when its key expires, also if that is long after it began, and when its
// key was rotated.
func TestA21_ExpiredKeyEndsStreams(t *testing.T) {
	s := start(t)
	owner := s.key("acme", access.Owner)
	s.register(owner, waits)
	run := s.execute(owner, "waits", `{}`)
	for _, way := range []string{"expires", "rotated"} {
		body := map[string]any{"name": way, "role": "viewer"}
		ends := time.Now().Add(1500 * time.Millisecond)
		if way == "expires" {
			body["expiresAt"] = ends
		}
		key := s.call(owner, "POST", "/v1/keys", body).want(201)
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/recipe-executions/"+run+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key.text("token"))
		stream, err := http.DefaultTransport.RoundTrip(req)
		if err != nil || stream.StatusCode != 200 {
			t.Fatal(stream, err)
		}
		if way == "rotated" {
			ends = time.Now().Add(time.Second)
			s.call(owner, "POST", "/v1/keys/"+key.text("id")+"/rotate", `{"overlapSeconds":1}`).want(200)
		}
		var rest bytes.Buffer
		_, _ = rest.ReadFrom(stream.Body) // it ends, cleanly or not
		stream.Body.Close()
		if late := time.Since(ends); late < -100*time.Millisecond || late > time.Second {
			t.Errorf("%s: the stream ended %v after its key", way, late)
		}
		s.call(key.text("token"), "GET", "/v1/me", nil).problem(fault.Unauthorized)
	}
}
