// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// A key of starts has at most one active run. It is kept like a schedule that never occurs by
// itself: each request is an occurrence of its queue, stored before its run is started.

const (
	kindKey   = "start.key"
	keyPrefix = "key-"
	// MaxKeyed is how many requests of one key wait.
	MaxKeyed = 100
	// MaxKeyedBytes is how large they are together, as they are stored: a key is one record.
	MaxKeyedBytes = 4 << 20
	// MaxDebounce bounds the window of a debounced request.
	MaxDebounce = 24 * time.Hour
	// forgetAfter is how long after its last change a key is looked at whose run may have ended.
	forgetAfter = time.Hour
)

// LabelKey is the label of runs that were started with a key.
const LabelKey = "roux.key"

// IfActive are what becomes of a request while a run of its key is active, the default first.
var IfActive = []schedule.Overlap{schedule.OverlapSkip, schedule.OverlapQueue, schedule.OverlapCancel}

// A request waits in the queue of a key.
type request struct {
	Start       starts.Request   `json:"start"`
	IfActive    schedule.Overlap `json:"ifActive"`
	Idempotency string           `json:"idempotency,omitempty"`
	// NotBefore is when a debounced request may start its run, UTC µs; 0 = at once.
	NotBefore int64 `json:"notBefore,omitempty"`
}

// A KeyedRequest is a request with a key.
type KeyedRequest struct {
	Key      string
	IfActive schedule.Overlap
	// Debounce is how long no other request with the key and a Debounce may come for the run to
	// start; a later one takes the place of this one. 0 = it starts at once.
	Debounce    time.Duration
	Start       starts.Request
	Idempotency string // ties a repeated request to the first one
}

// A Keyed is what came of a request with a key.
type Keyed struct {
	// Run is the run that was started; of a request that is Queued, or was Skipped, the one that
	// is active.
	Run      string
	Result   Result // Started, Skipped or Queued
	Existing bool   // an earlier request with the same idempotency key did it
}

func (s *Schedule) keyed() bool { return s.Key != "" }

// settling is how long the first request of the queue still waits for others that take its
// place.
func (w *working) settling() time.Duration {
	if r := w.Requests[w.Queue[0].Name]; r != nil {
		return time.Duration(r.NotBefore-w.s.clock.Now()) * time.Microsecond
	}
	return 0
}

// pop takes the first occurrence off the queue.
func (w *working) pop() {
	delete(w.Requests, w.Queue[0].Name)
	w.Queue = w.Queue[1:]
}

func (w *working) policy(o schedule.Occurrence) schedule.Overlap {
	if r := w.Requests[o.Name]; r != nil {
		return r.IfActive
	}
	return w.When.Overlap
}

func (w *working) request(o schedule.Occurrence) *starts.Request {
	if r := w.Requests[o.Name]; r != nil {
		return &r.Start
	}
	return &w.Start
}

func (w *working) idempotencyKey(o schedule.Occurrence) string {
	if mutation.Schedule {
		return ""
	}
	if r := w.Requests[o.Name]; r != nil {
		if r.Idempotency != "" {
			return r.Idempotency
		}
		return "key/" + o.Name
	}
	return "schedule/" + w.ID + "/" + o.Name
}

// why says why the run before is cancelled.
func (w *working) why() string {
	if w.keyed() {
		return "a newer request has the same key"
	}
	return fmt.Sprintf("the schedule %s starts its next run", w.Name)
}

// forget removes a key whose run has ended and that nothing waits for.
func (w *working) forget(ctx context.Context) (gone bool, err error) {
	if !w.keyed() || len(w.Queue) > 0 {
		return false, nil
	}
	if active, err := w.active(ctx); active || err != nil {
		return false, err
	}
	changes := []store.RecordChange{{Record: store.Record{RecordKey: recordKey(w.account, w.ID), Revision: w.Revision}, Delete: true}}
	for _, id := range []string{w.Due, w.stale} {
		if id != "" {
			changes = append(changes, store.Deletion(dueKey(id)))
		}
	}
	_, err = w.s.cfg.Records.PutRecords(ctx, changes...)
	return true, err
}

