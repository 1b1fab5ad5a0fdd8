// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/signature"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// What a mapping makes of a delivery, and what becomes of one that it makes nothing of.
func TestMapping(t *testing.T) {
	form := []string{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}
	for _, tt := range []struct {
		name   string
		spec   Spec
		body   string
		header []string
		query  string
		want   string // the input of the run, or what is in the history
	}{
		{"the whole body", Spec{}, `{"a":[1,2.5,null],"n":9007199254740993}`, nil, "", `{"body":{"a":[1,2.5,null],"n":9007199254740993}}`},
		{"a body that is no object", Spec{}, `[1]`, nil, "", `{"body":[1]}`},
		{"another type of JSON", Spec{}, `1`, []string{"Content-Type", "application/cloudevents+json"}, "", `{"body":1}`},
		{"a form", Spec{}, `a=1&b=x+y&a=2&c=`, form, "", `{"body":{"a":["1","2"],"b":"x y","c":""}}`},
		{"an expression", Spec{Recipe: "strict", Parameters: json.RawMessage(`"{'n': body.items.map(i, i.n).sum()}"`)}, `{"items":[{"n":1},{"n":2}]}`, nil, "", `{"n":3}`},
		{"templates", Spec{Parameters: json.RawMessage(`{"to":"{{ body.user | upper }}","all":"{{ body }}","x":{"y":["{{ query.a }}"]},"n":1}`)}, `{"user":"ann"}`, nil, "a=b", `{"all":{"user":"ann"},"n":1,"to":"ANN","x":{"y":["b"]}}`},
		{"a value is no template", Spec{Parameters: json.RawMessage(`{"t":"{{ body.t }}"}`)}, `{"t":"{{ headers }}"}`, nil, "", `{"t":"{{ headers }}"}`},
		{"headers", Spec{Parameters: json.RawMessage(`{"e":"{{ headers['x-github-event'] }}"}`)}, `{}`, []string{"X-GitHub-Event", "push"}, "", `{"e":"push"}`},
		{"when", Spec{When: "headers['x-github-event'] == 'push'"}, `{}`, []string{"X-GitHub-Event", "push"}, "", `{"body":{}}`},
		{"when is false", Spec{When: "body.n > 1"}, `{"n":1}`, nil, "", "ignored"},
		{"when is not known", Spec{When: "body.m > 1"}, `{"n":1}`, nil, "", "refused TEMPLATE_ERROR"},
		{"when is no truth", Spec{When: "body.n"}, `{"n":1}`, nil, "", "refused TEMPLATE_ERROR"},
		{"no such member", Spec{Parameters: json.RawMessage(`{"n":"{{ body.m }}"}`)}, `{"n":1}`, nil, "", "refused TEMPLATE_ERROR"},
		{"no object", Spec{Parameters: json.RawMessage(`"body"`)}, `[1]`, nil, "", "refused TEMPLATE_ERROR"},
		{"input that does not fit", Spec{Recipe: "strict"}, `{}`, nil, "", "refused INPUT_INVALID"},
		{"input that is too large", Spec{}, `"` + strings.Repeat("x", starts.MaxParameters) + `"`, nil, "", "refused VALUE_TOO_LARGE"},
		{"an expression that costs too much", Spec{When: "body.all(a, body.all(b, body.all(c, a + b + c >= 0)))"}, `[` + strings.Repeat("1,", 400) + `1]`, nil, "", "refused EXPRESSION_LIMIT"},
		{"no JSON", Spec{}, `{"a":`, nil, "", "refused REQUEST_MALFORMED"},
		{"a name twice", Spec{}, `{"a":1,"a":2}`, nil, "", "refused REQUEST_MALFORMED"},
		{"too deep", Spec{}, strings.Repeat("[", 100) + strings.Repeat("]", 100), nil, "", "refused REQUEST_MALFORMED"},
		{"too many fields", Spec{}, strings.Repeat("a=1&", maxPairs), form, "", "refused REQUEST_MALFORMED"},
		{"no form", Spec{}, `a=%zz`, form, "", "refused REQUEST_MALFORMED"},
		{"a key that is none", Spec{Key: "body"}, `{}`, nil, "", "refused TEMPLATE_ERROR"},
		{"a key that is too long", Spec{Key: "body"}, `"` + strings.Repeat("k", 300) + `"`, nil, "", "refused VALUE_TOO_LARGE"},
		{"no id", Spec{DeliveryID: "body.id"}, `{}`, nil, "", "refused TEMPLATE_ERROR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tr := w.create(func(s *Spec) {
				tt.spec.Name, tt.spec.Secret, tt.spec.Signature = s.Name, s.Secret, s.Signature
				if tt.spec.Recipe == "" {
					tt.spec.Recipe = s.Recipe
				}
				*s = tt.spec
			})
			m := message(tt.body, tt.header...)
			m.Query = tt.query
			o := w.receive(tr, m)
			got := w.history(tr)
			if o.Run != "" {
				if got = w.input(o.Run); w.history(tr) != "started" {
					t.Errorf("the history is %s", w.history(tr))
				}
			}
			if got != tt.want {
				t.Errorf("%s (%+v), want %s", got, o, tt.want)
			}
		})
	}
}

