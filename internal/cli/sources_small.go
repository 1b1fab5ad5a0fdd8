// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/registry"
)

// A small binary fetches no recipes and reads no lock file.
type origins struct{}

func (a *app) fetched(source string) (string, error) {
	if strings.Contains(source, "://") {
		return "", fault.New(fault.NotAvailable, "a small binary reads recipes in directories only, and fetches none: %q", source)
	}
	return source, nil
}

func (a *app) tidy() {}

func (a *app) checkLocked(*registry.Files) error { return nil }

func (a *app) checkVersionLocked(string, string, []byte) error { return nil }

func (a *app) lockCommands() []*cobra.Command { return nil }
