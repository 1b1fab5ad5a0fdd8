// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gofrs/uuid/v5"
)

// IDs makes run ids from UUIDv7, so that they sort by time. They identify runs; they
// protect nothing. Make one with NewIDs; any goroutine may use it.
type IDs struct {
	mu   sync.Mutex
	gen  *uuid.Gen
	rand io.Reader
}

// NewIDs returns ids that take their random bits from rand and their time from now.
func NewIDs(rand io.Reader, now func() time.Time) *IDs {
	return &IDs{rand: rand, gen: uuid.NewGenWithOptions(
		uuid.WithRandomReader(rand),
		uuid.WithEpochFunc(uuid.EpochFunc(now)),
	)}
}

// Run returns a new run id and the seed of its jitter.
func (g *IDs) Run() (id string, seed uint64, err error) {
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
	return RunID(u), binary.LittleEndian.Uint64(b[:]), nil
}

// crockford is an alphabet that people can read to each other.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ID returns a new id of another kind than a run, with a prefix such as "key_".
func (g *IDs) ID(prefix string) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, err := g.gen.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return text(prefix, u), nil
}

// RunID is the id of a run as text: "run_" and the 128 bits as 26 characters of 5 bits, the
// first of which holds only 3. The text sorts like the number.
func RunID(b [16]byte) string { return text("run_", b) }

func text(prefix string, b [16]byte) string {
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	out := append([]byte(prefix), "00000000000000000000000000"...)
	for i := len(out) - 1; i >= len(prefix); i-- {
		out[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out)
}
