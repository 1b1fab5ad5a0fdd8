// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/clock"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// Records are where schedules are kept; see store.Records.
type Records interface {
	Record(ctx context.Context, key store.RecordKey) (store.Record, error)
	RecordNamed(ctx context.Context, account, kind, name string) (store.Record, error)
	Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error)
	PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
}

// Starter starts the runs of schedules; see package starts.
type Starter interface {
	Check(ctx context.Context, account string, r *starts.Request) error
	Start(ctx context.Context, account string, r *starts.Request, key string, labels map[string]string) (starts.Run, error)
}

// Runs are the runs of the engine.
type Runs interface {
	Head(ctx context.Context, account, run string) (store.Head, error)
	List(ctx context.Context, q store.Query) ([]store.Head, error)
	Cancel(ctx context.Context, account, run, reason string) error
}

// Config is what a Scheduler is made of. Fields without a default are required.
type Config struct {
	Records Records
	Starter Starter
	Runs    Runs
	NewID   func() (string, error) // with IDPrefix
	// Now is read once; from then on the time goes on as that of the engine does, which no jump
	// of the wall clock moves (I10).
	Now    func() time.Time
	Logger *slog.Logger // default: discarded
	// Parallel is how many schedules Look works on at once. With 1 it does so on the goroutine of
	// its caller, which is how the simulator calls it. Default 8.
	Parallel int
}

const (
	// page is how many schedules that are due are read at once.
	page = 100
	// The pauses before a start is tried again, and before a run that is active is looked at
	// again. They double.
	firstPause, longestPause = 250 * time.Millisecond, 30 * time.Second
	// maxAttempts is how often a start is tried again that may never succeed.
	maxAttempts = 8
	// longestSleep is how long the driver waits without looking.
	longestSleep = time.Minute
	// keyLasts is how long the engine surely knows an idempotency key. A start that is older is
	// looked for among the runs.
	keyLasts = 12 * time.Hour
)

// Scheduler has the schedules of all accounts. It is safe for concurrent use. This process is
// the only one that changes them.
type Scheduler struct {
	cfg   Config
	clock clock.Clock
	locks [64]sync.Mutex // of schedules, by a hash of their id
	seed  maphash.Seed
	wake  chan struct{}

	mu   sync.Mutex
	stop context.CancelFunc
	done sync.WaitGroup
}

// New returns a scheduler that starts nothing by itself before Start.
func New(cfg Config) (*Scheduler, error) {
	if cfg.Records == nil || cfg.Starter == nil || cfg.Runs == nil || cfg.NewID == nil || cfg.Now == nil {
		return nil, errors.New("scheduler: Records, Starter, Runs, NewID and Now are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 8
	}
	s := &Scheduler{cfg: cfg, seed: maphash.MakeSeed(), wake: make(chan struct{}, 1)}
	s.clock.Start(cfg.Now)
	return s, nil
}

// Start begins to start runs as the schedules say.
func (s *Scheduler) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.done.Go(func() { s.drive(ctx) })
}

// Stop ends what Start began. What was decided and not done is done after the next Start.
func (s *Scheduler) Stop() {
	s.mu.Lock()
	if s.stop != nil {
		s.stop()
	}
	s.mu.Unlock()
	s.done.Wait()
}

func (s *Scheduler) lock(id string) *sync.Mutex {
	return &s.locks[maphash.String(s.seed, id)%uint64(len(s.locks))]
}

// changed makes the driver look again.
func (s *Scheduler) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// drive works on the schedules that are due, until ctx ends.
func (s *Scheduler) drive(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		sleep, err := s.Look(ctx)
		switch code := fault.CodeOf(err); {
		case ctx.Err() != nil, code == fault.Stopping, code == fault.StaleEpoch:
			return
		case err != nil:
			s.cfg.Logger.WarnContext(ctx, "schedules cannot be read; it is tried again", "error", err)
			sleep = longestPause
		}
		timer.Reset(sleep)
	}
}

// Woken reports whether something has changed since it was called last, so that Look is to be
// called at once. The driver that Start starts calls both by itself.
func (s *Scheduler) Woken() bool {
	select {
	case <-s.wake:
		return true
	default:
		return false
	}
}

