// SPDX-License-Identifier: Apache-2.0

// Package limits decides which limits of the configuration apply to an attempt, and with which
// key and priority.
//
// It reads the table `limits` and evaluates its expressions, which are pure and of a bounded cost.
// It never decides when an attempt begins, and keeps no count: that does package slots, to which it
// says after a start which slots external jobs hold.
package limits

import (
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/slots"
	"github.com/roux-engine/roux/internal/view"
)

// A Set is the limits of a configuration. A nil Set has none. It is safe for concurrent use.
type Set struct {
	limits   []*limit // by name
	byName   map[string]*slots.Rule
	policies map[string]slots.Policy
	called   bool // a limit depends on the provider, the model or what an attempt may use
	jobs     bool // a limit has concurrency
}

type limit struct {
	slots.Rule
	key, priority *expr.Program
}

// Facts are what the limits of an attempt depend on.
type Facts struct {
	Account, Action, Provider, Model, Queue string
	Labels                                  map[string]string
}

// Lookup implements expr.Vars.
func (f *Facts) Lookup(name string) (any, bool) {
	switch name {
	case "account":
		return f.Account, true
	case "action":
		return f.Action, true
	case "provider":
		return f.Provider, true
	case "model":
		return f.Model, true
	case "queue":
		return f.Queue, true
	case "label":
		labels := make(map[string]any, len(f.Labels))
		for k, v := range f.Labels {
			labels[k] = v
		}
		return labels, true
	}
	return nil, false
}

// Unknown is the key of attempts for which the expression of a limit fails, as for a label that a
// run does not have. They share the limit: what cannot be told apart is limited together.
const Unknown = "?"

// Of returns the rules that apply to an attempt, with their keys and priorities. ranks is nil if
// all priorities are 0.
func (s *Set) Of(f *Facts) (keys []slots.Key, ranks []float64) {
	if s == nil {
		return nil, nil
	}
	for _, l := range s.limits {
		text, applies := l.keyOf(f)
		if !applies {
			continue
		}
		if keys = append(keys, slots.Key{Rule: &l.Rule, Text: text, Pauses: l.Pauses && (names(text, f.Provider) || names(text, f.Model))}); l.priority == nil {
			if ranks != nil {
				ranks = append(ranks, 0)
			}
			continue
		}
		if ranks == nil {
			ranks = make([]float64, len(keys)-1, len(s.limits))
		}
		ranks = append(ranks, l.rankOf(f))
	}
	return keys, ranks
}

// keyOf returns the key of an attempt, and whether the limit applies to it.
func (l *limit) keyOf(f *Facts) (string, bool) {
	v, err := l.key.Eval(f)
	if err != nil {
		return Unknown, true
	}
	switch v := v.(type) {
	case nil:
		return "", false
	case string:
		if len(v) > maxKey || !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return Unknown, true
		}
		return v, v != ""
	}
	return Unknown, true
}

// names reports whether a key has a name in it. One that only depends on it, such as the account
// where there is a provider, has attempts of other providers, which that one must not pause.
func names(key, name string) bool { return name != "" && strings.Contains(key, name) }

// rankOf returns the priority of an attempt; 0 if the expression gives no number.
func (l *limit) rankOf(f *Facts) float64 {
	v, err := l.priority.Eval(f)
	if err != nil {
		return 0
	}
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	}
	return 0
}

// Stored returns the rules that applied to an attempt of a provider as Named has stored them. Those
// that the configuration no longer has are left out.
func (s *Set) Stored(named map[string]string, provider string) (keys []slots.Key) {
	if s == nil || len(named) == 0 {
		return nil
	}
	for _, l := range s.limits {
		if text, ok := named[l.Name]; ok {
			keys = append(keys, slots.Key{Rule: &l.Rule, Text: text, Pauses: l.Pauses && names(text, provider)})
		}
	}
	return keys
}

// Named returns the keys by the names of their rules; nil = there are none.
func Named(keys []slots.Key) map[string]string {
	if len(keys) == 0 {
		return nil
	}
	named := make(map[string]string, len(keys))
	for _, k := range keys {
		named[k.Rule.Name] = k.Text
	}
	return named
}

// Called reports whether limits depend on what an attempt calls, and what it may use.
func (s *Set) Called() bool { return s != nil && s.called }

// Concurrent reports whether a limit bounds how many attempts run at once.
func (s *Set) Concurrent() bool { return s != nil && s.jobs }

// Policy is what is done when a provider fails.
func (s *Set) Policy(provider string) slots.Policy {
	if s != nil {
		if p, ok := s.policies[provider]; ok {
			return p
		}
		if p, ok := s.policies["*"]; ok {
			return p
		}
	}
	return slots.DefaultPolicy
}

// OutcomeOf is what a failure with a code means for limits: whether the service is to blame, has
// refused to do anything, and asks to wait.
func OutcomeOf(code fault.Code, retryAfterMS, tokens int64) slots.Outcome {
	cause := fault.CauseOf(code)
	o := slots.Outcome{
		Tokens: tokens,
		Failed: cause == fault.CauseProvider || cause == fault.CauseTimeout,
		// The moderator has failed: the service may not have been called.
		Uncounted: code == fault.ModerationUnavailable,
		Unused:    code == fault.RateLimited || code == fault.ServiceUnavailable,
	}
	if o.Unused {
		o.Pause = min(retryAfterMS, slots.MaxPause/1000) * 1000
	}
	return o
}

// Waiting is a standing for people. step names a step; "" = its run is not in memory.
func Waiting(s *slots.Standing, step func(*slots.Place) string) *view.Waiting {
	out := &view.Waiting{Reason: s.Reason, Ahead: s.Ahead, Accounts: s.Accounts, Slots: s.Slots, Used: s.InUse, Until: view.StampOr(s.Until)}
	name := func(p *slots.Place) view.WaitedStep { return view.WaitedStep{Run: p.Run, Step: step(p)} }
	for i := range s.Holders {
		out.Holders = append(out.Holders, name(&s.Holders[i]))
	}
	if s.Behind != nil {
		out.Behind = new(name(s.Behind))
	}
	return out
}
