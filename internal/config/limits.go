// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/limits"
)

// Limits returns the limits of attempts; nil = there are none.
func (c *Config) Limits() (*limits.Set, error) {
	specs, err := limits.Parse(c.table("limits"))
	if err != nil {
		return nil, fault.Wrap(fault.ConfigInvalid, err, "limits: %v", err)
	}
	return limits.New(specs)
}

func checkLimits(text string) error {
	_, err := limits.Parse(text)
	return err
}