// A19: whatever is wrong with a message, the answer and the work are the same, and nothing has
// changed.
func TestA19_OneAnswer(t *testing.T) {
	w := newWorld(t)
	tr := w.create(nil)
	standard := w.create(func(s *Spec) { s.Signature = signature.Scheme{Name: signature.Standard} })
	unset := w.create(func(s *Spec) { s.Secret = "another" })
	rotated := w.create(nil)
	if _, err := w.tr.Rotate(t.Context(), acme, rotated.ID, "next", time.Hour); err != nil {
		t.Fatal(err)
	}
	deleted := w.create(nil)
	if err := w.tr.Delete(t.Context(), acme, deleted.ID); err != nil {
		t.Fatal(err)
	}
	wrong := message("{}")
	wrong.Header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64))
	answers := map[string]bool{}
	for name, try := range map[string]struct {
		id string
		m  *Message
	}{
		"no trigger": {"trig_999", message("{}")}, "its name": {tr.Name, message("{}")}, "one that is deleted": {deleted.ID, message("{}")},
		"a wrong signature": {tr.ID, wrong}, "an altered body": {tr.ID, &Message{Header: message("{}").Header, Body: []byte("{ }")}}, "no signature": {tr.ID, &Message{Header: http.Header{}, Body: []byte("{}")}},
		"another scheme": {standard.ID, message("{}")}, "a secret that is not set": {unset.ID, message("{}")}, "a secret before that": {rotated.ID, wrong},
	} {
		w.reads.Store(0)
		o, err := w.tr.Receive(t.Context(), try.id, try.m)
		if o != nil || fault.CodeOf(err) != fault.Unauthorized {
			t.Errorf("%s: %+v, %v", name, o, err)
			continue
		}
		answers[err.Error()] = true
		if n := w.reads.Load(); n != 4 {
			t.Errorf("%s: %d reads, want those of two records and two secrets", name, n)
		}
	}
	w.lavish.Store(true) // a source that does not look at the account
	if o, err := w.tr.Receive(t.Context(), w.create(func(s *Spec) { s.Secret = "next" }).ID, message("{}")); fault.CodeOf(err) != fault.Unauthorized {
		t.Errorf("no secret before its own, and one for everybody: %+v, %v", o, err)
	}
	if o, err := w.tr.Receive(t.Context(), "trig_999", message("{}")); fault.CodeOf(err) != fault.Unauthorized {
		t.Errorf("no trigger, and a secret for it: %+v, %v", o, err)
	}
	w.lavish.Store(false)
	if len(answers) != 1 {
		t.Errorf("the answers are %v", answers)
	}
	if w.runs(tr) != 0 || w.history(tr) != "" || w.history(unset) != "" || len(w.tr.states) != 0 {
		t.Error("something has changed")
	}
	w.receive(tr, message("{}"))
}

