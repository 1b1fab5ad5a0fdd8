-- SPDX-License-Identifier: Apache-2.0

-- What the engine keeps for itself: its notes and its epoch.

-- name: note
SELECT value, sum FROM notes WHERE name = ?1;

-- name: putNote
INSERT INTO notes (name, value, sum) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET value = ?2, sum = ?3;

-- name: deleteNote
DELETE FROM notes WHERE name = ?1;

-- name: takeEpoch
INSERT INTO owner (id, epoch, sum) VALUES (1, 1, roux_sum(1, 1))
ON CONFLICT DO UPDATE SET epoch = epoch + 1, sum = roux_sum(id, epoch + 1) RETURNING epoch;

-- name: epoch
SELECT ifnull(max(epoch), 0) FROM owner;
