// SPDX-License-Identifier: Apache-2.0

package media

import (
	"encoding/binary"
	"errors"
	"io"
)

// Limits on the reads that find the facts of one file.
const (
	maxReads     = 4_000   // reads
	maxReadBytes = 4 << 20 // bytes of all reads
)

// A boundedReader reads parts of a file within limits, so that a file whose
// parts point nowhere, or in circles, costs little. Reads past the end of the
// file or past the limits return nil; parsers stop there.
type boundedReader struct {
	src    io.ReaderAt
	start  int64 // where this section begins in src
	size   int64 // length of this section
	budget *readBudget
}

// A readBudget counts what all sections of one file have read.
type readBudget struct {
	reads int
	bytes int
	err   error // from src itself, so the file is not to blame
}

func newBoundedReader(src io.ReaderAt, size int64) *boundedReader {
	return &boundedReader{src: src, size: max(size, 0), budget: &readBudget{}}
}

// section returns a reader of n bytes from off, or fewer at the end of the
// file.
func (r *boundedReader) section(off, n int64) *boundedReader {
	off = min(max(off, 0), r.size)
	return &boundedReader{src: r.src, start: r.start + off, size: min(max(n, 0), r.size-off), budget: r.budget}
}

// bytesAt returns n bytes from off, or nil.
func (r *boundedReader) bytesAt(off int64, n int) []byte {
	if off < 0 || n < 0 || off > r.size || int64(n) > r.size-off || r.budget.err != nil {
		return nil
	}
	r.budget.reads++
	r.budget.bytes += n
	if r.budget.reads > maxReads || r.budget.bytes > maxReadBytes {
		return nil
	}
	buf := make([]byte, n)
	if got, err := r.src.ReadAt(buf, r.start+off); got < n {
		if !errors.Is(err, io.EOF) {
			r.budget.err = err
		}
		return nil
	}
	return buf
}

// upToAt returns at most n bytes from off.
func (r *boundedReader) upToAt(off int64, n int) []byte {
	return r.bytesAt(off, int(max(0, min(int64(n), r.size-off))))
}

// uintAt returns the unsigned integer of n bytes at off; ok is false past the
// end.
func (r *boundedReader) uintAt(off int64, n int, order binary.ByteOrder) (v uint64, ok bool) {
	b := r.bytesAt(off, n)
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

// matchesAt reports whether the bytes at off equal text.
func (r *boundedReader) matchesAt(off int64, text string) bool {
	return string(r.bytesAt(off, len(text))) == text
}
