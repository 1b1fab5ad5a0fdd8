// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

func texts(list []*Delivery) string {
	var lines []string
	for _, d := range list {
		lines = append(lines, text(d))
	}
	return strings.Join(lines, "\n")
}

// 410 disables a hook at once. What waits ends without a request, what happens meanwhile is
// not told, and a hook that is enabled again is told of what happens from then on.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hook := w.hook("run.completed")
		w.receiver.answers(status(http.StatusInternalServerError))
		w.run(acme)
		w.settle()
		w.receiver.answers(status(http.StatusGone))
		w.run(acme)
		w.settle()
		got, err := w.h.Get(t.Context(), acme, hook.ID)
		if err != nil || got.Enabled || got.Reason != "the receiver answered 410 Gone" || got.Disabled == 0 {
			t.Fatalf("the hook: %+v, %v", got, err)
		}
		w.run(acme)
		time.Sleep(time.Minute)
		w.restart()
		w.settle()
		if n := len(w.receiver.messages()); n != 2 {
			t.Errorf("%d messages", n)
		}
		const want = "run.completed failed 1:500:PROVIDER_ERROR 2:0:TOO_LATE\nrun.completed failed 1:410:NOT_FOUND"
		list := w.deliveries(hook.ID)
		if texts(list) != want {
			t.Errorf("deliveries:\n%s\nwant\n%s", texts(list), want)
		}
		if _, err := w.h.Resend(t.Context(), acme, hook.ID, list[0].ID); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("a message to a disabled hook is sent again: %v", err)
		}
		// A test tells whether it is worth enabling.
		w.receiver.answers(nil)
		ping, err := w.h.Test(t.Context(), acme, hook.ID)
		if err != nil {
			t.Fatal(err)
		}
		w.settle()
		if d, err := w.h.Delivery(t.Context(), acme, hook.ID, ping.ID); err != nil || text(d) != "webhook.ping delivered 1:200:" || !d.Test {
			t.Errorf("a test: %+v, %v", d, err)
		}
		yes := true
		if _, err := w.h.Update(t.Context(), acme, hook.ID, got.Revision, &Spec{Enabled: &yes}); err != nil {
			t.Fatal(err)
		}
		w.restart() // what no hook was told of is read again
		run := w.run(acme)
		w.settle()
		all := w.receiver.messages()
		if len(all) != 4 || all[3].data.Data.ExecutionID != run {
			t.Errorf("%d messages after it was enabled", len(all))
		}
		if _, err := w.h.Resend(t.Context(), acme, hook.ID, list[1].ID); err != nil {
			t.Fatal(err)
		}
		w.settle()
		all = w.receiver.messages()
		again := w.deliveries(hook.ID)
		last := again[len(again)-1]
		if len(all) != 5 || all[4].headers.Get(HeaderID) != list[1].Message || string(all[4].body) != string(list[1].Payload) || last.Resent != list[1].ID {
			t.Errorf("sent again: %+v", last)
		}
	})
}

// A delivery is given up after about three days; when nothing else was delivered in that
// time, the hook is disabled. One success meanwhile keeps it.
func TestGivenUp(t *testing.T) {
	for _, broken := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			hook := w.hook("run.completed")
			w.run(acme)
			w.settle()
			var failing string
			w.receiver.answers(func(m *message1, rw http.ResponseWriter) {
				if failing == "" {
					failing = m.data.Data.ExecutionID
				}
				if broken || m.data.Data.ExecutionID == failing {
					rw.WriteHeader(http.StatusBadGateway)
				}
			})
			w.run(acme)
			w.settle()
			begin := time.Now()
			for range 5 {
				time.Sleep(24 * time.Hour)
				if !broken && time.Since(begin) < 72*time.Hour {
					w.run(acme)
				}
			}
			w.settle()
			got, err := w.h.Get(t.Context(), acme, hook.ID)
			if err != nil || got.Enabled == broken || broken && !strings.HasPrefix(got.Reason, "no delivery has succeeded since 2000-01-01T") {
				t.Errorf("broken: %v: %+v, %v", broken, got, err)
			}
			d := w.deliveries(hook.ID)[1]
			if days := time.Duration(d.Ended-d.Created) * time.Microsecond; d.State != Failed || len(d.Attempts) != attempts || days < 64*time.Hour || days > 80*time.Hour {
				t.Errorf("after %s: %s", days, text(d))
			}
		})
	}
}

