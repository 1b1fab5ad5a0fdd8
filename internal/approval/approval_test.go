// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

const formInput = `{"title": "Publish?", "text": "three pages", "form": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 1}, "m": {"type": "string", "default": "x"}}}}`

func yes(values string) *Answer {
	return &Answer{Decision: Approved, Comment: "fine", Values: json.RawMessage(values)}
}

// The answer is the output of the step, with who has given it and when, and is known afterwards.
func TestApprove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.work()
		id := w.ask("acme", "e", formInput)
		list, _, err := w.List(t.Context(), ana, "", 10)
		if err != nil || len(list) != 1 || list[0].ID != id || list[0].State != "open" || list[0].Text != "" || !list[0].May {
			t.Fatalf("%+v, %v", list, err)
		}
		if i, err := w.Get(t.Context(), ana, id); err != nil || i.Text != "three pages" || len(i.Form) == 0 {
			t.Fatalf("%+v, %v", i, err)
		}
		time.Sleep(time.Hour)
		out, err := w.Answer(t.Context(), ana, id, yes(`{"n": 2}`))
		if err != nil || out.State != "approved" || out.Later {
			t.Fatalf("%+v, %v", out, err)
		}
		results, _ := w.taken()
		at := time.Now().UTC().Format(time.RFC3339)
		if got, want := one(t, results), `acme {"decision":"approved","by":"ana","at":"`+at+`","comment":"fine","values":{"m":"x","n":2}}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		synctest.Wait()
		if i, err := w.Get(t.Context(), ana, id); err != nil || i.State != "approved" || i.Answer.By != "ana" || i.Text != "" {
			t.Errorf("afterwards: %+v, %v", i, err)
		}
		if list, _, err := w.List(t.Context(), ana, "", 10); err != nil || len(list) != 0 || w.records("acme", recordContent) != 0 {
			t.Errorf("%d are open, %v; %d have content", len(list), err, w.records("acme", recordContent))
		}
		_, err = w.Answer(t.Context(), &Person{Account: "acme", Name: "ben"}, id, yes(`{"n": 3}`))
		if !errors.Is(err, fault.Conflict) || !strings.Contains(fault.Message(err), "approved by ana at "+at) {
			t.Errorf("a second answer: %v", err)
		}
		w.end()
	})
}

// A rejection is an output and needs no form; with reject: fail the step fails.
func TestReject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for input, want := range map[string]string{
			formInput:                               `"decision":"rejected","by":"ana"`,
			`{"title": "Go?", "reject": "fail"}`:    `APPROVAL_REJECTED: "Go?": ana has rejected it: no`,
			`{"title": ["a", 1], "text": {"b": 2}}`: `"decision":"rejected"`,
		} {
			id := w.ask("acme", input, input)
			if _, err := w.Answer(t.Context(), ana, id, &Answer{Decision: Rejected, Comment: "no"}); err != nil {
				t.Fatal(err)
			}
			results, _ := w.taken()
			if got := one(t, results); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", input, got, want)
			}
		}
	})
}

// At the time-out the default is the answer, or the step fails; who comes later is too late.
func TestTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.work()
		a := w.ask("acme", "a", `{"title": "A", "timeoutMs": 3600000, "default": {"decision": "approved", "comment": "nobody"}}`)
		b := w.ask("acme", "b", `{"title": "B", "timeoutMs": 7200000}`)
		time.Sleep(time.Hour - time.Millisecond)
		synctest.Wait()
		if results, _ := w.taken(); len(results) != 0 {
			t.Fatalf("early: %q", results)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		results, _ := w.taken()
		if got := one(t, results); !strings.Contains(got, `"decision":"approved","by":"default"`) || !strings.Contains(got, `"comment":"nobody","values":{}`) {
			t.Error(got)
		}
		if _, err := w.Answer(t.Context(), ana, a, yes("")); !errors.Is(err, fault.Conflict) || !strings.Contains(fault.Message(err), "approved by default at") {
			t.Errorf("after the default: %v", err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		results, _ = w.taken()
		if got := one(t, results); !strings.Contains(got, `WAIT_TIMEOUT: "B" was not answered until`) {
			t.Error(got)
		}
		if _, err := w.Answer(t.Context(), ana, b, yes("")); !errors.Is(err, fault.TooLate) {
			t.Errorf("after the time-out: %v", err)
		}
		if i, err := w.Get(t.Context(), ana, b); err != nil || i.State != "timed_out" {
			t.Errorf("%+v, %v", i, err)
		}
		w.end()
	})
}

// A time-out while no process runs: nobody can answer any more, and the next process applies the
// default.
func TestTimeOutWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.ask("acme", "a", `{"title": "A", "timeoutMs": 3600000, "default": {"decision": "rejected"}}`)
		time.Sleep(2 * time.Hour)
		if _, err := w.Answer(t.Context(), ana, id, yes("")); !errors.Is(err, fault.TooLate) {
			t.Errorf("after the time: %v", err)
		}
		w.start()
		w.work()
		synctest.Wait()
		results, _ := w.taken()
		if got := one(t, results); !strings.Contains(got, `"decision":"rejected","by":"default"`) {
			t.Error(got)
		}
		w.end()
	})
}

// Of many answers at once one counts, and the others are told who was first.
func TestTwiceAtOnce(t *testing.T) {
	w := newWorld(t)
	id := w.ask("acme", "a", `{"title": "A"}`)
	const people = 16
	w.meet, w.met = people, make(chan struct{}) // all have read the request before one is stored
	outcomes := make([]error, people)
	var group sync.WaitGroup
	for i := range people {
		group.Go(func() {
			_, outcomes[i] = w.Answer(t.Context(), &Person{Account: "acme", Name: fmt.Sprint("p", i)}, id, yes(""))
		})
	}
	group.Wait()
	winner := ""
	for i, err := range outcomes {
		if err == nil {
			if winner != "" {
				t.Fatalf("%s and p%d have answered", winner, i)
			}
			winner = fmt.Sprint("p", i)
		}
	}
	results, _ := w.taken()
	if got := one(t, results); winner == "" || !strings.Contains(got, `"by":"`+winner+`"`) {
		t.Fatalf("%q has answered: %s", winner, got)
	}
	for i, err := range outcomes {
		if err != nil && (!errors.Is(err, fault.Conflict) || !strings.Contains(fault.Message(err), "approved by "+winner+" at ")) {
			t.Errorf("p%d: %v", i, err)
		}
	}
}

// A second answer whose request was read before the first was stored, and whose step has got its
// result meanwhile, is told who was first, and not that the step has ended.
func TestTwiceReadBefore(t *testing.T) {
	w := newWorld(t)
	id := w.ask("acme", "a", `{"title": "A"}`)
	w.cfg.Records = readBetween{w.st, func(key store.RecordKey) {
		if key != jobs.Key(jobs.People, id) {
			return
		}
		w.cfg.Records = w.st
		if _, err := w.Answer(t.Context(), ana, id, yes("")); err != nil {
			t.Error(err)
		}
	}}
	_, err := w.Answer(t.Context(), &Person{Account: "acme", Name: "ben"}, id, yes(""))
	if !errors.Is(err, fault.Conflict) || !strings.Contains(fault.Message(err), "approved by ana at ") {
		t.Errorf("%v", err)
	}
	results, _ := w.taken()
	if got := one(t, results); !strings.Contains(got, `"by":"ana"`) {
		t.Error(got)
	}
}

// readBetween are records; before is called before one is read.
type readBetween struct {
	*memory.Store
	before func(store.RecordKey)
}

func (r readBetween) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	r.before(key)
	return r.Store.Record(ctx, key)
}

// An answer is stored before it is a result: one that the process did not live to make a result is
// made one by the next, and nobody answers in between.
func TestAnswerOutlivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.ask("acme", "a", `{"title": "A"}`)
		w.setFail(fault.New(fault.Stopping, "the process ends"))
		out, err := w.Answer(t.Context(), ana, id, yes(""))
		if err != nil || !out.Later {
			t.Fatalf("%+v, %v", out, err)
		}
		w.start()
		if _, err := w.Answer(t.Context(), &Person{Account: "acme", Name: "ben"}, id, yes("")); !errors.Is(err, fault.Conflict) {
			t.Errorf("another answer: %v", err)
		}
		w.work()
		synctest.Wait()
		if results, _ := w.taken(); len(results) != 0 {
			t.Fatal(results)
		}
		w.setFail(nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		results, _ := w.taken()
		if got := one(t, results); !strings.Contains(got, `"by":"ana"`) {
			t.Error(got)
		}
		w.end()
	})
}

// With the cancel of its run a request ends: it is in no list, and who answers is told.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.work()
		id := w.ask("acme", "a", `{"title": "A", "timeoutMs": 3600000, "remindMs": 60000}`)
		w.cancel(id)
		synctest.Wait()
		if _, err := w.Answer(t.Context(), ana, id, yes("")); !errors.Is(err, fault.TooLate) {
			t.Errorf("an answer: %v", err)
		}
		if i, err := w.Get(t.Context(), ana, id); err != nil || i.State != "cancelled" {
			t.Errorf("%+v, %v", i, err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if results, logs := w.taken(); len(results)+len(logs) != 0 || w.records("acme", recordContent) != 0 {
			t.Errorf("%q %q", results, logs)
		}
		// The next attempt of the step, which may have the same effect key, asks anew.
		if again, err := w.try("acme", "a", 2, `{"title": "A"}`); err != nil || again != id {
			t.Fatalf("%s, %v", again, err)
		}
		if _, err := w.Answer(t.Context(), ana, id, yes("")); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// People are reminded at the interval of the request, also after a restart; the intervals in which
// no process ran are one reminder.
func TestRemindersSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.work()
		id := w.ask("acme", "a", `{"title": "A", "remindMs": 3600000, "timeoutMs": 864000000}`)
		for range 2 {
			time.Sleep(time.Hour)
			synctest.Wait()
			_, logs := w.taken()
			if got := one(t, logs); !strings.Contains(got, `"A" waits for a person since`) || !strings.Contains(got, id) {
				t.Error(got)
			}
		}
		w.end()
		w.start()
		w.work()
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if _, logs := w.taken(); len(logs) != 0 {
			t.Errorf("early: %q", logs)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, logs := w.taken(); len(logs) != 1 {
			t.Errorf("after a restart: %q", logs)
		}
		w.end()
		time.Sleep(5*time.Hour + time.Minute)
		w.start()
		w.work()
		synctest.Wait()
		if _, logs := w.taken(); len(logs) != 1 {
			t.Errorf("for the hours without a process: %q", logs)
		}
		time.Sleep(500 * time.Hour)
		synctest.Wait()
		if results, logs := w.taken(); len(logs) > MaxReminders || len(results) != 1 {
			t.Errorf("%d reminders, %q", len(logs), results)
		}
		w.end()
	})
}

// A17 of people: what does not fit is refused, changes nothing, and says what would.
func TestRefusedAnswers(t *testing.T) {
	w := newWorld(t)
	id := w.ask("acme", "a", formInput)
	plain := w.ask("acme", "b", `{"title": "B"}`)
	for name, tt := range map[string]struct {
		id   string
		a    Answer
		want string
	}{
		"a field is missing":      {id, Answer{Decision: Approved}, `missing property "n"`},
		"a field does not fit":    {id, Answer{Decision: Approved, Values: json.RawMessage(`{"n": 0}`)}, "values/n"},
		"no object":               {id, Answer{Decision: Approved, Values: json.RawMessage(`[1]`)}, "want an object"},
		"no JSON":                 {id, Answer{Decision: Approved, Values: json.RawMessage(`{`)}, "values"},
		"rejected, does not fit":  {id, Answer{Decision: Rejected, Values: json.RawMessage(`{"n": "x"}`)}, "values/n"},
		"values without a form":   {plain, Answer{Decision: Approved, Values: json.RawMessage(`{"n": 1}`)}, "asks for none"},
		"a decision of none":      {plain, Answer{Decision: "maybe"}, "want one of approved, rejected"},
		"edited":                  {plain, Answer{Decision: Edited, Value: json.RawMessage(`1`)}, "want one of"},
		"a value that counts not": {plain, Answer{Decision: Approved, Value: json.RawMessage(`1`)}, "only edited"},
		"a long comment":          {plain, Answer{Decision: Approved, Comment: strings.Repeat("x", MaxComment+1)}, "comment"},
	} {
		if _, err := w.Answer(t.Context(), ana, tt.id, &tt.a); !errors.Is(err, fault.InputInvalid) || !strings.Contains(fault.Message(err), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if results, _ := w.taken(); len(results) != 0 {
		t.Error(results)
	}
	for _, who := range []*Person{{Account: "other", Name: "ana", Trusted: true}, {Account: "", Name: "ana"}} {
		if _, err := w.Answer(t.Context(), who, id, yes(`{"n": 1}`)); !errors.Is(err, fault.RecordNotFound) {
			t.Errorf("account %q: %v", who.Account, err)
		}
		if list, _, err := w.List(t.Context(), who, "", 10); err != nil || len(list) != 0 {
			t.Errorf("account %q sees %d, %v", who.Account, len(list), err)
		}
	}
}

// A request that a template has filled in is checked when it is made.
func TestRefusedRequests(t *testing.T) {
	w := newWorld(t)
	for input, want := range map[string]string{
		`{"title": " "}`: "title",
		`{"title": "x", "form": {"type": "string"}}`:                    "form",
		`{"title": "x", "form": {"type": 1}}`:                           "form",
		`{"title": "x", "approvers": ["role:boss"]}`:                    "no role",
		`{"title": "x", "remindMs": 5}`:                                 "remind",
		`{"title": "x", "default": {"decision": "approved"}}`:           "timeout",
		`{"title": "x", "timeoutMs": 1, "default": {"decision": "x"}}`:  "decision",
		`{"title": "x", "text": "` + strings.Repeat("y", 70<<10) + `"}`: "text",
		`{"title": "x", "value": "` + strings.Repeat("y", 2<<20) + `"}`: "value",
	} {
		if _, err := w.try("acme", input, 1, input); !errors.Is(err, fault.InputInvalid) || !strings.Contains(fault.Message(err), want) {
			t.Errorf("%.60s: %v", input, err)
		}
	}
	if n := w.records("acme", recordRequest); n != 0 {
		t.Errorf("%d requests are stored", n)
	}
	id := w.ask("acme", "long", `{"title": "a\nb `+strings.Repeat("ä", 400)+`"}`)
	if i, err := w.Get(t.Context(), ana, id); err != nil || !strings.HasPrefix(i.Title, "a b ä") || !strings.HasSuffix(i.Title, "…") {
		t.Errorf("%q, %v", i.Title, err)
	}
}

// Approvers are names of keys, and roles; others may read and not answer.
func TestApprovers(t *testing.T) {
	w := newWorld(t)
	input := `{"title": "A", "approvers": ["ana", "role:owner"]}`
	for i, tt := range []struct {
		who Person
		may bool
	}{
		{Person{Name: "ana"}, true}, {Person{Name: "ben", Role: "owner"}, true}, {Person{Name: "role:owner"}, true},
		{Person{Name: "ben", Role: "developer"}, false}, {Person{Name: "owner"}, false}, {Person{Name: "local user", Trusted: true}, true},
	} {
		id := w.ask("acme", fmt.Sprint(i), input)
		tt.who.Account = "acme"
		info, err := w.Get(t.Context(), &tt.who, id)
		if err != nil || info.May != tt.may {
			t.Errorf("%+v: %+v, %v", tt.who, info, err)
		}
		_, err = w.Answer(t.Context(), &tt.who, id, yes(""))
		if (err == nil) != tt.may || err != nil && !errors.Is(err, fault.Forbidden) {
			t.Errorf("%+v: %v", tt.who, err)
		}
		if _, err := w.Link(t.Context(), &tt.who, id, "ana", 0); err == nil || !tt.may && !errors.Is(err, fault.Forbidden) {
			t.Errorf("a link by %+v: %v", tt.who, err)
		}
	}
}

// What a review holds back is for who may answer it, an edit gives another value, and nothing of it
// stays.
func TestReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.work()
		w.Handle("review", func(_ context.Context, r *Request, a *Answer, task *action.Task) (action.Result, error) {
			if a.Decision == Rejected {
				return action.Result{}, fault.New(fault.StepFailed, "%s, %s", r.Options, a.By)
			}
			if a.Decision == Edited {
				return action.Result{Output: a.Value}, nil
			}
			return action.Result{Output: r.Value}, nil
		})
		for decision, want := range map[Decision]string{Approved: `acme "held"`, Edited: `acme "better"`, Rejected: `acme STEP_FAILED: {"flag":"rude"}, ana`} {
			task := &action.Task{Account: "acme", Run: "run_1", Step: "write", Attempt: 1, EffectKey: string(decision)}
			job, err := w.Submit(t.Context(), task, &Request{
				Kind: "review", Title: "Is it rude?", Value: json.RawMessage(`"held"`), Held: true, Decisions: []Decision{Approved, Edited, Rejected},
				Approvers: []string{"ana"}, Options: json.RawMessage(`{"flag":"rude"}`),
			})
			if err != nil || strings.Contains(string(job.Handle), "held") || strings.Contains(string(job.Handle), "rude") {
				t.Fatalf("%+v, %v", job, err)
			}
			w.submitted(task, job)
			if i, err := w.Get(t.Context(), &Person{Account: "acme", Name: "ben", Role: "owner"}, job.ID); err != nil || i.Value != nil {
				t.Errorf("others see %s, %v", i.Value, err)
			}
			if i, err := w.Get(t.Context(), ana, job.ID); err != nil || string(i.Value) != `"held"` {
				t.Errorf("reviewers see %s, %v", i.Value, err)
			}
			a := &Answer{Decision: decision}
			if decision == Edited {
				a.Value = json.RawMessage(`"better"`)
			}
			if _, err := w.Answer(t.Context(), ana, job.ID, a); err != nil {
				t.Fatal(err)
			}
			results, _ := w.taken()
			if got := one(t, results); got != want {
				t.Errorf("%s: %s, want %s", decision, got, want)
			}
			synctest.Wait()
			if w.records("acme", recordContent) != 0 {
				t.Error("the value stays")
			}
		}
		w.end()
	})
}

// Lists go by time and by pages, and leave out what no step waits for.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var want []string
		for i := range 25 {
			id := w.ask("acme", fmt.Sprint(i), `{"title": "A"}`)
			if i%3 == 1 { // no process marks it as ended
				w.cancel(id)
			} else {
				want = append(want, id)
			}
			time.Sleep(time.Second)
		}
		var got []string
		for place := ""; ; {
			page, next, err := w.List(t.Context(), ana, place, 4)
			if err != nil || len(page) > 4 || next != "" && len(page) < 4 {
				t.Fatalf("%d, %q, %v", len(page), next, err)
			}
			for _, i := range page {
				got = append(got, i.ID)
			}
			if place = next; next == "" {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

// I15: what is in memory of a waiting request is bounded, whatever it shows, and is given back.
func TestI15_BytesOfAWaitingRequest(t *testing.T) {
	w := newWorld(t)
	const n, most = 5_000, 400
	heap := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	job := func(i int) *jobs.Job {
		handle, err := json.Marshal(journal.Asked{Kind: KindApproval, Due: time.Now().Add(time.Hour).UnixMicro(), Remind: 60_000_000})
		if err != nil {
			t.Fatal(err)
		}
		return &jobs.Job{Provider: jobs.People, ID: requestID("acme", fmt.Sprint(i), KindApproval), Account: "acme", Handle: handle, Submitted: time.Now().UnixMicro(), Attempt: 1}
	}
	before := heap()
	w.Manager.mu.Lock()
	for i := range n {
		w.expect(job(i), 0)
	}
	w.Manager.mu.Unlock()
	if each := (heap() - before) / n; each > most {
		t.Errorf("%d bytes each, want at most %d", each, most)
	}
	for range 10 { // answers long before the time-out leave nothing behind
		w.Manager.mu.Lock()
		for i := range n {
			delete(w.Manager.waiting, job(i).ID)
			w.expect(job(i), 0)
		}
		w.Manager.mu.Unlock()
	}
	if len(w.due) > 3*n+2048 {
		t.Errorf("%d times for %d requests", len(w.due), n)
	}
	runtime.KeepAlive(w)
}
