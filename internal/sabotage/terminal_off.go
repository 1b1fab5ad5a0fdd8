// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_terminal

package sabotage

// Terminal removes a guard. Machine: a run that has ended takes nothing but a retry (I7).
const Terminal = false
