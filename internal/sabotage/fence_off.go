// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_fence

package sabotage

// Fence removes a guard. Machine: a result is taken only from the live attempt (I3).
const Fence = false
