// SPDX-License-Identifier: Apache-2.0

// Package store defines what it means to keep runs durable.
//
// It defines what one commit contains, what a guard refuses and what a reader may see.
// Its implementations keep the data; all of them pass storetest.Run. It never
// interprets an event: journals, snapshots and plans are bytes here, numbered and
// framed by package journal.
package store

import (
	"cmp"
	"context"
	"io"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
)

// A Key names a run. Every lookup takes the account first (I17): a run of
// another account answers exactly like one that does not exist.
type Key struct {
	Account string
	Run     string
}

// Compare orders keys by account, then by run.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Account, other.Account), cmp.Compare(k.Run, other.Run))
}

// Store keeps runs durable. Implementations are safe for concurrent use and pass
// storetest.Run; that suite, not this comment, is the full contract. Code that needs
// only a part of it should use the interface of that part.
type Store interface {
	Committer
	Reader
	Searcher
	Recoverer
	Queue
	Retention
	Notes
	Ledger
	Feed
	Records

	// Stats describes size and health for people and tests.
	Stats(ctx context.Context) (Stats, error)
	Close() error
}

// A Committer writes transitions of runs.
type Committer interface {
	// Own makes the caller the owner of all runs here and returns its epoch, which is
	// larger than any before. Commits under an older epoch are refused.
	Own(ctx context.Context) (epoch uint64, err error)

	// Owns returns nil while the epoch is the owner's, and fault.StaleEpoch once there
	// is another owner.
	Owns(ctx context.Context, epoch uint64) error

	// Commit makes a batch of transitions durable in one transaction with one sync, and
	// returns a verdict for each, in order. A transition whose guard fails ([Admit])
	// changes nothing; the others are written. Several transitions of one run in one
	// batch are in event order. A group ([Transition.Group]) is written whole or not at
	// all. The caller may reuse the batch and its bytes when Commit returns.
	//
	// After an error the batch may or may not have been written: load those runs again.
	// After a failed sync every later Commit fails with StoreFailed (I21).
	Commit(ctx context.Context, batch []Transition) ([]Verdict, error)

	// Uncompacted returns the bytes and the number of the events that are only in the
	// journal, and up to 1,000 runs that have such events, the oldest first. Their
	// journal rows cannot be trimmed. It does not scan, however long the journal is.
	// Past CompactBytes or CompactEvents the engine compacts those runs. A suspended
	// run is never among them; a settled run may be.
	Uncompacted() (bytes, events int64, oldest []Key)
}

// A Reader reads what is stored.
type Reader interface {
	// Load returns a run as of its last commit. A run of another account is
	// fault.RunNotFound like one that does not exist. When its bytes fail their
	// checksum the error is fault.StoreCorrupt and names run and offset; other runs
	// stay readable.
	Load(ctx context.Context, key Key) (*Saved, error)

	// Events returns the frames that hold events after `after`, in order, up to about
	// maxBytes (at least one frame when there is one). The first frame may begin before
	// after+1. Page.Next is the number of the last event in the page. Runs unknown to
	// the account are fault.RunNotFound.
	Events(ctx context.Context, key Key, after uint64, maxBytes int) (Page, error)

	// Head returns the head row, or fault.RunNotFound.
	Head(ctx context.Context, key Key) (Head, error)
	// List returns the heads of root runs, newest first (by creation, then run id), or
	// those that the query selects instead. A damaged head has Head.Damage set and does
	// not hide the others. It is listed when the query selects by a field that may be
	// damaged, unless the damage is also in an index of that field.
	List(ctx context.Context, q Query) ([]Head, error)

	// Plan returns the plan that a transition stored under the key, or
	// fault.RecipeNotFound. Accounts share plans, because the key depends on the
	// content only.
	Plan(ctx context.Context, key string) ([]byte, error)
}

// A Searcher lists runs in bounded pieces.
type Searcher interface {
	// Search is List for queries that may select few of many runs. It reads at most MaxScan
	// heads and returns those that the query selects, in its order, and the run behind which
	// (Query.After) the next call continues; "" = there are no more. A page with a next run
	// may have fewer heads than the limit, or none.
	Search(ctx context.Context, q Query) (heads []Head, next string, err error)
}

// A Recoverer finds the runs that an engine continues after a start.
type Recoverer interface {
	// Recover calls fn with every run that is neither suspended nor settled (a settled
	// run has ended and owes nothing), in no particular order. A damaged run is passed
	// with Saved.Err set and must not stop the others. A run that is passed late
	// includes what was committed since Recover was called.
	Recover(ctx context.Context, fn func(*Saved) error) error

	// Due returns suspended runs whose wake-up time is at most until (UTC µs), earliest
	// first, at most limit.
	Due(ctx context.Context, until int64, limit int) ([]Wake, error)
}

