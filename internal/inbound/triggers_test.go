// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/signature"
	"github.com/roux-engine/roux/internal/store"
)

// No other account sees or changes a trigger.
func TestOtherAccount(t *testing.T) {
	w := newWorld(t)
	tr := w.create(nil)
	w.receive(tr, message("{}"))
	for _, ref := range []string{tr.ID, tr.Name} {
		for name, call := range map[string]func() error{
			"get":     func() error { _, err := w.tr.Get(t.Context(), "other", ref); return err },
			"pause":   func() error { _, err := w.tr.Pause(t.Context(), "other", ref); return err },
			"resume":  func() error { _, err := w.tr.Resume(t.Context(), "other", ref); return err },
			"delete":  func() error { return w.tr.Delete(t.Context(), "other", ref) },
			"history": func() error { _, _, err := w.tr.History(t.Context(), "other", ref, 0, 10); return err },
			"rotate":  func() error { _, err := w.tr.Rotate(t.Context(), "other", ref, "next", 0); return err },
			"try":     func() error { _, err := w.tr.Try(t.Context(), "other", ref, message("{}")); return err },
		} {
			if err := call(); fault.CodeOf(err) != fault.RecordNotFound || strings.Contains(fault.RemedyOf(err), tr.Name) {
				t.Errorf("%s %s: %v %s", name, ref, err, fault.RemedyOf(err))
			}
		}
	}
	if o := w.receive(tr, message("1")); o.Result != Started {
		t.Errorf("%+v", o)
	}
}

func TestPause(t *testing.T) {
	w := newWorld(t)
	tr := w.create(func(s *Spec) { s.Paused = true })
	if o := w.receive(tr, message("{}")); o.Result != Ignored {
		t.Errorf("paused: %+v", o)
	}
	if got, err := w.tr.Resume(t.Context(), acme, tr.Name); err != nil || got.PausedAt != 0 {
		t.Fatal(got, err)
	}
	if o := w.receive(tr, message("{}")); o.Result != Started {
		t.Errorf("resumed: %+v", o)
	}
	for range 2 {
		if got, err := w.tr.Pause(t.Context(), acme, tr.ID); err != nil || got.PausedAt == 0 {
			t.Fatal(got, err)
		}
	}
	if o := w.receive(tr, message("1")); o.Result != Ignored {
		t.Errorf("paused again: %+v", o)
	}
}

// The history has the last deliveries, in pages, also after a restart. Nothing is left of a
// trigger that is deleted.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		tr := w.create(func(s *Spec) { s.When = "false" })
		for i := range KeptDeliveries + 20 {
			time.Sleep(time.Second)
			if w.receive(tr, message("{}")); i == 50 {
				w.kill()
				w.boot()
			}
		}
		page, next, err := w.tr.History(t.Context(), acme, tr.Name, 0, 30)
		if err != nil || len(page) != 30 || page[0].Number != KeptDeliveries+20 || next != page[29].Number {
			t.Fatalf("%d entries, next %d, %v", len(page), next, err)
		}
		rest, next, err := w.tr.History(t.Context(), acme, tr.Name, next, 500)
		if err != nil || len(rest) != KeptDeliveries-30 || next != 0 {
			t.Errorf("%d entries behind them, next %d, %v", len(rest), next, err)
		}
		if err := w.tr.Delete(t.Context(), acme, tr.Name); err != nil {
			t.Fatal(err)
		}
		for _, q := range []store.RecordQuery{{Account: acme, Kind: kindTrigger}, {Account: acme, Kind: kindEntry}, {Kind: kindAccount}} {
			if left, _, err := w.st.Records(t.Context(), q); err != nil || len(left) != 0 {
				t.Errorf("%d records of %s are left, %v", len(left), q.Kind, err)
			}
		}
		if err := w.tr.Delete(t.Context(), acme, tr.Name); fault.CodeOf(err) != fault.RecordNotFound {
			t.Error(err)
		}
	})
}

