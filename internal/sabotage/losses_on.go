// SPDX-License-Identifier: Apache-2.0

//go:build sabotage_losses

package sabotage

// Losses removes a guard. Machine: an attempt that was handed back counts as no loss (F45).
const Losses = true
