// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/terms"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/worker"
)

// account is the account of the runs in a sandbox. It pays for them, unless it is told not to.
const account = "test"

const (
	// provider is the service of the external jobs of mocked actions.
	provider = "mocked"
	// maxRounds bounds how often the engine of a sandbox is called, so that a run that never
	// comes to rest ends its test. An engine wakes up every hour, and a run may wait for a year.
	maxRounds = 1_000_000
)

// A world answers what a run in a sandbox asks of the outside. It is only called from the
// goroutine that runs the sandbox.
type world interface {
	// call says what happens with a call of an action. An error ends the sandbox: the run cannot
	// go on.
	call(c *call) (reply, error)
	// waiting says which signal is sent to a step that waits for one, and how long after that;
	// ok is false if none is. An error ends the sandbox, as that of call.
	waiting(w *wait) (data any, after int64, ok bool, err error)
}

// A call is an attempt that is about to call its action.
type call struct {
	key     store.Key
	path    string // of the step instance, such as pages[3].resize
	id      string // of the step
	child   bool   // of a child run
	attempt int
	gen     uint32
	action  *action.Action
	input   []byte // canonical JSON
	hash    []byte // of the input
	now     int64  // UTC µs
}

// A reply is how a call is answered.
type reply struct {
	run   action.Func // is called in place of the action; nil = the action itself
	delay int64       // how long the attempt takes, µs
	// raw is an output that needs no checks, and may be in files; run is not called then.
	raw []byte
	// job is set for a call that submits an external job; run returns it.
	job *jobEnd
}

// A jobEnd is how an external job ends.
type jobEnd struct {
	after int64       // µs from the submission
	run   action.Func // returns the result
}

// A wait is a step that has begun to wait for a signal.
type wait struct {
	key    store.Key
	path   string
	signal string
}

// A sandbox is an engine in virtual time, with one account and a store in memory.
type sandbox struct {
	ctx      context.Context
	world    world
	store    *memory.Store
	stage    *engine.Stage
	programs *program.Cache
	actions  *program.Actions
	files    action.Files // may be nil
	gates    program.Moderators
	pool     *worker.Pool
	unwatch  func() bool // the end of ctx stops pool no more; false = it has

	now    int64 // UTC µs
	events []event
	order  int64

	result atomic.Pointer[worker.Result] // of the attempt that is carried out now: the first one counts
	ends   map[string]*jobEnd
	waits  []*wait
	failed error // the world could not answer
}

// An event is something that happens at a time: it returns what arrives then, or nil.
type event struct {
	at, order int64
	task      *taskID // whose report it is
	message   func() (*engine.Message, error)
}

// A taskID names an attempt.
type taskID struct {
	key   store.Key
	ref   journal.Ref
	fence journal.Fence
}

func earlier(a, b *event) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

// preparations are what sandboxes have in common, because preparing it takes longer than most runs.
// An engine changes what it has, so that no two sandboxes use one at the same time.
type preparations struct{ pool sync.Pool }

// prepared are plans and contracts of actions that need not be prepared again.
type prepared struct {
	programs *program.Cache
	actions  *program.Actions
}

func newPreparations(actions catalogue.Actions) *preparations {
	return &preparations{sync.Pool{New: func() any {
		return &prepared{program.NewCache(100), &program.Actions{Finder: withStub{actions}}}
	}}}
}

func (p *preparations) take() *prepared  { return p.pool.Get().(*prepared) }
func (p *preparations) give(v *prepared) { p.pool.Put(v) }

// A sandboxConfig is what a sandbox is made of.
type sandboxConfig struct {
	actions  *program.Actions // those with the same programs have the same one
	world    world
	files    action.Files // nil = there are none
	secrets  worker.SecretSource
	gates    program.Moderators
	now      int64 // UTC µs
	seed     uint64
	balance  int64 // credits of the account; 0 = as many as there can be
	unpaid   bool  // the account does not pay
	programs *program.Cache
	resolve  program.ResolveFunc // what expressions name; nil = nothing
}

// seeded are random bytes that depend on a seed alone.
type seeded struct{ *rand.ChaCha8 }

// Read implements io.Reader.
func (s seeded) Read(p []byte) (int, error) { return s.ChaCha8.Read(p) }

// close ends what the sandbox has.
func (s *sandbox) close() {
	if s.unwatch() {
		s.pool.Stop(s.ctx)
	}
}

