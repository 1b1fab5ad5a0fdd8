// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// Revision names what is configured of the services that have models, as far as answers may
// depend on it: where they are and what a step gets that names no model. Keys and prices do not
// change an answer.
func (s *Set) Revision() string {
	if s == nil {
		return ""
	}
	var all []any
	for _, name := range slices.Sorted(maps.Keys(s.services)) {
		all = append(all, s.services[name].settings())
	}
	return hashOf(all)
}

// revision is Revision for one service that carries out jobs.
func (j *jobService) revision() string { return hashOf([]any{j.settings(), j.API}) }

func (s *service) settings() []any {
	return []any{s.name, s.Kind, s.URL, s.Model, s.MaxTokens, s.MaxInputTokens, slices.Sorted(maps.Keys(s.prices))}
}

func hashOf(settings []any) string {
	data, err := json.Marshal(settings)
	if err != nil {
		return "" // cannot happen: it was read from JSON
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
