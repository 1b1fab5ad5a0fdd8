// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/provider/jobapi"
)

// A SecretSource has the secrets of accounts, as worker.SecretSource.
type SecretSource interface {
	Secret(ctx context.Context, account, name string) (string, error)
}

// A Set is the services that are configured: those with models, and those that carry out jobs. It
// is safe for concurrent use; a nil one is empty.
type Set struct {
	services map[string]*service
	out      *egress.Client
	secrets  atomic.Pointer[SecretSource]
	getenv   func(string) string
	rounds   rounds // of the streams of all services
	jobs     map[string]*jobService
	address  atomic.Pointer[string] // where webhooks reach this server; nil = nowhere
}

// A service is one that is configured.
type service struct {
	name string
	Config
	stall  time.Duration
	host   string // of URL, for messages
	show   string // URL, for messages
	prices map[string]price
	api    *jobapi.Compiled // nil = it has models
	ttl    time.Duration    // of jobs
}

// New returns the services of a table, which Check has accepted. Their requests go through out.
// getenv reads the variables of keys; nil = os.Getenv.
func New(all map[string]Config, out *egress.Client, getenv func(string) string) (*Set, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	s := &Set{services: map[string]*service{}, jobs: map[string]*jobService{}, out: out, getenv: getenv}
	for name, c := range all {
		one, err := build(name, c)
		if err != nil {
			return nil, fault.New(fault.ConfigInvalid, "providers: %s: %v", name, err)
		}
		if one.api != nil {
			s.jobs[name] = &jobService{service: one, set: s}
		} else {
			s.services[name] = one
		}
	}
	return s, nil
}

// UseSecrets sets where the secrets of accounts are. Before it there are none.
func (s *Set) UseSecrets(from SecretSource) {
	if s != nil {
		s.secrets.Store(&from)
	}
}

// Names returns the names of the services with models, sorted.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.services))
}

// Slots is how many calls may be under way at once: the sum of all services. 0 = there are none.
func (s *Set) Slots() (n int) {
	for _, name := range s.Names() {
		n += s.services[name].Slots
	}
	return n
}

// Ceiling is the most that calls of the dearest model cost, where each is as large as the
// configuration allows.
func (s *Set) Ceiling(calls int64) (most ledger.Amount) {
	for _, name := range s.Names() {
		one := s.services[name]
		for _, p := range one.prices {
			p.input = max(p.input, p.cached)
			most = max(most, p.of(Usage{Input: calls * one.MaxInputTokens, Output: calls * one.MaxTokens}))
		}
	}
	return most
}

// A Model is a model of a service, as an account uses it.
type Model struct {
	Provider string // the name of the service
	Kind     string
	Name     string
	// MaxTokens is the most that an answer may have.
	MaxTokens int64

	price   price
	adapter Streamer
	key     string
}

// Find returns a model for an account. provider is the name of a service; "" is the only one, or
// that of the name that a kind prefers, or the first in the alphabet. model "" is the service's own choice. The error is
// PROVIDER_NOT_CONFIGURED or PRICE_UNKNOWN, or that of the secret with the key: nothing was sent.
func (s *Set) Find(ctx context.Context, account, provider, model, kind string) (*Model, error) {
	one, err := s.pick(provider, kind)
	if err != nil {
		return nil, err
	}
	if model == "" {
		model = one.Model
	}
	if model == "" {
		return nil, fault.New(fault.InputInvalid, "the step names no model, and providers.%s has none: set `model` in the step or in the configuration", one.name)
	}
	p, ok := one.prices[model]
	if !ok {
		return nil, fault.New(fault.PriceUnknown, "the model %.80q has no price: set providers.%s.prices.%q.input and .output, in credits for a million tokens (\"0\" for a model that is free). Nothing was sent", model, one.name, model)
	}
	key, err := s.key(ctx, one, account)
	if err != nil {
		return nil, err
	}
	c := &caller{service: one, out: s.out, key: key, rounds: &s.rounds}
	m := &Model{Provider: one.name, Kind: one.Kind, Name: model, MaxTokens: one.MaxTokens, price: p, key: key}
	if one.Kind == Anthropic {
		m.adapter, err = newAnthropic(c)
	} else {
		m.adapter = newOpenAI(c)
	}
	return m, err
}