// Look works on what is due and returns how long there is nothing to do.
func (s *Scheduler) Look(ctx context.Context) (time.Duration, error) {
	for ctx.Err() == nil {
		now := s.clock.Now()
		list, more, err := s.cfg.Records.Records(ctx, store.RecordQuery{Kind: kindDue, Limit: page})
		if err != nil {
			return 0, err
		}
		slots, errs := make(chan struct{}, s.cfg.Parallel), make([]error, len(list))
		var all sync.WaitGroup
		next := longestSleep
		for i := range list {
			at := dueAt(list[i].ID)
			if at > now {
				next, more = min(next, time.Duration(at-now)*time.Microsecond), false
				break
			}
			if s.cfg.Parallel == 1 {
				errs[i] = s.dispatch(ctx, &list[i])
				continue
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				errs[i] = s.dispatch(ctx, &list[i])
			})
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return 0, err
		}
		if !more && (len(list) == 0 || dueAt(list[0].ID) > now) {
			return next, nil
		}
	}
	return 0, ctx.Err()
}

// dueAt reads the time in the id of a record; one that has none is due.
func dueAt(id string) (at int64) {
	digits, _, _ := strings.Cut(id, ".")
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0
		}
		at = at*10 + int64(c-'0')
	}
	return at
}

// dispatch works on the schedule of a record that is due. Where that fails, the schedule comes
// again later, so that it keeps no other one waiting. An error means that it could not be put
// off either.
func (s *Scheduler) dispatch(ctx context.Context, rec *store.Record) error {
	d, err := store.DecodeRecord[due](rec)
	if err == nil {
		l := s.lock(d.ID)
		l.Lock()
		defer l.Unlock()
		err = s.work(ctx, d.Account, d.ID, rec.ID)
	}
	if code := fault.CodeOf(err); err == nil || ctx.Err() != nil || code == fault.Stopping || code == fault.StaleEpoch {
		return err
	}
	account, id := "", rec.ID
	if d != nil {
		account, id = d.Account, d.ID
	}
	s.cfg.Logger.WarnContext(ctx, "a schedule cannot be worked on; it is tried again", "account", account, "schedule", id, "error", err)
	return s.postpone(ctx, rec)
}

// postpone moves a record whose schedule cannot be read or written. The schedule then does not
// know it; work removes it when the schedule can be read again.
func (s *Scheduler) postpone(ctx context.Context, rec *store.Record) error {
	_, id, _ := strings.Cut(rec.ID, ".")
	later := store.RecordChange{Record: *rec}
	later.ID, later.Revision = dueID(s.clock.Now()+longestPause.Microseconds(), id), store.AnyRevision
	_, err := s.cfg.Records.PutRecords(ctx, store.Deletion(rec.RecordKey), later)
	return err
}

// work decides what is due of a schedule and carries it out. from is the id of the record that
// said so. The schedule is locked.
func (s *Scheduler) work(ctx context.Context, account, id, from string) error {
	w, err := s.open(ctx, account, id)
	if fault.CodeOf(err) == fault.RecordNotFound {
		return s.drop(ctx, from)
	}
	if err != nil {
		return err
	}
	if from != w.Due { // of an earlier state, see postpone
		// No other record may say when it has something to do, so both are replaced in one write.
		w.stale, w.unsaved = from, true
	}
	return w.run(ctx)
}

func (s *Scheduler) drop(ctx context.Context, id string) error {
	_, err := s.cfg.Records.PutRecords(ctx, store.Deletion(dueKey(id)))
	return err
}

// A working is a schedule that is worked on. It is locked.
type working struct {
	s       *Scheduler
	account string
	table   *schedule.Table
	*Schedule
	// unsure is true while the first occurrence of the queue may have a run already, which a
	// process started that ended before it stored that.
	unsure bool
	// unsaved is true if the schedule is not as its record says.
	unsaved bool
	stale   string   // id of a record that says that there is something to do, and that Due is not
	firings []Firing // that are not stored yet
	// asked is the name of the occurrence that a caller waits for, and answer what became of it;
	// nil = it is in the queue.
	asked  string
	answer *Firing
}

