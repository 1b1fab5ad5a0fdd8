// SPDX-License-Identifier: Apache-2.0

//go:build !race

package media

// raceEnabled says that the race detector is on, which costs much time and memory.
const raceEnabled = false
