// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// Records are read by a keeper; see store.Records.
type Records interface {
	Record(ctx context.Context, key store.RecordKey) (store.Record, error)
	Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error)
}

// Config configures a Keeper.
type Config struct {
	Records Records
	// Put changes records, as the owner of the store.
	Put func(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
	// Settle records how a job has ended; see engine.Engine.Settle.
	Settle func(ctx context.Context, job *Job, source journal.Source, result action.Func) error
	// Show passes on what result reports of a job that goes on, as the output of its step is passed
	// on. It returns when that is durable; result settles nothing.
	Show func(ctx context.Context, job *Job, source journal.Source, result action.Func) error
	// Service returns a provider's service; nil = it is not configured.
	Service func(provider string) action.Service
	// Unstored returns the jobs of an account that have no record; see [Unstored]. Default: there are none.
	Unstored func(account string) []Job
	// Idle makes a keeper that asks nobody.
	Idle   bool
	Now    func() time.Time
	Logger *slog.Logger

	// Rate is how many jobs of one provider are asked about per second, at most. Default 10.
	Rate float64
	// Concurrency is how many calls of services may be in flight. Default 32.
	Concurrency int
	// Timeout is how long a call of a service may take; reading a result has the timeout of its
	// step. Default 30 s.
	Timeout time.Duration
}

// A Keeper asks services about jobs, acts upon what they deliver, and tells them which jobs
// are to be cancelled. Nothing of a job is in memory but a digest of its id and the times of its
// submission and its next poll.
type Keeper struct {
	cfg  Config
	wake chan struct{} // 1 slot
	busy chan struct{} // semaphore of calls
	work sync.WaitGroup

	mu        sync.Mutex
	read      bool                 // load has returned: all jobs are known
	ended     bool                 // Run has returned, or never works
	news      []store.RecordChange // from Changed, in order
	providers map[string]*polls
	owners    []string          // beginnings of names of records: an account and a provider
	ownerAt   map[string]uint32 // where they are in owners
	cancels   queue
	cancelled map[string]bool // jobs that are to be cancelled
	began     int64           // when the keeper was made
	// loaded has the jobs that were read by load and submitted since then: Changed tells of them
	// once more.
	loaded   map[Digest]bool
	received queue           // deliveries to be acted upon
	polled   map[string]poll // how the last polls of some jobs went
	// held has the jobs with a settlement under way, and streams those that are followed. toFollow
	// are those that will be.
	held     map[string]chan struct{}
	streams  map[string]*stream
	toFollow []plannedPoll
	// parked has the deliveries that wait for the id of their job, by the beginning of their
	// ids.
	parked map[string][]string

	refused atomic.Int64 // webhooks
}

// New returns a keeper; Run makes it work.
func New(cfg Config) *Keeper {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Rate <= 0 {
		cfg.Rate = 10
	}
	if cfg.Unstored == nil {
		cfg.Unstored = func(string) []Job { return nil }
	}
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = 32
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	return &Keeper{cfg: cfg, wake: make(chan struct{}, 1), busy: make(chan struct{}, cfg.Concurrency), began: cfg.Now().UnixMicro(),
		providers: map[string]*polls{}, ownerAt: map[string]uint32{}, cancelled: map[string]bool{}, loaded: map[Digest]bool{}, parked: map[string][]string{}, polled: map[string]poll{}, held: map[string]chan struct{}{}, streams: map[string]*stream{}}
}

func (k *Keeper) now() int64 { return k.cfg.Now().UnixMicro() }

// Changed tells the keeper which records of jobs a commit has changed. It does not block.
func (k *Keeper) Changed(changes []Change) {
	k.mu.Lock()
	for i := range changes {
		if c := &changes[i]; !k.ended && !c.Unstored { // otherwise they are read after the next start
			k.news = append(k.news, c.RecordChange)
		}
	}
	k.mu.Unlock()
	k.nudge()
}

func (k *Keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Start makes the keeper read which jobs there are, and work once open is closed; it returns what
// ends it. An error is logged: jobs are asked about again after the next start.
func (k *Keeper) Start(open <-chan struct{}) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := k.Run(ctx, open); err != nil {
			k.cfg.Logger.Error("external jobs are not asked about", "err", err)
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// Run works until ctx ends and all calls have returned. It reads which jobs there are first, and
// then waits until open is closed.
func (k *Keeper) Run(ctx context.Context, open <-chan struct{}) error {
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.ended, k.news = true, nil
	}()
	if k.cfg.Idle {
		return nil
	}
	if err := k.Load(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	k.mu.Lock()
	k.read = true
	k.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(k.step(ctx))
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C:
		}
	}
	k.work.Wait()
	return nil
}

// Planned returns for how many jobs a poll is planned, and whether all jobs that there are have been
// read. A job whose service is being asked at this moment is not counted, and one that has ended is
// until its next poll would be due.
func (k *Keeper) Planned() (jobs int, all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.providers {
		jobs += len(p.heap)
	}
	return jobs, k.read
}

// Load reads the jobs, cancellations and deliveries that there are. Polls of a provider begin
// after a pause, because the process before may have used up what it may ask.
func (k *Keeper) Load(ctx context.Context) error {
	now := k.now()
	each := func(kind string, fn func(r *store.Record)) error {
		return store.EachRecord(ctx, k.cfg.Records, store.RecordQuery{Kind: kind, KeysOnly: true}, func(r *store.Record) error {
			k.mu.Lock() // not for the whole reading: Changed and Deliver do not wait for it
			defer k.mu.Unlock()
			fn(r)
			return nil
		})
	}
	return errors.Join(
		each(KindCancel, func(r *store.Record) {
			k.cancelled[r.ID] = true
			k.cancels.push(now, r.ID, 0)
		}),
		eachName(ctx, k.cfg.Records, func(n *Name) {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.expect(n, now); n.Submitted >= k.began {
				k.loaded[n.Digest] = true
			}
		}),
		each(KindOpen, func(r *store.Record) { k.received.push(now, r.ID, 0) }),
	)
}

// expect adds a job to those that are asked about, and perhaps to those that are followed.
func (k *Keeper) expect(n *Name, now int64) {
	if Within(n.Provider) {
		return
	}
	one := k.plan(n, now)
	k.providers[n.Provider].push(one)
	k.wanted(n.Provider, one)
}

// plan returns when a job is asked about.
func (k *Keeper) plan(n *Name, now int64) plannedPoll {
	p := k.providers[n.Provider]
	if p == nil {
		p = &polls{free: now + k.gap()}
		k.providers[strings.Clone(n.Provider)] = p
	}
	owner := namePrefix(n.Account, n.Provider)
	at, ok := k.ownerAt[owner]
	if !ok {
		at = uint32(len(k.owners))
		k.owners, k.ownerAt[owner] = append(k.owners, owner), at
	}
	return plannedPoll{NextPoll(n.Digest, n.Submitted, now), n.Submitted, n.Digest, at}
}

// gap is the time between two polls of a provider.
func (k *Keeper) gap() int64 { return int64(float64(second) / k.cfg.Rate) }

// Act acts upon the deliveries that are due, one after the other on the goroutine of its caller, and
// reports whether there were any. Simulations call it instead of Run. They have no polls and cancel jobs
// themselves.
func (k *Keeper) Act(ctx context.Context) (any bool) {
	for {
		k.mu.Lock()
		now := k.now()
		for i := range k.news {
			k.note(&k.news[i], now)
		}
		k.news = nil
		at, ok := k.received.next()
		if !ok || at > now {
			k.mu.Unlock()
			return any
		}
		e := k.received.pop()
		k.mu.Unlock()
		k.act(ctx, e)
		any = true
	}
}

// step takes note of what has changed and begins what is due. It returns how long nothing
// else is.
func (k *Keeper) step(ctx context.Context) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	for i := range k.news {
		k.note(&k.news[i], now)
	}
	k.news = nil
	k.followNew(ctx)
	next := now + hour
	for {
		select {
		case k.busy <- struct{}{}:
		default: // the call that returns next wakes the keeper
			return time.Hour
		}
		do, at := k.due(now)
		if do == nil {
			<-k.busy
			next = min(next, at)
			break
		}
		k.work.Go(func() {
			defer k.nudge()
			defer func() { <-k.busy }()
			do(ctx)
		})
	}
	return max(time.Duration(next-now)*time.Microsecond, time.Millisecond)
}

