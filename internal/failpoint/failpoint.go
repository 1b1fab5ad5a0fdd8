// SPDX-License-Identifier: Apache-2.0

// Package failpoint names the places where a process may be hurt on purpose.
//
// A point lies between two lines of which a crash, an error or a delay must not
// be able to make a difference that anybody notices. It decides nothing: in a
// build without the tag failpoints every call is an empty function that the
// compiler removes. With the tag, [Setting] and [Log] of the process's
// environment say what happens where, and which points were passed.
//
// It never changes what the code around a point does unless it is told to, and
// no released binary holds it.
package failpoint

// A Point is a place in the code. It is spelt layer.thing.moment.
type Point string

// What the environment says, in a build that has failpoints.
const (
	// Setting is a list of POINT=ACTION or POINT=ACTION@N, separated by commas:
	// the action is taken at the Nth time (1 where nothing is said) that the
	// process comes by, and never again. The actions are die (as kill -9 does),
	// panic, error and delay. An error at a point that follows what it is named
	// for says that something failed which was done.
	Setting = "ROUX_FAILPOINTS"
	// Log is a file to which each point is appended when it is first passed.
	Log = "ROUX_FAILPOINT_LOG"
)

// The points. Those passed with [Hit] can also fail; the others, passed with
// [Pass], lie where there is nobody to tell of an error.
const (
	StoreOpened     Point = "store.open.after"       // the directory is ours, nothing is read yet
	StoreOwned      Point = "store.own.after"        // the epoch is taken, nothing is recovered
	CommitBefore    Point = "store.commit.before"    // nothing of a batch is written
	CommitMiddle    Point = "store.commit.middle"    // written, the transaction is open
	CommitAfter     Point = "store.commit.after"     // durable; the engine does not know yet
	PlanWrite       Point = "store.plan.write"       // before a plan is written beside its run
	CompactionWrite Point = "store.compaction.write" // before a chunk is written
	SnapshotWrite   Point = "store.snapshot.write"   // between a chunk and its snapshot
	SuspendWrite    Point = "store.suspend.write"    // before a run is marked as suspended
	TrimBefore      Point = "store.trim.before"      // dead rows are known
	TrimMiddle      Point = "store.trim.middle"      // deleted, the transaction is open
	CheckpointFirst Point = "store.checkpoint.before"
	CheckpointHalf  Point = "store.checkpoint.middle" // copied; the log has not begun anew
	CheckpointLast  Point = "store.checkpoint.after"
	DeleteBefore    Point = "store.delete.before" // retention: before heads go
	DeleteMiddle    Point = "store.delete.middle" // heads are gone, chunks are there
	NoteWrite       Point = "store.note.write"
	RecoverFirst    Point = "engine.recover.before"
	RecoverRun      Point = "engine.recover.run" // between two runs
	RecoverLast     Point = "engine.recover.after"
	LostRecorded    Point = "engine.recover.lost" // a run was told that its attempts are lost
	SendBefore      Point = "engine.commit.before"
	EffectsBefore   Point = "engine.effects.before" // durable; nothing was let out
	EffectsAfter    Point = "engine.effects.after"
	HandBefore      Point = "engine.hand.before" // an attempt's input is rendered
	HandAfter       Point = "engine.hand.after"  // the action has returned
	ResultBefore    Point = "engine.result.before"
	ResultAfter     Point = "engine.result.after"
	SweepBefore     Point = "engine.sweep.before"
	SweepFile       Point = "engine.sweep.file" // a file is gone, its record is not
	SweepAfter      Point = "engine.sweep.after"
	ActionBefore    Point = "worker.action.before"
	ActionAfter     Point = "worker.action.after" // its effect is in the world
	BlobWritten     Point = "blob.put.written"    // before the bytes are synced
	BlobSynced      Point = "blob.put.synced"     // before they get their name
	BlobRenamed     Point = "blob.put.renamed"    // named; before its facts are written
	BlobFacts       Point = "blob.put.facts"      // before the directory is synced
	BlobDone        Point = "blob.put.done"
	BlobRemove      Point = "blob.remove.middle" // the facts are gone, the bytes are not
	StopBefore      Point = "engine.stop.before" // compacted; the clean end is not noted
)

// Points are all points, with whether they can fail.
var Points = []struct {
	Point Point
	Fails bool
}{
	{StoreOpened, true}, {StoreOwned, true},
	{CommitBefore, true}, {CommitMiddle, true}, {CommitAfter, true},
	{PlanWrite, true}, {CompactionWrite, true}, {SnapshotWrite, true}, {SuspendWrite, true},
	{TrimBefore, true}, {TrimMiddle, true},
	{CheckpointFirst, true}, {CheckpointHalf, true}, {CheckpointLast, true},
	{DeleteBefore, true}, {DeleteMiddle, true}, {NoteWrite, true},
	{RecoverFirst, true}, {RecoverRun, true}, {RecoverLast, true}, {LostRecorded, false},
	{SendBefore, false}, {EffectsBefore, false}, {EffectsAfter, false},
	{HandBefore, false}, {HandAfter, false}, {ResultBefore, false}, {ResultAfter, false},
	{SweepBefore, true}, {SweepFile, true}, {SweepAfter, true},
	{ActionBefore, true}, {ActionAfter, true},
	{BlobWritten, true}, {BlobSynced, true}, {BlobRenamed, true}, {BlobFacts, true}, {BlobDone, true},
	{BlobRemove, true}, {StopBefore, false},
}
