-- SPDX-License-Identifier: Apache-2.0

-- name: putChunk
INSERT INTO chunks (account, run, first, last, data, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: chunk
SELECT first, last, data, sum FROM chunks WHERE account = ?1 AND run = ?2 AND last > ?3 ORDER BY last LIMIT 1;

-- name: dropChunks
DELETE FROM chunks WHERE account = ?1 AND run = ?2 AND last IN
    (SELECT last FROM chunks WHERE account = ?1 AND run = ?2 ORDER BY last DESC LIMIT ?3);

-- name: putSnapshot
INSERT INTO snapshots (account, run, last, format, state, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT DO UPDATE SET last = ?3, format = ?4, state = ?5, sum = ?6;

-- name: dropSnapshot
DELETE FROM snapshots WHERE account = ?1 AND run = ?2;

-- name: nextPack
SELECT ifnull(max(id), 0) + 1 FROM packs;

-- name: putPack
INSERT INTO packs (id, data) VALUES (?1, ?2);

-- name: pack
SELECT data FROM packs WHERE id = ?1;

-- name: replacePack
UPDATE packs SET data = ?2 WHERE id = ?1;

-- name: dropPack
DELETE FROM packs WHERE id = ?1;

-- name: putPiece
INSERT INTO pieces (account, run, first, last, pack, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: pieces
SELECT first, last, pack, sum FROM pieces WHERE account = ?1 AND run = ?2 AND last > ?3 ORDER BY last LIMIT ?4;

-- name: keepPiece
-- The run's row, which is about to be deleted, says where its first piece is.
INSERT INTO pieces (account, run, first, last, pack, sum)
SELECT account, run, 1, packed, pack, roux_sum(account, run, packed, 1, pack) FROM runs WHERE account = ?1 AND run = ?2 AND pack > 0;

-- name: dropPiece
DELETE FROM pieces WHERE account = ?1 AND run = ?2 AND pack = ?3;
