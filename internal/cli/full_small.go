// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import "github.com/spf13/cobra"

// A small binary compares no runs, watches no server, takes no runs of others and checks no workers:
// the full one does, on the machine of who looks.

func (a *app) diffCommands() []*cobra.Command { return nil }

func (a *app) topCommands() []*cobra.Command { return nil }

func (a *app) importCommands() []*cobra.Command { return nil }

func (a *app) conformCommands() []*cobra.Command { return nil }