// Execute starts a run with a key, of which at most one run of the account is active. While
// there is one, the request does what ifActive says: OverlapSkip returns that run, OverlapQueue
// starts the run when that one has ended, and OverlapCancel cancels that one, takes the place of
// the requests that wait, and starts its run when that one has ended.
//
// A debounced request is Queued until its window has passed. What the account or the recipe does
// not allow is refused.
func (s *Scheduler) Execute(ctx context.Context, account string, r *KeyedRequest) (*Keyed, error) {
	switch {
	case !slices.Contains(IfActive, r.IfActive):
		return nil, fault.New(fault.RequestInvalid, "ifActive: want skip, queue or cancelPrevious")
	case r.Debounce < 0 || r.Debounce > MaxDebounce:
		return nil, fault.New(fault.RequestInvalid, "debounce: want up to %s", MaxDebounce)
	}
	if err := s.cfg.Starter.Check(ctx, account, &r.Start); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(r.Key))
	id := keyPrefix + hex.EncodeToString(sum[:])
	name, err := s.nameOf(r.Idempotency)
	if err != nil {
		return nil, err
	}
	l := s.lock(id)
	l.Lock()
	defer l.Unlock()
	w, err := s.open(ctx, account, id)
	switch {
	case fault.CodeOf(err) == fault.RecordNotFound:
		w = &working{s: s, account: account, table: schedule.Never(), Schedule: &Schedule{ID: id, Key: r.Key, Created: s.clock.Now()}}
	case err != nil:
		return nil, err
	case len(w.Queue) > 0: // what waits comes first
		if err := w.run(ctx); err != nil {
			return nil, err
		}
		if _, err := w.recall(ctx); err != nil { // the request may take the place of those that wait
			return nil, err
		}
	}
	now := s.clock.Now()
	req := &request{Start: r.Start, IfActive: r.IfActive, Idempotency: r.Idempotency}
	if r.Debounce > 0 {
		req.NotBefore = now + r.Debounce.Microseconds()
	}
	return w.take(ctx, schedule.Occurrence{Name: name, At: now}, req)
}

// nameOf is the name of the occurrence that a request is.
func (s *Scheduler) nameOf(idempotency string) (string, error) {
	if idempotency == "" {
		return s.cfg.NewID()
	}
	sum := sha256.Sum256([]byte(idempotency))
	return "once-" + hex.EncodeToString(sum[:]), nil
}

// take decides about a new request.
func (w *working) take(ctx context.Context, o schedule.Occurrence, r *request) (*Keyed, error) {
	active, err := w.active(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case w.Requests[o.Name] != nil:
		return &Keyed{Run: w.Active, Result: Queued, Existing: true}, nil
	case active && w.Latest == o.Name:
		return &Keyed{Run: w.Active, Result: Started, Existing: true}, nil
	}
	if r.Idempotency != "" { // it may be repeated after its run has ended
		if run, found, err := w.find(ctx, o); found || err != nil {
			return &Keyed{Run: run.ID, Result: Started, Existing: true}, err
		}
	}
	switch {
	case r.NotBefore > 0:
		w.Queue = slices.DeleteFunc(w.Queue, func(o schedule.Occurrence) bool {
			older := w.Requests[o.Name].NotBefore > 0
			if older {
				delete(w.Requests, o.Name)
			}
			return older
		})
	case r.IfActive == schedule.OverlapSkip && active:
		return &Keyed{Run: w.Active, Result: Skipped}, nil
	case r.IfActive == schedule.OverlapCancel:
		w.Queue, w.Requests = nil, nil
	case r.IfActive == schedule.OverlapSkip:
		// It is not skipped now, so it has its run, also if others come before it.
		r.IfActive = schedule.OverlapQueue
	}
	if err := w.put(o, r); err != nil {
		return nil, err
	}
	w.unsaved, w.asked = true, o.Name
	if err := w.run(ctx); err != nil {
		return nil, err
	}
	w.s.changed()
	switch f := w.answer; {
	case f == nil:
		return &Keyed{Run: w.Active, Result: Queued}, nil
	case f.err != nil:
		return nil, f.err
	default:
		return &Keyed{Run: f.Run, Result: f.Result, Existing: f.existing}, nil
	}
}

// put puts a request into the queue: behind those that wait for their turn, and before one that
// waits for its window to pass, which may be long.
func (w *working) put(o schedule.Occurrence, r *request) error {
	if len(w.Queue) >= MaxKeyed {
		return fault.OverQuota("requests of a key", len(w.Queue), MaxKeyed, "%d requests with this key wait already", len(w.Queue))
	}
	if w.Requests == nil {
		w.Requests = map[string]*request{}
	}
	at := len(w.Queue)
	if r.NotBefore == 0 {
		now := w.s.clock.Now()
		if i := slices.IndexFunc(w.Queue, func(o schedule.Occurrence) bool { return w.Requests[o.Name].NotBefore > now }); i >= 0 {
			at = i
		}
	}
	if at == 0 {
		w.Attempts = 0
	}
	w.Queue, w.Requests[o.Name] = slices.Insert(w.Queue, at, o), r
	all, err := json.Marshal(w.Requests)
	if err == nil && len(all) > MaxKeyedBytes && len(w.Queue) > 1 {
		err = fault.OverQuota("bytes of the requests of a key", len(all), MaxKeyedBytes, "the requests with this key that wait would have %d bytes with this one, of at most %d", len(all), MaxKeyedBytes)
	}
	return err
}
