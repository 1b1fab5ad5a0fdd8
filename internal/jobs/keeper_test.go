// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// finished is a service whose webhooks say that their job has ended.
type finished struct{ action.Service }

func (finished) Receive(h http.Header, _ []byte) (action.Webhook, error) {
	return action.Webhook{Job: h.Get("job"), ID: h.Get("id")}, nil
}

func (finished) Read(context.Context, *action.SubmittedJob, []byte) (action.JobState, error) {
	return action.JobState{Result: func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil }}, nil
}

// keeping is a keeper that does not run: a test takes its steps.
type keeping struct {
	*Keeper
	t       *testing.T
	store   *memory.Store
	now     time.Time
	settled int
}

func keep(t *testing.T) *keeping {
	k := &keeping{t: t, now: time.UnixMicro(1_800_000_000_000_000)}
	now := func() time.Time { return k.now }
	k.store = memory.New(memory.Options{})
	k.Keeper = New(Config{
		Records: k.store, Put: k.put, Now: now,
		Service: func(string) action.Service { return finished{} },
		Settle:  func(context.Context, *Job, journal.Source, action.Func) error { k.settled++; return nil },
	})
	return k
}

func (k *keeping) put(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	return k.store.PutRecords(ctx, 0, k.Keeper.now(), changes)
}

func (k *keeping) deliver(ids ...string) {
	k.t.Helper()
	for _, id := range ids {
		if err := k.Deliver(k.t.Context(), "acme", http.Header{"Job": {"j1"}, "Id": {id}}, []byte("{}")); err != nil {
			k.t.Fatal(err)
		}
	}
}

// act acts upon the deliveries that are due.
func (k *keeping) act() {
	for {
		at, ok := k.received.next()
		if !ok || at > k.Keeper.now() {
			return
		}
		k.Keeper.act(k.t.Context(), k.received.pop())
	}
}