// note takes note of a changed record.
func (k *Keeper) note(c *store.RecordChange, now int64) {
	switch {
	case c.Kind == KindJob && !c.Delete:
		if n, ok := ParseName(c.Name); ok {
			if !k.loaded[n.Digest] {
				k.expect(&n, now)
			}
			delete(k.loaded, n.Digest)
		}
		provider, job := split(c.ID)
		at := deliveries(provider, job)
		for _, id := range k.parked[at] {
			k.received.push(now, id, 0)
		}
		delete(k.parked, at)
	case c.Kind == KindJob:
		k.unfollow(c.ID)
	case c.Kind == KindCancel && c.Delete:
		delete(k.cancelled, c.ID)
	case c.Kind == KindCancel:
		k.cancelled[c.ID] = true
		k.cancels.push(now, c.ID, 0)
		k.unfollow(c.ID)
	}
}

// due takes the first work that is due, deliveries first. If there is none it returns when there
// will be some.
func (k *Keeper) due(now int64) (do func(context.Context), next int64) {
	next = now + hour
	for _, c := range [...]struct {
		queue *queue
		do    func(context.Context, entry)
	}{{&k.received, k.act}, {&k.cancels, k.cancel}} {
		if at, ok := c.queue.next(); ok && at <= now {
			e := c.queue.pop()
			return func(ctx context.Context) { c.do(ctx, e) }, 0
		} else if ok {
			next = min(next, at)
		}
	}
	for provider, p := range k.providers {
		if len(p.heap) == 0 {
			continue
		}
		if at := max(p.heap[0].at, p.free); at > now {
			next = min(next, at)
			continue
		}
		p.free = now + k.gap()
		one := p.pop()
		return func(ctx context.Context) { k.poll(ctx, provider, one) }, 0
	}
	return nil, next
}

