// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"

	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// sqlFiles have the texts of all statements. What depends on a query or on a number of
// runs is composed in Go out of these texts, by [Store.List] and [Store.lookUp]. Only
// pragmas and names of tables, to which nothing can be bound, stand in Go.
//
//go:embed sql/*.sql
var sqlFiles embed.FS

// The statements of the writer. They are prepared once, when the store opens, and have
// the names of their texts.
type statements struct {
	begin, commit, rollback        *conn.Stmt
	insertRow, deleteRows          *conn.Stmt
	lastRun                        *conn.Stmt
	suspend, wake                  *conn.Stmt
	putHead, putHeadPlace          *conn.Stmt
	putHeadAlone, putOpenHead      *conn.Stmt
	place, putPack, putPiece       *conn.Stmt
	findRun                        *conn.Stmt
	putPlan, findKey, putKey       *conn.Stmt
	putChunk, putSnapshot          *conn.Stmt
	putNote, deleteNote, takeEpoch *conn.Stmt
	checkpoint                     *conn.Stmt

	putName                               *conn.Stmt
	releaseFiles, dropNames, dropSnapshot *conn.Stmt
	dropRun, markDeleted, dropChunks      *conn.Stmt
	forgetDeleted, forgetKeys, forgetFile *conn.Stmt
	firstRow                              *conn.Stmt
	keepPiece, dropPiece                  *conn.Stmt
	replacePack, dropPack                 *conn.Stmt
	findEntry, putEntries, putAccount     *conn.Stmt
	putKeyOfEntry                         *conn.Stmt
}

func (s *statements) prepare(w *conn.Writer, c *catalog.Texts, starts *starts) error {
	for q, name := range map[*rowQueue]string{&starts.plain: "startRun", &starts.placed: "startPlacedRun"} {
		var err error
		text := c.Text(name)
		if q.one, err = w.Prepare(text); err != nil {
			return err
		}
		if q.many, err = w.Prepare(manyRows(text)); err != nil {
			return err
		}
	}
	var err error
	if starts.placed.ended, err = w.Prepare(manyRows(c.Text("endedRun"))); err != nil {
		return err
	}
	for _, q := range []struct {
		dst  **conn.Stmt
		name string
	}{
		{&s.begin, "begin"}, {&s.commit, "commit"}, {&s.rollback, "rollback"}, {&s.insertRow, "insertRow"},
		{&s.deleteRows, "deleteRows"}, {&s.lastRun, "lastRun"}, {&s.putHead, "putHead"},
		{&s.putOpenHead, "putOpenHead"}, {&s.putHeadPlace, "putHeadPlace"}, {&s.putHeadAlone, "putHeadAlone"},
		{&s.place, "place"}, {&s.putPack, "putPack"}, {&s.putPiece, "putPiece"}, {&s.suspend, "suspend"},
		{&s.wake, "wake"}, {&s.findRun, "findRun"}, {&s.putPlan, "putPlan"}, {&s.findKey, "findKey"},
		{&s.putKey, "putKey"}, {&s.putChunk, "putChunk"}, {&s.putSnapshot, "putSnapshot"}, {&s.putNote, "putNote"},
		{&s.deleteNote, "deleteNote"}, {&s.takeEpoch, "takeEpoch"}, {&s.checkpoint, "checkpoint"},
		{&s.putName, "putName"}, {&s.releaseFiles, "releaseFiles"}, {&s.dropNames, "dropNames"},
		{&s.dropSnapshot, "dropSnapshot"}, {&s.dropRun, "dropRun"}, {&s.markDeleted, "markDeleted"},
		{&s.dropChunks, "dropChunks"}, {&s.firstRow, "firstRow"}, {&s.forgetDeleted, "forgetDeleted"},
		{&s.keepPiece, "keepPiece"}, {&s.dropPiece, "dropPiece"}, {&s.replacePack, "replacePack"},
		{&s.findEntry, "findEntry"}, {&s.putEntries, "putEntries"}, {&s.putKeyOfEntry, "putKeyOfEntry"}, {&s.putAccount, "putAccount"},
		{&s.dropPack, "dropPack"}, {&s.forgetKeys, "forgetKeys"}, {&s.forgetFile, "forgetFile"},
	} {
		p, err := w.Prepare(c.Text(q.name))
		if err != nil {
			return err
		}
		*q.dst = p
	}
	return c.Err()
}

// queries are the frequent reads. Parsing one takes several times as long as running
// it, so they are prepared once for each connection.
type queries struct {
	head, plan, note    *sql.Stmt
	saved, reach        *sql.Stmt
	pack, pieces, chunk *sql.Stmt
	record              *sql.Stmt

	prepared []*sql.Stmt
}

func (q *queries) prepare(ctx context.Context, db *sql.DB, c *catalog.Texts) error {
	for _, p := range []struct {
		dst  **sql.Stmt
		name string
	}{
		{&q.head, "head"}, {&q.plan, "plan"}, {&q.note, "note"}, {&q.saved, "saved"}, {&q.reach, "reach"},
		{&q.pack, "pack"}, {&q.pieces, "pieces"}, {&q.chunk, "chunk"}, {&q.record, "record"},
	} {
		st, err := db.PrepareContext(ctx, c.Text(p.name))
		if err != nil {
			return err
		}
		*p.dst = st
		q.prepared = append(q.prepared, st)
	}
	return c.Err()
}

