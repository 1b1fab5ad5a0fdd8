// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// A link answers once, in the name that it is for; looking at it decides nothing.
func TestLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.work()
		id := w.ask("acme", "a", `{"title": "A", "text": "three pages", "approvers": ["ana", "zoe"]}`)
		l, err := w.Link(t.Context(), ana, id, "zoe", 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // as a mail program does that fetches links
			if i, err := w.Open(t.Context(), l.Token); err != nil || i.For != "zoe" || i.Text != "three pages" || i.State != "open" {
				t.Fatalf("%+v, %v", i, err)
			}
		}
		if results, _ := w.taken(); len(results) != 0 {
			t.Fatal(results)
		}
		out, err := w.AnswerByLink(t.Context(), l.Token, yes(""))
		if err != nil || out.Answer.By != "zoe" || out.Answer.Key != "key_1" || !out.Answer.Link {
			t.Fatalf("%+v, %v", out, err)
		}
		results, _ := w.taken()
		if got := one(t, results); !strings.Contains(got, `"by":"zoe"`) {
			t.Error(got)
		}
		if _, err := w.AnswerByLink(t.Context(), l.Token, &Answer{Decision: Rejected}); !errors.Is(err, fault.Conflict) || !strings.Contains(fault.Message(err), "approved by zoe") {
			t.Errorf("again: %v", err)
		}
		if _, err := w.Open(t.Context(), l.Token); !errors.Is(err, fault.Conflict) {
			t.Errorf("opened again: %v", err)
		}
		if _, err := w.Link(t.Context(), ana, id, "zoe", 0); !errors.Is(err, fault.Conflict) {
			t.Errorf("a link of what is answered: %v", err)
		}
		w.end()
	})
}

// A30 of links: a token that is altered, made up, of another request or of another key is none, and
// what is stored does not make one.
func TestForgedLinks(t *testing.T) {
	w := newWorld(t)
	a, b := w.ask("acme", "a", `{"title": "A"}`), w.ask("acme", "b", `{"title": "B"}`)
	la, err := w.Link(t.Context(), ana, a, "zoe", 0)
	if err != nil {
		t.Fatal(err)
	}
	lb, err := w.Link(t.Context(), ana, b, "zoe", 0)
	if err != nil {
		t.Fatal(err)
	}
	raw := func(token string) []byte {
		data, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || len(data) != 32 {
			t.Fatal(len(data), err)
		}
		return data
	}
	text := base64.RawURLEncoding.EncodeToString
	tokens := map[string]string{
		"none": "", "short": la.Token[:40], "long": la.Token + "AAAA", "no base64": strings.Repeat("!", 43), "made up": text(make([]byte, 32)),
		"the MAC of another request": text(append(raw(la.Token)[:16:16], raw(lb.Token)[16:]...)),
		"two links":                  la.Token + lb.Token,
	}
	for i := range 32 {
		data := raw(la.Token)
		data[i] ^= 1
		tokens["altered at "+string(rune('a'+i))] = text(data)
	}
	for name, token := range tokens {
		if _, err := w.Open(t.Context(), token); err == nil || fault.Message(err) != fault.Message(errLink) {
			t.Errorf("%s: opens with %v", name, err)
		}
		if _, err := w.AnswerByLink(t.Context(), token, yes("")); err == nil || fault.Message(err) != fault.Message(errLink) {
			t.Errorf("%s: answers with %v", name, err)
		}
	}
	err = store.EachRecord(t.Context(), w.st, store.RecordQuery{Kind: recordLink}, func(r *store.Record) error {
		if s := string(r.Data) + r.ID; strings.Contains(s, la.Token) || strings.Contains(s, text(raw(la.Token)[:16])) {
			t.Errorf("a token is stored: %s", s)
		}
		changed := strings.Replace(string(r.Data), "zoe", "eve", 1)
		_, err := w.put(context.Background(), store.RecordChange{Record: store.Record{RecordKey: r.RecordKey, Revision: store.AnyRevision, Data: []byte(changed)}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AnswerByLink(t.Context(), la.Token, yes("")); !errors.Is(err, fault.NotFound) {
		t.Errorf("in another name: %v", err)
	}
	w.Attach(Host{Settle: w.settle, Key: func(context.Context) ([]byte, error) { return []byte("another key"), nil }})
	if _, err := w.Open(t.Context(), lb.Token); !errors.Is(err, fault.NotFound) {
		t.Errorf("with another key: %v", err)
	}
	if results, _ := w.taken(); len(results) != 0 {
		t.Error(results)
	}
}

// A link ends when it says, with its request, and when its step asks anew; it outlives a restart.
func TestEndOfLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.ask("acme", "a", `{"title": "A", "timeoutMs": 7200000}`)
		short, err := w.Link(t.Context(), ana, id, "zoe", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		long, err := w.Link(t.Context(), ana, id, "zoe", 0)
		if err != nil || long.Expires != time.Now().Add(2*time.Hour).UnixMicro() {
			t.Fatalf("%+v, %v", long, err)
		}
		time.Sleep(time.Hour)
		w.start()
		if _, err := w.AnswerByLink(t.Context(), short.Token, yes("")); !errors.Is(err, fault.TooLate) || !strings.Contains(fault.Message(err), "the link was valid until") {
			t.Errorf("after its time: %v", err)
		}
		if _, err := w.Open(t.Context(), long.Token); err != nil {
			t.Errorf("after a restart: %v", err)
		}
		time.Sleep(time.Hour)
		if _, err := w.AnswerByLink(t.Context(), long.Token, yes("")); !errors.Is(err, fault.TooLate) || !strings.Contains(fault.Message(err), "was to be answered until") {
			t.Errorf("after the time of the request: %v", err)
		}
		time.Sleep(time.Second)
		w.cancel(id)
		if _, err := w.try("acme", "a", 2, `{"title": "A"}`); err != nil {
			t.Fatal(err)
		}
		if _, err := w.AnswerByLink(t.Context(), long.Token, yes("")); !errors.Is(err, fault.TooLate) || !strings.Contains(fault.Message(err), "asked again") {
			t.Errorf("of the attempt before: %v", err)
		}
		for _, tt := range []struct {
			name string
			life time.Duration
		}{{"", 0}, {"default", 0}, {"a\nb", 0}, {strings.Repeat("x", 200), 0}, {"zoe", 1000 * time.Hour}} {
			if _, err := w.Link(t.Context(), ana, id, tt.name, tt.life); !errors.Is(err, fault.InputInvalid) {
				t.Errorf("%q for %s: %v", tt.name, tt.life, err)
			}
		}
		if results, _ := w.taken(); len(results) != 0 {
			t.Error(results)
		}
	})
}

// Two who use a link, or a link and a key, at once: one counts.
func TestLinkTwiceAtOnce(t *testing.T) {
	w := newWorld(t)
	id := w.ask("acme", "a", `{"title": "A"}`)
	l, err := w.Link(t.Context(), ana, id, "zoe", 0)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	won := 0
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			var err error
			if i%4 == 0 {
				_, err = w.Answer(t.Context(), ana, id, yes(""))
			} else {
				_, err = w.AnswerByLink(t.Context(), l.Token, yes(""))
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, fault.Conflict) {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	group.Wait()
	if results, _ := w.taken(); won != 1 || len(results) != 1 {
		t.Errorf("%d have answered: %q", won, results)
	}
}