// A hook whose receiver does not exist any more, a message that is sent again, and a page of
// deliveries of another account.
func TestForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hook := w.hook("*")
		w.run(acme)
		w.settle()
		d := w.deliveries(hook.ID)[0]
		ctx := t.Context()
		for name, err := range map[string]error{
			"get":        second(w.h.Get(ctx, "other", hook.ID)),
			"update":     second(w.h.Update(ctx, "other", hook.ID, store.AnyRevision, &Spec{})),
			"delete":     w.h.Delete(ctx, "other", hook.ID, store.AnyRevision),
			"rotate":     second(w.h.Rotate(ctx, "other", hook.ID, 0)),
			"resend":     second(w.h.Resend(ctx, "other", hook.ID, d.ID)),
			"test":       second(w.h.Test(ctx, "other", hook.ID)),
			"delivery":   second(w.h.Delivery(ctx, "other", hook.ID, d.ID)),
			"deliveries": third(w.h.Deliveries(ctx, "other", hook.ID, "", 10)),
			"prefix":     second(w.h.Get(ctx, acme, hook.ID[:10])),
		} {
			if fault.CodeOf(err) != fault.RecordNotFound {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := w.h.Delivery(ctx, acme, hook.ID, "run_1"); fault.CodeOf(err) != fault.RunNotFound {
			t.Errorf("no delivery: %v", err)
		}
		// Two hooks of an account do not see each other's deliveries.
		two := w.hook("run.failed")
		if _, err := w.h.Delivery(ctx, acme, two.ID, d.ID); fault.CodeOf(err) != fault.RunNotFound {
			t.Errorf("the delivery of another hook: %v", err)
		}
		stale := hook.Revision
		if _, err := w.h.Update(ctx, acme, hook.ID, stale, &Spec{Events: []string{"run.*"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.h.Update(ctx, acme, hook.ID, stale, &Spec{Events: []string{"*"}}); fault.CodeOf(err) != fault.PreconditionFailed {
			t.Errorf("a stale update: %v", err)
		}
		if err := w.h.Delete(ctx, acme, hook.ID, stale); fault.CodeOf(err) != fault.PreconditionFailed {
			t.Errorf("a stale deletion: %v", err)
		}
		for range MaxHooks - 2 {
			w.hook("run.failed")
		}
		url := "http://receiver.example/"
		_, err := w.h.Create(ctx, acme, "", &Spec{URL: &url, Events: []string{"*"}})
		if e := (*fault.Error)(nil); !errors.As(err, &e) || e.Code != fault.QuotaExceeded || e.Quota == nil || e.Quota.Name != "webhooks" {
			t.Errorf("hook %d: %v", MaxHooks+1, err)
		}
	})
}

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }

// A message that waits through a rotation is signed with the keys of the time when it is
// sent. While both are valid both sign; afterwards the new one alone.
func TestRotationOfMessagesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hook := w.hook("run.completed")
		w.receiver.answers(status(http.StatusInternalServerError))
		w.run(acme)
		w.settle()
		fresh, err := w.h.Rotate(t.Context(), acme, hook.ID, DefaultKeep)
		if err != nil || fresh.Secret == hook.Secret || len(fresh.PublicKeys) != 2 || fresh.PublicKeys[1].Key != hook.PublicKeys[0].Key {
			t.Fatalf("%+v, %v", fresh, err)
		}
		time.Sleep(time.Minute)
		w.restart()
		w.settle()
		got := w.receiver.messages()
		m := got[len(got)-1]
		if len(got) < 3 || len(strings.Split(m.headers.Get(HeaderSignature), " ")) != 4 {
			t.Fatalf("%d messages, the last with %s", len(got), m.headers.Get(HeaderSignature))
		}
		// The receiver's library reads the real clock, which is far ahead in the bubble's past.
		for _, public := range []string{hook.PublicKeys[0].Key, fresh.PublicKeys[0].Key} {
			if !verifyPublic(public, m.headers, m.body) {
				t.Errorf("%s does not verify", public)
			}
		}
		w.verified(hook.Secret, m)
		w.verified(fresh.Secret, m)
		time.Sleep(DefaultKeep)
		w.receiver.answers(nil)
		time.Sleep(8 * time.Hour)
		got = w.receiver.messages()
		m = got[len(got)-1]
		if verifyPublic(hook.PublicKeys[0].Key, m.headers, m.body) || !verifyPublic(fresh.PublicKeys[0].Key, m.headers, m.body) {
			t.Error("the old key signs for too long, or the new one does not")
		}
	})
}

