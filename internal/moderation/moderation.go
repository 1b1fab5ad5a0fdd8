// SPDX-License-Identifier: Apache-2.0

// Package moderation asks moderators whether what a step gets or gives may pass.
//
// It decides which moderators a step has, what lists of terms and patterns match, and how moderators
// over HTTP are asked. All that a step names must pass a value; the first that flags it decides.
//
// It never decides when a moderator is asked or what follows from a verdict, and lets nothing pass
// that no moderator has passed: an answer that is missing or cannot be read is an error.
package moderation

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
)

// The kinds of moderators.
const (
	Terms  = "terms"  // lists of terms and patterns, in this process
	HTTP   = "http"   // any service that answers with a verdict
	OpenAI = "openai" // the moderation API of OpenAI, and of who speaks it
)

// Gateway is the name of the moderator that a Go program adds.
const Gateway = "gateway"

// Config is what the table `moderation` says of a moderator.
type Config struct {
	Kind string `json:"kind"`
	// Of the kind terms. Terms are words, or several with spaces between them, which match whole
	// words whatever their case; a * at the end matches any end of the word. Patterns are regular
	// expressions (RE2).
	Terms    []string `json:"terms"`
	Patterns []string `json:"patterns"`
	// Category is what it is flagged for. Default: the name of the moderator.
	Category string `json:"category"`

	// Of the kinds http and openai. URL is where requests go; default of openai:
	// https://api.openai.com/v1. KeyEnv is a variable of the environment with the key that is sent
	// as a bearer token.
	URL    string `json:"url"`
	KeyEnv string `json:"key_env"`
	// Timeout is how long a verdict may take. Default 10s.
	Timeout string `json:"timeout"`
	// Model is that of the kind openai. Default omni-moderation-latest.
	Model string `json:"model"`
	// Thresholds replace the service's own verdict: it is flagged if a score, from 0 to 1, is at
	// least that of its category.
	Thresholds map[string]float64 `json:"thresholds"`
}

// The bounds of a configuration.
const (
	maxModerators  = 32
	maxTerms       = 10_000
	maxTermBytes   = 200
	maxPatterns    = 100
	defaultTimeout = 10 * time.Second
)

var (
	nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	// envForm are the variables that may hold a key, as those of package provider.
	envForm = regexp.MustCompile(`^ROUX_(MODEL|PROVIDER|MODERATION)_[A-Z0-9_]{1,100}$`)
)

// Check reports what is wrong with a table of moderators.
func Check(all map[string]Config) error {
	_, err := New(all, nil, nil)
	return err
}

// A Set is the moderators that are configured. It is safe for concurrent use once it is complete;
// a nil one is empty.
type Set struct {
	names []string // in the order in which they are asked: those in this process first
	by    map[string]action.ModerationGateway
}

// New returns the moderators of a table. Their requests go through out. getenv reads the variables
// of keys; nil = os.Getenv.
func New(all map[string]Config, out *egress.Client, getenv func(string) string) (*Set, error) {
	if len(all) > maxModerators {
		return nil, fmt.Errorf("%d moderators: want at most %d", len(all), maxModerators)
	}
	if getenv == nil {
		getenv = os.Getenv
	}
	s := &Set{by: map[string]action.ModerationGateway{}}
	var remote []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c := all[name]
		if !nameForm.MatchString(name) || name == Gateway {
			return nil, fmt.Errorf("%.70q: want a name of letters, digits, '-' and '_', and not %q", name, Gateway)
		}
		one, err := build(name, &c, out, getenv)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s.by[name] = one
		if c.Kind == Terms {
			s.names = append(s.names, name)
		} else {
			remote = append(remote, name)
		}
	}
	s.names = append(s.names, remote...)
	return s, nil
}

func build(name string, c *Config, out *egress.Client, getenv func(string) string) (action.ModerationGateway, error) {
	if c.Category == "" {
		c.Category = name
	}
	switch c.Kind {
	case Terms:
		if c.URL != "" || c.KeyEnv != "" || c.Timeout != "" || c.Model != "" || c.Thresholds != nil {
			return nil, fmt.Errorf("the kind %s has terms, patterns and category", c.Kind)
		}
		return newTerms(c)
	case HTTP, OpenAI:
		if c.Terms != nil || c.Patterns != nil {
			return nil, fmt.Errorf("terms and patterns belong to the kind %s", Terms)
		}
		return newRemote(name, c, out, getenv)
	}
	return nil, fmt.Errorf("kind %.40q: want %s, %s or %s", c.Kind, Terms, HTTP, OpenAI)
}

// Add adds the moderator of a Go program under the name Gateway. It returns the set, which is a new
// one if there was none.
func (s *Set) Add(g action.ModerationGateway) *Set {
	if s == nil {
		s = &Set{by: map[string]action.ModerationGateway{}}
	}
	s.by[Gateway] = g
	s.names = append(s.names, Gateway)
	return s
}

// Names returns the names of the moderators, in the order in which they are asked.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.names)
}

// Of returns what asks the moderators with these names, all of them; without names those that are
// configured. The error, fault.ProviderNotConfigured, says what is missing.
func (s *Set) Of(names []string) (action.ModerationGateway, error) {
	have := s.Names()
	if len(have) == 0 {
		return nil, fault.New(fault.ProviderNotConfigured, "no moderator is configured: name one under `moderation` in roux.yaml (docs/moderation.md)")
	}
	var chain chain
	for _, name := range have {
		if len(names) == 0 || slices.Contains(names, name) {
			chain = append(chain, moderator{name, s.by[name]})
		}
	}
	for _, name := range names {
		if s.by[name] == nil {
			return nil, fault.New(fault.ProviderNotConfigured, "there is no moderator %.70q: those that are configured are %s", name, strings.Join(have, ", "))
		}
	}
	return chain, nil
}

// A moderator is one of a chain.
type moderator struct {
	name string
	action.ModerationGateway
}

// chain asks moderators one after the other, until one flags the value.
type chain []moderator

// Check implements action.ModerationGateway.
func (c chain) Check(ctx context.Context, m *action.Moderation) (action.Verdict, error) {
	passed := action.Verdict{}
	for i := range c {
		v, err := c[i].ModerationGateway.Check(ctx, m)
		if err != nil {
			return action.Verdict{}, fmt.Errorf("moderator %s: %w", c[i].name, err)
		}
		if len(v.By) == 0 {
			v.By = []string{c[i].name}
		}
		if v.Flagged {
			return v, nil
		}
		passed.By = append(passed.By, v.By...)
	}
	return passed, nil
}
