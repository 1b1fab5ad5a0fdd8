// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// stamp is a time in UTC µs; 0 for none.
func stamp(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}

// Head implements store.Reader.
func (s *Server) Head(ctx context.Context, key store.Key) (store.Head, error) {
	j, err := s.as(key.Account).Runs.Journal(ctx, key.Run, 0, client.NoEvents)
	if err != nil {
		return store.Head{}, err
	}
	return s.headOf(&j.RunHead)
}

// headOf turns an answer into a head, and remembers that the run has its plan.
func (s *Server) headOf(h *client.RunHead) (store.Head, error) {
	if h.Damage != "" {
		return store.Head{Key: store.Key{Account: h.AccountID, Run: h.ExecutionID}, Damage: h.Damage}, nil
	}
	s.mu.Lock()
	s.plans[h.Plan] = h.ExecutionID
	s.mu.Unlock()
	labels, err := store.EncodeLabels(h.Labels)
	return store.Head{
		Key: store.Key{Account: h.AccountID, Run: h.ExecutionID}, Root: h.RootRunID, Parent: h.ParentRunID, Recipe: h.RecipeName, Version: h.RecipeVersion,
		PlanHash: h.Plan, Status: h.State, Created: h.CreatedAt.UnixMicro(), Updated: h.UpdatedAt.UnixMicro(), Ended: stamp(h.CompletedAt), Deleted: stamp(h.DeletedAt),
		Code: h.ErrorCode, Message: h.Error, Used: h.CreditsUsed, Failures: h.HasFailures, Quarantine: h.Quarantined, Owes: h.Owes, Labels: labels,
	}, err
}

// wholeID is the length of the id of a run.
const wholeID = len("run_") + 26

// List implements store.Reader, for what lists of commands select by.
func (s *Server) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	if len(q.Prefix) > wholeID || len(q.Parent) > wholeID || len(q.Root) > wholeID {
		return nil, nil
	}
	ask := client.HeadQuery{Prefix: q.Prefix, Parent: q.Parent, Root: q.Root, All: q.All, Status: q.Status, Recipe: q.Recipe, After: q.After, Limit: q.Cap()}
	if q.Since > 0 {
		ask.CreatedAfter = time.UnixMicro(q.Since)
	}
	found, err := s.as(q.Account).Runs.Heads(ctx, ask)
	if err != nil {
		return nil, err
	}
	heads := make([]store.Head, len(found))
	for i := range found {
		if heads[i], err = s.headOf(&found[i]); err != nil {
			return nil, err
		}
	}
	return heads, nil
}

// Events implements store.Reader.
func (s *Server) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	j, err := s.as(key.Account).Runs.Journal(ctx, key.Run, after, min(max(maxBytes, 1), store.PageBytes))
	if err != nil {
		return store.Page{}, err
	}
	return store.Page{Frames: j.Events, Next: j.Next, Last: j.Last}, nil
}

// Load implements store.Reader. What is returned has the head and the snapshot, without the
// events after it.
func (s *Server) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	j, err := s.as(key.Account).Runs.Snapshot(ctx, key.Run)
	if err != nil {
		return nil, err
	}
	h, err := s.headOf(&j.RunHead)
	return &store.Saved{Head: h, Last: j.Last, State: j.Snapshot, StateLast: j.SnapshotAt, Format: uint32(j.SnapshotFormat)}, err //nolint:gosec // a format is small
}

// Plan implements store.Reader, for the plans of runs whose heads were read.
func (s *Server) Plan(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	run := s.plans[key]
	s.mu.Unlock()
	if s.of != nil {
		return s.Client.Operator.Plan(ctx, key)
	}
	if run == "" {
		return nil, fault.New(fault.RecipeNotFound, "the plan %s is that of no run that was read", key)
	}
	return s.Client.Runs.Plan(ctx, run)
}

// Watch calls fn for the events of a run after a number, in order, until the run has ended. fn
// does not keep an event. It goes on when the server was away.
func (s *Server) Watch(ctx context.Context, run string, after uint64, fn func(*journal.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The stream says that there is more, the journal what it is.
	news, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		for _, err := range s.Client.Runs.Events(ctx, run, client.EventOptions{After: after}) {
			if err != nil {
				ended <- err
				return
			}
			select {
			case news <- struct{}{}:
			default:
			}
		}
		ended <- nil
	}()
	last, end := after, false
	for over := false; ; {
		err := store.EachEvent(ctx, s, store.Key{Run: run}, last, func(ev *journal.Event) error {
			last, end = ev.Seq, ev.Kind.Ends()
			return fn(ev)
		})
		switch {
		case err != nil && fault.CodeOf(err) == fault.ServerUnreachable && ctx.Err() == nil && !over:
			// The stream connects again for as long as it takes.
		case err != nil:
			return err
		case end || over:
			return nil
		}
		select {
		case <-news:
		case err := <-ended:
			if err != nil {
				return err
			}
			over = true
		}
	}
}
