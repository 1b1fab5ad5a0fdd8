// SPDX-License-Identifier: Apache-2.0

//go:build sabotage_duplicate

package sabotage

// Duplicate removes a guard. Machine: a step that has settled takes no second result (I3).
const Duplicate = true
