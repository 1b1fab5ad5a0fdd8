// SPDX-License-Identifier: Apache-2.0

// Package store says what it means to keep runs durable.
//
// It decides the promise (what one commit holds, what a guard refuses, what a
// reader may see) and leaves the keeping to its implementations, which all pass
// storetest.Run. It never interprets an event: journals, snapshots and plans
// are bytes here, numbered and framed by package journal.
package store

import (
	"context"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// A Key names a run. Every lookup takes the account first (I17): a run of
// another account answers exactly like one that does not exist.
type Key struct {
	Account string
	Run     string
}

// Store keeps runs durable. Implementations are safe for concurrent use and
// pass storetest.Run; that suite, not this comment, is the full contract. Whoever
// needs a part of it takes the interface of that part.
type Store interface {
	Committer
	Reader
	Recoverer
	Retention
	Notes

	// Stats describes size and health for people and tests.
	Stats(ctx context.Context) (Stats, error)
	Close() error
}

// A Committer takes what happens to runs.
type Committer interface {
	// Own makes the caller the owner of all runs here and returns its epoch,
	// larger than any before. Commits under an older epoch are refused.
	Own(ctx context.Context) (epoch uint64, err error)

	// Owns is nil while the epoch is the owner's, and fault.StaleEpoch when another
	// owner has come.
	Owns(ctx context.Context, epoch uint64) error

	// Commit makes a batch of transitions durable in one transaction, one sync,
	// and returns a verdict for each, in order. A transition whose guard fails
	// ([Admit]) leaves nothing behind; the others are written all the same. Several
	// transitions of one run in one batch are in event order. The batch and its
	// bytes are the caller's again when Commit returns.
	// On error the batch may or may not have been written: load those runs
	// again. After a failed sync every later Commit fails with StoreFailed (I21).
	Commit(ctx context.Context, batch []Transition) ([]Verdict, error)

	// Uncovered says what trimming waits for: bytes and number of the events
	// that are only in the journal, and up to 1,000 runs that hold them, the one
	// with the oldest first. It scans nothing, however long the journal is. Past
	// CompactBytes or CompactEvents the engine compacts those runs; a suspended run is never
	// among them, a settled one may be.
	Uncovered() (bytes, events int64, oldest []Key)
}

// A Reader shows what is stored.
type Reader interface {
	// Load returns a run as of its last commit, or fault.RunNotFound, also
	// when it belongs to another account. fault.StoreCorrupt names run and
	// offset when its bytes fail their checksum; other runs stay readable.
	Load(ctx context.Context, key Key) (*Saved, error)

	// Events returns the frames that hold events after `after`, in order, up to
	// about maxBytes (at least one frame when there is one). The first frame
	// may begin before after+1; next is the last event number in the page.
	// Runs unknown to the account are fault.RunNotFound.
	Events(ctx context.Context, key Key, after uint64, maxBytes int) (Page, error)

	// Head returns the head row, or fault.RunNotFound.
	Head(ctx context.Context, key Key) (Head, error)
	// List returns heads, newest first (by creation, then run id). A damaged one
	// has Head.Damage set and does not keep the others back; where its damage may
	// hide that it is selected, it is.
	List(ctx context.Context, q Query) ([]Head, error)

	// Plan returns what a transition stored under that key, or
	// fault.RecipeNotFound. Plans are shared by accounts: the key is of their content.
	Plan(ctx context.Context, key string) ([]byte, error)
}

// A Recoverer finds the runs that go on.
type Recoverer interface {
	// Recover calls fn for every run that is neither suspended nor settled (it
	// ended and owes nothing), in no particular order. A run whose bytes are
	// damaged is passed with Saved.Err set and must not stop the others. What
	// is committed meanwhile is in the runs that come later.
	Recover(ctx context.Context, fn func(*Saved) error) error

	// Due returns suspended runs whose wake-up time is at most until (UTC µs),
	// earliest first, at most limit.
	Due(ctx context.Context, until int64, limit int) ([]Wake, error)
}

// Notes keep small facts of the engine itself (clean shutdown, suspects of a
// crash), durable when SetNote returns. An absent note is nil; setting nil removes
// it. SetNote of an owner that was replaced changes nothing and is
// fault.StaleEpoch: it knows nothing of what the next one has noted.
type Notes interface {
	Note(ctx context.Context, name string) ([]byte, error)
	SetNote(ctx context.Context, epoch uint64, name string, value []byte) error
}

// An Inspector tells of the files that a store is kept in. A store that has none, or
// whose files are another program's, is no Inspector.
type Inspector interface {
	// Check reads everything and compares what must fit together. It returns the
	// version of the schema and what is wrong, at most 20 lines; it changes nothing.
	Check(ctx context.Context) (schema int, complaints []string, err error)
	// Size is about how many bytes a check reads.
	Size(ctx context.Context) (int64, error)
	// Unfinished is how many pages of a commit that nobody was told of were dropped
	// when the store was opened.
	Unfinished() int
	// Settings are those that a figure about the store is worth nothing without.
	Settings() (map[string]string, error)
}

// The bounds past which the engine compacts the runs that Uncovered names.
const (
	CompactBytes  = 32 << 20
	CompactEvents = 500_000
)

// A Transition is what one commit does to one run.
type Transition struct {
	Key
	Epoch uint64 // guard: must be the current owner's

	// First and Last number the events in Frames; both 0 when there are none.
	// Guard: First follows the last event stored for the run.
	First, Last uint64
	// Frames are the events as journal.AppendFrame writes them, one or more frames.
	Frames []byte

	// Plans are those that the run needs from here on: the first transition of a run
	// has its own. One is written unless one of that key is there.
	Plans []EncodedPlan

	// Head, when set, replaces the head row: at the start, at the end and when
	// the status changes. The first transition of a run must have one, and fixes
	// recipe, version, plan and time of creation.
	Head *Head

	// Idempotency, when set, guards a start: the account's key must be unused.
	Idempotency *Idempotency

	// Files are hashes of files that the events name (and the plan, in the first
	// transition); the run is known to name them from this commit on. A hash may
	// come again, and need not be that of a stored file.
	Files []string

	// Compaction, when set, covers the run's events up to Compaction.Last: they are kept as
	// a chunk and need no journal row any more.
	Compaction *Compaction

	// Suspension, when set together with (or after) a Compaction that covers all events,
	// says that the run leaves memory.
	Suspension *Suspension
}

// A Compaction moves a run's events from the journal into a chunk, with the state
// after the last of them. Chunk holds events First..Last as uncompressed frames
// (the store compresses); First follows the previous chunk's last, and Last is
// the Last of a transition, this one or an earlier. State may be nil for a
// settled run, whose state nobody needs.
type Compaction struct {
	First, Last uint64
	Chunk       []byte
	Format      uint32 // of State
	State       []byte
}

// A Suspension is the index entry of a run that is not in memory. The next transition
// with events and without a Suspension ends it.
type Suspension struct {
	WakeAt int64 // UTC µs of its next timer; 0 = none
}

// Idempotency ties a client's key to the run it started (I13).
type Idempotency struct {
	Key      string
	BodyHash string // of the request; another body under one key is refused
	Until    int64  // UTC µs; kept at least that long
}

// A Verdict is the outcome of one transition.
type Verdict struct {
	// Err is nil when written. fault.StaleEpoch: another engine owns the runs.
	// fault.Conflict: First does not follow the stored events, or the
	// idempotency key is used by the same body (Run names that run).
	// fault.IdempotencyMismatch: the key is used by another body.
	Err error
	Run string
}

// Saved is a run as stored.
type Saved struct {
	Head Head
	// State is the newest snapshot, taken after event StateLast; nil = none.
	Format    uint32
	State     []byte
	StateLast uint64
	// Chunked is the last event kept in a chunk; later ones are only in the journal.
	Chunked uint64
	// Tail are the frames after StateLast (or from event 1 without a snapshot).
	// The first frame may begin before StateLast+1; skip the events up to StateLast.
	Tail []byte
	// Last is the number of the run's last event.
	Last       uint64
	Suspension *Suspension // set while the run is suspended
	Err        error       // Recover only: fault.StoreCorrupt
}

// An EncodedPlan is a plan as it is stored.
type EncodedPlan struct {
	Key  string // plan.Plan.Key
	Data []byte // plan.Plan.Encode
}

// Head is the row that lists show; status and times are copies of the journal.
type Head struct {
	Key
	Recipe   string
	Version  string
	PlanHash string // the plan's key
	Status   string
	Created  int64 // UTC µs
	Updated  int64
	Ended    int64 // 0 while live
	Code     fault.Code
	Message  string
	Used     int64 // credits
	Failures bool  // has_failures (R9)
	// Quarantine is the reason the run is set apart; "" = it is not.
	Quarantine string
	// Owes says that an ended run still has commands to carry out.
	Owes bool
	// Damage, from List and Recover only, says why nothing of the head is to be
	// believed but its key, which is all that it then has. Head answers with
	// fault.StoreCorrupt. Such a head must not be written.
	Damage string
}

// ImportedReason begins the reason of a run that came in a bundle. It is set
// apart, also when it has ended, until its user adopts it.
const ImportedReason = "imported"

// Imported says that the run came in a bundle and was not adopted: what its
// journal says happened elsewhere, or never.
func (h *Head) Imported() bool { return strings.HasPrefix(h.Quarantine, ImportedReason) }

// Settled says that nothing will ever happen to the run by itself.
func (h *Head) Settled() bool { return h.Ended != 0 && !h.Owes }

// A Wake is a suspended run's next timer.
type Wake struct {
	Key
	At int64
}

// A Page is part of a run's journal.
type Page struct {
	Frames []byte
	Next   uint64 // number of the last event in Frames; = after when there is none
	Last   uint64 // number of the run's last stored event
}

// A Query selects heads. Zero fields do not restrict.
type Query struct {
	Account string // required
	Status  string
	Recipe  string
	Prefix  string // of the run id
	After   string // run id: continue below it
	Since   int64  // created at or after, UTC µs
	Limit   int    // default 50, at most 500
}

// Cap is the number of heads a query asks for: 50 when it does not say, never
// more than 500.
func (q *Query) Cap() int {
	if q.Limit <= 0 {
		return 50
	}
	return min(q.Limit, 500)
}

// Stats describes a store.
type Stats struct {
	JournalRows  int64
	JournalBytes int64 // sum of length(data) in journal
	Syncs        int64 // since open; -1 = not counted
	Commits      int64 // since open
	Transitions  int64 // since open
}
