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

// A sealed blob is CRC-32C of the rest, length before packing u32, packing u8,
// bytes. Chunks are packed; snapshots are not, because they stand in the way of
// the commit that carries them and are soon replaced.
const (
	sealHead   = 9
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
		return e
	}}
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxSealed)) // the options are valid
		return d
	})
)

// maxSealed bounds what a blob may say it grows to.
const maxSealed = 1 << 30

// sealedFold is a fold with rows of its own, ready to be written. It is made before the store is
// locked: packing takes longer than the commit.
type sealedFold struct {
	chunk, state []byte
}

func sealFolds(batch []store.Transition) []sealedFold {
	var sealed []sealedFold
	for i := range batch {
		if f := batch[i].Fold; f != nil && !small(f) {
			if sealed == nil {
				sealed = make([]sealedFold, len(batch))
			}
			sealed[i].chunk = seal(f.Chunk, true)
			if f.State != nil {
				sealed[i].state = seal(f.State, false)
			}
		}
	}
	return sealed
}

func seal(data []byte, pack bool) []byte {
	out := make([]byte, sealHead, sealHead+len(data))
	if pack = pack && len(data) >= worthwhile; pack {
		encoder := encoders.Get().(*zstd.Encoder)
		defer encoders.Put(encoder)
		pack = shrinks(encoder, data)
		if pack {
			out[8] = zstandard
			out = encoder.EncodeAll(data, out)
		}
	}
	if !pack {
		out = append(out, data...)
	}
	binary.LittleEndian.PutUint32(out[4:], uint32(len(data)))
	binary.LittleEndian.PutUint32(out, sum(out[4:]))
	return out
}

// shrinks tries a few parts of much data: outputs are often compressed already, or
// as good as random.
func shrinks(encoder *zstd.Encoder, data []byte) bool {
	const parts, size = 4, 1 << 10
	if len(data) < 4*parts*size {
		return true
	}
	sample := make([]byte, 0, parts*size)
	for k := range parts {
		sample = append(sample, data[len(data)/parts*k:][:size]...)
	}
	return len(encoder.EncodeAll(sample, make([]byte, 0, len(sample)+64))) < len(sample)*9/10
}

func unseal(b []byte) ([]byte, error) {
	if len(b) < sealHead {
		return nil, fmt.Errorf("%d bytes are too few", len(b))
	}
	if sum(b[4:]) != binary.LittleEndian.Uint32(b) {
		return nil, errors.New("the checksum does not fit")
	}
	body := b[sealHead:]
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
		out, err := decoder().DecodeAll(body, make([]byte, 0, min(n, maxSealed)))
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
