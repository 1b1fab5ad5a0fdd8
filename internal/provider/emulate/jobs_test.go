// SPDX-License-Identifier: Apache-2.0

package emulate_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/provider/emulate"
)

// A job is queued, ends with its input as the result, and is reported by one signed webhook.
func TestJobsNormal(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{After: 50 * time.Millisecond}, func(e *emulator, d *dialect) {
		id := d.start(e, emulate.OK, "a house", map[string]string{"Idempotency-Key": "k"})
		d.expect(e, id, d.says[0])
		if got := d.result(e, id, d.ended(e, id)); got != "a house" {
			e.Errorf("the result is %v", got)
		}
		entry := e.await(id, "one webhook is accepted", func(j emulate.JobEntry) bool { return j.Sent.Accepted == 1 })
		if entry.State != emulate.JobDone || entry.Protocol != d.name || entry.Key != "k" || entry.Submitted != 1 || entry.Polls == 0 || entry.Cancels != 0 || entry.Sent.Refused != 0 {
			e.Errorf("the books have %+v", entry)
		}
		var books emulate.Books
		e.ask("GET", "/books", nil, nil, &books)
		if len(books.Jobs) != 1 || books.Jobs[0].ID != id || books.Charges("k") != 1 || books.Polls[d.name].Total < entry.Polls || books.Polls[d.name].MaxPerSecond < 1 {
			e.Errorf("the books are %+v", books)
		}
	})
}

// A job that fails says why.
func TestJobsFail(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{}, func(e *emulator, d *dialect) {
		id := d.start(e, emulate.Fail, "a house", nil)
		d.expect(e, id, d.says[1])
		if o := d.ended(e, id); o[d.field] != d.states[2] || !strings.Contains(fmt.Sprint(o["error"]), "its mode is fail") {
			e.Errorf("the job has ended as %v", o)
		}
	})
}

// The webhook comes twice with one delivery id.
func TestJobsTwice(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{}, func(e *emulator, d *dialect) {
		id := d.start(e, emulate.Twice, "a house", nil)
		first, second := d.expect(e, id, d.says[0]), d.expect(e, id, d.says[0])
		for _, name := range []string{"webhook-id", "X-Fal-Webhook-Request-Id"} {
			if first.Header.Get(name) != second.Header.Get(name) {
				e.Errorf("%s: %q and %q", name, first.Header.Get(name), second.Header.Get(name))
			}
		}
		e.await(id, "both are accepted", func(j emulate.JobEntry) bool { return j.Sent.Accepted == 2 })
	})
}

// A webhook with a wrong signature says that the job has failed; the one behind it is right.
func TestJobsForged(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{}, func(e *emulator, d *dialect) {
		id := d.start(e, emulate.Forged, "a house", nil)
		d.expect(e, id, d.says[1])
		d.expect(e, id, d.says[0])
		e.await(id, "one is refused", func(j emulate.JobEntry) bool { return j.Sent == emulate.DeliveryCount{Accepted: 1, Refused: 1} })
		if o := d.ended(e, id); o[d.field] != d.states[1] {
			e.Errorf("the job has ended as %v", o)
		}
	})
}

// An old webhook has the right signature of an hour ago, and is not repeated.
func TestJobsOld(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{}, func(e *emulator, d *dialect) {
		id := d.start(e, emulate.Old, "a house", nil)
		d.expect(e, id, d.says[0])
		e.await(id, "it is refused", func(j emulate.JobEntry) bool { return j.Sent == emulate.DeliveryCount{Refused: 1} })
	})
}

