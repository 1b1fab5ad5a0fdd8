// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
)

// The ordinary case: a run ends, its hook is told once, with a signature that verifies; the
// deliveries are in no list and no feed of the account, and no hook is told of them.
func TestDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run(acme) // before there is a hook
		hook := w.hook("run.completed")
		run := w.run(acme)
		w.run("other")
		w.settle()
		got := w.receiver.messages()
		if len(got) != 1 {
			t.Fatalf("%d messages", len(got))
		}
		m := got[0]
		w.verified(hook.Secret, m)
		if !verifyPublic(hook.PublicKeys[0].Key, m.headers, m.body) {
			t.Error("the public key does not verify it")
		}
		if m.data.Type != RunCompleted || m.data.Data.ExecutionID != run || m.data.Data.WebhookID != hook.ID || m.headers.Get("Content-Type") != "application/json" {
			t.Errorf("%s %v", m.body, m.headers)
		}
		list := w.deliveries(hook.ID)
		if len(list) != 1 || text(list[0]) != "run.completed delivered 1:200:" || string(list[0].Payload) != string(m.body) || list[0].Message != m.headers.Get(HeaderID) {
			t.Errorf("%d deliveries: %+v", len(list), list)
		}
		changes, err := w.st.Changes(t.Context(), acme, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if c.Recipe != "work" {
				t.Errorf("the feed of the account has %+v", c)
			}
		}
		if err := w.h.Delete(t.Context(), acme, hook.ID, hook.Revision); err != nil {
			t.Fatal(err)
		}
		w.run(acme)
		w.settle()
		if n := len(w.receiver.messages()); n != 1 {
			t.Errorf("%d messages after the hook was deleted", n)
		}
		// A new hook begins anew.
		w.hook("run.completed")
		w.run(acme)
		w.settle()
		if n := len(w.receiver.messages()); n != 2 {
			t.Errorf("%d messages after another hook was made", n)
		}
	})
}

// F42 and the retries: a receiver that is down for two days gets the message when it is
// back, once, with the id of its first attempt; the server is killed meanwhile, at the most
// awkward times. Retry-After is honoured, and no attempt takes longer than 15 seconds.
func TestDaysOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hook := w.hook("run.completed")
		begin := time.Now()
		w.receiver.answers(func(m *message1, rw http.ResponseWriter) {
			switch n := len(w.receiver.messages()); {
			case time.Since(begin) > 48*time.Hour:
			case n == 1:
				rw.Header().Set("Retry-After", "1800")
				rw.WriteHeader(http.StatusServiceUnavailable)
			case n == 2:
				time.Sleep(time.Hour) // it hangs
			case n == 3:
				http.Redirect(rw, &http.Request{Method: http.MethodPost}, "https://elsewhere.example/", http.StatusTemporaryRedirect)
			case n == 4:
				_, _ = rw.Write(make([]byte, 1)) // a broken answer
				panic(http.ErrAbortHandler)
			default:
				rw.WriteHeader(http.StatusInternalServerError)
			}
		})
		run := w.run(acme)
		for range 30 {
			time.Sleep(3 * time.Hour)
			w.settle()
			w.restart()
		}
		w.settle()
		list := w.deliveries(hook.ID)
		if len(list) != 1 || list[0].State != Delivered {
			t.Fatalf("%d deliveries: %s", len(list), text(list[0]))
		}
		d := list[0]
		got := w.receiver.messages()
		if len(got) != len(d.Attempts) || len(got) < 9 || len(got) > attempts {
			t.Errorf("%d messages, %s", len(got), text(d))
		}
		for i, m := range got {
			w2 := d.Attempts[i]
			if m.headers.Get(HeaderID) != d.Message || m.data.Data.ExecutionID != run || string(m.body) != string(got[0].body) {
				t.Errorf("attempt %d sends something else: %s", i+1, m.body)
			}
			if i == 0 {
				continue
			}
			if !strings.HasPrefix(m.headers.Get(HeaderSignature), "v1,") || m.headers.Get(HeaderTimestamp) == got[i-1].headers.Get(HeaderTimestamp) {
				t.Errorf("attempt %d is not signed anew", i+1)
			}
			pause := m.at.Sub(got[i-1].at)
			if i == 1 && pause < 30*time.Minute || pause > 8*time.Hour+15*time.Second {
				t.Errorf("%s pass before attempt %d (%+v)", pause, i+1, w2)
			}
		}
		if a := d.Attempts[0]; a.Status != 503 || a.Code != fault.ServiceUnavailable {
			t.Errorf("the first attempt: %+v", a)
		}
		if a := d.Attempts[1]; a.Status != 0 || a.Code != fault.StepTimeout || a.Micros != sendTime.Microseconds() {
			t.Errorf("one that hangs: %+v", a)
		}
		if a := d.Attempts[2]; a.Status != 307 || a.Code != fault.HTTPStatus {
			t.Errorf("a redirect: %+v", a)
		}
		if since, err := w.h.FailingSince(t.Context(), acme, hook.ID); err != nil || since != 0 {
			t.Errorf("the hook is failing since %d, %v", since, err)
		}
	})
}
