// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/ledger"
)

// A Spec is what the table `workers` of a configuration says of an action that remote workers
// carry out. Without Input and Output the action is one of Roux's own, carried out elsewhere.
type Spec struct {
	Version     string            `json:"version"` // default 1.0.0
	Description string            `json:"description"`
	Queue       string            `json:"queue"` // default "default"
	Labels      map[string]string `json:"labels"`
	// Accounts are those whose recipes may call it; * is all. Default: local, or all of them if the
	// action is one of Roux's own.
	Accounts []string        `json:"accounts"`
	Price    string          `json:"price"` // credits for a call; default 0
	Slots    int             `json:"slots"` // tasks that may be under way at once; 0 = any number
	Delivery string          `json:"delivery"`
	Lease    string          `json:"lease"`   // default 30s
	Timeout  string          `json:"timeout"` // default 24h
	Input    json.RawMessage `json:"input"`
	Output   json.RawMessage `json:"output"`
	Metadata json.RawMessage `json:"metadata"` // recipeMetadata (X10)
	Faults   []string        `json:"faults"`
	// Providers are those to whom workers may have submitted the work when a task ends.
	Providers []string `json:"providers"`
}

// The bounds and defaults of a table.
const (
	maxSpecs       = 1000
	maxLabels      = 20
	maxProviders   = 100
	maxSlots       = 1_000_000
	minLease       = time.Second
	maxLease       = time.Hour
	defaultLease   = 30 * time.Second
	maxTimeout     = 30 * 24 * time.Hour
	defaultTimeout = 24 * time.Hour
	allAccounts    = "*"
	localAccount   = "local"
)

