// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"

	"github.com/roux-engine/roux/internal/provider"
)

// Providers returns the table of providers.
func (c *Config) Providers() (map[string]provider.Config, error) {
	return parseProviders(c.table("providers"))
}

// parseProviders reads a table of providers. Prices may be written as numbers or as text.
func parseProviders(text string) (map[string]provider.Config, error) {
	type rawPrice struct {
		Input  decimal `json:"input"`
		Output decimal `json:"output"`
		Cached decimal `json:"cached"`
		Job    decimal `json:"job"`
	}
	var raw map[string]struct {
		provider.Config
		Prices map[string]rawPrice `json:"prices"`
	}
	if err := decodeTable(text, &raw); err != nil {
		return nil, err
	}
	all := make(map[string]provider.Config, len(raw))
	for name, r := range raw {
		c := r.Config
		c.Prices = make(map[string]provider.ModelPrice, len(r.Prices))
		for model, p := range r.Prices {
			c.Prices[model] = provider.ModelPrice{Input: string(p.Input), Output: string(p.Output), Cached: string(p.Cached), Job: string(p.Job)}
		}
		all[name] = c
	}
	return all, provider.Check(all)
}

// A decimal is decimal text, in JSON a number or a text.
type decimal string

func (d *decimal) UnmarshalJSON(raw []byte) error {
	var n json.Number // also takes a text that is a number
	if err := json.Unmarshal(raw, &n); err != nil {
		return err
	}
	*d = decimal(n)
	return nil
}

func checkProviders(text string) error {
	_, err := parseProviders(text)
	return err
}
