// SPDX-License-Identifier: Apache-2.0

// Package approval asks people, and keeps what they answer.
//
// It decides what a request is, who may answer one and until when, which answer counts, and when
// people are reminded and a default applies. A request is an external job of its step (package
// jobs): it exists exactly while the step waits, survives restarts, and ends with the run. Its text
// and its answer are records of their own, so that the step of a request costs nothing while it
// waits but an entry in a heap.
//
// The first answer that is stored counts: it is stored before it becomes the result of the step, so
// a crash between the two loses nothing, and whoever comes later is told who has answered, and when.
//
// The package never decides what follows for the run, tells nobody by itself but those who watch
// the run, and knows neither HTTP nor keys of the API.
package approval

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// A Decision is what a person says.
type Decision string

// The decisions.
const (
	Approved Decision = "approved"
	Rejected Decision = "rejected"
	Edited   Decision = "edited" // with another value
)

// KindApproval is the kind of the requests of recipes (`wait: {approval: …}`).
const KindApproval = "approval"

// ByDefault is who gives the answer that applies at the time-out.
const ByDefault = "default"

// A Request is what a person is asked.
type Request struct {
	Kind      string // which result an answer has, see [Manager.Handle]
	Title     string
	Text      string
	Form      json.RawMessage // JSON Schema of an object, for the values of an answer; nil = none are asked for
	Value     json.RawMessage // what is shown; nil = nothing
	Held      bool            // only those who may answer see Text and Value
	Decisions []Decision      // that are possible; default approved and rejected
	// Approvers may answer: names of keys, and role:NAME. Empty = every key with the scope.
	Approvers []string
	Timeout   time.Duration   // 0 = as long as a request may wait
	Default   *Answer         // that applies at the time-out; nil = the step fails
	Remind    time.Duration   // those who watch the run are told again so often; 0 = never
	Options   json.RawMessage // for the result, such as what the request is part of
}

// An Answer is what a person has said.
type Answer struct {
	Decision Decision        `json:"decision"`
	By       string          `json:"by,omitempty"`  // name of the key, or for whom the link was made
	Key      string          `json:"key,omitempty"` // its id, or of a link the id of the key that has made it
	Link     bool            `json:"link,omitempty"`
	At       int64           `json:"at,omitempty"` // UTC µs
	Comment  string          `json:"comment,omitempty"`
	Values   json.RawMessage `json:"values,omitempty"` // an object that fits the form
	Value    json.RawMessage `json:"value,omitempty"`  // of Edited: what counts in place of the request's
}

// A Result makes the result of a step of an answer. The request has what the step has submitted.
type Result func(ctx context.Context, r *Request, a *Answer, t *action.Task) (action.Result, error)

// The bounds of a request.
const (
	MaxTitle     = 300
	MaxText      = 64 << 10
	MaxForm      = 64 << 10
	MaxValue     = 1 << 20
	MaxHeld      = 16 << 20 // bytes of the value of a request with Held
	MaxComment   = 4 << 10
	MaxValues    = 64 << 10
	MaxApprovers = 50
	MaxTimeout   = 366 * 24 * time.Hour
	MinRemind    = time.Minute
	MaxReminders = 100
)

const (
	// grace is how long after its time-out a request is ended by the machine, if nothing else has
	// ended it: a server that was down for so long does not apply its default any more.
	grace = 30 * 24 * time.Hour
	// keptEnded is how long it is known who has answered a request.
	keptEnded = 30 * 24 * time.Hour
	// calls is how many requests are worked on at once.
	calls = 16
)

// A Host executes the runs that requests belong to.
type Host struct {
	// Settle records the end of a job; see engine.Engine.Settle.
	Settle func(ctx context.Context, job *jobs.Job, source journal.Source, result action.Func) error
	// Key returns the key that signs links. It belongs to the data directory, because links outlive
	// a restart.
	Key func(ctx context.Context) ([]byte, error)
}

// Config configures a Manager.
type Config struct {
	Records Records
	// Put changes records, as the owner of the store.
	Put    func(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
	Logger *slog.Logger // default: discarded
	Now    func() time.Time
}

// Records are read by a manager; see store.Records.
type Records interface {
	jobs.Records
}

// A Manager has the requests of a node. It is safe for concurrent use.
type Manager struct {
	jobs.Part

	cfg  Config
	host Host
	wake chan struct{} // 1 slot
	busy chan struct{} // semaphore of what is worked on
	work sync.WaitGroup

	mu      sync.Mutex
	results map[string]Result
	waiting map[string]*waiting // by id
	due     []due               // a heap
	ended   []ending            // requests whose jobs have ended, to be marked so
	stopped bool
}

// New returns a manager. Attach and Run make it work.
func New(cfg Config) *Manager {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Manager{cfg: cfg, wake: make(chan struct{}, 1), busy: make(chan struct{}, calls), results: map[string]Result{}, waiting: map[string]*waiting{}}
	m.Handle(KindApproval, approvalResult)
	return m
}

// Handle says which result answers to requests of a kind have. Call it before Run.
func (m *Manager) Handle(kind string, result Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.results[kind] = result
}

// Attach sets the host. Call it before a request is answered.
func (m *Manager) Attach(h Host) { m.host = h }

func (m *Manager) now() int64 { return m.cfg.Now().UnixMicro() }

// errEnded is the answer to whoever answers a request that no step waits for any more.
func errEnded(title string) error {
	err := fault.New(fault.TooLate, "%q is not asked any more: its step or its run has ended", title)
	err.Remedy = "Nothing to do; `roux runs get RUN` says how the run has ended."
	return err
}
