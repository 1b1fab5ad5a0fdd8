// SPDX-License-Identifier: Apache-2.0

package simulate

import "slices"

// LastLines is how many lines the report of a violation shows.
const LastLines = 50

// Last plays a seed again, which gives the same schedule, and returns the last
// things that happened in it, a line each. opt is that of the first time.
func Last(opt Options, seed uint64) (lines []string, res Result, err error) {
	opt.Cells, opt.Durable = nil, nil
	opt.Trace = func(line string) {
		if lines = append(lines, line); len(lines) >= 4*LastLines {
			lines = slices.Delete(lines, 0, 3*LastLines)
		}
	}
	res, err = NewPlayer(opt).Play(seed)
	return lines[max(0, len(lines)-LastLines):], res, err
}
