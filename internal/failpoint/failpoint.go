// SPDX-License-Identifier: Apache-2.0

// Package failpoint names the places where a test build can inject a fault.
//
// A point is a place between two lines where a crash, an error or a delay must have no
// visible consequence. The package decides nothing: in a build without the tag
// failpoints every call is an empty function that the compiler removes. With the tag,
// the environment variable [Setting] says what happens at which point, and [Log]
// records the points that were reached.
//
// It changes what the code around a point does only when it is configured to. No
// release build has the tag.
package failpoint

// A Point is a place in the code. Its form is layer.thing.moment.
type Point string

// The environment variables that a build with failpoints reads.
const (
	// Setting is a list of POINT=ACTION or POINT=ACTION@N, separated by commas. The
	// action is done the Nth time (default 1) that the process reaches the point, and
	// never again. The actions are die (as kill -9 does), panic, error and delay. At a
	// point after an operation, error reports a failure of an operation that was done.
	Setting = "ROUX_FAILPOINTS"
	// Log is a file to which each point is appended when it is first reached.
	Log = "ROUX_FAILPOINT_LOG"
)

// The points. An error can be injected only where the code calls [Hit]; code whose
// caller could not handle one calls [Pass].
const (
	StoreOpened     Point = "store.open.after"       // the directory is locked, nothing is read yet
	StoreOwned      Point = "store.own.after"        // the epoch is taken, nothing is recovered yet
	CommitBefore    Point = "store.commit.before"    // no part of a batch is written
	CommitMiddle    Point = "store.commit.middle"    // written; the transaction is open
	CommitAfter     Point = "store.commit.after"     // durable; the engine does not know it yet
	GroupMiddle     Point = "store.group.middle"     // a part of a group is written; the transaction is open
	EntryWrite      Point = "store.entry.write"      // before an entry of an account is written
	PlanWrite       Point = "store.plan.write"       // before a plan is written with its run
	CompactionWrite Point = "store.compaction.write" // before a chunk is written
	SnapshotWrite   Point = "store.snapshot.write"   // between a chunk and its snapshot
	SuspendWrite    Point = "store.suspend.write"    // before a run is marked as suspended
	DeferredWrite   Point = "store.deferred.write"   // before the rows of child runs are written that were deferred
	ChangesWrite    Point = "store.changes.write"    // before changes that only the journal has are written to their table
	TrimBefore      Point = "store.trim.before"      // the dead rows are known
	TrimMiddle      Point = "store.trim.middle"      // deleted; the transaction is open
	CheckpointFirst Point = "store.checkpoint.before"
	CheckpointHalf  Point = "store.checkpoint.middle" // copied; the log has not been restarted
	CheckpointLast  Point = "store.checkpoint.after"
	DeleteBefore    Point = "store.delete.before" // retention: before heads are deleted
	DeleteMiddle    Point = "store.delete.middle" // heads are deleted, chunks are not
	NoteWrite       Point = "store.note.write"
	RecoverFirst    Point = "engine.recover.before"
	RecoverRun      Point = "engine.recover.run" // between two runs
	RecoverLast     Point = "engine.recover.after"
	LostRecorded    Point = "engine.recover.lost" // a run has recorded that its attempts are lost
	SendBefore      Point = "engine.commit.before"
	EffectsBefore   Point = "engine.effects.before" // durable; no effect has been released
	EffectsAfter    Point = "engine.effects.after"
	HandBefore      Point = "engine.hand.before" // an attempt's input is rendered
	HandAfter       Point = "engine.hand.after"  // the action has returned
	ResultBefore    Point = "engine.result.before"
	ResultAfter     Point = "engine.result.after"
	AdmitBefore     Point = "engine.admit.before" // a queued run is about to begin
	ChildBegins     Point = "engine.child.begins" // its parent has begun to wait for it
	ChildEnds       Point = "engine.child.ends"   // its parent is about to be told
	SweepBefore     Point = "engine.sweep.before"
	SweepFile       Point = "engine.sweep.file" // a file is deleted, its record is not
	SweepAfter      Point = "engine.sweep.after"
	ActionBefore    Point = "worker.action.before"
	ActionAfter     Point = "worker.action.after" // the action has had its effect
	BlobWritten     Point = "blob.put.written"    // before the bytes are synced
	BlobSynced      Point = "blob.put.synced"     // before they are renamed
	BlobRenamed     Point = "blob.put.renamed"    // renamed; before its metadata is written
	BlobFacts       Point = "blob.put.facts"      // before the directory is synced
	BlobDone        Point = "blob.put.done"
	BlobRemove      Point = "blob.remove.middle"      // the metadata is deleted, the bytes are not
	SpaceMade       Point = "workspace.open.made"     // the directory exists, and does not name its run yet
	SpaceClaimed    Point = "workspace.open.claimed"  // it names its run, and has no files
	SpaceRemove     Point = "workspace.remove.before" // its run has ended
	SpaceEmptied    Point = "workspace.remove.middle" // the files are removed, the name of its run is not
	SpaceLast       Point = "workspace.remove.last"   // it is empty
	StopBefore      Point = "engine.stop.before"      // compacted; the clean end is not recorded
)

// Points lists all points, and whether each can return an error.
var Points = []struct {
	Point Point
	Fails bool
}{
	{StoreOpened, true}, {StoreOwned, true},
	{CommitBefore, true}, {CommitMiddle, true}, {CommitAfter, true}, {GroupMiddle, true}, {EntryWrite, true},
	{PlanWrite, true}, {CompactionWrite, true}, {SnapshotWrite, true}, {SuspendWrite, true}, {DeferredWrite, true},
	{ChangesWrite, true},
	{TrimBefore, true}, {TrimMiddle, true},
	{CheckpointFirst, true}, {CheckpointHalf, true}, {CheckpointLast, true},
	{DeleteBefore, true}, {DeleteMiddle, true}, {NoteWrite, true},
	{RecoverFirst, true}, {RecoverRun, true}, {RecoverLast, true}, {LostRecorded, false},
	{SendBefore, false}, {EffectsBefore, false}, {EffectsAfter, false},
	{HandBefore, false}, {HandAfter, false}, {ResultBefore, false}, {ResultAfter, false},
	{AdmitBefore, false}, {ChildBegins, false}, {ChildEnds, false},
	{SweepBefore, true}, {SweepFile, true}, {SweepAfter, true},
	{ActionBefore, true}, {ActionAfter, true},
	{BlobWritten, true}, {BlobSynced, true}, {BlobRenamed, true}, {BlobFacts, true}, {BlobDone, true},
	{BlobRemove, true},
	{SpaceMade, true}, {SpaceClaimed, true}, {SpaceRemove, true}, {SpaceEmptied, true}, {SpaceLast, true},
	{StopBefore, false},
}