// A20, I18: neither secret nor private key is in anything that is stored but sealed, in any
// form, nor in the log.
func TestI18_KeysAreNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		w := newWorld(t)
		w.logs = &logs
		w.restart()
		hook := w.hook("*")
		w.receiver.answers(status(http.StatusInternalServerError))
		w.run(acme)
		if _, err := w.h.Test(t.Context(), acme, hook.ID); err != nil {
			t.Fatal(err)
		}
		w.settle()
		all, err := w.h.keysOf(t.Context(), acme, hook.ID)
		if err != nil {
			t.Fatal(err)
		}
		var stored bytes.Buffer
		for _, kind := range []string{kindHook, kindKeys, kindHealth} {
			r, err := w.st.Record(t.Context(), store.RecordKey{Account: acme, Kind: kind, ID: hook.ID})
			if err != nil {
				t.Fatal(kind, err)
			}
			stored.Write(r.Data)
		}
		list := w.deliveries(hook.ID)
		for _, d := range list {
			page, err := w.st.Events(t.Context(), store.Key{Account: Account(acme, hook.ID), Run: d.ID}, 0, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			stored.Write(page.Frames)
		}
		if len(list) < 2 || stored.Len() < 1000 {
			t.Fatalf("%d deliveries, %d bytes", len(list), stored.Len())
		}
		for _, key := range [][]byte{all.Pairs[0].Shared, all.Pairs[0].Seed} {
			for _, form := range []string{string(key), base64.StdEncoding.EncodeToString(key), base64.RawURLEncoding.EncodeToString(key), hex.EncodeToString(key)} {
				if bytes.Contains(stored.Bytes(), []byte(form)) || strings.Contains(logs.String(), form) {
					t.Error("a key is stored or logged as it is")
				}
			}
		}
		// A sealed key belongs to its hook.
		two := w.hook("run.failed")
		r, err := w.st.Record(t.Context(), store.RecordKey{Account: acme, Kind: kindKeys, ID: hook.ID})
		if err != nil {
			t.Fatal(err)
		}
		r.ID, r.Revision = two.ID, store.AnyRevision
		if _, err := w.records.PutRecords(t.Context(), store.RecordChange{Record: r}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.h.keysOf(t.Context(), acme, two.ID); fault.CodeOf(err) != fault.SecretInvalid {
			t.Errorf("the keys of one hook serve another: %v", err)
		}
		// Without its keys a hook sends nothing; a rotation heals it.
		w.receiver.answers(nil)
		told := func() (n int) {
			for _, m := range w.receiver.messages() {
				if m.data.Data.WebhookID == two.ID {
					n++
				}
			}
			return n
		}
		if _, err := w.h.Test(t.Context(), acme, two.ID); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if _, err := w.h.Rotate(t.Context(), acme, two.ID, DefaultKeep); err != nil {
			t.Fatal(err)
		}
		if told() != 0 {
			t.Error("a message is sent without its key")
		}
		if _, err := w.h.Test(t.Context(), acme, two.ID); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if n := told(); n != 1 {
			t.Errorf("%d messages after a rotation", n)
		}
	})
}

