// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/provider/jobapi"
)

// An Info says what is configured of a service, without keys.
type Info struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind"`
	URL    string   `json:"url"`
	Models []string `json:"models"`           // those with a price
	Action string   `json:"action,omitempty"` // of a service that carries out jobs
	Slots  int      `json:"slots"`
	// Key says where the key comes from; "" = none is sent. KeyMissing is true if that is a
	// variable which is not set.
	Key        string `json:"key,omitempty"`
	KeyMissing bool   `json:"keyMissing,omitempty"`
	// Webhooks is how they are signed, or why there are none; "" = the service has models.
	Webhooks string `json:"webhooks,omitempty"`
}

// List returns what is configured of all services, sorted by name.
func (s *Set) List() []Info {
	list := []Info{}
	if s == nil {
		return list
	}
	all := maps.Clone(s.services)
	for name, j := range s.jobs {
		all[name] = j.service
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one := all[name]
		info := Info{Name: name, Kind: one.Kind, URL: one.show, Models: slices.Sorted(maps.Keys(one.prices)), Slots: one.Slots}
		switch {
		case one.Secret != "" && one.KeyEnv != "":
			info.Key = "secret " + one.Secret + ", else " + one.KeyEnv
		case one.Secret != "":
			info.Key = "secret " + one.Secret
		case one.KeyEnv != "":
			info.Key, info.KeyMissing = one.KeyEnv, strings.TrimSpace(s.getenv(one.KeyEnv)) == ""
		}
		if j := s.jobs[name]; j != nil {
			info.Action, info.Webhooks = JobPrefix+name, j.webhooks()
		}
		list = append(list, info)
	}
	return list
}

// HasWebhooks reports whether the service has webhooks, and what checks them is known.
func (i Info) HasWebhooks() bool { return i.Webhooks != "" && !strings.HasPrefix(i.Webhooks, "none") }

// webhooks says how the webhooks of a service are signed, or why there are none.
func (j *jobService) webhooks() string {
	w, ok := j.api.Hooks()
	switch {
	case !ok:
		return "none: the API has no webhook"
	case w.Signature == jobapi.Fal:
		return "keys of " + cmp.Or(w.Keys, "fal")
	case j.secret(&w) == "":
		return fmt.Sprintf("none: %s is not set", w.SecretEnv)
	}
	return "secret of " + w.SecretEnv
}
