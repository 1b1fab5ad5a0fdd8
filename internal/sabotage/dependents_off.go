// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_dependents

package sabotage

// Dependents removes a guard. Machine: a step that waits for what a retry resets is reset with it (X119).
const Dependents = false
