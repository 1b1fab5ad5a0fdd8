// SPDX-License-Identifier: Apache-2.0

//go:build race

package engine

// raceOn shortens single-goroutine tests under the race detector, which cannot find
// anything in them and makes them ten times slower.
const raceOn = true
