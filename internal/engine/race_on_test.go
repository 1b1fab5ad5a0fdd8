// SPDX-License-Identifier: Apache-2.0

//go:build race

package engine

// raceOn: tests of one goroutine shrink under the race detector, which can find
// nothing in them and makes them ten times slower.
const raceOn = true
