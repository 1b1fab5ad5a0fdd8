// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/roux-engine/roux/internal/store"
)

// An encoded blob is CRC-32C of the rest, length before packing u32, packing u8,
// bytes. Chunks are packed; snapshots are not, because they stand in the way of
// the commit that carries them and are soon replaced.
const (
	blobHead   = 9
	asIs       = 0
	deflated   = 1 // written by releases up to schema 2
	zstandard  = 2
	worthwhile = 128 // bytes; shorter ones hardly shrink
)

// The coders are safe for concurrent use and start no goroutine. An encoder keeps a
// quarter of a megabyte: one that nobody has used since the last collection goes.
// It looks for repetitions only, which takes a third of the time that entropy
// coding takes beside it, and 5 % more space for events: the end of a large run
// waits for it.
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

// maxSealed bounds what a blob may say it grows to.
const maxBlob = 1 << 30

// encodedCompaction is a compaction with rows of its own, ready to be written. It is made before the store is
// locked: packing takes longer than the commit.
type encodedCompaction struct {
	chunk, state []byte
}

func encodeCompactions(batch []store.Transition) []encodedCompaction {
	var encoded []encodedCompaction
	for i := range batch {
		if f := batch[i].Compaction; f != nil && !small(f) {
			if encoded == nil {
				encoded = make([]encodedCompaction, len(batch))
			}
			encoded[i].chunk = encodeBlob(f.Chunk, true)
			if f.State != nil {
				encoded[i].state = encodeBlob(f.State, false)
			}
		}
	}
	return encoded
}

// encodeBlob returns data encoded, in memory of its own.
func encodeBlob(data []byte, pack bool) []byte {
	room := make([]byte, 0, blobHead+len(data))
	if pack {
		if out, ok := squeeze(room, data); ok {
			return out
		}
	}
	out := append(room[:blobHead], data...)
	putHead(out, asIs, len(data))
	return out
}

// squeeze encodes data packed, in room if there is enough of it. false says that this
// is not worthwhile, and gives room back.
func squeeze(room, data []byte) (out []byte, ok bool) {
	if len(data) < worthwhile {
		return room, false
	}
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	if !e.shrinks(data) {
		return room, false
	}
	out = e.EncodeAll(data, append(room[:0], make([]byte, blobHead)...))
	putHead(out, zstandard, len(data))
	return out, true
}

// putHead completes an encoded blob whose data were n bytes.
func putHead(b []byte, how byte, n int) {
	b[8] = how
	binary.LittleEndian.PutUint32(b[4:], uint32(n))
	binary.LittleEndian.PutUint32(b, sum(b[4:]))
}

// An encoder has room for trying.
type encoder struct {
	*zstd.Encoder
	sample, tried []byte
}

// shrinks tries a few parts of much data: outputs are often compressed already, or
// as good as random.
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

func decodeBlob(b []byte) ([]byte, error) {
	if len(b) < blobHead {
		return nil, fmt.Errorf("%d bytes are too few", len(b))
	}
	if sum(b[4:]) != binary.LittleEndian.Uint32(b) {
		return nil, errors.New("the checksum does not fit")
	}
	body := b[blobHead:]
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
