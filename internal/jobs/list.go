// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// The states of a job.
const (
	StateWaiting    = "waiting"    // its step waits for it
	StateCancelling = "cancelling" // nobody waits for it, and its service is to be told
	StateEnded      = "ended"
)

// A Status is a job as those see it who look into why it does not end.
type Status struct {
	Job
	State string
	// NextPoll is when its service is asked next, UTC µs; 0 = it is not asked.
	NextPoll int64
	// PausedUntil is until when the service wants to be asked nothing, UTC µs; 0 = it has not said so.
	PausedUntil int64
	// LastPoll is when the service was asked last, UTC µs; 0 = this process does not know. LastError is
	// why that failed; nil = the job was under way.
	LastPoll  int64
	LastError error
	// Detail is what a service says of the job that is not asked about it; "" = nothing.
	Detail string
}

// A Describer is a service that knows how its jobs stand without being asked about them.
type Describer interface {
	Describe(job string) string
}

// A ListQuery selects jobs of an account, those of a provider together, the oldest first.
type ListQuery struct {
	Account  string
	Provider string // "" = any
	State    string // "" = any
	After    string // as List has returned it
	Limit    int    // records that are read, at least 1
}

// List returns jobs of an account that have not ended, and where the next page begins; "" = there is
// none. It reads a bounded number of records, so a page may have fewer jobs than its limit.
func (k *Keeper) List(ctx context.Context, q *ListQuery) (list []Status, next string, err error) {
	page, more, err := k.cfg.Records.Records(ctx, store.RecordQuery{
		Kind: KindJob, NamePrefix: namePrefix(q.Account, q.Provider), After: q.After, Limit: q.Limit,
	})
	if err != nil {
		return nil, "", err
	}
	all, more := k.withUnstored(q, page, more)
	for i := range all {
		next = all[i].name
		if all[i].Account != q.Account {
			continue // a damaged record
		}
		s, err := k.status(ctx, &all[i].Job)
		if err != nil {
			return nil, "", err
		}
		if q.State == "" || s.State == q.State {
			list = append(list, *s)
		}
	}
	if !more {
		next = ""
	}
	return list, next, nil
}

// A named is a job with the name of its record; its zero value if the record is damaged.
type named struct {
	Job
	name string
}

// withUnstored returns the jobs of a page of records with those between them that have none.
func (k *Keeper) withUnstored(q *ListQuery, page []store.Record, more bool) ([]named, bool) {
	all := make([]named, len(page))
	for i := range page {
		all[i].name = page[i].Name
		if j, err := Decode(&page[i]); err == nil {
			all[i].Job = j
		}
	}
	if q.Provider != "" && q.Provider != Workers {
		return all, more
	}
	stored := len(all)
	for _, j := range k.cfg.Unstored(q.Account) {
		name := nameOf(&j, j.Submitted)
		if name > q.After && (!more || name < all[stored-1].name) {
			all = append(all, named{j, name})
		}
	}
	byName := func(a, b named) int { return strings.Compare(a.name, b.name) }
	slices.SortStableFunc(all, byName)
	all = slices.CompactFunc(all, func(a, b named) bool { return a.name == b.name }) // a record was written meanwhile
	if len(all) > q.Limit {
		all, more = all[:q.Limit], true
	}
	return all, more
}

// Find returns a job of an account that has not ended.
func (k *Keeper) Find(ctx context.Context, account, provider, id string) (*Status, error) {
	j, ok, err := k.job(ctx, KindJob, provider+"/"+id)
	if err != nil {
		return nil, err
	}
	for _, other := range k.cfg.Unstored(account) {
		if !ok && other.Provider == provider && other.ID == id {
			j, ok = other, true
		}
	}
	if !ok || j.Account != account {
		return nil, fault.New(fault.RecordNotFound, "no step of the account waits for the job %.100q of %.64q: it has ended, or there was none", id, provider)
	}
	return k.status(ctx, &j)
}

