// SPDX-License-Identifier: Apache-2.0

// Package wire reads the binary encodings that journals and snapshots share: bytes,
// varints and byte strings prefixed by their length. It decides nothing about their
// meaning, and it never allocates memory because of a length that it reads: everything
// it returns shares the memory of its input.
package wire

import (
	"encoding/binary"
	"errors"
)

// A Reader reads Buf from Off on. It keeps the first error in Err; after that it returns
// zero values.
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

// AppendString appends a byte string in the encoding that [Reader.Bytes] reads.
func AppendString(buf []byte, s string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(s)))
	return append(buf, s...)
}