// A19, I13: a delivery that comes again is answered with its run: at once, after a crash, after
// the recipe and the trigger have changed, and when the engine has forgotten its key.
func TestRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		tr := w.create(nil)
		first := w.receive(tr, message(`{"n":1}`, "X-GitHub-Delivery", "d1"))
		if first.Result != Started || first.Repeated || first.Version != "1.0.0" {
			t.Fatalf("%+v", first)
		}
		again := func(what string, m *Message) {
			t.Helper()
			if o := w.receive(tr, m); o.Run != first.Run || !o.Repeated || o.Result != Started {
				t.Errorf("%s: %+v", what, o)
			}
		}
		again("the same", message(`{"n":1}`, "X-GitHub-Delivery", "d1"))
		again("another body", message(`{"n":2}`, "X-GitHub-Delivery", "d1"))
		w.kill()
		w.boot()
		again("after a crash", message(`{"n":1}`, "X-GitHub-Delivery", "d1"))
		w.register("any", "1.1.0", "steps:\n  - {id: one, transform: {expression: '2'}}\n")
		again("with another version", message(`{"n":1}`, "X-GitHub-Delivery", "d1"))
		time.Sleep(3 * 24 * time.Hour)
		if n, err := w.st.ForgetKeys(t.Context(), w.epoch, time.Now().UnixMicro(), 500); n == 0 || err != nil {
			t.Errorf("%d keys are forgotten, %v", n, err)
		}
		again("three days later", message(`{"n":1}`, "X-GitHub-Delivery", "d1"))
		if o := w.receive(tr, message(`{"n":1}`, "X-GitHub-Delivery", "d2")); o.Repeated || o.Run == first.Run || o.Version != "1.1.0" {
			t.Errorf("another delivery: %+v", o)
		}
		if w.runs(tr) != 2 {
			t.Errorf("%d runs", w.runs(tr))
		}
		// Another trigger with the same delivery.
		other := w.create(nil)
		if o := w.receive(other, message(`{"n":1}`, "X-GitHub-Delivery", "d1")); o.Repeated || o.Run == first.Run {
			t.Errorf("of another trigger: %+v", o)
		}
	})
}

func TestDeliveryIDs(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		id   string
		body string
		head []string
		want string
	}{
		{"", "{}", nil, signature.Hash([]byte("{}"))},
		{"", "{}", []string{"Webhook-Id", "a", "X-GitHub-Delivery", "b", "Idempotency-Key", "c"}, "a"},
		{"", "{}", []string{"X-GitHub-Delivery", "b", "Idempotency-Key", "c"}, "b"},
		{"", "{}", []string{"Idempotency-Key", "c"}, "c"},
		{"X-Event-Id", "{}", []string{"X-Event-Id", "e", "Webhook-Id", "a"}, "e"},
		{"X-Event-Id", "{}", []string{"Webhook-Id", "a"}, signature.Hash([]byte("{}"))},
		{"body.id", `{"id":7}`, []string{"Webhook-Id", "a"}, "7"},
		{"body.id", `{"id":""}`, nil, signature.Hash([]byte(`{"id":""}`))},
		{"body.id + '/' + headers['x-try']", `{"id":"x"}`, []string{"X-Try", "1\x1b[31m"}, `x/1\x1b[31m`},
		{"Authorization", "{}", []string{"Authorization", "Bearer x"}, signature.Hash([]byte("{}"))},
		{"X-Hub-Signature-256", "{}", nil, signature.Hash([]byte("{}"))},
		{"body", `"` + strings.Repeat("d", 300) + `"`, nil, strings.Repeat("d", maxShown) + "…"},
	} {
		if tt.id == "body" {
			tt.id = "body + ''"
		}
		tr := w.create(func(s *Spec) { s.DeliveryID = tt.id })
		w.receive(tr, message(tt.body, tt.head...))
		list, _, err := w.tr.History(t.Context(), acme, tr.ID, 0, 1)
		if err != nil || len(list) != 1 {
			t.Fatal(len(list), err)
		}
		if got := list[0].Delivery; got != tt.want {
			t.Errorf("%q with %v: %q, want %q", tt.id, tt.head, got, tt.want)
		}
	}
}

// I13: the process is killed between a delivery and its start, or between the start and the
// answer. The sender sends it again, and it has one run.
func TestI13_KilledBetween(t *testing.T) {
	killed := errors.New("the process was killed")
	for name, around := range map[string]func(w *world, start func() (starts.Run, error)) (starts.Run, error){
		"before the start": func(w *world, _ func() (starts.Run, error)) (starts.Run, error) {
			w.kill()
			return starts.Run{}, killed
		},
		"after the start": func(w *world, start func() (starts.Run, error)) (starts.Run, error) {
			if _, err := start(); err != nil {
				t.Error(err)
			}
			w.kill()
			return starts.Run{}, killed
		},
	} {
		for _, key := range []string{"", "'k'"} {
			t.Run(name+" "+key, func(t *testing.T) {
				w := newWorld(t)
				tr := w.create(func(s *Spec) { s.Key = key })
				w.around = func(start func() (starts.Run, error)) (starts.Run, error) { return around(w, start) }
				if o, err := w.tr.Receive(t.Context(), tr.ID, message("{}")); err == nil {
					t.Fatalf("acknowledged: %+v", o)
				}
				w.around = nil
				w.boot()
				w.register("any", "2.0.0", "steps:\n  - {id: one, transform: {expression: '2'}}\n")
				first := w.receive(tr, message("{}"))
				if again := w.receive(tr, message("{}")); first.Run == "" || again.Run != first.Run || !again.Repeated {
					t.Errorf("%+v, then %+v", first, again)
				}
				if w.runs(tr) != 1 {
					t.Errorf("%d runs", w.runs(tr))
				}
			})
		}
	}
}

