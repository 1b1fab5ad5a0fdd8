// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/store"
)

// What a message has besides the ids.
const (
	Thin = "thin" // nothing
	Full = "full" // the change, and the run as it is shown
)

// The bounds of hooks.
const (
	// MaxHooks is how many hooks an account may have.
	MaxHooks   = 100
	maxFilters = 100  // entries of a filter
	maxText    = 1000 // bytes of a description, a reason, a name in a filter
	// maxPairs is how many earlier pairs of keys a hook may still sign with.
	maxPairs = 4
)

// IDPrefix begins the id of a hook.
const IDPrefix = "hook_"

// A Hook is where the events of an account are sent to.
type Hook struct {
	ID          string            `json:"id"`
	URL         string            `json:"url"`
	Description string            `json:"description,omitempty"`
	Events      []string          `json:"events"`            // types of events, or beginnings with "*"
	Recipes     []string          `json:"recipes,omitempty"` // of runs; none = all
	Labels      map[string]string `json:"labels,omitempty"`  // that runs must have
	Children    bool              `json:"children,omitempty"`
	Payload     string            `json:"payload"`
	Enabled     bool              `json:"enabled"`
	Reason      string            `json:"reason,omitempty"` // why it is disabled
	Disabled    int64             `json:"disabled,omitempty"`
	Created     int64             `json:"created"`
	Updated     int64             `json:"updated"`
	By          string            `json:"by,omitempty"` // id of the key that made it
	// After is the number of the change after which it is told of events.
	After      uint64      `json:"after"`
	PublicKeys []PublicKey `json:"publicKeys"` // the present one first
	Revision   uint64      `json:"-"`
}

// A PublicKey checks the v1a signatures of a hook.
type PublicKey struct {
	Key   string `json:"key"`
	Until int64  `json:"until,omitempty"` // UTC µs; when it signs no more; 0 = the present one
}

// A Spec is what a user says of a hook. Nil fields of an update change nothing.
type Spec struct {
	URL         *string
	Description *string
	Events      []string
	Recipes     []string
	Labels      map[string]string
	Children    *bool
	Payload     *string
	Enabled     *bool
}

// apply changes a hook as a user says, and refuses what no hook can be.
func (h *Hook) apply(s *Spec, now int64) error {
	set(&h.URL, s.URL)
	set(&h.Description, s.Description)
	set(&h.Children, s.Children)
	set(&h.Payload, s.Payload)
	if s.Events != nil {
		h.Events = slices.Clone(s.Events)
	}
	if s.Recipes != nil {
		h.Recipes = slices.Clone(s.Recipes)
	}
	if s.Labels != nil {
		h.Labels = s.Labels
	}
	if s.Enabled != nil && *s.Enabled != h.Enabled {
		h.Enabled, h.Reason, h.Disabled = *s.Enabled, "", 0
		if !h.Enabled {
			h.Reason, h.Disabled = "it was disabled by a user", now
		}
	}
	return h.check()
}

func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}

func (h *Hook) check() error {
	if _, err := egress.ParseURL(h.URL); err != nil {
		return fault.New(fault.RequestInvalid, "url: %s", fault.Message(err))
	}
	if strings.Contains(h.URL, "#") {
		return fault.New(fault.RequestInvalid, "url: a fragment (#) is never sent: leave it out")
	}
	if err := checkEvents(h.Events); err != nil {
		return err
	}
	if h.Payload != Thin && h.Payload != Full {
		return fault.New(fault.RequestInvalid, "payload: want %q or %q", Thin, Full)
	}
	if len(h.Description) > maxText {
		return fault.New(fault.RequestInvalid, "description: want at most %d bytes", maxText)
	}
	if len(h.Recipes) > maxFilters || slices.ContainsFunc(h.Recipes, func(name string) bool { return name == "" || len(name) > maxText }) {
		return fault.New(fault.RequestInvalid, "recipes: want at most %d names of recipes", maxFilters)
	}
	if _, err := store.EncodeLabels(h.Labels); err != nil {
		return fault.New(fault.RequestInvalid, "labels: %s", fault.Message(err))
	}
	return nil
}

// The kinds of records. A hook, its keys and its health are records of its account under
// one id; how far the feed of an account has been read is one of the operator, because
// accounts that have hooks must be found.
const (
	kindHook    = "webhook"
	kindKeys    = "webhook.keys"
	kindHealth  = "webhook.health"
	kindAccount = "webhook.account"
)

// health is how the deliveries of a hook go. It is written only when that changes.
type health struct {
	FailingSince int64 `json:"failingSince,omitempty"` // UTC µs; 0 = the last attempt succeeded
}

// A cursor is how far the feed of an account has been read.
type cursor struct {
	After uint64 `json:"after"`
}

// keys are the pairs of a hook, the present one first.
type keys struct {
	Pairs []keyPair `json:"pairs"`
}

// valid returns the pairs that sign at a time.
func (k *keys) valid(now int64) (pairs []keyPair) {
	for _, p := range k.Pairs {
		if p.Until == 0 || p.Until > now {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// rotate makes a pair the present one. The one before signs for a while longer.
func (k *keys) rotate(fresh keyPair, now int64, keep time.Duration) {
	until := now + keep.Microseconds()
	pairs := []keyPair{fresh}
	for _, p := range k.valid(now) {
		if p.Until == 0 || p.Until > until {
			p.Until = until
		}
		if p.Until > now && len(pairs) <= maxPairs {
			pairs = append(pairs, p)
		}
	}
	k.Pairs = pairs
}

func (k *keys) public() (list []PublicKey) {
	for i := range k.Pairs {
		list = append(list, PublicKey{k.Pairs[i].public(), k.Pairs[i].Until})
	}
	return list
}

// recordOf makes a change of a record; revision is the guard.
func recordOf(account, kind, id string, revision uint64, v any) (store.RecordChange, error) {
	data, err := json.Marshal(v)
	return store.RecordChange{Record: store.Record{RecordKey: store.RecordKey{Account: account, Kind: kind, ID: id}, Revision: revision, Data: data}}, err
}

func hookOf(r *store.Record) (*Hook, error) {
	h, err := store.DecodeRecord[Hook](r)
	if err == nil {
		h.Revision = r.Revision
	}
	return h, err
}

// Account is the account of the deliveries of a hook. No user's account has a colon.
func Account(account, hook string) string { return account + ":" + hook }

// Internal reports whether an account is that of the deliveries of a hook. Its runs cost
// nothing.
func Internal(account string) bool {
	_, hook, found := strings.Cut(account, ":")
	return found && strings.HasPrefix(hook, IDPrefix)
}
