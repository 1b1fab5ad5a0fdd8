// SPDX-License-Identifier: Apache-2.0

package store

import "maps"

// ShrinkMap returns m, or a smaller copy of it when few of its entries are left. A Go
// map never releases memory by itself, and a hundred thousand runs come and go. most is
// the number that the last call for this map returned, or 0 on the first call: the
// length that m has had since it was last copied.
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
