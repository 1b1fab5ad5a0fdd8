// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import "github.com/spf13/cobra"

// simulatorCommands is empty: recipes are simulated where they are written, with the full
// binary.
func (a *app) simulatorCommands() []*cobra.Command { return nil }
