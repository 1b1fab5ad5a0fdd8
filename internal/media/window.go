// SPDX-License-Identifier: Apache-2.0

package media

import (
	"encoding/binary"
	"errors"
	"io"
)

// The bounds of what is looked at to learn the facts of one file.
const (
	maxLooks     = 4_000   // reads
	maxLookBytes = 4 << 20 // bytes of all reads
)

// A window looks at places of a file within bounds, so that a file whose parts
// lead nowhere, or in circles, costs little. What is past the end, or past the
// bounds, is nil; parsers stop there.
type window struct {
	src   io.ReaderAt
	start int64 // of the part that is looked at
	size  int64 // of that part
	spent *spent
}

type spent struct {
	looks int
	bytes int
	err   error // of the source, which is not the file's fault
}

func look(src io.ReaderAt, size int64) *window {
	return &window{src: src, size: max(size, 0), spent: &spent{}}
}

// part is a window on n bytes from off, as far as they exist.
func (w *window) part(off, n int64) *window {
	off = min(max(off, 0), w.size)
	return &window{src: w.src, start: w.start + off, size: min(max(n, 0), w.size-off), spent: w.spent}
}

// at returns n bytes from off, or nil.
func (w *window) at(off int64, n int) []byte {
	if off < 0 || n < 0 || off > w.size || int64(n) > w.size-off || w.spent.err != nil {
		return nil
	}
	w.spent.looks++
	w.spent.bytes += n
	if w.spent.looks > maxLooks || w.spent.bytes > maxLookBytes {
		return nil
	}
	buf := make([]byte, n)
	if got, err := w.src.ReadAt(buf, w.start+off); got < n {
		if !errors.Is(err, io.EOF) {
			w.spent.err = err
		}
		return nil
	}
	return buf
}

// upTo returns at most n bytes from off.
func (w *window) upTo(off int64, n int) []byte {
	return w.at(off, int(max(0, min(int64(n), w.size-off))))
}

// number returns the unsigned integer of n bytes at off; false past the end.
func (w *window) number(off int64, n int, order binary.ByteOrder) (uint64, bool) {
	b := w.at(off, n)
	switch {
	case b == nil:
		return 0, false
	case n == 1:
		return uint64(b[0]), true
	case n == 2:
		return uint64(order.Uint16(b)), true
	case n == 4:
		return uint64(order.Uint32(b)), true
	default:
		return order.Uint64(b), true
	}
}

// is tells whether text stands at off.
func (w *window) is(off int64, text string) bool { return string(w.at(off, len(text))) == text }
