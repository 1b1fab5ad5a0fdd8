// SPDX-License-Identifier: Apache-2.0

package heap

import "sort"

// Sort sorts a slice as slices.SortStableFunc does. That one has code of its own for each type of
// elements, 8 to 20 KB in a binary; this one is for what is not sorted often.
func Sort[T any](s []T, compare func(a, b T) int) {
	sort.SliceStable(s, func(i, k int) bool { return compare(s[i], s[k]) < 0 })
}
