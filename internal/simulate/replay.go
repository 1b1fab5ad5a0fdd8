// SPDX-License-Identifier: Apache-2.0

package simulate

import "slices"

// TailLines is how many lines of the trace the report of a violation shows.
const TailLines = 50

// ReplayTail plays a seed again, which gives the same schedule, and returns the last
// lines of its trace. opt must be the options of the first time.
func ReplayTail(opt Options, seed uint64) (lines []string, res Result, err error) {
	opt.Cells, opt.Durable = nil, nil
	opt.Trace = func(line string) {
		if lines = append(lines, line); len(lines) >= 4*TailLines {
			lines = slices.Delete(lines, 0, 3*TailLines)
		}
	}
	res, err = NewPlayer(opt).Play(seed)
	return lines[max(0, len(lines)-TailLines):], res, err
}