// openSandbox returns a sandbox whose account has its credits.
func openSandbox(ctx context.Context, cfg sandboxConfig) (*sandbox, error) {
	s := &sandbox{
		ctx: ctx, world: cfg.world, store: memory.New(memory.Options{}), programs: cfg.programs, actions: cfg.actions,
		files: cfg.files, gates: cfg.gates, now: cfg.now, ends: map[string]*jobEnd{},
	}
	if s.programs == nil {
		s.programs = program.NewCache(100)
	}
	s.pool = worker.New(worker.Config{Done: func(r worker.Result) {
		s.result.CompareAndSwap(nil, &r)
	}, Secrets: cfg.secrets, DeltaWait: -1})
	// An action that is called for real is told to stop when the tests are.
	s.unwatch = context.AfterFunc(ctx, func() { s.pool.Stop(ctx) })
	var key [32]byte
	for i := range 8 {
		key[i] = byte(cfg.seed >> (8 * i))
	}
	ec := engine.Config{
		Store: s.store, Actions: cfg.actions, Rand: seeded{rand.NewChaCha8(key)}, Moderators: cfg.gates, Resolve: cfg.resolve, Jobs: s.jobsChanged,
		JobSlots: map[string]bool{provider: true},
		// A run that waits stays in memory: there is nothing to save, and it goes on sooner.
		SuspendAfter: 1 << 60,
		Accounts:     func(string) engine.AccountRules { return terms.Rules{Unmetered: cfg.unpaid, MaxLiveRuns: -1} },
	}
	if cfg.files != nil {
		ec.Files = func(string) action.Files { return cfg.files }
	}
	var err error
	if s.stage, err = engine.OpenStage(ctx, ec, s.programs, s.now); err != nil {
		return nil, err
	}
	s.stage.Observe(s)
	if cfg.unpaid {
		return s, nil
	}
	return s, s.grant(cfg.balance)
}

// mostCredits is the balance of an account whose test says nothing of it.
const mostCredits = 1_000_000_000

func (s *sandbox) grant(balance int64) error {
	if balance == 0 {
		balance = mostCredits
	}
	m, err := s.stage.Grant(engine.GrantRequest{Account: account, Key: "test", Amount: balance, Terms: ledger.Terms{Source: ledger.Paid, Effective: s.now}})
	if err != nil {
		return err
	}
	if err := s.handle(m); err != nil {
		return err
	}
	a, _ := m.Answer()
	return a.Err
}

// Before implements the observer of a stage.
func (s *sandbox) Before(store.Key, *machine.Run, *machine.Input) {}

// After implements the observer of a stage: it notes which steps wait for signals.
func (s *sandbox) After(key store.Key, run *machine.Run, _ *machine.Input, t *machine.Turn) {
	for i := range t.Events {
		if path, signal, ok := view.AwaitedSignal(run.Plan(), &t.Events[i]); ok {
			s.waits = append(s.waits, &wait{key, path, signal})
		}
	}
}

// jobsChanged plans the end of a job that has been submitted.
func (s *sandbox) jobsChanged(changes []jobs.Change) {
	for i := range changes {
		j := changes[i].Job
		if j == nil || s.ends[j.ID] == nil {
			continue
		}
		end := s.ends[j.ID]
		delete(s.ends, j.ID)
		s.at(s.now+end.after, nil, func() (*engine.Message, error) {
			return s.stage.Settle(j, journal.FromPoll, end.run), nil
		})
	}
}

// at plans something.
func (s *sandbox) at(when int64, task *taskID, message func() (*engine.Message, error)) {
	s.order++
	s.events = heap.Push(s.events, event{when, s.order, task, message}, earlier)
}

// start starts a run and returns its id. The error is why the start was refused.
func (s *sandbox) start(req *engine.StartRequest) (string, error) {
	req.Account = account
	m, err := s.stage.Start(req)
	if err != nil {
		return "", err
	}
	if err := s.handle(m); err != nil {
		return "", &broken{err}
	}
	a, ok := m.Answer()
	if !ok {
		return "", &broken{errors.New("the start of the run was not answered")}
	}
	return a.Run, a.Err
}

// A broken error is one of the sandbox, and not of the run in it.
type broken struct{ err error }

func (b *broken) Error() string { return b.err.Error() }
func (b *broken) Unwrap() error { return b.err }

// finish lets the time pass until a run has ended, with everything that it owes.
func (s *sandbox) finish(run string) (store.Head, error) {
	key := store.Key{Account: account, Run: run}
	for range maxRounds {
		head, err := s.store.Head(s.ctx, key)
		if err != nil || head.Settled() {
			return head, err
		}
		if head.Quarantine != "" {
			return head, fault.New(fault.InternalError, "the run is quarantined: %s", head.Quarantine)
		}
		if err := s.step(); err != nil {
			return head, err
		}
	}
	return store.Head{}, fault.New(fault.InternalError, "the run does not end: the engine was called %d times", maxRounds)
}