// status says how a job stands.
func (k *Keeper) status(ctx context.Context, j *Job) (*Status, error) {
	s := &Status{Job: *j, State: StateWaiting}
	switch _, err := k.cfg.Records.Record(ctx, CancelKey(j.Provider, j.ID)); {
	case err == nil:
		s.State = StateCancelling
	case !errors.Is(err, fault.RecordNotFound):
		return nil, err
	}
	svc := k.cfg.Service(j.Provider)
	if d, ok := svc.(Describer); ok {
		s.Detail = d.Describe(j.ID)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now, name := k.now(), j.Provider+"/"+j.ID
	if last, ok := k.polled[name]; ok {
		s.LastPoll, s.LastError = last.at, last.err
	}
	if s.State == StateCancelling || svc == nil || j.Provider == Workers || k.ended {
		return s, nil
	}
	s.NextPoll = NextPoll(digest(name), j.Submitted, now)
	if p := k.providers[j.Provider]; p != nil && p.pause > now {
		s.PausedUntil, s.NextPoll = p.pause, max(s.NextPoll, p.pause)
	}
	return s, nil
}

// maxDeliveries is how many deliveries of a job are listed.
const maxDeliveries = 100

// Deliveries returns what the service of a job has delivered of it and is still kept, without the
// bodies: first what waits to be acted upon.
func (k *Keeper) Deliveries(ctx context.Context, j *Job) (list []Delivery, err error) {
	for _, kind := range []string{KindOpen, KindDelivery} {
		page, _, err := k.cfg.Records.Records(ctx, store.RecordQuery{Kind: kind, Prefix: deliveries(j.Provider, j.ID), Limit: maxDeliveries})
		if err != nil {
			return nil, err
		}
		for i := range page {
			var d Delivery
			if json.Unmarshal(page[i].Data, &d) == nil && len(list) < maxDeliveries {
				d.Size, d.Body = len(d.Body), nil
				list = append(list, d)
			}
		}
	}
	return list, nil
}

// Poll asks the service of a job now, also if it is not time, and acts upon the answer. It returns how
// the job stands afterwards.
func (k *Keeper) Poll(ctx context.Context, account, provider, id string) (*Status, error) {
	s, err := k.Find(ctx, account, provider, id)
	if err != nil {
		return nil, err
	}
	switch {
	case k.cfg.Idle:
		return nil, fault.New(fault.Conflict, "this process carries out no runs, so it asks no service: start `roux serve`")
	case s.State != StateWaiting:
		return nil, fault.New(fault.Conflict, "nobody waits for the job any more: its service is told to cancel it")
	case provider == Workers:
		return nil, fault.New(fault.Conflict, "the job is a task of a remote worker, which reports by itself: %s", s.Detail)
	case s.PausedUntil > 0:
		e := fault.New(fault.RateLimited, "the service wants to be asked nothing until %s", time.UnixMicro(s.PausedUntil).UTC().Format(time.RFC3339))
		e.RetryAfterMS = (s.PausedUntil - k.now()) / 1000
		return nil, e
	}
	if err := k.turn(ctx, provider); err != nil {
		return nil, err
	}
	defer k.nudge()
	defer func() { <-k.busy }()
	ended, err := k.pollJob(ctx, &s.Job)
	k.pauseFor(provider, err)
	if err != nil && !errors.Is(err, action.ErrUnsettled) {
		return nil, fmt.Errorf("ask %s about the job: %w", provider, err)
	}
	if ended {
		s.State, s.NextPoll = StateEnded, 0
		return s, nil
	}
	return k.status(ctx, &s.Job)
}

// turn waits until a call may begin, and counts it as a poll of a provider.
func (k *Keeper) turn(ctx context.Context, provider string) error {
	select {
	case k.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.providers[provider]; p != nil {
		p.free = max(p.free, k.now()) + k.gap()
	}
	return nil
}

// pollJob asks about a job, and acts upon an answer that says how it has ended.
func (k *Keeper) pollJob(ctx context.Context, j *Job) (ended bool, err error) {
	st, err := k.ask(ctx, j)
	if err == nil && st.Result != nil {
		if err = k.settle(ctx, j, journal.FromPoll, st.Result); err == nil {
			k.remember(j, nil, true)
			return true, nil
		}
	}
	k.remember(j, err, false)
	if err == nil && st.Preview != nil {
		k.preview(ctx, j, journal.FromPoll, st.Preview)
	}
	if err == nil {
		k.followAgain(j)
	}
	return false, err
}

// A poll is the last one of a job.
type poll struct {
	at           int64 // UTC µs
	err          error
	preview      string // names the preview of the job that was looked at last; "" = this process does not know
	unfollowable bool   // the service does not let the job be followed
}

// maxPolled bounds the jobs whose last poll is remembered: those that were asked about last are not
// known to be the ones that somebody looks at, so any others are forgotten.
const maxPolled = 10_000

// remember keeps how the last poll of a job went, for those who look.
func (k *Keeper) remember(j *Job, err error, ended bool) {
	name := j.Provider + "/" + j.ID
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.polled[name]
	if delete(k.polled, name); ended {
		return
	}
	for other := range k.polled {
		if len(k.polled) < maxPolled {
			break
		}
		delete(k.polled, other)
	}
	if err != nil { // what it wraps is not kept
		err = fault.New(fault.CodeOf(err), "%s", strings.ToValidUTF8(cut(fault.Message(err), maxPollError), ""))
	}
	k.polled[strings.Clone(name)] = poll{k.now(), err, was.preview, was.unfollowable}
}

const maxPollError = 300 // bytes

func cut(s string, most int) string { return s[:min(len(s), most)] }
