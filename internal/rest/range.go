// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// ByteRange reads a header Range of one range, for a content of that size. part is false if all of
// it is asked for. A header of another form is ignored, as RFC
// 9110 says.
func ByteRange(header string, size int64) (from, n int64, part bool, err error) {
	text, ok := strings.CutPrefix(header, "bytes=")
	if !ok || strings.Contains(text, ",") {
		return 0, size, false, nil
	}
	begin, end, ok := strings.Cut(text, "-")
	if !ok {
		return 0, size, false, nil
	}
	last := size - 1
	if begin == "" {
		count, err := strconv.ParseInt(end, 10, 64)
		if err != nil || count < 0 {
			return 0, size, false, nil
		}
		from = max(0, size-count)
	} else {
		if from, err = strconv.ParseInt(begin, 10, 64); err != nil {
			return 0, size, false, nil
		}
		if end != "" {
			if last, err = strconv.ParseInt(end, 10, 64); err != nil || last < from {
				return 0, size, false, nil
			}
			last = min(last, size-1)
		}
	}
	if from > last {
		return 0, 0, false, fault.New(fault.RangeInvalid, "the file has %d bytes", size)
	}
	return from, last - from + 1, true, nil
}
