// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_reopen

package sabotage

// Reopen removes a guard. Machine: a step does not go on in the middle when one that it waits for runs again (I5).
const Reopen = false