var (
	queueForm   = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	versionForm = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`)
)

// Parse reads a table of actions by their names, as JSON.
func Parse(text string) (map[string]Spec, error) {
	all := map[string]Spec{}
	if text == "" {
		return all, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if len(all) > maxSpecs {
		return nil, fmt.Errorf("%d actions: want at most %d", len(all), maxSpecs)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		if !catalogue.IsActionName(name) {
			return nil, fmt.Errorf("%.70q: want the name of an action: lower-case letters, digits and '-'", name)
		}
		if _, err := s.remote(name, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

// own reports whether the action is one of Roux's own.
func (s *Spec) own() bool { return s.Input == nil && s.Output == nil }

// permits reports whether the recipes of an account may call it.
func (s *Spec) permits(account string) bool {
	if len(s.Accounts) == 0 {
		return s.own() || account == localAccount
	}
	return slices.Contains(s.Accounts, account) || slices.Contains(s.Accounts, allAccounts)
}

// Remotes returns the actions of a table, which Parse has accepted. find returns an action of
// Roux's own by its name; nil = there is none.
func Remotes(all map[string]Spec, find func(name string) *action.Action) (list []Remote, err error) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		base := find(name)
		if base != nil && base.Name != name { // an alias, under which Permits would not find it
			base = nil
		}
		if s.own() && base == nil {
			return nil, fault.New(fault.ConfigInvalid, "workers.%s: there is no such action, so it needs `input` and `output`: JSON Schemas of an object each", name)
		}
		if !s.own() {
			base = nil
		}
		r, err := s.remote(name, base)
		if err != nil {
			return nil, fault.New(fault.ConfigInvalid, "workers.%s: %v", name, err)
		}
		list = append(list, r)
	}
	return list, nil
}

// remote checks a spec and makes an action of it. base is the one of Roux's own; nil = it is not.
func (s *Spec) remote(name string, base *action.Action) (Remote, error) {
	r := Remote{Queue: cmp.Or(s.Queue, "default"), Labels: s.Labels, Providers: s.Providers}
	if len(s.Providers) > maxProviders {
		return r, fmt.Errorf("providers: %d: want at most %d", len(s.Providers), maxProviders)
	}
	for _, name := range s.Providers {
		if name == "" || jobs.Within(name) {
			return r, fmt.Errorf("providers: %.40q: want names of providers", name)
		}
	}
	if !queueForm.MatchString(r.Queue) {
		return r, fmt.Errorf("queue %.40q: want lower-case letters, digits, '_' and '-'", r.Queue)
	}
	if len(s.Labels) > maxLabels {
		return r, fmt.Errorf("labels: %d: want at most %d", len(s.Labels), maxLabels)
	}
	for _, a := range s.Accounts {
		if a != allAccounts && access.CheckAccount(a) != nil {
			return r, fmt.Errorf("accounts: %.40q: want names of accounts, or * for all", a)
		}
	}
	var err error
	if r.Lease, err = duration("lease", s.Lease, defaultLease, minLease, maxLease); err != nil {
		return r, err
	}
	if r.Timeout, err = duration("timeout", s.Timeout, defaultTimeout, minLease, maxTimeout); err != nil {
		return r, err
	}
	a := &r.Action
	if base != nil {
		*a = *base
		if len(a.Streams) > 0 || a.Waits != "" {
			return r, errors.New("this action is carried out by the server alone: it reads lists as they are stored, or waits")
		}
		if s.Version != "" {
			return r, fmt.Errorf("version: that of this action is %s", a.Version)
		}
		a.Description = cmp.Or(s.Description, a.Description)
	} else if !s.own() {
		*a = action.Action{
			Name: name, Version: cmp.Or(s.Version, "1.0.0"), Description: cmp.Or(s.Description, "Carried out by workers of the queue "+r.Queue+"."),
			Input: s.Input, Output: s.Output, Metadata: action.Metadata{InputTypes: []action.TypeDefinition{}, OutputTypes: []action.TypeDefinition{}},
		}
	}
	return r, s.declare(a)
}

// declare puts what a spec says into a declaration.
func (s *Spec) declare(a *action.Action) error {
	if s.Version != "" && !versionForm.MatchString(s.Version) {
		return fmt.Errorf("version %.30q: want three numbers, such as 1.0.0", s.Version)
	}
	if s.Slots < 0 || s.Slots > maxSlots {
		return fmt.Errorf("slots is %d: want 1 to %d, or nothing", s.Slots, maxSlots)
	}
	if s.Slots > 0 {
		a.Slots = s.Slots
	}
	switch d := action.Delivery(s.Delivery); d {
	case "":
	case action.AtLeastOnce, action.AtMostOnce:
		a.Delivery = d
	default:
		return fmt.Errorf("delivery %.30q: want %s or %s", s.Delivery, action.AtLeastOnce, action.AtMostOnce)
	}
	if s.Price != "" {
		if _, err := ledger.ParseAmount(s.Price); err != nil {
			return fmt.Errorf("price: %s", fault.Message(err))
		}
		a.Cost, a.Price = 0, s.Price
	}
	for _, of := range []struct {
		what   string
		schema json.RawMessage
	}{{"input", s.Input}, {"output", s.Output}} {
		if of.schema == nil {
			continue
		}
		if _, err := jsonschema.Compile(of.schema); err != nil {
			return fmt.Errorf("%s: %s", of.what, fault.Message(err))
		}
	}
	for _, code := range s.Faults {
		if _, ok := fault.Lookup(fault.Code(code)); !ok {
			return fmt.Errorf("faults: there is no code %.60q (docs/errors.md)", code)
		}
		if !slices.Contains(a.Faults, fault.Code(code)) {
			a.Faults = append(slices.Clip(a.Faults), fault.Code(code))
		}
	}
	if s.Metadata != nil {
		d := json.NewDecoder(bytes.NewReader(s.Metadata))
		d.DisallowUnknownFields()
		if err := d.Decode(&a.Metadata); err != nil {
			return fmt.Errorf("metadata: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
		if err := checkMetadata(&a.Metadata); err != nil {
			return fmt.Errorf("metadata: %w", err)
		}
	}
	return nil
}

func duration(name, text string, or, least, most time.Duration) (time.Duration, error) {
	if text == "" {
		return or, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("%s %.20q: want a duration from %s to %s", name, text, least, most)
	}
	return d, nil
}
