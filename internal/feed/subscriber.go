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
	wake      func()        // called besides each signal; nil = nobody wants to be called
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
	s.mu.Lock()
	wake := s.wake
	s.mu.Unlock()
	select {
	case s.signal <- struct{}{}:
	default:
	}
	if wake != nil {
		wake()
	}
}

// onNews has fn called whenever there may be something to take.
func (s *subscriber) onNews(fn func()) {
	s.mu.Lock()
	s.wake = fn
	s.mu.Unlock()
}

// update is what next returns.
type update struct {
	frames [][]byte
	behind bool        // frames were dropped: read the journal
	head   *store.Head // the newest head row, or nil when none was written
}

// take returns what there is; any is false when there is nothing yet.
func (s *subscriber) take() (u update, any bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u = update{s.frames, s.behind, s.head}
	s.frames, s.behind, s.bytes, s.head = nil, false, 0, nil
	if u.behind || len(u.frames) > 0 || u.head != nil {
		return u, true, nil
	}
	return u, false, s.closed
}

// next waits for frames or a head.
func (s *subscriber) next(ctx context.Context) (update, error) {
	for {
		u, any, err := s.take()
		if any || err != nil {
			return u, err
		}
		select {
		case <-ctx.Done():
			return u, ctx.Err()
		case <-s.signal:
		}
	}
}
