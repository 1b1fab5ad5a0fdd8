-- SPDX-License-Identifier: Apache-2.0

-- name: headColumns
-- A head with its checksums, in the order of headPlaces.
r.account, r.run, r.recipe, r.version, r.plan_hash, r.status, r.created, r.updated, r.ended,
r.code, r.message, r.used, r.failures, r.quarantine, r.owes, r.root, r.parent, r.start_sum, r.head_sum, {mark};

-- name: compactedColumns
-- How far the events of a run (r) reach, how far its chunks do, its pack and the last
-- event of its piece there, how far its other pieces reach, and the checksums.
r.last, ifnull((SELECT max(c.last) FROM chunks c WHERE c.account = r.account AND c.run = r.run), 0), r.pack, r.packed,
ifnull((SELECT max(p.last) FROM pieces p WHERE p.account = r.account AND p.run = r.run), 0), r.reach_sum, r.place_sum;

-- name: startSum
CASE WHEN r.root IS '' AND r.parent IS '' THEN roux_sum(r.account, r.run, r.recipe, r.version, r.plan_hash, r.created)
    ELSE roux_sum(r.account, r.run, r.recipe, r.version, r.plan_hash, r.created, r.root, r.parent) END;

-- name: headSum
roux_sum(r.account, r.run, r.status, r.updated, r.ended, r.code, r.message, r.used, r.failures, r.quarantine, r.owes);

-- name: savedRuns
-- A run with its snapshot, in the order of savedRow.scan.
SELECT {headColumns}, r.parked, r.wake_at, r.park_sum, {compactedColumns},
    ifnull(s.last, 0), ifnull(s.format, 0), s.state, ifnull(s.sum, -1)
FROM runs r LEFT JOIN snapshots s ON s.account = r.account AND s.run = r.run;

-- The driver looks the name of a numbered parameter up each time, so that those of the
-- statements that each run needs have no numbers.

-- name: startRun
INSERT INTO runs (account, run, recipe, version, plan_hash, status, created, updated, ended,
    code, message, used, failures, quarantine, owes, last, root, parent, start_sum, head_sum, reach_sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: startPlacedRun
-- For a run whose row was deferred, and whose first events go into a pack by the same commit.
INSERT INTO runs (account, run, recipe, version, plan_hash, status, created, updated, ended,
    code, message, used, failures, quarantine, owes, last, root, parent, start_sum, head_sum, reach_sum, pack, packed, place_sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: endedRun
-- For several runs that have ended without a failure and share the columns whose parameters
-- have numbers.
INSERT INTO runs (account, recipe, version, plan_hash, status, root, pack, code, message, failures, quarantine, owes,
    run, parent, created, updated, ended, used, last, packed, start_sum, head_sum, reach_sum, place_sum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, '', '', 0, '', 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: lastRun
SELECT ifnull(max(run), '') FROM runs WHERE account = ?;

-- A new head is written by one of four statements. What the start fixed for good is not
-- written again, because that would write its index, too. Functions that choose
-- between columns cost more than several statements, and setting a column to the value
-- it has writes its indexes: a run that stays open leaves those alone.

-- name: openHeadUpdate
UPDATE runs SET status = ?, updated = ?, code = ?, message = ?, used = ?, failures = ?, quarantine = ?, head_sum = ?;

-- name: headUpdate
{openHeadUpdate}, ended = ?, owes = ?;

-- name: putHead
{headUpdate}, last = ?, reach_sum = ? WHERE account = ? AND run = ?;

-- name: putOpenHead
-- For a run that was open and stays so.
{openHeadUpdate}, last = ?, reach_sum = ? WHERE account = ? AND run = ?;

-- name: putHeadPlace
-- For a run whose first events go into a pack by the same commit.
{headUpdate}, last = ?, reach_sum = ?, pack = ?, packed = ?, place_sum = ? WHERE account = ? AND run = ?;

-- name: putHeadAlone
-- For a damaged run: what its row says of its events stays as it is.
{headUpdate} WHERE account = ? AND run = ?;

-- name: place
UPDATE runs SET pack = ifnull(?3, pack), packed = ifnull(?4, packed), place_sum = ifnull(?5, place_sum),
    last = ?6, reach_sum = ?7 WHERE account = ?1 AND run = ?2;

-- name: suspend
UPDATE runs SET parked = 1, wake_at = ?3, pack = ifnull(?4, pack), packed = ifnull(?5, packed), park_sum = ?6,
    place_sum = ifnull(?7, place_sum), last = ?8, reach_sum = ?9
WHERE account = ?1 AND run = ?2;

-- name: wake
UPDATE runs SET parked = 0, wake_at = 0, park_sum = ?3 WHERE account = ?1 AND run = ?2;

-- name: findRun
SELECT parked, ended, owes, {compactedColumns} FROM runs r WHERE account = ?1 AND run = ?2;

-- name: reach
SELECT {compactedColumns} FROM runs r WHERE account = ?1 AND run = ?2;

-- name: head
SELECT {headColumns} FROM runs r WHERE account = ?1 AND run = ?2;

-- name: saved
{savedRuns} WHERE r.account = ?1 AND r.run = ?2;

-- name: liveRuns
{savedRuns}
WHERE r.parked = 0 AND (r.ended = 0 OR r.owes = 1) AND (r.account, r.run) > (?1, ?2)
ORDER BY r.account, r.run LIMIT 200;

-- name: liveness
SELECT account, run, parked = 0 AND (ended = 0 OR owes = 1) FROM runs;

-- name: lookUp
-- Store.lookUp repeats the pair of VALUES, once for each run.
SELECT r.account, r.run, r.parked <> 0, r.ended <> 0 AND r.owes = 0, {compactedColumns}
FROM (VALUES (?,?)) v
CROSS JOIN runs r ON r.account = v.column1 AND r.run = v.column2;

-- name: dueRuns
SELECT account, run, wake_at, root FROM runs
WHERE wake_at > 0 AND wake_at <= ?1 ORDER BY wake_at, account, run LIMIT ?2;

-- name: endedRuns
SELECT account, run, ended, '' FROM runs
WHERE ended <> 0 AND owes = 0 AND root = '' AND ended < ?1 AND (ended, account, run) > (?2, ?3, ?4)
ORDER BY ended, account, run LIMIT ?5;

-- name: headsAfter
SELECT {headColumns} FROM runs r WHERE r.account = ?1 AND r.run > ?2 ORDER BY r.run LIMIT 1000;

-- name: runKeys
SELECT account, run FROM runs
WHERE (account, run) > (?1, ?2) ORDER BY account, run LIMIT 500;

-- name: accounts
SELECT DISTINCT account FROM runs ORDER BY account;

-- name: dropRun
DELETE FROM runs WHERE account = ?1 AND run = ?2;