// Notes are small facts that the engine stores for itself, such as a clean shutdown and
// the suspects of a crash. They are durable when SetNote returns. An absent note is
// nil; setting nil removes a note. SetNote under the epoch of an earlier owner changes
// nothing and returns fault.StaleEpoch, because that owner does not know what the next
// one has noted.
type Notes interface {
	Note(ctx context.Context, name string) ([]byte, error)
	SetNote(ctx context.Context, epoch uint64, name string, value []byte) error
}

// A Ledger reads the credits of accounts, which Commit moves. An account without
// entries is one without credits, not an error.
type Ledger interface {
	// Account returns the account as of a time in UTC µs: after all entries that were
	// recorded at that time or before. math.MaxInt64 is now. The caller owns what is
	// returned.
	Account(ctx context.Context, account string, at int64) (*ledger.Account, error)

	// Entries returns the account's entries after number `after`, in order, at most
	// limit. The first entry has number 1.
	Entries(ctx context.Context, account string, after uint64, limit int) ([]*ledger.Entry, error)

	// Entry returns the entry under a key and its number, or nil. Keys that follow from an
	// event of a run ([KeyFollows]) are not looked for: what the run has stored tells.
	Entry(ctx context.Context, account, key string) (*ledger.Entry, uint64, error)
}

// An Inspector reports on the files of a store. A store without files, or one
// whose files belong to a database server, does not implement it.
type Inspector interface {
	// Check reads everything and compares what must be consistent. It returns the
	// version of the schema and the problems found, at most 20 lines. It changes
	// nothing.
	Check(ctx context.Context) (schema int, complaints []string, err error)
	// Size is about how many bytes a check reads.
	Size(ctx context.Context) (int64, error)
	// Unfinished returns how many pages were dropped when the store was opened because
	// they belong to a commit that was never acknowledged.
	Unfinished() int
	// Settings returns the settings that a published measurement of the store must
	// name.
	Settings() (map[string]string, error)
}

// A Snapshotter copies a store while it is used.
type Snapshotter interface {
	// Snapshot returns a copy of everything that is committed, as it was at one moment
	// between its call and its return. Commits go on meanwhile. progress is called with how
	// much is copied and how much there is; the units are the store's own.
	Snapshot(ctx context.Context, progress func(done, total int64)) (*Snapshot, error)
}

// A Snapshot is a copy of a store in one file. Close removes it.
type Snapshot struct {
	io.ReadCloser
	Size   int64
	Schema int   // the version of its schema
	Runs   int64 // how many runs it has
}

// The bounds past which the engine compacts the runs that Uncompacted returns.
const (
	CompactBytes  = 32 << 20
	CompactEvents = 500_000
)

// A Transition is what one commit does to one run. One without a run moves credits of
// the account and does nothing else, such as a grant.
type Transition struct {
	Key
	Epoch uint64 // guard: must be the current owner's

	// Group, when set, joins the transitions of the batch that have the same account and
	// group: all of them are written, or none. They need not be adjacent. If the guard
	// of one fails, the others have a verdict with Group set.
	Group string

	// First and Last number the events in Frames; both 0 when there are none.
	// Guard: First follows the last event stored for the run.
	First, Last uint64
	// Frames are the events as journal.AppendFrame writes them, one or more frames.
	Frames []byte

	// Plans are those that the run needs from here on; the first transition of a run
	// has at least its own. A plan is written unless its key is already stored.
	Plans []EncodedPlan

	// Head, when set, replaces the head row: at the start, at the end and when
	// the status changes. The first transition of a run must have one, and fixes
	// root, parent, recipe, version, plan and time of creation.
	Head *Head

	// Idempotency, when set, guards a start: the account's key must be unused.
	Idempotency *Idempotency

	// Files are hashes of the files that the events (and, in the first transition, the
	// plan) name. From this commit on they count as needed by the run. A hash may be
	// repeated and need not be that of a stored file.
	Files []string

	// Entries move credits of the account. They are recorded together with the events
	// that they pay for, or not at all; an entry is never changed once it was made.
	// Guards: each key is new to the account, and each entry fits the account's state
	// after those before it.
	Entries []*ledger.Entry

	// Watch, when set, says which levels of the account's credits are reported in the feed
	// when the entries cross them.
	Watch   *ledger.Watch
	notices []ledger.Notice // of the entries, if they were accepted

	// Records changes records in the commit of the events that cause it, in their order.
	// They have no name and no guard (AnyRevision), so none of them is ever refused. Created
	// and Updated are set to RecordsAt, UTC µs, as PutRecords sets them.
	Records   []RecordChange
	RecordsAt int64

	// Compaction, when set, covers the run's events up to Compaction.Last: they are
	// kept as a chunk and no longer need a journal row.
	Compaction *Compaction

	// Suspension, when set, marks the run as not in memory. A Compaction in this
	// transition or an earlier one must cover all its events.
	Suspension *Suspension
}

