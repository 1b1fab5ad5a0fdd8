// SPDX-License-Identifier: Apache-2.0

//go:build !sabotage_fanin

package sabotage

// FanIn removes a guard. Machine: a step begins when the last of those it waits for has settled (I5).
const FanIn = false
