// SPDX-License-Identifier: Apache-2.0

// Package wire reads the binary forms that journals and snapshots share: bytes,
// varints and byte strings with their length before them. It decides nothing
// about their meaning, and it never allocates what a length claims: everything
// it returns shares the memory of what it reads.
package wire

import (
	"encoding/binary"
	"errors"
)

// A Reader reads Buf from Off on. After an error, which it keeps in Err, it
// returns zeros.
type Reader struct {
	Buf []byte
	Off int
	Err error
}

// Uvarint reads an unsigned number.
func (r *Reader) Uvarint() uint64 {
	if r.Err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.Buf[r.Off:])
	if n <= 0 {
		r.Err = errors.New("truncated number")
		return 0
	}
	r.Off += n
	return v
}

// Varint reads a signed number.
func (r *Reader) Varint() int64 {
	if r.Err != nil {
		return 0
	}
	v, n := binary.Varint(r.Buf[r.Off:])
	if n <= 0 {
		r.Err = errors.New("truncated number")
		return 0
	}
	r.Off += n
	return v
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	b := r.Take(1)
	if r.Err != nil {
		return 0
	}
	return b[0]
}

// Bytes reads a byte string.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if r.Err == nil && n > uint64(len(r.Buf)-r.Off) {
		r.Err = errors.New("truncated bytes")
	}
	return r.Take(int(n))
}

// Take reads the next n bytes.
func (r *Reader) Take(n int) []byte {
	if r.Err == nil && (n < 0 || n > len(r.Buf)-r.Off) {
		r.Err = errors.New("the bytes end early")
	}
	if r.Err != nil {
		return nil
	}
	b := r.Buf[r.Off : r.Off+n : r.Off+n]
	r.Off += n
	return b
}

// AppendString appends a byte string in the form that [Reader.Bytes] reads.
func AppendString(buf []byte, s string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(s)))
	return append(buf, s...)
}
