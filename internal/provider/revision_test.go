// SPDX-License-Identifier: Apache-2.0

package provider

import "testing"

// TestRevision: what changes answers changes the revision, and what does not does not.
func TestRevision(t *testing.T) {
	of := func(change func(*Config)) string {
		c := Config{Kind: Anthropic, KeyEnv: "ROUX_MODEL_KEY", Model: "small", Prices: map[string]ModelPrice{"small": {Input: "1", Output: "2"}, "large": {Input: "1", Output: "2"}}}
		change(&c)
		s, err := New(map[string]Config{"main": c}, nil, func(string) string { return "a-key" })
		if err != nil {
			t.Fatal(err)
		}
		return s.Revision()
	}
	was := of(func(*Config) {})
	for name, change := range map[string]func(*Config){
		"key":   func(c *Config) { c.KeyEnv = "ROUX_MODEL_OTHER" },
		"slots": func(c *Config) { c.Slots = 3 },
		"price": func(c *Config) {
			c.Prices = map[string]ModelPrice{"small": {Input: "9", Output: "9"}, "large": {Input: "1", Output: "2"}}
		},
	} {
		if got := of(change); got != was {
			t.Errorf("another %s is another revision", name)
		}
	}
	for name, change := range map[string]func(*Config){
		"model":   func(c *Config) { c.Model = "large" },
		"address": func(c *Config) { c.URL = "https://models.example.com" },
		"length":  func(c *Config) { c.MaxTokens = 7 },
	} {
		if got := of(change); got == was {
			t.Errorf("another %s is the same revision", name)
		}
	}
	if (*Set)(nil).Revision() != "" {
		t.Error("no services have a revision")
	}
}
