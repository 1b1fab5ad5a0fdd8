// SPDX-License-Identifier: Apache-2.0

//go:build !race

package media

// raceEnabled reports whether the race detector is on, which costs much time
// and memory.
const raceEnabled = false
