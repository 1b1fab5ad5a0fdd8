// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_timer

package sabotage

// Timer removes a guard. Machine: a timer whose cause has gone does not fire (I9).
const Timer = false
