// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import "github.com/spf13/cobra"

// emulatorCommands is empty: services are emulated where recipes are written, with the full
// binary.
func (a *app) emulatorCommands() []*cobra.Command { return nil }
