// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_rebind

package sabotage

// Rebind removes a guard. Machine: a name that is bound again has the later value (R41).
const Rebind = false
