// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import "github.com/spf13/cobra"

// trialCommands is empty: services are emulated, and webhooks tried out, where recipes are written,
// with the full binary.
func (a *app) trialCommands() []*cobra.Command { return nil }
