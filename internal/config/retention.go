// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/roux-engine/roux/internal/retention"
)

// Retention returns how long the data directory keeps what it holds.
func (c *Config) Retention() retention.Policy {
	get := func(key string) time.Duration {
		d, err := retention.Parse(c.Get(key).Value)
		if err != nil {
			return 0 // such a value was refused before
		}
		return d
	}
	return retention.Policy{Runs: get("retain.runs"), Files: get("retain.files"), Uploads: get("retain.uploads")}
}

func checkRetention(text string) error {
	_, err := retention.Parse(text)
	return err
}