// Called returns the names of the service and the model that a call goes to which names these; ""
// where there is none.
func (s *Set) Called(provider, model, kind string) (string, string) {
	if s == nil {
		return provider, model
	}
	if one := s.jobs[provider]; one != nil {
		return provider, or(model, one.Model)
	}
	if len(s.services) == 0 {
		return provider, model
	}
	one, err := s.pick(provider, kind)
	if err != nil {
		return provider, model
	}
	return one.name, or(model, one.Model)
}

func (s *Set) pick(provider, kind string) (*service, error) {
	names := s.Names()
	if len(names) == 0 {
		return nil, fault.New(fault.ProviderNotConfigured, "no provider of models is configured: name one under `providers` in roux.yaml, with its kind, key, model and prices (docs/models.md). Nothing was sent and nothing charged")
	}
	if provider != "" {
		one := s.services[provider]
		if one == nil {
			return nil, fault.New(fault.ProviderNotConfigured, "there is no provider %.70q: those that are configured are %s. Nothing was sent and nothing charged", provider, strings.Join(names, ", "))
		}
		return one, nil
	}
	for _, name := range names {
		if kind != "" && s.services[name].Kind == kind {
			return s.services[name], nil
		}
	}
	if one := s.services["default"]; one != nil {
		return one, nil
	}
	return s.services[names[0]], nil
}

// key returns the key for a service: that of the account, else that of the operator.
func (s *Set) key(ctx context.Context, one *service, account string) (string, error) {
	if from := s.secrets.Load(); one.Secret != "" && from != nil {
		key, err := (*from).Secret(ctx, account, one.Secret)
		switch {
		case err == nil:
			return key, nil
		case !errors.Is(err, fault.SecretNotFound) || one.KeyEnv == "":
			return "", err
		}
	}
	if one.KeyEnv == "" {
		if one.Secret != "" {
			return "", fault.New(fault.SecretNotFound, "the secret %s with the key for providers.%s cannot be read here", one.Secret, one.name)
		}
		return "", nil
	}
	key := strings.TrimSpace(s.getenv(one.KeyEnv))
	if key == "" {
		return "", fault.New(fault.ProviderNotConfigured, "providers.%s takes its key from the variable %s, which is not set. Nothing was sent and nothing charged", one.name, one.KeyEnv)
	}
	return key, nil
}

// Call sends a request and returns the answer. With stream the pieces of it go to emit as they
// come; emit gets no Final. The error is a *fault.Error without the key, or the cause of ctx.
func (m *Model) Call(ctx context.Context, r *Request, stream bool, emit func(Chunk)) (*Answer, error) {
	r.Model = m.Name
	if r.MaxTokens <= 0 || r.MaxTokens > m.MaxTokens {
		r.MaxTokens = m.MaxTokens
	}
	var answer *Answer
	var err error
	if stream {
		err = m.adapter.Stream(ctx, r, func(c Chunk) {
			if c.Type == Final {
				answer = c.Answer
				return
			}
			emit(c)
		})
	} else {
		answer, err = m.adapter.Execute(ctx, r)
	}
	if err != nil {
		return nil, m.failure(ctx, err)
	}
	if answer.Usage == (Usage{}) && !m.price.free() {
		return nil, m.uncounted()
	}
	return answer, nil
}

// uncounted is the error for an answer that a price is set for and whose usage is not known. Other
// errors with this code come before a service has done anything; here it may want to be paid. The
// code is right all the same: what is wrong is the configuration, and every further attempt would
// cost as much and end the same way. Retry policies would try a PROVIDER_ERROR again.
func (m *Model) uncounted() error {
	return fault.New(fault.ProviderNotConfigured, "providers.%s does not report how many tokens an answer used, so what it costs is not known: set `prices` of the model %.80q to \"0\", or use a service that reports them", m.Provider, m.Name)
}

// Price is what a usage costs.
func (m *Model) Price(u Usage) ledger.Amount { return m.price.of(u) }