func (q *queries) close() error {
	var errs []error
	for _, st := range q.prepared {
		errs = append(errs, st.Close())
	}
	return errors.Join(errs...)
}

// brief returns a context without cancellation, for queries that end before a
// cancellation could be noticed. database/sql needs two goroutines a query to watch for
// one.
func brief(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// rareTexts are statements that are not kept prepared, because they rarely run or are
// parts of a composed one.
type rareTexts struct {
	// Of lists and reads of runs.
	listRuns, listRoots, listTree, listChildren, listOfRecipe, listSpans, listFailed, listUnended, countUnended, listFrom, listBelow, listSince,
	newestSpanFirst, listAfter, listAfterInTree, listAfterId, newestFirst, oldestFirst, byId,
	rootOf, position, positionAt, positionInTree, dueRuns, endedRuns, accounts, headsAfter string
	// Of admission.
	unendedRuns, unendedStates, queuedRuns string
	// Of the scan and recovery.
	journalRows, liveness, lookUp, liveRuns, deletedRuns, halfRemoved, treeRuns string
	// Of credits.
	accountAt, entriesAfter, entryOf, meteredAccounts, accountStates, entryKeys string
	// Of files.
	references, released string
	// Of opening and closing.
	libraryVersion, hasVersion, schemaVersion, epoch, nextPack, restartLog, keepLog string
	// Of settings.
	synchronous, journalMode, pageSize string
	// Of a check.
	size, runKeys string
	// Of a snapshot.
	countRuns string
	// Of salvage.
	attachImage, detachImage, takeKeys, takeNotes, takeReleases, takeEntries, takeEntryKeys, takeAccounts, takeFeedEnds, endFeeds, dropEndedFeeds,
	takeRecords, takeRevisions, skipRevisions string
}

func (t *rareTexts) load(c *catalog.Texts) error {
	for _, q := range []struct {
		dst  *string
		name string
	}{
		{&t.listRuns, "listRuns"}, {&t.listOfRecipe, "listOfRecipe"}, {&t.listSpans, "listSpans"}, {&t.listFailed, "listFailed"}, {&t.listUnended, "listUnended"}, {&t.countUnended, "countUnended"},
		{&t.listFrom, "listFrom"}, {&t.listBelow, "listBelow"}, {&t.listSince, "listSince"},
		{&t.listRoots, "listRoots"}, {&t.listTree, "listTree"}, {&t.listChildren, "listChildren"},
		{&t.listAfter, "listAfter"}, {&t.listAfterInTree, "listAfterInTree"}, {&t.listAfterId, "listAfterId"},
		{&t.newestFirst, "newestFirst"}, {&t.newestSpanFirst, "newestSpanFirst"}, {&t.oldestFirst, "oldestFirst"}, {&t.byId, "byId"}, {&t.rootOf, "rootOf"},
		{&t.position, "position"}, {&t.positionAt, "positionAt"}, {&t.positionInTree, "positionInTree"}, {&t.dueRuns, "dueRuns"}, {&t.endedRuns, "endedRuns"},
		{&t.accounts, "accounts"}, {&t.headsAfter, "headsAfter"},
		{&t.unendedRuns, "unendedRuns"}, {&t.unendedStates, "unendedStates"}, {&t.queuedRuns, "queuedRuns"},
		{&t.journalRows, "journalRows"}, {&t.liveness, "liveness"}, {&t.lookUp, "lookUp"},
		{&t.liveRuns, "liveRuns"}, {&t.deletedRuns, "deletedRuns"}, {&t.halfRemoved, "halfRemoved"}, {&t.treeRuns, "treeRuns"},
		{&t.accountAt, "accountAt"}, {&t.entriesAfter, "entriesAfter"}, {&t.entryOf, "entryOf"},
		{&t.meteredAccounts, "meteredAccounts"}, {&t.accountStates, "accountStates"}, {&t.entryKeys, "entryKeys"},
		{&t.references, "references"}, {&t.released, "released"},
		{&t.libraryVersion, "libraryVersion"}, {&t.hasVersion, "hasVersion"},
		{&t.schemaVersion, "schemaVersion"}, {&t.epoch, "epoch"}, {&t.nextPack, "nextPack"},
		{&t.restartLog, "restartLog"}, {&t.keepLog, "keepLog"},
		{&t.synchronous, "synchronous"}, {&t.journalMode, "journalMode"}, {&t.pageSize, "pageSize"},
		{&t.size, "size"}, {&t.runKeys, "runKeys"}, {&t.countRuns, "countRuns"},
		{&t.attachImage, "attachImage"}, {&t.detachImage, "detachImage"}, {&t.takeKeys, "takeKeys"},
		{&t.takeNotes, "takeNotes"}, {&t.takeReleases, "takeReleases"},
		{&t.takeEntries, "takeEntries"}, {&t.takeEntryKeys, "takeEntryKeys"}, {&t.takeAccounts, "takeAccounts"}, {&t.takeFeedEnds, "takeFeedEnds"},
		{&t.endFeeds, "endFeeds"}, {&t.dropEndedFeeds, "dropEndedFeeds"},
		{&t.takeRecords, "takeRecords"}, {&t.takeRevisions, "takeRevisions"}, {&t.skipRevisions, "skipRevisions"},
	} {
		*q.dst = c.Text(q.name)
	}
	return c.Err()
}