// A job that never ends can be cancelled, once.
func TestJobsCancel(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{}, func(e *emulator, d *dialect) {
		id := d.start(e, emulate.Silent, "a house", nil)
		cancel := func() (int, object) {
			var answer object
			return e.ask(d.cancel[0], fmt.Sprintf(d.cancel[1], id), nil, nil, &answer).StatusCode, answer
		}
		status, answer := cancel()
		if want := map[string]int{"fal": 202}[d.name]; status != max(want, 200) {
			e.Errorf("cancelling is answered %d %v", status, answer)
		}
		d.expect(e, id, d.says[2])
		if o := d.ended(e, id); o[d.field] != d.states[3] {
			e.Errorf("the job has ended as %v", o)
		}
		status, answer = cancel()
		if d.name == "fal" && (status != 400 || answer["status"] != "ALREADY_COMPLETED") || d.name != "fal" && (status != 200 || answer[d.field] != d.states[3]) {
			e.Errorf("cancelling again is answered %d %v", status, answer)
		}
		entry := e.await(id, "one webhook is sent", func(j emulate.JobEntry) bool { return j.Sent.Accepted == 1 })
		books := e.jobs.Books()
		if entry.State != emulate.JobCancelled || entry.Cancels != 2 || books.Charges("") != 0 {
			e.Errorf("the books have %+v", entry)
		}
		if got := e.ask(d.cancel[0], fmt.Sprintf(d.cancel[1], "none"), nil, nil, nil).StatusCode; got != 404 {
			e.Errorf("cancelling what is not there is answered %d", got)
		}
	})
}

// The same Idempotency-Key gives the same job with the plain protocol, and with others if the
// configuration says so; otherwise the books have two jobs with one key.
func TestJobsIdempotencyKey(t *testing.T) {
	for _, all := range []bool{false, true} {
		eachDialect(t, emulate.JobsConfig{After: time.Hour, Idempotent: all}, func(e *emulator, d *dialect) {
			key := map[string]string{"Idempotency-Key": "same"}
			first, second := d.start(e, emulate.OK, "a house", key), d.start(e, emulate.OK, "a house", key)
			third := d.start(e, emulate.OK, "a house", map[string]string{"Idempotency-Key": "other"})
			if want := all || d.name == "plain"; (first == second) != want || first == third {
				e.Errorf("the jobs are %s, %s and %s", first, second, third)
			}
			if entry, _ := e.jobs.Job(first); first == second && entry.Submitted != 2 {
				e.Errorf("the books have %+v", entry)
			}
		})
	}
}

// In the mode drop there is a job, but no answer; a client that repeats the submission gets one.
func TestJobsDrop(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{Idempotent: true}, func(e *emulator, d *dialect) {
		path, body := d.submit(e, emulate.Drop, "a house")
		if resp, err := e.try("POST", path, nil, body, nil); err == nil {
			e.Fatalf("it was answered %d", resp.StatusCode)
		}
		books := e.jobs.Books()
		if len(books.Jobs) != 1 {
			e.Fatalf("the books are %+v", books)
		}
		d.expect(e, books.Jobs[0].ID, d.says[0])
		// Go's client repeats a request with a key by itself.
		key := map[string]string{"Idempotency-Key": "k"}
		var answer object
		for range 2 {
			if _, err := e.try("POST", path, key, body, &answer); err == nil {
				break
			}
		}
		if books := e.jobs.Books(); len(books.Jobs) != 2 || answer[d.id] != books.Jobs[1].ID {
			e.Errorf("it was answered %v, and the books are %+v", answer, books)
		}
	})
}

// The webhook arrives before the submission is answered.
func TestJobsReorder(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{}, func(e *emulator, d *dialect) {
		id := d.start(e, emulate.Reorder, "a house", nil)
		if len(e.hooks) != 1 {
			e.Error("the webhook was not there first")
		}
		d.expect(e, id, d.says[0])
	})
}

// A late webhook comes after the job has ended.
func TestJobsLate(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{Late: 50 * time.Millisecond}, func(e *emulator, d *dialect) {
		id := d.start(e, emulate.Late, "a house", nil)
		d.ended(e, id)
		d.expect(e, id, d.says[0])
	})
}

