-- SPDX-License-Identifier: Apache-2.0

-- What an image that is attached has beside runs. Rows that fail their checksum stay
-- behind, and none replaces a row that is here.

-- name: attachImage
ATTACH ?1 AS image;

-- name: detachImage
DETACH image;

-- name: takeKeys
INSERT INTO main.idempotency (account, key, body_hash, run, until, sum)
SELECT account, key, body_hash, run, until, sum FROM image.idempotency i
WHERE sum IS roux_sum(account, key, body_hash, run, until)
    AND EXISTS (SELECT 1 FROM main.runs r WHERE r.account = i.account AND r.run = i.run)
ON CONFLICT DO NOTHING;

-- name: takeNotes
INSERT INTO main.notes (name, value, sum)
SELECT name, value, sum FROM image.notes WHERE sum IS roux_sum(name, value) ON CONFLICT DO NOTHING;

-- name: takeReleases
INSERT INTO main.file_released (account, hash, at, sum)
SELECT account, hash, at, sum FROM image.file_released WHERE sum IS roux_sum(account, hash, at) ON CONFLICT DO NOTHING;

-- name: takeEntries
INSERT INTO main.ledger (account, first, last, at, data, sum)
SELECT account, first, last, at, data, sum FROM image.ledger WHERE sum IS roux_sum(account, first, last, at, data) ON CONFLICT DO NOTHING;

-- name: takeEntryKeys
INSERT INTO main.ledger_keys (account, key, seq, sum)
SELECT account, key, seq, sum FROM image.ledger_keys WHERE sum IS roux_sum(account, key, seq) ON CONFLICT DO NOTHING;

-- name: takeAccounts
INSERT INTO main.ledger_states (account, at, seq, state, sum)
SELECT account, at, seq, state, sum FROM image.ledger_states WHERE sum IS roux_sum(account, at, seq, state) AND substr(state, 1, 1) IS NOT x'01' ON CONFLICT DO NOTHING;

-- The end of each feed, ?1 numbers further on, as a row without changes (?2).

-- name: feedEnds
SELECT account, n + 1, n, at, ?2, roux_sum(account, n + 1, n, at, ?2) FROM (
    SELECT account, max(last) + ?1 AS n, max(at) AS at FROM saved GROUP BY account
) WHERE true ON CONFLICT DO NOTHING;

-- name: takeFeedEnds
-- The changes of an account with runs or entries may have been in the journal only.
WITH saved(account, last, at) AS (
    SELECT account, last, at FROM image.feed WHERE sum IS roux_sum(account, first, last, at, data)
    UNION ALL SELECT DISTINCT account, 0, 0 FROM image.runs
    UNION ALL SELECT DISTINCT account, 0, 0 FROM image.ledger
)
INSERT INTO main.feed (account, first, last, at, data, sum) {feedEnds};

-- name: endFeeds
WITH saved(account, last, at) AS (SELECT account, last, at FROM main.feed WHERE sum IS roux_sum(account, first, last, at, data))
INSERT INTO main.feed (account, first, last, at, data, sum) {feedEnds};

-- name: dropEndedFeeds
DELETE FROM feed AS f WHERE EXISTS (SELECT 1 FROM feed g WHERE g.account = f.account AND g.last > f.last);

-- name: takeRecords
INSERT INTO main.records (account, kind, id, revision, name, until, created, updated, sum, data)
SELECT account, kind, id, revision, name, until, created, updated, sum, data FROM image.records
WHERE sum IS {recordSum} AND roux_blob(data) ON CONFLICT DO NOTHING;

-- The revisions go on ?1 further, because the last ones may be lost.

-- name: skippedRevisions
ON CONFLICT DO UPDATE SET last = max(last, excluded.last), sum = roux_sum(1, max(last, excluded.last));

-- name: takeRevisions
INSERT INTO main.record_revisions (id, last, sum)
SELECT 1, n, roux_sum(1, n) FROM (
    SELECT ?1 + max(ifnull((SELECT max(revision) FROM image.records), 0),
        ifnull((SELECT last FROM image.record_revisions WHERE sum IS roux_sum(id, last)), 0)) AS n
) WHERE true {skippedRevisions};

-- name: skipRevisions
INSERT INTO main.record_revisions (id, last, sum)
SELECT 1, n, roux_sum(1, n) FROM (
    SELECT ?1 + max(ifnull((SELECT max(revision) FROM main.records), 0),
        ifnull((SELECT last FROM main.record_revisions WHERE sum IS roux_sum(id, last)), 0)) AS n
) WHERE true {skippedRevisions};
