// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/signature"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

const (
	acme = "acme"
	// canary is the value of the secret that senders sign with.
	canary = "canary-5d1f0b"
	// nextCanary is that of the secret that takes its place.
	nextCanary = "canary-77e2a9"
)

// A world is an engine with triggers that can be killed and started again, in virtual time.
type world struct {
	t       *testing.T
	st      *memory.Store
	e       *engine.Engine
	tr      *Triggers
	recipes *registry.Recipes
	ids     int
	epoch   uint64                      // of the engine: each start has the next one
	reads   atomic.Int64                // of records and secrets
	refusal atomic.Pointer[fault.Error] // of the account
	lavish  atomic.Bool                 // every account has every secret
	full    atomic.Bool                 // no entry of a history can be stored
	around  func(start func() (starts.Run, error)) (starts.Run, error)
}

// records are those of the store, changed by its owner.
type records struct {
	*memory.Store
	w *world
}

func (r records) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	r.w.reads.Add(1)
	return r.Store.Record(ctx, key)
}

func (r records) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	if r.w.full.Load() && changes[0].Kind == kindEntry {
		return nil, fault.New(fault.StoreFull, "no space on the disk of acme")
	}
	return r.w.e.PutRecords(ctx, changes...)
}

// starter is that of the world, with what a test puts around its starts.
type starter struct {
	*starts.Starter
	w *world
}

func (s starter) Start(ctx context.Context, account string, r *starts.Request, key string, labels map[string]string) (starts.Run, error) {
	start := func() (starts.Run, error) { return s.Starter.Start(ctx, account, r, key, labels) }
	if s.w.around != nil {
		return s.w.around(start)
	}
	return start()
}

// secrets are those of acme.
type secrets struct{ w *world }

func (s secrets) Secret(_ context.Context, account, name string) (string, error) {
	s.w.reads.Add(1)
	switch {
	case account == acme && name == "next":
		return nextCanary, nil
	case account == acme && name == "hook" || s.w.lavish.Load():
		return canary, nil
	}
	return "", fault.New(fault.SecretNotFound, "no such secret")
}

// noFiles is the file service of an account without files.
type noFiles struct{}

func (noFiles) Find(context.Context, string, string) (blob.Entry, error) {
	return blob.Entry{}, fault.New(fault.FileNotFound, "no such file")
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, st: memory.New(memory.Options{})}
	w.boot()
	t.Cleanup(w.kill)
	w.register("any", "1.0.0", "steps:\n  - {id: one, transform: {expression: '1'}}\n")
	w.register("strict", "1.0.0", "inputSchema: {type: object, additionalProperties: false, required: [n], properties: {n: {type: integer}}}\nsteps:\n  - {id: one, transform: {expression: '1'}}\n")
	w.register("asks", "1.0.0", "steps:\n  - {id: ask, wait: {signal: go}}\n")
	return w
}

func (w *world) register(name, version, steps string) {
	w.t.Helper()
	if _, _, diags, err := w.recipes.Register(w.t.Context(), acme, registry.Draft{Text: []byte("name: " + name + "\nversion: \"" + version + "\"\n" + steps)}); err != nil {
		w.t.Fatal(diags, err)
	}
}

// boot starts the process.
func (w *world) boot() {
	w.t.Helper()
	rules := func(string) engine.AccountRules { return engine.AccountRules{Unmetered: true} }
	actions := catalogue.New([]*action.Action{}...)
	w.epoch++
	var err error
	if w.e, err = engine.Open(w.t.Context(), engine.Config{Store: w.st, Actions: actions, Accounts: rules}); err != nil {
		w.t.Fatal(err)
	}
	id := func(prefix string) func() (string, error) {
		return func() (string, error) {
			w.ids++
			return fmt.Sprintf("%s%03d", prefix, w.ids), nil
		}
	}
	w.recipes = registry.NewRecipes(registry.RecipesConfig{
		Records: records{w.st, w}, Now: time.Now, NewID: id("recipe_"), Actions: func(string) catalogue.Actions { return actions }, MaxSource: 1 << 20,
	})
	s := starter{starts.New(starts.Config{
		Recipes: w.recipes, Files: noFiles{}, Actions: func(string) catalogue.Actions { return actions }, Rules: rules, Admit: func(string) error {
			if e := w.refusal.Load(); e != nil {
				return e
			}
			return nil
		},
	}, w.e), w}
	keyed, err := scheduler.New(scheduler.Config{Records: records{w.st, w}, Starter: s, Runs: w.e, NewID: id(scheduler.IDPrefix), Now: time.Now})
	if err != nil {
		w.t.Fatal(err)
	}
	w.tr, err = New(Config{Records: records{w.st, w}, Starter: s, Keyed: keyed, Runs: w.e, Secrets: secrets{w}, NewID: id(IDPrefix), Now: time.Now})
	if err != nil {
		w.t.Fatal(err)
	}
}

// kill ends the process without warning: what it had not made durable is lost.
func (w *world) kill() {
	next := w.st.Crash(0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = w.e.Stop(ctx)
	w.st = next
}

// create makes a trigger that GitHub could send to, with what set changes.
func (w *world) create(set func(s *Spec)) *Trigger {
	w.t.Helper()
	s := &Spec{Name: fmt.Sprintf("t%d", w.ids), Recipe: "any", Secret: "hook", Signature: signature.Scheme{Name: signature.HMAC}}
	if set != nil {
		set(s)
	}
	t, err := w.tr.Create(w.t.Context(), acme, s)
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// message is one with headers, signed as GitHub does.
func message(body string, header ...string) *Message { return signed(canary, body, header...) }

func signed(secret, body string, header ...string) *Message {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(body))
	m := &Message{Header: http.Header{}, Body: []byte(body)}
	m.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	return m
}

func (w *world) receive(t *Trigger, m *Message) *Outcome {
	w.t.Helper()
	o, err := w.tr.Receive(w.t.Context(), t.ID, m)
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// input is what a run was started with.
func (w *world) input(run string) string {
	w.t.Helper()
	state, err := w.e.State(w.t.Context(), acme, run, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := json.Marshal(state.Start().Parameters)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// runs is how many runs a trigger has started.
func (w *world) runs(t *Trigger) int {
	w.t.Helper()
	heads, err := w.st.List(w.t.Context(), store.Query{Account: acme, Labels: map[string]string{LabelTrigger: t.Name}, Limit: 500})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(heads)
}

// history is what became of the deliveries of a trigger, the newest first.
func (w *world) history(t *Trigger) string {
	w.t.Helper()
	list, _, err := w.tr.History(w.t.Context(), acme, t.Name, 0, 500)
	if err != nil {
		w.t.Fatal(err)
	}
	var words []string
	for _, e := range list {
		word := string(e.Result)
		if e.Repeated {
			word += " again"
		}
		if e.Code != "" {
			word += " " + string(e.Code)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}
