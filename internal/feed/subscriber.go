// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"sync"

	"github.com/roux-engine/roux/internal/store"
)

// MaxBehind is how many bytes of frames are kept for a slow subscriber. Past it they
// are dropped, and the subscriber reads them from the journal: the commit path waits
// for nobody, and no frame is ever missing.
const MaxBehind = 1 << 20

// A subscriber is one reader of one run.
type subscriber struct {
	heads  bool // it wants head rows alone
	mu     sync.Mutex
	frames [][]byte
	bytes  int
	behind bool        // frames were dropped
	head   *store.Head // the newest one written since the last call of next; nil = none
	closed error
	signal chan struct{} // 1 slot
}

func (s *subscriber) push(p *Published) {
	if s.heads && p.Head == nil {
		return
	}
	s.mu.Lock()
	if !s.heads {
		s.bytes += len(p.Frames)
	}
	switch {
	case s.heads:
	case s.bytes > MaxBehind:
		s.frames, s.behind = nil, true
	case len(p.Frames) > 0:
		s.frames = append(s.frames, p.Frames)
	}
	if p.Head != nil {
		s.head = p.Head
	}
	s.mu.Unlock()
	s.wake()
}

// lag tells a subscriber that it may have missed something.
func (s *subscriber) lag() {
	s.mu.Lock()
	s.frames, s.behind = nil, true
	s.mu.Unlock()
	s.wake()
}

func (s *subscriber) end(err error) {
	s.mu.Lock()
	s.closed = err
	s.mu.Unlock()
	s.wake()
}

func (s *subscriber) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// news is what next returns.
type news struct {
	frames [][]byte
	behind bool        // some frames were dropped: read the journal
	head   *store.Head // the head row, when it was written
}

// next waits for news.
func (s *subscriber) next(ctx context.Context) (news, error) {
	for {
		s.mu.Lock()
		n, closed := news{s.frames, s.behind, s.head}, s.closed
		s.frames, s.behind, s.bytes, s.head = nil, false, 0, nil
		s.mu.Unlock()
		if n.behind || len(n.frames) > 0 || n.head != nil {
			return n, nil
		}
		if closed != nil {
			return n, closed
		}
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-s.signal:
		}
	}
}
