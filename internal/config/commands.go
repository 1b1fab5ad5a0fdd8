// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/command"
)

// Commands returns the commands of the operator; nil = there are none. A project's file cannot
// open more than a confined command has, because a user who clones a project has not agreed to
// that: the error is fault.ConfigInvalid unless the user trusts the command by name.
func (c *Config) Commands() (*command.Set, error) {
	specs, err := command.Parse(c.table("commands"))
	if err != nil {
		return nil, fault.Wrap(fault.ConfigInvalid, err, "commands: %v", err)
	}
	if len(specs) == 0 {
		return nil, nil
	}
	if from := c.Get("commands"); from.Origin == "project" {
		trusted := strings.Split(c.table("commands-trusted"), ",")
		for _, name := range slices.Sorted(maps.Keys(specs)) {
			spec := specs[name]
			if opens := spec.Opens(); opens != "" && !slices.Contains(trusted, name) && !slices.Contains(trusted, "*") {
				return nil, fault.New(fault.ConfigInvalid, "%s: commands.%s: %s opens something that the project's files must not open by themselves; "+
					"set ROUX_COMMANDS_TRUSTED=%s, or write `commands-trusted: [%s]` into the user's config.yaml", from.Where, name, opens, name, name)
			}
		}
	}
	return command.New(specs)
}

func checkCommands(text string) error {
	_, err := command.Parse(text)
	return err
}
