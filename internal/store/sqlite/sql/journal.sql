-- SPDX-License-Identifier: Apache-2.0

-- name: insertRow
INSERT INTO journal (id, data) VALUES (?1, ?2);

-- name: deleteRows
DELETE FROM journal WHERE id BETWEEN ?1 AND ?2;

-- name: firstRow
SELECT min(id) FROM journal;

-- name: record
SELECT substr(data, ?2, ?3) FROM journal WHERE id = ?1;

-- name: journalRows
SELECT id, data FROM journal ORDER BY id;
