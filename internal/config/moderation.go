// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/roux-engine/roux/internal/moderation"

// Moderation returns the table of moderators.
func (c *Config) Moderation() (map[string]moderation.Config, error) {
	return parseModeration(c.table("moderation"))
}

func parseModeration(text string) (map[string]moderation.Config, error) {
	var all map[string]moderation.Config
	if err := decodeTable(text, &all); err != nil {
		return nil, err
	}
	return all, moderation.Check(all)
}

func checkModeration(text string) error {
	_, err := parseModeration(text)
	return err
}
