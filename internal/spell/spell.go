// SPDX-License-Identifier: Apache-2.0

// Package spell computes the edit distance of two names, for hints such as "did you mean
// …?". Nearest has the bound that suits names of commands and settings; other callers of
// Distance have their own.
package spell

import "strings"

// maxLength bounds the work of one comparison: a name may come from a text of many megabytes.
const maxLength = 256

// Distance returns the restricted Damerau-Levenshtein distance of a and b: the number of
// insertions, deletions, replacements and swaps of neighbouring characters that turn a into b,
// each place edited at most once. It stops at limit, which it returns for all names that
// are at least as far apart, and for names of more than maxLength bytes, which nobody mistypes.
// The work is at most len(a) × len(b), and none when the lengths alone differ by limit.
func Distance(a, b string, limit int) int {
	if max(len(a), len(b)) > maxLength {
		return limit
	}
	x, y := []rune(a), []rune(b)
	if d := len(x) - len(y); d >= limit || -d >= limit {
		return limit
	}
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least >= limit {
			return limit
		}
		before, last, row = last, row, before
	}
	return min(last[len(y)], limit)
}

// Nearest returns the name that is fewer than three edits away from what was
// written, or that begins with it; "" when there is none.
func Nearest(got string, names []string) string {
	best, at := "", 3
	for _, n := range names {
		d := Distance(got, n, at)
		if len(got) >= 2 && strings.HasPrefix(n, got) {
			d = min(d, 1)
		}
		if d < at && d < max(len(n), 2) {
			best, at = n, d
		}
	}
	return best
}

// Closest returns the name with the smallest edit distance from name, at most a third
// of its length; of equally close names the first in the alphabet. It returns "" when
// there is none.
func Closest(name string, names []string) string {
	best, limit := "", max(1, len(name)/3)+1
	for _, n := range names {
		if d := Distance(strings.ToLower(name), strings.ToLower(n), limit); d < limit || d == limit-1 && n < best {
			best, limit = n, d
		}
		if limit == 0 {
			break
		}
	}
	return best
}
