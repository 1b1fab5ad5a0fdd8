// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// BlobHead is the length of the head of a blob. A blob is
//
//	CRC-32C of the rest u32, length of the data before compression u32, compression u8
//	the data, as they are or compressed
//
// Chunks and packs are compressed. Snapshots are not, because the commit that
// carries one waits for it, and the next one soon replaces it.
const BlobHead = 9

// The compressions.
const (
	asIs      = 0
	deflated  = 1 // written by releases up to schema 2
	zstandard = 2

	worthwhile = 128 // bytes; shorter data hardly shrink
)

// The coders are safe for concurrent use and start no goroutine. An encoder keeps a
// quarter of a megabyte, so encoders are pooled and unused ones are collected. An
// encoder looks for repetitions only: without entropy coding it takes a third of the
// time and 5 % more space for events, and the end of a large run waits for it.
var (
	encoders = sync.Pool{New: func() any {
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithNoEntropyCompression(true), // the options are valid
			zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(256<<10), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
		return &encoder{Encoder: e}
	}}
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxBlob)) // the options are valid
		return d
	})
)

// maxBlob bounds the memory that decoding one blob may take.
const maxBlob = 1 << 30

// EncodeBlob returns data as a blob in new memory. With compress set, it is compressed
// where that is worthwhile.
func EncodeBlob(data []byte, compress bool) []byte {
	room := make([]byte, 0, BlobHead+len(data))
	if compress {
		if out, ok := squeeze(room, data); ok {
			return out
		}
	}
	out := append(room[:BlobHead], data...)
	putHead(out, asIs, len(data))
	return out
}

// squeeze returns data as a compressed blob, in room if that is large enough. Where
// compression is not worthwhile, ok is false and out is room.
func squeeze(room, data []byte) (out []byte, ok bool) {
	if len(data) < worthwhile {
		return room, false
	}
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	if !e.shrinks(data) {
		return room, false
	}
	out = e.EncodeAll(data, append(room[:0], make([]byte, BlobHead)...))
	putHead(out, zstandard, len(data))
	return out, true
}

// putHead fills in the head of a blob whose data were n bytes before compression.
func putHead(b []byte, how byte, n int) {
	b[8] = how
	binary.LittleEndian.PutUint32(b[4:], uint32(n))
	binary.LittleEndian.PutUint32(b, sum(b[4:]))
}

// An encoder is a zstd encoder with buffers for shrinks.
type encoder struct {
	*zstd.Encoder
	sample, tried []byte
}

// shrinks reports whether compression is worthwhile. Of long data it tries a few
// samples, because outputs are often compressed already.
func (e *encoder) shrinks(data []byte) bool {
	const parts, size = 4, 1 << 10
	if len(data) < 4*parts*size {
		return true
	}
	e.sample = e.sample[:0]
	for k := range parts {
		e.sample = append(e.sample, data[len(data)/parts*k:][:size]...)
	}
	e.tried = e.EncodeAll(e.sample, e.tried[:0])
	return len(e.tried) < len(e.sample)*9/10
}

// DecodeBlob returns the data of a blob, which may share its memory.
func DecodeBlob(b []byte) ([]byte, error) {
	if len(b) < BlobHead {
		return nil, fmt.Errorf("%d bytes are too few", len(b))
	}
	if sum(b[4:]) != binary.LittleEndian.Uint32(b) {
		return nil, errors.New("the checksum does not fit")
	}
	body := b[BlobHead:]
	n := binary.LittleEndian.Uint32(b[4:])
	switch b[8] {
	case asIs:
		return body, nil
	case deflated:
		out := make([]byte, n)
		if _, err := io.ReadFull(flate.NewReader(bytes.NewReader(body)), out); err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		return out, nil
	case zstandard:
		out, err := decoder().DecodeAll(body, make([]byte, 0, min(n, maxBlob)))
		if err == nil && len(out) != int(n) {
			err = fmt.Errorf("%d bytes, want %d", len(out), n)
		}
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		return out, nil
	}
	return nil, fmt.Errorf("packed in a way (%d) that this release does not know", b[8])
}
