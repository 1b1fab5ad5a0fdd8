// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_cancel

package sabotage

// Cancel removes a guard. Machine: a cancel that comes too late is refused (I8).
const Cancel = false