// A Compaction moves a run's events from the journal into a chunk, with the state after
// the last of them. Chunk holds the events First to Last as uncompressed frames; the
// store compresses them. First follows the previous chunk's last event, and Last is the
// last event of a transition, of this one or an earlier one. State may be nil for a
// settled run, whose state is never loaded.
type Compaction struct {
	First, Last uint64
	Chunk       []byte
	Format      uint32 // of State
	State       []byte
}

// A Suspension is the index entry of a run that is not in memory. The next transition
// with events and without a Suspension removes it.
type Suspension struct {
	WakeAt int64 // UTC µs of its next timer; 0 = none
}

// Idempotency ties a client's key to the run it started (I13).
type Idempotency struct {
	Key      string
	BodyHash string // of the request; another body under one key is refused
	Until    int64  // UTC µs; kept at least that long
	// Refusal is why the run cannot start; nil = it can. Only the store knows whether the
	// key has started a run: a request that is repeated gets that one, whatever would
	// keep a new one from starting.
	Refusal error
}

// A Verdict is the outcome of one transition.
type Verdict struct {
	// Err is nil when written. fault.StaleEpoch: another engine owns the runs.
	// fault.Conflict: First does not follow the stored events, or the
	// idempotency key is used by the same body (Run names that run).
	// fault.IdempotencyMismatch: the key is used by another body.
	Err error
	Run string
	// Group reports that another transition of the group was refused, and that this one
	// may have been written without it. Err is then fault.Conflict.
	Group bool
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
	// Root and Parent are those of a child run; "" for a root run.
	Root, Parent string
	Recipe       string
	Version      string
	PlanHash     string // the plan's key
	Status       string
	Created      int64 // UTC µs
	Updated      int64
	Ended        int64 // 0 while live
	Code         fault.Code
	Message      string
	Used         int64 // credits
	Failures     bool  // has_failures (R9)
	// Quarantine is the reason why the run is quarantined; "" = it is not.
	Quarantine string
	// Owes reports that an ended run still has commands to carry out.
	Owes bool
	// Deleted is when a user deleted the run, UTC µs; 0 = nobody has. A deleted run is
	// stored until retention removes it, but lists hide it; see Query.Deleted. It has ended,
	// is a root, and stays deleted.
	Deleted int64
	// Labels are those of a root run, as EncodeLabels returns them; "" = it has none. The
	// first transition fixes them.
	Labels string
	// Damage is set by List and Recover only. It says why only the key of this head can
	// be trusted; all other fields are then empty. The method Head returns
	// fault.StoreCorrupt instead. Do not write such a head.
	Damage string
}

// ImportedReason begins the quarantine reason of a run that came in a bundle. Such a
// run is quarantined, even if it has ended, until its user adopts it.
const ImportedReason = "imported"

// CutOffReason begins the quarantine reason of a child run that cannot go on while a run
// above it is quarantined. It is released with that run.
const CutOffReason = "it needs more than its share"

// Imported reports whether the run came in a bundle and was not adopted. Nothing
// proves that what its journal says has happened.
func (h *Head) Imported() bool { return strings.HasPrefix(h.Quarantine, ImportedReason) }

// Settled reports whether the run has ended and owes nothing: it will not change unless
// a user acts.
func (h *Head) Settled() bool { return h.Ended != 0 && !h.Owes }

// A Wake is a suspended run and the time of its next timer. [Retention.Ended] uses it
// for a settled run and the time when it ended.
type Wake struct {
	Key
	At   int64
	Root string // of a child run; only Due says it
}

// A Page is part of a run's journal.
type Page struct {
	Frames []byte
	Next   uint64 // number of the last event in Frames; when there is none, the argument `after` of Events
	Last   uint64 // number of the run's last stored event
}

// A Query selects heads: those of root runs, unless one of Parent, Root and All is set. A
// zero field does not restrict the selection further.
type Query struct {
	Account string // required
	Parent  string // its children, oldest first (by creation, then run id)
	Root    string // all runs below it, by parent, then as children
	All     bool   // roots and children, by run id
	Status  string
	Recipe  string
	Prefix  string // of the run id
	After   string // run id, of a run that the fields above select unless All is set; only heads that come after it
	Since   int64  // created at or after, UTC µs
	Limit   int    // default 50, at most 500

	// Of those, what Match selects.
	Statuses      []string          // any of them
	CreatedBefore int64             // UTC µs
	Labels        map[string]string // each of them
	Text          string            // a part of recipe, run id, error or value of a label, in any case
	// Deleted selects the root runs that users have deleted, instead of the others. Queries
	// with Parent, Root or All select both.
	Deleted bool
}

// Cap returns how many heads the query asks for: by default 50, at most 500.
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
	Records      int64 // stored; see [Records]
}