// I13: a delivery that comes many times at once starts one run.
func TestI13_AtOnce(t *testing.T) {
	for _, key := range []string{"", "'k'"} {
		w := newWorld(t)
		tr := w.create(func(s *Spec) { s.Recipe, s.Key = "asks", key })
		var all sync.WaitGroup
		var mu sync.Mutex
		runs := map[string]int{}
		for range 16 {
			all.Go(func() {
				o, err := w.tr.Receive(t.Context(), tr.ID, message("{}"))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				runs[o.Run]++
			})
		}
		all.Wait()
		if len(runs) != 1 || w.runs(tr) != 1 {
			t.Errorf("%v, %d runs", runs, w.runs(tr))
		}
	}
}

// I13: a delivery comes twice at once, and the recipe gets a newer version in between.
func TestI13_ReplacedBetween(t *testing.T) {
	w := newWorld(t)
	tr := w.create(nil)
	var first *Outcome
	w.around = func(start func() (starts.Run, error)) (starts.Run, error) {
		w.around = nil
		first = w.receive(tr, message("{}"))
		w.register("any", "2.0.0", "steps:\n  - {id: one, transform: {expression: '2'}}\n")
		return start()
	}
	if o := w.receive(tr, message("{}")); o.Run != first.Run || !o.Repeated || w.runs(tr) != 1 {
		t.Errorf("%+v, then %+v", first, o)
	}
}

// A recipe that is replaced at that moment is looked for again.
func TestConflict(t *testing.T) {
	w := newWorld(t)
	tr := w.create(nil)
	w.around = func(func() (starts.Run, error)) (starts.Run, error) {
		w.around = nil
		return starts.Run{}, fault.New(fault.Conflict, "it has just been replaced")
	}
	if o := w.receive(tr, message("{}")); o.Result != Started {
		t.Errorf("%+v", o)
	}
}

// A trigger is deleted while a delivery is decided about: nothing is left of it.
func TestDeletedMeanwhile(t *testing.T) {
	w := newWorld(t)
	tr := w.create(nil)
	w.around = func(start func() (starts.Run, error)) (starts.Run, error) {
		w.around = nil
		if err := w.tr.Delete(t.Context(), acme, tr.ID); err != nil {
			t.Error(err)
		}
		return start()
	}
	w.receive(tr, message("{}"))
	// Another delivery came before the trigger was deleted, and is decided about later.
	if err := w.tr.note(t.Context(), tr, w.tr.state(tr.ID), "d", &Outcome{Result: Started}); err != nil {
		t.Error(err)
	}
	if left, _, err := w.st.Records(t.Context(), store.RecordQuery{Account: acme, Kind: kindEntry}); err != nil || len(left) != 0 {
		t.Errorf("%d entries are left, %v", len(left), err)
	}
}

// A key of starts, by each policy, and with a window.
func TestKeyed(t *testing.T) {
	w := newWorld(t)
	keyed := func(policy schedule.Overlap, debounce time.Duration) *Trigger {
		return w.create(func(s *Spec) { s.Recipe, s.Key, s.IfActive, s.Debounce = "asks", "body.key", policy, debounce })
	}
	skip, queue := keyed("", 0), keyed(schedule.OverlapQueue, 0)
	first := w.receive(skip, message(`{"key":"a","n":1}`))
	if o := w.receive(skip, message(`{"key":"a","n":2}`)); o.Result != Active || o.Run != first.Run {
		t.Errorf("skip: %+v", o)
	}
	if o := w.receive(queue, message(`{"key":"a","n":3}`)); o.Result != Queued || o.Run != "" {
		t.Errorf("queue: %+v", o)
	}
	if o := w.receive(queue, message(`{"key":"a","n":3}`)); o.Result != Queued || !o.Repeated {
		t.Errorf("queued twice: %+v", o)
	}
	if o := w.receive(skip, message(`{"key":7}`)); o.Result != Started || o.Run == first.Run {
		t.Errorf("another key: %+v", o)
	}
	if o := w.receive(keyed("", time.Minute), message(`{"key":"b"}`)); o.Result != Queued {
		t.Errorf("debounce: %+v", o)
	}
	for range 2 { // no key
		if o := w.receive(skip, message(`{"key":null}`)); o.Result != Started || o.Run == first.Run {
			t.Errorf("no key: %+v", o)
		}
	}
	if got := w.history(skip); got != "started again, started, started, active, started" {
		t.Errorf("the history: %s", got)
	}
	heads, err := w.st.List(t.Context(), store.Query{Account: acme, Labels: map[string]string{scheduler.LabelKey: "a"}})
	if err != nil || len(heads) != 1 || heads[0].LabelsOf()[LabelTrigger] != skip.Name {
		t.Errorf("%v, %v", heads, err)
	}
}

