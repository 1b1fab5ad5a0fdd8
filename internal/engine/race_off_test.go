// SPDX-License-Identifier: Apache-2.0

//go:build !race

package engine

const raceOn = false
