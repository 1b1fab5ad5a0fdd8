// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"math"
	"strconv"
	"strings"
)

// nextVersion returns the version after one: the next patch version, or for a pre-release the
// next one of the same version. "" = there is none.
func nextVersion(version string) string {
	version, _, _ = strings.Cut(version, "+")
	core, pre, isPre := strings.Cut(version, "-")
	if !isPre {
		return nextNumber(core)
	}
	if next := nextNumber(pre); next != "" {
		return core + "-" + next
	}
	return version + ".1"
}

// nextNumber adds one to the number after the last dot; "" = there is no number.
func nextNumber(text string) string {
	at := strings.LastIndexByte(text, '.') + 1
	n, err := strconv.ParseUint(text[at:], 10, 64)
	if err != nil || n == math.MaxUint64 {
		return ""
	}
	return text[:at] + strconv.FormatUint(n+1, 10)
}
