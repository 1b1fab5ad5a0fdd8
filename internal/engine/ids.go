// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gofrs/uuid/v5"
)

// ids makes run ids: "run_" and 26 characters of a UUIDv7, so that they sort by time.
// They identify runs; they protect nothing.
type ids struct {
	mu   sync.Mutex
	gen  *uuid.Gen
	rand io.Reader
}

func newIDs(rand io.Reader, now func() time.Time) *ids {
	return &ids{rand: rand, gen: uuid.NewGenWithOptions(
		uuid.WithRandomReader(rand),
		uuid.WithEpochFunc(uuid.EpochFunc(now)),
	)}
}

// run returns a new run id and the seed of its jitter.
func (g *ids) run() (id string, seed uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, err := g.gen.NewV7()
	if err != nil {
		return "", 0, fmt.Errorf("make a run id: %w", err)
	}
	var b [8]byte
	if _, err := io.ReadFull(g.rand, b[:]); err != nil {
		return "", 0, fmt.Errorf("make a run's seed: %w", err)
	}
	return runID(u), binary.LittleEndian.Uint64(b[:]), nil
}

// runID writes the 128 bits as 26 characters of 5 bits, the first of which holds only
// 3: the text then sorts like the number.
func runID(u uuid.UUID) string {
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ" // Crockford's: people can read it to each other
	hi, lo := binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
	out := []byte("run_00000000000000000000000000")
	for i := len(out) - 1; i >= len("run_"); i-- {
		out[i] = alphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out)
}
