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

	"github.com/roux-engine/roux/internal/store"
)

// A sealed blob is CRC-32C of the rest, length before packing u32, packing u8,
// bytes. Chunks are packed; snapshots are not, because they stand in the way of
// the commit that carries them and are soon replaced.
const (
	sealHead   = 9
	asIs       = 0
	deflated   = 1
	worthwhile = 128 // bytes; shorter ones hardly shrink
)

var deflaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level is valid
	return w
}}

// sealedFold is a fold ready to be written. It is made before the store is
// locked: packing takes longer than the commit.
type sealedFold struct {
	chunk, state []byte
}

func sealFolds(batch []store.Transition) []sealedFold {
	var sealed []sealedFold
	for i := range batch {
		if f := batch[i].Fold; f != nil {
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
	if pack && len(data) >= worthwhile {
		b := bytes.NewBuffer(out)
		w := deflaters.Get().(*flate.Writer)
		w.Reset(b)
		_, _ = w.Write(data) // a bytes.Buffer takes everything
		_ = w.Close()
		deflaters.Put(w)
		out = b.Bytes()
		out[8] = deflated
	} else {
		out = append(out, data...)
	}
	binary.LittleEndian.PutUint32(out[4:], uint32(len(data)))
	binary.LittleEndian.PutUint32(out, sum(out[4:]))
	return out
}

func unseal(b []byte) ([]byte, error) {
	if len(b) < sealHead {
		return nil, fmt.Errorf("%d bytes are too few", len(b))
	}
	if sum(b[4:]) != binary.LittleEndian.Uint32(b) {
		return nil, errors.New("the checksum does not fit")
	}
	body := b[sealHead:]
	if b[8] != deflated {
		return body, nil
	}
	out := make([]byte, binary.LittleEndian.Uint32(b[4:]))
	if _, err := io.ReadFull(flate.NewReader(bytes.NewReader(body)), out); err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return out, nil
}
