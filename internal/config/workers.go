// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/lease"
)

// Workers returns the actions that remote workers carry out.
func (c *Config) Workers() (map[string]lease.Spec, error) {
	specs, err := lease.Parse(c.table("workers"))
	if err != nil {
		return nil, fault.Wrap(fault.ConfigInvalid, err, "workers: %v", err)
	}
	return specs, nil
}

func checkWorkers(text string) error {
	_, err := lease.Parse(text)
	return err
}