// again does something again after a failure.
func (k *Keeper) again(q *queue, e entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q.push(k.now()+backoff(e.tries+1), e.name, e.tries+1)
}

// job reads the record of a job; ok is false if there is none.
func (k *Keeper) job(ctx context.Context, kind, name string) (j Job, ok bool, err error) {
	r, err := k.cfg.Records.Record(ctx, store.RecordKey{Kind: kind, ID: name})
	if errors.Is(err, fault.RecordNotFound) {
		return j, false, nil
	}
	if err == nil {
		j, err = Decode(&r)
	}
	return j, err == nil, err
}

// poll asks about a job, unless it has ended or is to be cancelled.
func (k *Keeper) poll(ctx context.Context, provider string, one plannedPoll) {
	j, ok, err := k.planned(ctx, one)
	if !ok && err == nil {
		k.skipped(provider)
		return
	}
	if err == nil {
		var ended bool
		if ended, err = k.pollJob(ctx, &j); ended {
			return
		}
	}
	if err != nil {
		k.cfg.Logger.Info("a job could not be asked about", "provider", provider, "job", j.ID, "run", j.Run, "err", err)
	}
	k.later(provider, one, err)
}

// planned reads the record of a job that is to be asked about. ok is false if there is none any
// more, or nobody waits for it.
func (k *Keeper) planned(ctx context.Context, one plannedPoll) (j Job, ok bool, err error) {
	k.mu.Lock()
	name := k.owners[one.owner] + tail(one.submitted, one.digest)
	k.mu.Unlock()
	page, _, err := k.cfg.Records.Records(ctx, store.RecordQuery{Kind: KindJob, NamePrefix: name, Limit: 1})
	if err != nil || len(page) == 0 {
		return j, false, err
	}
	if j, err = Decode(&page[0]); err != nil {
		return j, false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return j, !k.cancelled[page[0].ID], nil
}

func (k *Keeper) ask(ctx context.Context, j *Job) (st action.JobState, err error) {
	svc := k.cfg.Service(j.Provider)
	if svc == nil {
		return action.JobState{}, fault.New(fault.ProviderNotConfigured, "provider %q is not configured", j.Provider)
	}
	err = k.call(ctx, j.Provider, func(ctx context.Context) (err error) {
		st, err = svc.Poll(ctx, j.Public())
		return err
	})
	return st, err
}

// call calls a service, for a bounded time.
func (k *Keeper) call(ctx context.Context, provider string, fn func(ctx context.Context) error) error {
	return k.callFor(ctx, k.cfg.Timeout, provider, fn)
}

// callFor is call with its bound. A panic of the service is an error (I16).
func (k *Keeper) callFor(ctx context.Context, most time.Duration, provider string, fn func(ctx context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			k.cfg.Logger.Error("a service panicked", "provider", provider, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = fault.New(fault.InternalError, "provider %q panicked; the log has the details", provider)
		}
	}()
	return fn(ctx)
}

// skipped gives back the turn of a job that has ended: it was not asked about.
func (k *Keeper) skipped(provider string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.providers[provider]; p != nil {
		p.free -= k.gap()
	}
}

// later asks about a job again at its next time, and not before the time that its service has
// asked for.
func (k *Keeper) later(provider string, one plannedPoll, err error) {
	k.pauseFor(provider, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	one.at = NextPoll(one.digest, one.submitted, k.now())
	k.providers[provider].push(one)
}

// pauseFor gives a service the pause that it has asked for with an error.
func (k *Keeper) pauseFor(provider string, err error) {
	var f *fault.Error
	if !errors.As(err, &f) || f.RetryAfterMS <= 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.providers[provider]; p != nil {
		p.pause = k.now() + min(f.RetryAfterMS*1000, hour)
		p.free = max(p.free, p.pause)
	}
}

// cancel tells a service that nobody waits for a job. It is tried again until a day after the
// job would have expired.
func (k *Keeper) cancel(ctx context.Context, e entry) {
	j, ok, err := k.job(ctx, KindJob, e.name)
	if ok {
		if svc := k.cfg.Service(j.Provider); svc == nil {
			err = fault.New(fault.ProviderNotConfigured, "provider %q is not configured", j.Provider)
		} else {
			err = k.call(ctx, j.Provider, func(ctx context.Context) error { return svc.Cancel(ctx, j.Public()) })
		}
	}
	if err != nil && (!ok || k.now() < j.Expires+day) {
		k.cfg.Logger.Info("a job could not be cancelled; trying again", "job", e.name, "run", j.Run, "err", err)
		k.again(&k.cancels, e)
		return
	}
	if err != nil {
		k.cfg.Logger.Warn("a job could not be cancelled; giving up, as it has expired long ago", "job", e.name, "run", j.Run, "err", err)
	}
	if err := k.forget(ctx, e.name, &j); err != nil {
		k.again(&k.cancels, e)
	}
}

// forget removes the records of a job that was cancelled, unless a step waits for it again.
func (k *Keeper) forget(ctx context.Context, name string, j *Job) error {
	provider, id := split(name)
	r, err := k.cfg.Records.Record(ctx, CancelKey(provider, id))
	if errors.Is(err, fault.RecordNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	changes := []store.RecordChange{
		{Delete: true, Record: store.Record{RecordKey: r.RecordKey, Revision: r.Revision}},
		{Delete: true, Record: store.Record{RecordKey: Key(provider, id), Revision: store.AnyRevision}},
	}
	if j.Run != "" && !Within(j.Provider) {
		changes = append(changes, ended(j, k.now()))
	}
	_, err = k.cfg.Put(ctx, changes...)
	if errors.Is(err, fault.Conflict) {
		return nil // a step waits for it again
	}
	if err == nil {
		k.mu.Lock()
		delete(k.cancelled, name)
		k.mu.Unlock()
	}
	return err
}

// AfterOthers calls what makes a settlement. The one before it may have been answered a moment before
// the worker is free of it, which is a conflict.
func AfterOthers(ctx context.Context, settle func() error) error {
	for pause := int64(2_000); ; pause *= 2 { // µs
		err := settle()
		if !errors.Is(err, fault.Conflict) || pause > second || wait(ctx, pause) != nil {
			return err
		}
	}
}

// wait waits for a time in µs.
func wait(ctx context.Context, micros int64) error {
	t := time.NewTimer(time.Duration(micros) * time.Microsecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
