-- SPDX-License-Identifier: Apache-2.0

-- What counts against the live limit of an account.

-- name: counts
-- A root run that has not ended, unless it was imported and nobody has adopted it.
root = '' AND ended = 0 AND substr(quarantine, 1, 8) <> 'imported';

-- name: unendedRuns
-- The first condition names both values of parked, so that the index serves the account.
SELECT ifnull(sum(status <> 'queued'), 0), ifnull(sum(status = 'queued'), 0) FROM runs INDEXED BY runs_live
WHERE parked IN (0, 1) AND account = ?1 AND (ended = 0 OR owes = 1) AND {counts};

-- name: unendedStates
-- The limit is one of what is read: child runs, which do not count, are read as well.
SELECT account, CASE WHEN quarantine <> '' THEN 'quarantined' ELSE status END AS state, sum({counts}), count(*)
FROM (SELECT account, status, quarantine, root, ended FROM runs INDEXED BY runs_live WHERE parked IN (0, 1) AND (ended = 0 OR owes = 1) LIMIT ?1)
GROUP BY account, state ORDER BY account, state;

-- name: queuedRuns
SELECT account, run, updated, '' FROM runs INDEXED BY runs_queued
WHERE status = 'queued' AND {counts} AND (account, updated, run) > (?1, ?2, ?3)
ORDER BY account, updated, run LIMIT ?4;