// recordKey names the record of a schedule, or of a key of starts.
func recordKey(account, id string) store.RecordKey {
	if strings.HasPrefix(id, keyPrefix) {
		return store.RecordKey{Account: account, Kind: kindKey, ID: id}
	}
	return scheduleKey(account, id)
}

// dueID is the id of the record that says that the schedule has something to do. A key of another
// account may have the same id.
func (w *working) dueID(at int64) string {
	if w.keyed() {
		return dueID(at, w.ID+"."+w.account)
	}
	return dueID(at, w.ID)
}

func (s *Scheduler) open(ctx context.Context, account, id string) (*working, error) {
	rec, err := s.cfg.Records.Record(ctx, recordKey(account, id))
	if err != nil {
		return nil, err
	}
	sched, err := store.DecodeRecord[Schedule](&rec)
	if err != nil {
		return nil, err
	}
	sched.Revision = rec.Revision
	t := schedule.Never()
	if !sched.keyed() {
		t, err = schedule.New(&sched.When, sched.Created)
	}
	if err != nil { // the zone is known no longer
		return nil, fault.Wrap(fault.StoreCorrupt, err, "the schedule %s cannot be understood: %v", id, err)
	}
	return &working{s: s, account: account, table: t, Schedule: sched, unsure: len(sched.Queue) > 0}, nil
}

// history are the entries to store.
func (w *working) history() []Firing {
	if w.keyed() {
		return nil
	}
	return w.firings
}

// note adds an entry to the history.
func (w *working) note(f Firing) {
	w.Firings++
	f.Number, f.Decided, f.Count = w.Firings, w.s.clock.Now(), max(f.Count, 1)
	w.firings = append(w.firings, f)
	if f.Name == w.asked {
		w.answer = &f
	}
}

// skip notes why occurrences start nothing.
func (w *working) skip(k schedule.Skipped, run string) {
	f := Firing{Name: k.First.Name, At: k.First.At, Count: k.Count, More: k.More, Result: Skipped, Run: run, Reason: reasons[k.Reason], Manual: manual(k.First)}
	if k.Count > 1 {
		f.Last = k.Last.Name
	}
	w.note(f)
}

// save stores the schedule with what is new of its history, and when there is something to do
// again: after a pause, if there is one.
func (w *working) save(ctx context.Context, pause time.Duration) error {
	var changes []store.RecordChange
	next := ""
	switch at, ok := w.table.NextDue(w.ID, &w.State); {
	case len(w.Queue) > 0:
		next = w.dueID(w.s.clock.Now() + pause.Microseconds())
	case ok && w.Paused == 0:
		next = w.dueID(at)
	case w.keyed():
		next = w.dueID(w.s.clock.Now() + forgetAfter.Microseconds())
	}
	if next != w.Due && w.Due != "" {
		changes = append(changes, store.Deletion(dueKey(w.Due)))
	}
	if next != w.Due && next != "" {
		c, err := store.ChangeOf(dueKey(next), "", store.AnyRevision, due{w.account, w.ID})
		if err != nil {
			return err
		}
		changes = append(changes, c)
	}
	if w.stale != "" && w.stale != next {
		changes = append(changes, store.Deletion(dueKey(w.stale)))
	}
	w.Due = next
	for _, f := range w.history() {
		c, err := store.ChangeOf(firingKey(w.account, w.ID, f.Number), "", store.AnyRevision, f)
		if err != nil {
			return err
		}
		changes = append(changes, c)
		if old := f.Number - KeptFirings; old > 0 {
			changes = append(changes, store.Deletion(firingKey(w.account, w.ID, old)))
		}
	}
	c, err := store.ChangeOf(recordKey(w.account, w.ID), w.Name, w.Revision, w.Schedule)
	if err != nil {
		return err
	}
	stored, err := w.s.cfg.Records.PutRecords(ctx, append(changes, c)...)
	if err != nil {
		return err
	}
	w.Revision = stored[len(stored)-1].Revision
	w.firings, w.unsaved, w.stale = nil, false, ""
	return nil
}