// What cannot start now is refused so that the sender repeats it, and what cannot start at all is
// accepted and in the history.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	tr := w.create(nil)
	secret := "what is wrong inside"
	for _, tt := range []struct {
		code, answer fault.Code
		history      string
	}{
		{fault.ServiceUnavailable, fault.ServiceUnavailable, "delayed SERVICE_UNAVAILABLE"},
		{fault.StoreFull, fault.ServiceUnavailable, "delayed STORE_FULL"},
		{fault.InternalError, fault.ServiceUnavailable, "delayed INTERNAL_ERROR"},
		{fault.QuotaExceeded, fault.QuotaExceeded, "delayed QUOTA_EXCEEDED"},
		{fault.AccountDisabled, "", "refused ACCOUNT_DISABLED"},
		{fault.InsufficientCredits, "", "refused INSUFFICIENT_CREDITS"},
	} {
		w.refusal.Store(fault.New(tt.code, "%s", secret))
		o, err := w.tr.Receive(t.Context(), tr.ID, message(`"`+string(tt.code)+`"`))
		var e *fault.Error
		if tt.answer == "" && (err != nil || o.Result != Refused || o.Code != tt.code) {
			t.Errorf("%s: %+v, %v", tt.code, o, err)
		}
		if tt.answer != "" && (!errors.As(err, &e) || e.Code != tt.answer || e.RetryAfterMS < 1000 || strings.Contains(err.Error(), secret)) {
			t.Errorf("%s: %+v, %v", tt.code, o, err)
		}
		if got, _, _ := strings.Cut(w.history(tr), ","); got != tt.history {
			t.Errorf("%s: the history is %s", tt.code, got)
		}
	}
	w.refusal.Store(nil)
	// What was delayed or refused starts when it comes again.
	if o := w.receive(tr, message(`"`+string(fault.AccountDisabled)+`"`)); o.Result != Started || o.Repeated {
		t.Errorf("again: %+v", o)
	}
	if err := w.recipes.Delete(t.Context(), acme, "any"); err != nil {
		t.Fatal(err)
	}
	if o := w.receive(tr, message(`1`)); o.Result != Refused || o.Code != fault.RecipeNotFound {
		t.Errorf("without its recipe: %+v", o)
	}
}

