// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import "github.com/spf13/cobra"

// The commands that a small binary does not have, beside those that draw, simulate and try out.

func (a *app) diffCommands() []*cobra.Command { return []*cobra.Command{a.diffCommand()} }

func (a *app) topCommands() []*cobra.Command { return []*cobra.Command{a.topCommand()} }

func (a *app) importCommands() []*cobra.Command { return []*cobra.Command{a.importCommand()} }

func (a *app) conformCommands() []*cobra.Command { return []*cobra.Command{a.workerConformCommand()} }
