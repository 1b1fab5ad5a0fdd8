-- SPDX-License-Identifier: Apache-2.0

-- Store.Search begins with listRuns, adds the conditions that an index has, and ends
-- with an order. Without All it has one of listRoots and listTree. What else a query selects
-- by, store.Query.Match decides.

-- name: listRuns
SELECT {headColumns} FROM runs r WHERE r.account = ?;

-- name: listRoots
AND r.root = '';

-- name: listTree
AND r.root = ? AND r.root <> '';

-- name: listChildren
AND r.parent = ?;

-- name: listOfRecipe
-- CROSS JOIN keeps the order: of the spans, then of the runs in a span.
SELECT {headColumns} FROM recipe_spans s CROSS JOIN runs r INDEXED BY runs_newest
ON {ofSpan} WHERE s.account = ? AND s.recipe = ?;

-- name: listSpans
-- The index of runs is only for the bounds of a span: with another one, each span would read
-- the runs of those behind it.
AND s.span >= ? AND +r.created >= ? AND s.span <= ? AND (+r.created, +r.run) < (?, ?);

-- name: newestSpanFirst
ORDER BY s.span DESC, r.created DESC, r.run DESC LIMIT ?;

-- name: listFailed
AND r.ended <> 0 AND r.status <> 'completed';

-- name: listUnended
-- It is used if there are few of them, because they are sorted.
SELECT {headColumns} FROM runs r INDEXED BY runs_live WHERE r.account = ? AND r.parked IN (0, 1) AND (r.ended = 0 OR r.owes = 1);

-- name: countUnended
SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_live WHERE account = ?1 AND parked IN (0, 1) AND (ended = 0 OR owes = 1) LIMIT ?2);

-- name: listFrom
AND r.run >= ?;

-- name: listBelow
AND r.run < ?;

-- name: listSince
AND r.created >= ?;

-- name: listAfter
AND (r.created, r.run) < (?, ?);

-- name: listAfterInTree
AND (r.parent, r.created, r.run) > (?, ?, ?);

-- name: listAfterId
AND r.run > ?;

-- name: newestFirst
ORDER BY r.created DESC, r.run DESC LIMIT ?;

-- name: oldestFirst
ORDER BY r.parent, r.created, r.run LIMIT ?;

-- name: byId
ORDER BY r.run LIMIT ?;

-- name: rootOf
SELECT CASE root WHEN '' THEN run ELSE root END FROM runs WHERE account = ?1 AND run = ?2;

-- name: position
SELECT created FROM runs INDEXED BY runs_newest WHERE account = ?1 AND run = ?2 AND root = '';

-- name: positionInTree
SELECT parent, created FROM runs INDEXED BY runs_tree WHERE account = ?1 AND root = ?2 AND root <> '' AND run = ?3;

-- name: positionAt
{position} AND created = ?3;