// X157: a hook is told that few credits are left, and that a budget in audit mode is
// exceeded. Deliveries themselves cost nothing, whatever their number.
func TestX157_Alerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.rules = func(account string) engine.AccountRules {
			if Internal(account) {
				return engine.AccountRules{Unmetered: true}
			}
			return engine.AccountRules{LowBalance: []int64{8}, Budgets: ledger.Budgets{Day: ledger.Budget{Limit: 3, Audit: true}}}
		}
		w.restart()
		ctx := t.Context()
		if _, err := w.e.Grant(ctx, engine.GrantRequest{Account: acme, Key: "welcome", Amount: 10, Terms: ledger.Terms{Source: ledger.Paid}}); err != nil {
			t.Fatal(err)
		}
		w.hook("credits.low", "credits.over_budget")
		for range 5 {
			w.run(acme)
		}
		w.settle()
		got := map[string]int{}
		for _, m := range w.receiver.messages() {
			got[m.data.Type]++
		}
		if got[CreditsLow] == 0 || got[CreditsBudget] == 0 || len(got) != 2 {
			t.Errorf("alerts: %v", got)
		}
		a, err := w.e.Account(ctx, acme, time.Now().UnixMicro())
		if err != nil || a.Available(time.Now().UnixMicro()) != 5 {
			t.Errorf("5 runs have left %d of 10 credits, %v", a.Available(time.Now().UnixMicro()), err)
		}
	})
}

// A full message has the run as it is shown; filters by recipe and label hold.
func TestFullAndFiltered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		url, full := "http://receiver.example/full", Full
		spec := Spec{URL: &url, Events: []string{"run.completed", "run.failed"}, Payload: &full, Recipes: []string{"work"}, Labels: map[string]string{"team": "red"}}
		if _, err := w.h.Create(t.Context(), acme, "", &spec); err != nil {
			t.Fatal(err)
		}
		start := func(recipe string, labels map[string]string) string {
			s, err := w.e.Start(t.Context(), engine.StartRequest{Account: acme, Plan: w.work, Recipe: recipe, Labels: labels})
			if err != nil {
				t.Fatal(err)
			}
			return s.Run
		}
		start("work", nil)
		start("other", spec.Labels)
		run := start("work", spec.Labels)
		w.settle()
		got := w.receiver.messages()
		if len(got) != 1 || got[0].path != "/full" {
			t.Fatalf("%d messages", len(got))
		}
		if d := got[0].data.Data; d.ExecutionID != run || d.RecipeName != "work" || d.Status != "completed" || string(d.Execution) != `{"id":"`+run+`","state":"completed"}` {
			t.Errorf("%s", got[0].body)
		}
	})
}

// Changes that were removed before they were read are passed over, and so is a place that
// the feed of a restored store does not have yet.
func TestCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hook := w.hook("run.completed")
		w.run(acme)
		w.settle()
		set := func(after uint64) {
			w.kill()
			epoch, err := w.st.Own(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c, err := recordOf("", kindAccount, acme, store.AnyRevision, cursor{after})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.st.PutRecords(t.Context(), epoch, time.Now().UnixMicro(), []store.RecordChange{c}); err != nil {
				t.Fatal(err)
			}
			w.boot()
			w.settle()
		}
		set(1 << 40)
		w.run(acme)
		w.settle()
		if n := len(w.receiver.messages()); n != 2 {
			t.Errorf("%d messages after a place that is not there yet", n)
		}
		// The same changes again find the deliveries that there are.
		set(0)
		w.settle()
		if n := len(w.deliveries(hook.ID)); n != 2 || len(w.receiver.messages()) != 2 {
			t.Errorf("%d deliveries, %d messages after changes are read again", n, len(w.receiver.messages()))
		}
	})
}

// An account's own actions cannot send messages in the name of a hook.
func TestActionIsNotForUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hook := w.hook("run.failed")
		single, err := w.h.single()
		if err != nil {
			t.Fatal(err)
		}
		s, err := w.e.Start(t.Context(), engine.StartRequest{Account: acme, Plan: single, Recipe: Recipe, Parameters: map[string]any{"message": "m", "event": "e", "payload": "{}"}})
		if err != nil {
			t.Fatal(err)
		}
		head, err := w.e.Wait(t.Context(), acme, s.Run)
		if err != nil || head.Status != journal.RunFailed.String() || head.Code != fault.ActionNotFound {
			t.Errorf("%+v, %v", head, err)
		}
		w.settle()
		if got := w.receiver.messages(); len(got) != 1 || got[0].data.Type != RunFailed || got[0].data.Data.WebhookID != hook.ID {
			t.Errorf("%d messages", len(got))
		}
	})
}
