// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"sync"

	"github.com/roux-engine/roux/internal/store"
)

// MaxBehind is how many bytes of frames are kept for a slow subscriber. Beyond it they
// are dropped and the subscriber reads them from the journal: the commit path never
// waits, and no frame is lost.
const MaxBehind = 1 << 20

// A subscriber is one reader of one run.
type subscriber struct {
	headsOnly bool // it wants head rows only
	mu        sync.Mutex
	frames    [][]byte
	bytes     int
	behind    bool        // frames were dropped
	head      *store.Head // the newest one written since the last call of next, or nil
	closed    error
	signal    chan struct{} // 1 slot
}

func (s *subscriber) push(p *Published) {
	if s.headsOnly && p.Head == nil {
		return
	}
	s.mu.Lock()
	if !s.headsOnly {
		s.bytes += len(p.Frames)
	}
	switch {
	case s.headsOnly:
	case s.bytes > MaxBehind:
		s.frames, s.behind = nil, true
	case len(p.Frames) > 0:
		s.frames = append(s.frames, p.Frames)
	}
	if p.Head != nil {
		s.head = p.Head
	}
	s.mu.Unlock()
	s.notify()
}

// markBehind records that the subscriber may have missed something.
func (s *subscriber) markBehind() {
	s.mu.Lock()
	s.frames, s.behind = nil, true
	s.mu.Unlock()
	s.notify()
}

func (s *subscriber) close(err error) {
	s.mu.Lock()
	s.closed = err
	s.mu.Unlock()
	s.notify()
}

func (s *subscriber) notify() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// update is what next returns.
type update struct {
	frames [][]byte
	behind bool        // frames were dropped: read the journal
	head   *store.Head // the newest head row, or nil when none was written
}

// next waits for frames or a head.
func (s *subscriber) next(ctx context.Context) (update, error) {
	for {
		s.mu.Lock()
		u, closed := update{s.frames, s.behind, s.head}, s.closed
		s.frames, s.behind, s.bytes, s.head = nil, false, 0, nil
		s.mu.Unlock()
		if u.behind || len(u.frames) > 0 || u.head != nil {
			return u, nil
		}
		if closed != nil {
			return u, closed
		}
		select {
		case <-ctx.Done():
			return u, ctx.Err()
		case <-s.signal:
		}
	}
}