func TestCreateRefuses(t *testing.T) {
	w := newWorld(t)
	w.create(func(s *Spec) { s.Name = "taken" })
	for want, set := range map[string]func(s *Spec){
		"already":                       func(s *Spec) { s.Name = "taken" },
		"name: want":                    func(s *Spec) { s.Name = "trig_x" },
		"no recipe of that name":        func(s *Spec) { s.Recipe = "nothing" },
		"scheme \"rsa\"":                func(s *Spec) { s.Signature.Name = "rsa" },
		"the name of a secret":          func(s *Spec) { s.Secret = "a value, not a name" },
		"when: column 1":                func(s *Spec) { s.When = "boddy.x" },
		"when: column 6":                func(s *Spec) { s.When = "body." },
		"when":                          func(s *Spec) { s.When = "'text'" },
		"key: column":                   func(s *Spec) { s.Key = "secret('hook')" },
		"set key":                       func(s *Spec) { s.Debounce = time.Second },
		"ifActive: want":                func(s *Spec) { s.Key, s.IfActive = "'k'", schedule.OverlapAllow },
		"debounce: want":                func(s *Spec) { s.Key, s.Debounce = "'k'", 48*time.Hour },
		"deliveryId: column":            func(s *Spec) { s.DeliveryID = "bdy.id" },
		"deliveryId: column 1":          func(s *Spec) { s.DeliveryID = strings.Repeat("x", 101) }, // of no header
		"parameters: want a text":       func(s *Spec) { s.Parameters = json.RawMessage(`[1]`) },
		"parameters: the expression is": func(s *Spec) { s.Parameters = json.RawMessage(`""`) },
		"parameters/a/0: column":        func(s *Spec) { s.Parameters = json.RawMessage(`{"a":["{{ x }}"]}`) },
		"parameters/s: column":          func(s *Spec) { s.Parameters = json.RawMessage(`{"s":"{{ secret('hook') }}"}`) },
		"parameters: want at most":      func(s *Spec) { s.Parameters = json.RawMessage(`{"a":"` + strings.Repeat("x", MaxMapping) + `"}`) },
		"labels: want": func(s *Spec) {
			s.Labels = map[string]string{}
			for c := 'a'; c < 'a'+19; c++ {
				s.Labels[string(c)] = ""
			}
		},
	} {
		s := &Spec{Name: "new", Recipe: "any", Secret: "hook", Signature: signature.Scheme{Name: signature.HMAC}}
		set(s)
		_, err := w.tr.Create(t.Context(), acme, s)
		if got := fault.Message(err); err == nil || !strings.Contains(got, want) || strings.Contains(got, "a value, not") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for n := 1; n < MaxTriggers; n++ {
		w.create(nil)
	}
	if _, err := w.tr.Create(t.Context(), acme, &Spec{Name: "more", Recipe: "any", Secret: "hook", Signature: signature.Scheme{Name: signature.HMAC}}); fault.CodeOf(err) != fault.QuotaExceeded {
		t.Error(err)
	}
	if _, err := w.tr.Get(t.Context(), acme, "takn"); fault.CodeOf(err) != fault.RecordNotFound || !strings.Contains(fault.RemedyOf(err), "Did you mean taken?") {
		t.Error(err, fault.RemedyOf(err))
	}
	list, next, err := w.tr.List(t.Context(), acme, "", 10)
	if err != nil || len(list) != 10 || next == "" {
		t.Error(len(list), next, err)
	}
}

// A trial says what a delivery would do, and does nothing.
func TestTry(t *testing.T) {
	w := newWorld(t)
	tr := w.create(func(s *Spec) {
		s.Recipe, s.When, s.Key, s.Parameters = "strict", "body.n != 0", "body.k", json.RawMessage(`{"n":"{{ body.n }}"}`)
	})
	unset := w.create(func(s *Spec) { s.Secret = "another" })
	standard := w.create(func(s *Spec) { s.Signature = signature.Scheme{Name: signature.Standard} })
	try := func(tr *Trigger, body string) *Trial {
		t.Helper()
		trial, err := w.tr.Try(t.Context(), acme, tr.Name, &Message{Header: http.Header{"Webhook-Id": {"d"}}, Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		return trial
	}
	if got := try(tr, `{"n":1,"k":"x"}`); got.Result != Started || string(got.Parameters) != `{"n":1}` || got.Key != "x" || got.Delivery != "d" || got.SecretErr != nil {
		t.Errorf("%+v", got)
	}
	if got := try(tr, `{"n":0}`); got.Result != Ignored || got.Parameters != nil {
		t.Errorf("when: %+v", got)
	}
	if got := try(tr, `{"n":"x","k":""}`); got.Result != Refused || got.Code != fault.InputInvalid || string(got.Parameters) != `{"n":"x"}` {
		t.Errorf("input: %+v", got)
	}
	if got := try(tr, `{}`); got.Result != Refused || got.Code != fault.TemplateError || !strings.Contains(got.Reason, "when") {
		t.Errorf("mapping: %+v", got)
	}
	if got := try(unset, `{}`); got.Result != Started || fault.CodeOf(got.SecretErr) != fault.SecretNotFound {
		t.Errorf("no secret: %+v", got)
	}
	if got := try(standard, `{}`); fault.CodeOf(got.SecretErr) != fault.SecretInvalid {
		t.Errorf("a secret of another scheme: %+v", got)
	}
	if w.runs(tr) != 0 || w.history(tr) != "" {
		t.Error("a trial has done something")
	}
}

// A trigger gets another secret at the same address. For a while what is signed with the one before is
// taken as well, also after a restart; then, or at once, it is not.
func TestRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		tr := w.create(nil)
		takes := func(secret string) bool {
			t.Helper()
			w.ids++
			o, err := w.tr.Receive(t.Context(), tr.ID, signed(secret, fmt.Sprintf(`{"n":%d,"text":%q}`, w.ids, secret)))
			if err != nil && fault.CodeOf(err) != fault.Unauthorized {
				t.Fatal(err)
			}
			if err == nil && (o.Result != Started || strings.Contains(w.input(o.Run), secret)) {
				t.Errorf("%+v has the secret in its input, or no run", o)
			}
			return err == nil
		}
		want := func(when string, before, after bool) {
			t.Helper()
			if b, a := takes(canary), takes(nextCanary); b != before || a != after {
				t.Errorf("%s: the secret before is taken: %v, the one after: %v", when, b, a)
			}
		}
		want("before", true, false)
		got, err := w.tr.Rotate(t.Context(), acme, tr.Name, "next", time.Hour)
		if err != nil || got.Secret != "next" || got.Previous == nil || got.Previous.Secret != "hook" || got.Previous.Until != time.Now().Add(time.Hour).UnixMicro() || got.ID != tr.ID {
			t.Fatalf("%+v, %v", got, err)
		}
		want("at once", true, true)
		w.kill()
		w.boot()
		time.Sleep(time.Hour - time.Microsecond)
		want("until then", true, true)
		time.Sleep(time.Microsecond)
		want("then", false, true)
		if _, err := w.tr.Rotate(t.Context(), acme, tr.ID, "hook", 0); err != nil {
			t.Fatal(err)
		}
		want("without a time", true, false)

		standard := w.create(func(s *Spec) { s.Signature = signature.Scheme{Name: signature.Standard} })
		for _, bad := range []struct {
			account, ref, secret string
			keep                 time.Duration
			code                 fault.Code
		}{
			{acme, tr.ID, "hook", 0, fault.RequestInvalid}, {acme, tr.ID, "no name", 0, fault.RequestInvalid}, {acme, tr.ID, "next", MaxKeep + 1, fault.RequestInvalid},
			{acme, tr.ID, "next", -1, fault.RequestInvalid}, {acme, tr.ID, "unset", 0, fault.SecretNotFound}, {acme, standard.ID, "next", 0, fault.SecretInvalid},
			{"other", tr.ID, "next", 0, fault.RecordNotFound}, {acme, "none", "next", 0, fault.RecordNotFound},
		} {
			if _, err := w.tr.Rotate(t.Context(), bad.account, bad.ref, bad.secret, bad.keep); fault.CodeOf(err) != bad.code {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		want("after what was refused", true, false)
	})
}
