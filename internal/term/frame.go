// SPDX-License-Identifier: Apache-2.0

package term

import (
	"fmt"
	"strings"
)

// A Frame is a block of lines on a screen that is redrawn in place.
type Frame struct {
	Screen *Screen
	drawn  int // lines on the screen that the next drawing replaces
}

// Draw replaces the last drawing. The screen must be live.
func (f *Frame) Draw(lines []string) {
	columns, _ := f.Screen.Size()
	var b strings.Builder
	if f.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", f.drawn)
	}
	for _, line := range lines {
		// A line that wraps would move everything below it.
		b.WriteString(Truncate(line, columns-1) + "\x1b[K\n")
	}
	if len(lines) < f.drawn {
		b.WriteString("\x1b[J")
	}
	f.drawn = len(lines)
	f.Screen.Print(b.String())
}

// Forget leaves the last drawing where it is.
func (f *Frame) Forget() { f.drawn = 0 }
