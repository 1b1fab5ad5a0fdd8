// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_generation

package sabotage

// Generation removes a guard. Machine: results of an older generation change nothing (I7).
const Generation = false
