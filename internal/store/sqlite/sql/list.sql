-- SPDX-License-Identifier: Apache-2.0

-- Store.List begins with listRuns, adds the conditions that a query has, and ends
-- with listOrder.

-- name: listRuns
SELECT {headColumns} FROM runs r WHERE r.account = ?;

-- name: listStatus
-- A row whose status may be damaged is listed.
AND (r.status = ? OR r.head_sum <> {headSum});

-- name: listRecipe
AND (r.recipe = ? OR r.start_sum <> {startSum});

-- name: listFrom
AND r.run >= ?;

-- name: listBelow
AND r.run < ?;

-- name: listSince
AND r.created >= ?;

-- name: listAfter
AND (r.created, r.run) < (?, ?);

-- name: listOrder
ORDER BY r.created DESC, r.run DESC LIMIT ?;

-- name: position
SELECT created FROM runs INDEXED BY runs_newest WHERE account = ?1 AND run = ?2;

-- name: positionAt
{position} AND created = ?3;
