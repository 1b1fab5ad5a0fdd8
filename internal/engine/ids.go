// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gofrs/uuid/v5"

	"github.com/roux-engine/roux/internal/journal"
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
	return journal.RunID(u), binary.LittleEndian.Uint64(b[:]), nil
}