// Polls of some jobs are refused.
func TestJobsPolls(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{RetryAfter: "7"}, func(e *emulator, d *dialect) {
		id := d.start(e, emulate.Limit, "a house", nil)
		resp := e.ask("GET", fmt.Sprintf(d.poll, id), nil, nil, nil)
		if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "7" {
			e.Errorf("the first poll is answered %d", resp.StatusCode)
		}
		d.ended(e, id)

		id = d.start(e, emulate.Garbage, "a house", nil)
		resp = e.ask("GET", fmt.Sprintf(d.poll, id), nil, nil, nil)
		if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			e.Errorf("the first poll is answered %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		d.ended(e, id)

		id = d.start(e, emulate.Lost, "a house", nil)
		d.ended(e, id)
		if resp := e.ask("GET", fmt.Sprintf(d.poll, "none"), nil, nil, nil); resp.StatusCode != 404 {
			e.Errorf("a poll of what is not there is answered %d", resp.StatusCode)
		}
		if entry, _ := e.jobs.Job(id); entry.Sent != (emulate.DeliveryCount{}) {
			e.Errorf("the books have %+v", entry)
		}
	})
}

// A deaf service answers polls when it has sent its webhook, which the receiver holds up.
func TestJobsDeaf(t *testing.T) {
	arrived, release := make(chan bool), make(chan bool)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived <- true; <-release }))
	defer receiver.Close()
	e := newEmulator(t, emulate.JobsConfig{Webhook: receiver.URL})
	d := dialects()[3]
	id := d.start(e, emulate.Deaf, "a house", nil)
	<-arrived
	if resp := e.ask("GET", fmt.Sprintf(d.poll, id), nil, nil, nil); resp.StatusCode != 503 {
		t.Errorf("it is answered %d", resp.StatusCode)
	}
	close(release)
	e.await(id, "the webhook is sent", func(j emulate.JobEntry) bool { return j.Sent.Accepted == 1 })
	d.ended(e, id)
}

// A webhook that is refused is sent again, with its id.
func TestJobsWebhookAgain(t *testing.T) {
	ids := make(chan string, 2)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(ids) == 0 {
			w.WriteHeader(http.StatusBadGateway)
		}
		ids <- r.Header.Get("webhook-id")
	}))
	defer receiver.Close()
	e := newEmulator(t, emulate.JobsConfig{Webhook: receiver.URL})
	id := (&dialects()[3]).start(e, emulate.OK, "a house", nil)
	e.await(id, "it is accepted", func(j emulate.JobEntry) bool { return j.Sent == emulate.DeliveryCount{Accepted: 1, Refused: 1} })
	if first, second := <-ids, <-ids; first != second {
		t.Errorf("the ids are %s and %s", first, second)
	}
}

// A job says in its input how it goes.
func TestJobsSettings(t *testing.T) {
	e := newEmulator(t, emulate.JobsConfig{After: time.Hour})
	d := dialects()
	plain, openAI := d[0], d[3]
	var answer object
	e.ask("POST", "/plain/v1/jobs", nil, object{"input": object{"emulate": object{"result": []int{1}, "after": "1ms", "mode": "lost"}}}, &answer)
	if o := plain.ended(e, answer["id"].(string)); at(o, "result", 0) != 1.0 {
		t.Errorf("it has ended as %v", o)
	}
	e.ask("POST", "/plain/v1/jobs", nil, object{"input": object{"emulate": object{"fail": "no colour", "after": "0s"}}}, &answer)
	if o := plain.ended(e, answer["id"].(string)); at(o, "error", "message") != "no colour" {
		t.Errorf("it has ended as %v", o)
	}
	for _, input := range []object{{"after": "soon"}, {"mode": "lazy"}, {"fail": 1}} {
		if resp := e.ask("POST", "/plain/v1/jobs", nil, object{"input": object{"emulate": input}}, nil); resp.StatusCode != 400 {
			t.Errorf("%v is answered %d", input, resp.StatusCode)
		}
	}
	e.ask("POST", "/openai/v1/responses", nil, object{"model": "m", "input": "x", "background": true, "metadata": object{"emulate": `{"result": "hello", "after": "0s"}`}}, &answer)
	if o := openAI.ended(e, answer["id"].(string)); at(o, "output", 0, "content", 0, "text") != "hello" || at(o, "usage", "total_tokens") != 3.0 {
		t.Errorf("it has ended as %v", o)
	}
	e.ask("POST", "/openai/v1/responses", nil, object{"model": "m", "input": "a long text", "background": true, "max_output_tokens": 1, "metadata": object{"emulate": `{"after": "0s"}`}}, &answer)
	id := answer["id"].(string)
	e.await(id, "it is incomplete", func(j emulate.JobEntry) bool { return j.State == emulate.JobIncomplete })
	e.ask("GET", "/openai/v1/responses/"+id, nil, nil, &answer)
	if answer["status"] != "incomplete" || at(answer, "incomplete_details", "reason") != "max_output_tokens" || at(answer, "output", 0, "content", 0, "text") != "a lo" {
		t.Errorf("it has ended as %v", answer)
	}
}

