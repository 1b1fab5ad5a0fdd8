// SPDX-License-Identifier: Apache-2.0

package store

import "maps"

// ShrinkMap returns m, or a copy in less memory once little is left of what it held:
// a map of Go never gives memory back, and a hundred thousand runs come and go.
// most is what ShrinkMap returned before, 0 at first.
func ShrinkMap[K comparable, V any](m map[K]V, most int) (map[K]V, int) {
	n := len(m)
	if n >= most {
		return m, n
	}
	if most < 4096 || n > most/8 {
		return m, most
	}
	return maps.Collect(maps.All(m)), n
}
