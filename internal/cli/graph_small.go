// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import "github.com/spf13/cobra"

// graphCommands is empty: a small binary draws nothing. What it exports can be drawn by the
// full one.
func (a *app) graphCommands() []*cobra.Command { return nil }
