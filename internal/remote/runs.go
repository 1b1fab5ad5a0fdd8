// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"strings"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// MaxSearched is how many of the newest runs are searched for one whose id begins as a command
// says.
const MaxSearched = 5_000

// wholeID is the length of the id of a run.
const wholeID = len("run_") + 26

// stamp is a time in UTC µs; 0 for none.
func stamp(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}

// Head implements store.Reader.
func (s *Server) Head(ctx context.Context, key store.Key) (store.Head, error) {
	j, err := s.Client.Runs.Journal(ctx, key.Run, 0, client.NoEvents)
	if err != nil {
		return store.Head{}, err
	}
	return s.headOf(j)
}

// headOf turns an answer into a head, and remembers that the run has its plan.
func (s *Server) headOf(j *client.RunJournal) (store.Head, error) {
	s.mu.Lock()
	s.plans[j.Plan] = j.ExecutionID
	s.mu.Unlock()
	labels, err := store.EncodeLabels(j.Labels)
	return store.Head{
		Key: store.Key{Account: j.AccountID, Run: j.ExecutionID}, Root: j.RootRunID, Parent: j.ParentRunID, Recipe: j.RecipeName, Version: j.RecipeVersion,
		PlanHash: j.Plan, Status: j.State, Created: j.CreatedAt.UnixMicro(), Updated: j.UpdatedAt.UnixMicro(), Ended: stamp(j.CompletedAt),
		Code: j.ErrorCode, Message: j.Error, Used: j.CreditsUsed, Failures: j.HasFailures, Quarantine: j.Quarantined, Owes: j.Owes, Labels: labels,
	}, err
}

// List implements store.Reader. A query by the beginning of an id searches the newest
// [MaxSearched] runs, and finds child runs by whole ids only.
func (s *Server) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	if q.Root != "" {
		return nil, Unsupported("the runs below a run")
	}
	if len(q.Prefix) == wholeID {
		h, err := s.Head(ctx, store.Key{Run: q.Prefix})
		if fault.CodeOf(err) == fault.RunNotFound {
			return nil, nil
		}
		return []store.Head{h}, err
	}
	if q.All {
		return nil, nil
	}
	ask := client.RunQuery{Status: q.Status, Recipe: q.Recipe, Parent: q.Parent, PageSize: min(q.Cap(), 500)}
	if q.Since > 0 {
		ask.CreatedAfter = time.UnixMicro(q.Since)
	}
	if q.Prefix != "" {
		ask.PageSize = 500
	}
	heads := []store.Head{}
	seen := 0
	for r, err := range s.Client.Runs.List(ctx, ask) {
		if err != nil {
			return nil, err
		}
		if seen++; q.Prefix != "" && seen > MaxSearched {
			break
		}
		if !strings.HasPrefix(r.ID, q.Prefix) {
			continue
		}
		heads = append(heads, s.summaryOf(&r))
		if len(heads) >= q.Cap() {
			break
		}
	}
	// What a list does not say is asked for where there is one run, which a command shows.
	if len(heads) == 1 && (q.Prefix != "" || q.Limit == 1) {
		h, err := s.Head(ctx, heads[0].Key)
		return []store.Head{h}, err
	}
	return heads, nil
}

// summaryOf turns an element of a list into a head.
func (s *Server) summaryOf(r *client.RunSummary) store.Head {
	h := store.Head{
		Key: store.Key{Account: s.AccountName, Run: r.ID}, Parent: r.ParentRunID, Root: r.RootRunID, Recipe: r.RecipeName, Version: r.RecipeVersion, Status: r.State,
		Created: r.CreatedAt.UnixMicro(), Ended: stamp(r.CompletedAt), Code: r.ErrorCode, Used: r.CreditsUsed, Failures: r.HasFailures, Deleted: stamp(r.DeletedAt),
	}
	if h.Message == "" && r.ErrorCode != "" {
		h.Message = string(r.ErrorCode)
	}
	if r.Quarantined {
		h.Quarantine = "quarantined"
	}
	return h
}

// Events implements store.Reader.
func (s *Server) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	j, err := s.Client.Runs.Journal(ctx, key.Run, after, maxBytes)
	if err != nil {
		return store.Page{}, err
	}
	return store.Page{Frames: j.Events, Next: j.Next, Last: j.Last}, nil
}

// Load implements store.Reader. The snapshots of a server stay there: what is returned has the
// head alone.
func (s *Server) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	j, err := s.Client.Runs.Journal(ctx, key.Run, 0, client.NoEvents)
	if err != nil {
		return nil, err
	}
	h, err := s.headOf(j)
	return &store.Saved{Head: h, Last: j.Last}, err
}

// Plan implements store.Reader, for the plans of runs whose heads were read.
func (s *Server) Plan(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	run := s.plans[key]
	s.mu.Unlock()
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
