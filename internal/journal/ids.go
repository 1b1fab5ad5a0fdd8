// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"
)

// IDs makes ids that are UUIDv7, so that they sort by time. Each has 72 random bits, which
// nobody guesses (A27); it protects nothing all the same: the account of a request does. Make
// one with NewIDs; any goroutine may use it.
type IDs struct {
	mu   sync.Mutex
	rand io.Reader
	now  func() time.Time

	ms uint64 // of the last id
	n  uint64 // its place among those of one millisecond
}

// NewIDs returns ids that take their random bits from rand and their time from now.
func NewIDs(rand io.Reader, now func() time.Time) *IDs {
	return &IDs{rand: rand, now: now}
}

const (
	// perMilli is how many ids of one millisecond have an order. Two bits count them, and
	// these are all that a UUIDv7 has besides 48 of time, 6 that are fixed and 72 random ones.
	perMilli = 4
	// maxAhead is how far the time of ids may be ahead of the clock, in ms.
	maxAhead = 1000
)

// next returns the time of an id and its place among those of that time. Where there are more
// ids than places, they have times ahead of the clock. While they cannot be further ahead, they
// share the last place, and are in no order until the clock has moved.
func (g *IDs) next() (ms, place uint64) {
	now := uint64(max(0, g.now().UnixMilli())) & (1<<48 - 1)
	switch {
	case now > g.ms || g.ms > now+maxAhead: // the latter: the clock was turned back
		g.ms, g.n = now, 0
	case g.n+1 < perMilli:
		g.n++
	case g.ms < now+maxAhead:
		g.ms, g.n = g.ms+1, 0
	}
	return g.ms, g.n
}

// uuid returns a new UUIDv7 (RFC 9562, 5.7 and 6.2). The caller holds g.mu.
func (g *IDs) uuid() (u [16]byte, err error) {
	if _, err := io.ReadFull(g.rand, u[7:]); err != nil {
		return u, err
	}
	ms, place := g.next()
	random := uint64(u[7]) | uint64(u[8]>>6)<<8 // 10 bits; those of u[8] are where the variant is
	binary.BigEndian.PutUint64(u[:8], ms<<16|7<<12|place<<10|random)
	u[8] = u[8]&0x3f | 0x80
	return u, nil
}

// Run returns a new run id and the seed of its jitter.
func (g *IDs) Run() (id string, seed uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, err := g.uuid()
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
	u, err := g.uuid()
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