// What is neither durable as a run nor in the history is not acknowledged.
func TestHistoryCannotBeStored(t *testing.T) {
	w := newWorld(t)
	keyed := func(policy schedule.Overlap) *Trigger {
		return w.create(func(s *Spec) { s.Recipe, s.Key, s.IfActive, s.When = "asks", "'k'", policy, "body.wanted" })
	}
	skip, queue := keyed(schedule.OverlapSkip), keyed(schedule.OverlapQueue)
	w.full.Store(true)
	const wanted = `{"wanted":true}`
	if o := w.receive(skip, message(wanted)); o.Result != Started {
		t.Errorf("its run is durable: %+v", o)
	}
	if o := w.receive(queue, message(wanted)); o.Result != Queued {
		t.Errorf("its request is durable: %+v", o)
	}
	for name, body := range map[string]string{"ignored": `{"wanted":false}`, "refused": `{}`, "active": `{"wanted":true,"again":1}`} {
		o, err := w.tr.Receive(t.Context(), skip.ID, message(body))
		var e *fault.Error
		if o != nil || !errors.As(err, &e) || e.Code != fault.ServiceUnavailable || e.RetryAfterMS == 0 || strings.Contains(err.Error(), "disk of acme") {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	w.full.Store(false)
	if o := w.receive(skip, message(`{"wanted":true,"again":1}`)); o.Result != Active {
		t.Errorf("%+v", o)
	}
}

// A sender that hangs up before its delivery is decided about has started nothing, and sends it
// again.
func TestCancelled(t *testing.T) {
	w := newWorld(t)
	tr := w.create(nil)
	ctx, cancel := context.WithCancel(t.Context())
	w.around = func(func() (starts.Run, error)) (starts.Run, error) {
		cancel()
		return starts.Run{}, ctx.Err()
	}
	if o, err := w.tr.Receive(ctx, tr.ID, message("{}")); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", o, err)
	}
	w.around = nil
	if o := w.receive(tr, message("{}")); o.Result != Started || o.Repeated || w.history(tr) != "started" {
		t.Errorf("%+v, and the history is %s", o, w.history(tr))
	}
}

// A label of the trigger does not take the place of those by which a delivery is found again.
func TestOwnLabels(t *testing.T) {
	for _, key := range []string{"", "'k'"} {
		w := newWorld(t)
		tr := w.create(func(s *Spec) {
			s.Key, s.Labels = key, map[string]string{LabelDelivery: "x", LabelTrigger: "y", "team": "docs"}
		})
		first := w.receive(tr, message("{}"))
		head, err := w.e.Head(t.Context(), acme, first.Run)
		if err != nil {
			t.Fatal(err)
		}
		if l := head.LabelsOf(); l[LabelTrigger] != tr.Name || l[LabelDelivery] != nameOf(tr, signature.Hash([]byte("{}"))) || l["team"] != "docs" {
			t.Errorf("key %s: %v", key, l)
		}
	}
}

// The rate of a trigger is looked at when a signature fits: nobody else uses it up, or learns of
// it.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		tr, other := w.create(func(s *Spec) { s.When = "false" }), w.create(func(s *Spec) { s.When = "false" })
		forged := message("{}")
		forged.Header.Set("X-Hub-Signature-256", "sha256=")
		for range 3 * Burst {
			if _, err := w.tr.Receive(t.Context(), tr.ID, forged); fault.CodeOf(err) != fault.Unauthorized {
				t.Fatal(err)
			}
		}
		for range Burst {
			w.receive(tr, message("{}"))
		}
		_, err := w.tr.Receive(t.Context(), tr.ID, message("{}"))
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.RequestRateExceeded || e.RetryAfterMS <= 0 {
			t.Errorf("one more: %v", err)
		}
		if _, err := w.tr.Receive(t.Context(), tr.ID, forged); fault.CodeOf(err) != fault.Unauthorized {
			t.Errorf("forged: %v", err)
		}
		w.receive(other, message("{}"))
		time.Sleep(time.Second / PerSecond)
		w.receive(tr, message("{}"))
		if _, err := w.tr.Receive(t.Context(), tr.ID, message("{}")); fault.CodeOf(err) != fault.RequestRateExceeded {
			t.Errorf("two more: %v", err)
		}
	})
}

// I18: the secret is in no record, no run and no answer, also if a sender repeats it.
func TestI18_Canary(t *testing.T) {
	w := newWorld(t)
	tr := w.create(func(s *Spec) {
		s.Signature = signature.Scheme{Name: signature.Token, Header: "X-Token"}
		s.Parameters = json.RawMessage(`{"body":"{{ body }}","headers":"{{ headers }}","query":"{{ query }}"}`)
		s.DeliveryID = "body.id"
	})
	m := &Message{Header: http.Header{}, Query: "t=" + canary, Body: []byte(`{"id":"d-` + canary + `","token":"` + canary + `"}`)}
	m.Header.Set("X-Token", canary)
	m.Header.Set("X-Other", canary)
	m.Header.Set("Authorization", "Bearer of-somebody")
	o := w.receive(tr, m)
	m.Body = []byte(`{"id":"` + canary)
	refused := w.receive(tr, m)
	texts := []string{w.input(o.Run), refused.Reason}
	for _, q := range []store.RecordQuery{{Account: acme, Kind: kindTrigger}, {Account: acme, Kind: kindEntry}, {Kind: kindAccount}} {
		page, _, err := w.st.Records(t.Context(), q)
		if err != nil || len(page) == 0 {
			t.Fatalf("%d records of %s, %v", len(page), q.Kind, err)
		}
		for i := range page {
			texts = append(texts, string(page[i].Data))
		}
	}
	for _, text := range texts {
		if strings.Contains(text, canary) || strings.Contains(text, "of-somebody") {
			t.Errorf("a secret is in %s", text)
		}
	}
	if !strings.Contains(texts[0], `"token"`) || !strings.Contains(texts[0], `"x-other"`) {
		t.Errorf("the input is %s", texts[0])
	}
}