// cancelAfter cancels a run after a time, if it has not ended by then.
func (s *sandbox) cancelAfter(run string, after int64) {
	s.at(s.now+after, nil, func() (*engine.Message, error) {
		m, err := s.stage.Cancel(store.Key{Account: account, Run: run}, "the test cancels it")
		if errors.Is(err, fault.TooLate) {
			return nil, nil
		}
		return m, err
	})
}

// step lets the time pass until something happens, and handles it.
func (s *sandbox) step() error {
	next := s.stage.Wakeup()
	if len(s.events) > 0 && (next == 0 || s.events[0].at < next) {
		next = s.events[0].at
	}
	if next == 0 {
		return fault.New(fault.InternalError, "the run has not ended, and waits for nothing")
	}
	s.now = max(s.now, next)
	var arrived []*engine.Message
	for len(s.events) > 0 && s.events[0].at <= s.now {
		var ev event
		ev, s.events = heap.Pop(s.events, earlier)
		m, err := ev.message()
		if err != nil {
			return err
		}
		if m != nil {
			arrived = append(arrived, m)
		}
	}
	return s.handle(arrived...)
}

// handle hands messages to the engine and carries out what follows at this moment.
func (s *sandbox) handle(messages ...*engine.Message) error {
	for {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		s.stage.Handle(s.now, messages...)
		messages = s.act()
		for {
			batch, ok := s.stage.EncodeBatch()
			if !ok {
				break
			}
			if len(batch) == 0 {
				s.stage.Committed(nil, nil)
			} else {
				s.stage.Committed(s.store.Commit(s.ctx, batch))
			}
			messages = append(messages, s.act()...)
		}
		switch {
		case s.failed != nil:
			return s.failed
		case s.stage.Dead() != nil:
			return s.stage.Dead()
		}
		if len(messages) == 0 && !s.stage.Busy() {
			break
		}
	}
	return s.sendSignals()
}

// sendSignals plans the signals that steps have begun to wait for.
func (s *sandbox) sendSignals() error {
	waits := s.waits
	s.waits = nil
	for _, w := range waits {
		data, after, ok, err := s.world.waiting(w)
		if err != nil {
			return err
		}
		if ok {
			s.signal(w.key, w.signal, data, after)
		}
	}
	return nil
}

// signal sends a signal after a time, if its run has not ended by then.
func (s *sandbox) signal(key store.Key, name string, data any, after int64) {
	s.at(s.now+after, nil, func() (*engine.Message, error) {
		m, err := s.stage.Signal(key, name, data)
		if errors.Is(err, fault.TooLate) {
			return nil, nil
		}
		return m, err
	})
}

// signalAfter is signal for a root run.
func (s *sandbox) signalAfter(run, name string, data any, after int64) {
	s.signal(store.Key{Account: account, Run: run}, name, data, after)
}

// act carries out what the engine has released. It returns what arrives at once.
func (s *sandbox) act() (messages []*engine.Message) {
	effects := s.stage.Effects()
	for i := range effects {
		ef := &effects[i]
		var m *engine.Message
		switch ef.Kind {
		case machine.CmdDispatch:
			m = s.dispatch(ef)
		case machine.CmdCancelTask:
			m = s.cancelTask(ef)
		default:
			m = s.stage.Perform(ef)
		}
		if m != nil {
			messages = append(messages, m)
		}
	}
	return messages
}

// cancelTask ends an attempt that has not reported yet.
func (s *sandbox) cancelTask(ef *engine.Effect) *engine.Message {
	for i := range s.events {
		if t := s.events[i].task; t != nil && t.key == ef.Key && t.ref == ef.Ref && t.fence == ef.Fence {
			s.events[i].task = nil
			s.events[i].message = func() (*engine.Message, error) { return nil, nil }
			return s.stage.Freed(ef)
		}
	}
	return nil
}

// dispatch carries out an attempt, whose report arrives after the time that it takes.
func (s *sandbox) dispatch(ef *engine.Effect) *engine.Message {
	m, delay := s.attempt(ef)
	if s.failed != nil {
		return nil
	}
	if delay == 0 {
		return s.stage.Report(ef, m, false)
	}
	kept := *ef
	s.at(s.now+delay, &taskID{ef.Key, ef.Ref, ef.Fence}, func() (*engine.Message, error) {
		return s.stage.Report(&kept, m, false), nil
	})
	return nil
}

// eachEvent calls fn with each event of a run.
func (s *sandbox) eachEvent(key store.Key, fn func(*journal.Event) error) error {
	return store.EachEvent(s.ctx, s.store, key, 0, fn)
}