// Jobs say what they have made so far, in answers and in webhooks of those who want that.
func TestJobsPreviews(t *testing.T) {
	e := newEmulator(t, emulate.JobsConfig{Mode: emulate.Silent})
	settings := object{"mode": "silent", "after": "1ms", "previews": []int{1, 2}}
	var answer object
	e.ask("POST", "/plain/v1/jobs", nil, object{"input": object{"emulate": settings}, "callback": e.hook}, &answer)
	seen := map[any]bool{}
	for range 2 {
		_, body := e.received()
		if seen[body["preview"]] = true; body["status"] != "running" {
			t.Errorf("a webhook says %v", body)
		}
	}
	if !seen[1.0] || !seen[2.0] {
		t.Errorf("webhooks have %v", seen)
	}
	if e.ask("GET", "/plain/v1/jobs/"+answer["id"].(string), nil, nil, &answer); answer["preview"] != 2.0 || answer["result"] != nil {
		t.Errorf("a poll says %v", answer)
	}
	e.ask("POST", "/replicate/v1/predictions", nil, object{"version": "v", "input": object{"emulate": settings}, "webhook": e.hook, "webhook_events_filter": []string{"completed"}}, &answer)
	id := answer["id"].(string)
	e.await(id, "it runs", func(j emulate.JobEntry) bool { return j.State == emulate.JobRunning })
	if e.ask("GET", "/replicate/v1/predictions/"+id, nil, nil, &answer); answer["output"] == nil {
		t.Errorf("a poll says %v", answer)
	}
	if j, _ := e.jobs.Job(id); j.Sent != (emulate.DeliveryCount{}) {
		t.Errorf("webhooks that nobody wants: %+v", j.Sent)
	}
}

// Replicate also tells when a prediction starts, if it is asked to.
func TestJobsReplicateStart(t *testing.T) {
	e := newEmulator(t, emulate.JobsConfig{Mode: emulate.Silent})
	e.ask("POST", "/replicate/v1/predictions", nil, object{"version": "v", "input": object{}, "webhook": e.hook, "webhook_events_filter": []string{"start"}}, nil)
	if _, body := e.received(); body["status"] != "starting" || body["completed_at"] != nil {
		t.Errorf("the webhook says %v", body)
	}
}

// Requests without the key are refused.
func TestJobsKey(t *testing.T) {
	eachDialect(t, emulate.JobsConfig{Key: "secret"}, func(e *emulator, d *dialect) {
		path, body := d.submit(e, emulate.OK, "a house")
		right, other := "Bearer ", "Key "
		if d.name == "fal" {
			right, other = other, right
		}
		for value, want := range map[string]int{"": 401, right + "wrong": 401, other + "secret": 401, right + "secret": d.status} {
			if resp := e.ask("POST", path, map[string]string{"Authorization": value}, body, nil); resp.StatusCode != want {
				e.Errorf("Authorization: %s is answered %d, want %d", value, resp.StatusCode, want)
			}
		}
		e.received()
	})
}