// outcomes are those of the deliveries that were acted upon.
func (k *keeping) outcomes() (list []string) {
	k.t.Helper()
	err := store.EachRecord(k.t.Context(), k.store, store.RecordQuery{Kind: KindDelivery}, func(r *store.Record) error {
		d, err := store.DecodeRecord[Delivery](r)
		if err == nil {
			list = append(list, d.Outcome)
		}
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return list
}

// All deliveries that came before the id of their job are acted upon when it is known (F14).
func TestF14_DeliveriesWaitForTheirJob(t *testing.T) {
	k := keep(t)
	k.deliver("d1", "d2", "d3")
	k.act()
	if got := k.outcomes(); got != nil || len(k.parked) != 1 {
		t.Fatalf("before the job is known: outcomes %q, %d jobs are waited for", got, len(k.parked))
	}
	job := Job{Provider: "acme", ID: "j1", Account: "a", Run: "run_1"}
	stored, err := k.put(t.Context(), store.RecordChange{Record: store.Record{RecordKey: Key("acme", "j1"), Data: job.encode()}})
	if err != nil {
		t.Fatal(err)
	}
	k.note(&store.RecordChange{Record: stored[0]}, k.Keeper.now())
	k.act()
	if got := k.outcomes(); !slices.Equal(got, []string{"recorded", "recorded", "recorded"}) || k.settled != 3 || len(k.parked) != 0 {
		t.Errorf("outcomes %q, settled %d times, %d jobs are waited for", got, k.settled, len(k.parked))
	}
}

// A job that becomes known while one of its deliveries is parked takes nothing from the others.
func TestF14_JobBecomesKnownMeanwhile(t *testing.T) {
	k := keep(t)
	k.deliver("d1")
	k.act()
	job := Job{Provider: "acme", ID: "j1", Account: "a", Run: "run_1"}
	submit := store.RecordChange{Record: store.Record{RecordKey: Key("acme", "j1"), Data: job.encode()}}
	looked := false
	k.cfg.Records = looking{k.store, func(key store.RecordKey) {
		if key.Kind == KindEnded && !looked { // the job was not known
			looked = true
			if _, err := k.put(t.Context(), submit); err != nil {
				t.Error(err)
			}
		}
	}}
	k.deliver("d2")
	k.act()
	k.note(&submit, k.Keeper.now())
	k.now = k.now.Add(2 * time.Second)
	k.act()
	if got := k.outcomes(); !looked || !slices.Equal(got, []string{"recorded", "recorded"}) {
		t.Errorf("outcomes %q", got)
	}
}

// looking calls a function before a record is read.
type looking struct {
	*memory.Store
	do func(key store.RecordKey)
}

func (l looking) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	l.do(key)
	return l.Store.Record(ctx, key)
}

// A delivery for a job that never becomes known is over two days later.
func TestDeliveryForNoJob(t *testing.T) {
	k := keep(t)
	k.deliver("d1")
	k.act()
	k.now = k.now.Add(48*time.Hour - time.Second)
	if k.act(); len(k.parked) != 1 {
		t.Error("it waits for less than two days")
	}
	k.now = k.now.Add(time.Second)
	k.act()
	if got := k.outcomes(); !slices.Equal(got, []string{"nothing"}) || len(k.parked) != 0 {
		t.Errorf("outcomes %q, %d jobs are waited for", got, len(k.parked))
	}
	if _, err := k.store.Record(t.Context(), store.RecordKey{Kind: KindOpen, ID: deliveries("acme", "j1") + short("d1")}); !errors.Is(err, fault.RecordNotFound) {
		t.Errorf("the open delivery: %v", err)
	}
}

// A delivery that cannot be read is tried again.
func TestDeliveryThatCannotBeRead(t *testing.T) {
	k := keep(t)
	k.deliver("d1")
	k.cfg.Records = broken{k.store}
	k.act()
	if at, ok := k.received.next(); !ok || at != k.Keeper.now()+second || k.outcomes() != nil {
		t.Errorf("it is tried again at %d: %t", at, ok)
	}
}

type broken struct{ *memory.Store }

func (broken) Record(context.Context, store.RecordKey) (store.Record, error) {
	return store.Record{}, fault.New(fault.ServiceUnavailable, "away")
}

// Commits do not wait for a keeper that reads which jobs there are.
func TestChangedWhileJobsAreRead(t *testing.T) {
	k := keep(t)
	ctx, cancel := context.WithCancel(t.Context())
	k.cfg.Records = reading{k.store, func() { k.Changed(nil); cancel() }}
	if err := k.Run(ctx, make(chan struct{})); err != nil {
		t.Error(err)
	}
}

// reading calls a function whenever records are listed.
type reading struct {
	*memory.Store
	do func()
}

func (r reading) Records(ctx context.Context, q store.RecordQuery) ([]store.Record, bool, error) {
	r.do()
	return r.Store.Records(ctx, q)
}

// A28: a remote worker cannot name the job of another step, or account, whether it has ended or not, but
// that of an earlier attempt of its own.
func TestA28_JobOfAnotherStep(t *testing.T) {
	k := keep(t)
	name := func(account, run string, step int32) error {
		return k.Check(t.Context(), &Job{Account: account, Run: run, Step: step, Gen: 1, Attempt: 2}, &action.Job{Provider: "acme", ID: "j1"})
	}
	if err := name("a", "r", 1); err != nil {
		t.Errorf("nobody's job: %v", err)
	}
	job := Job{Provider: "acme", ID: "j1", Account: "a", Run: "r", Step: 1, Gen: 1, Attempt: 1}
	for _, r := range []store.Record{
		{RecordKey: Key("acme", "j1"), Name: "n", Data: job.encode()},
		{RecordKey: recordKey(KindEnded, "acme", "j1"), Data: job.encode()},
	} {
		if _, err := k.put(t.Context(), store.RecordChange{Record: r}); err != nil {
			t.Fatal(err)
		}
		if err := name("a", "r", 1); err != nil {
			t.Errorf("%s: the same step: %v", r.Kind, err)
		}
		for _, err := range []error{name("b", "r", 1), name("a", "s", 1), name("a", "r", 2)} {
			if fault.CodeOf(err) != fault.ProviderError {
				t.Errorf("%s: another step: %v", r.Kind, err)
			}
		}
		if _, err := k.put(t.Context(), store.RecordChange{Delete: true, Record: store.Record{RecordKey: r.RecordKey, Revision: store.AnyRevision}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Check(t.Context(), &job, &action.Job{Provider: Workers, ID: "t"}); fault.CodeOf(err) != fault.ProviderNotConfigured {
		t.Errorf("a task: %v", err)
	}
}
