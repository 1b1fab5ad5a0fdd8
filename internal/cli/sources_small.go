// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
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

func (a *app) shownSource(text string) string { return text }

func (a *app) tidy() {}

func (a *app) checkLocked(*registry.Files) error { return nil }

func (a *app) checkTextLocked(registry.Found, bool) error { return nil }

func (a *app) lockCommands() []*cobra.Command { return nil }

// A small binary registers no recipes for a server.
type recipesServed struct{}

func (s *serve) recipesFlag(*cobra.Command) {}

func (s *serve) openRecipes() error { return nil }

func (s *serve) unpackRecipes(string) error { return nil }

func (a *app) recipeUseCommands() []*cobra.Command { return nil }

func (ap *applier) findUsers(context.Context, *client.Client) error { return nil }

func (ap *applier) printUsers() {}