// What is no submission is refused, and a configuration that cannot be meant.
func TestJobsRefused(t *testing.T) {
	e := newEmulator(t, emulate.JobsConfig{})
	for path, body := range map[string]any{
		"/plain/v1/jobs":              []int{1},
		"/plain/v1/jobs?":             object{"callback": "file:///etc/passwd"},
		"/replicate/v1/predictions":   object{"input": object{}},
		"/replicate/v1/predictions?":  object{"version": "v"},
		"/replicate/v1/predictions?2": object{"version": "v", "input": object{}, "webhook_events_filter": []string{"stop"}},
		"/openai/v1/responses":        object{"model": "m", "input": "x"},
		"/fal/a/b?fal_webhook=x":      object{},
	} {
		if resp := e.ask("POST", path, nil, body, nil); resp.StatusCode != 400 {
			t.Errorf("%s %v is answered %d", path, body, resp.StatusCode)
		}
	}
	for _, cfg := range []emulate.JobsConfig{{Mode: "lazy"}, {Secret: "x"}, {Webhook: "x"}} {
		if _, err := emulate.NewJobs(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

// The jobs that ended first make room for others; if there are none, a submission is refused.
func TestJobsBounded(t *testing.T) {
	e := newEmulator(t, emulate.JobsConfig{MaxJobs: 2})
	d := dialects()[0]
	first := d.start(e, emulate.Lost, "1", nil)
	d.ended(e, first)
	second := d.start(e, emulate.Silent, "2", nil)
	third := d.start(e, emulate.Silent, "3", nil)
	path, body := d.submit(e, emulate.OK, "4")
	if resp := e.ask("POST", path, nil, body, nil); resp.StatusCode != 503 {
		t.Errorf("a fourth is answered %d", resp.StatusCode)
	}
	if b := e.jobs.Books(); b.Dropped != 1 || len(b.Jobs) != 2 || b.Jobs[0].ID != second || b.Jobs[1].ID != third {
		t.Errorf("the books are %+v", b)
	}
}

// 10,000 jobs with all faults end, each once, and while they wait they need no goroutines.
func TestJobsMany(t *testing.T) {
	const clients = 8
	n := 10_000
	if testing.Short() {
		n = 2_000
	}
	e := newEmulator(t, emulate.JobsConfig{Mode: emulate.Faults, Seed: 1, After: 2 * time.Second, Late: time.Millisecond})
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := range n / clients {
				key := map[string]string{"Idempotency-Key": fmt.Sprintf("%d-%d", c, i)}
				body := object{"model": "m", "input": i, "callback": e.hook}
				if resp, err := e.try("POST", "/plain/v1/jobs", key, body, nil); err != nil {
					if _, err = e.try("POST", "/plain/v1/jobs", key, body, nil); err != nil {
						t.Error(err)
					}
				} else if resp.StatusCode != 201 {
					t.Errorf("it is answered %d", resp.StatusCode)
				}
			}
		})
	}
	all.Wait()
	// Connections have goroutines on both sides.
	if now := runtime.NumGoroutine(); now > before+clients*20 {
		t.Errorf("%d goroutines, and %d before the jobs", now, before)
	}
	modes := map[string]int{}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(patience); ; <-look.C {
		books := e.jobs.Books()
		done := books.Charges("")
		if done == n && len(books.Jobs) == n {
			for i := range books.Jobs {
				modes[books.Jobs[i].Mode]++
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d jobs have ended", done, len(books.Jobs))
		}
	}
	if len(modes) != len(emulate.JobModes())-8 {
		t.Errorf("the modes are %v", modes)
	}
}

// Close ends what is being sent, and all goroutines.
func TestJobsClose(t *testing.T) {
	arrived := make(chan bool, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server sees that its client is gone when it has read the request
		arrived <- true
		<-r.Context().Done()
	}))
	defer receiver.Close()
	e := newEmulator(t, emulate.JobsConfig{Webhook: receiver.URL})
	(&dialects()[3]).start(e, emulate.OK, "a house", nil)
	<-arrived
	e.jobs.Close()
}
