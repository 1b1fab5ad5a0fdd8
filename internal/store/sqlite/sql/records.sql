-- SPDX-License-Identifier: Apache-2.0

-- The documents of the service.

-- name: recordColumns
-- In the order of Table.scan. One of the two follows.
id, revision, name, until, created, updated, sum;

-- name: recordByKey
SELECT {recordColumns}, data FROM records WHERE account = ?1 AND kind = ?2 AND id = ?3;

-- name: recordByName
SELECT {recordColumns}, data FROM records WHERE account = ?1 AND kind = ?2 AND name = ?3 AND name <> '';

-- name: recordIds
-- Those from ?3 on and before ?4. No text comes behind a blob, which stands for no limit.
FROM records WHERE account = ?1 AND kind = ?2 AND id >= ?3 AND id < ?4 ORDER BY id;

-- name: recordNames
-- Likewise; ?6 and ?7 are a range of ids.
FROM records WHERE account = ?1 AND kind = ?2 AND name <> '' AND name >= ?3 AND name < ?4 AND id >= ?6 AND id < ?7 ORDER BY name;

-- name: recordIndex
-- Likewise, for the names alone.
FROM records WHERE account = ?1 AND kind = ?2 AND name <> '' AND name >= ?3 AND name < ?4 ORDER BY name;

-- name: recordLimit
LIMIT ?5;

-- name: recordSum
roux_sum(account, kind, id, revision, name, until, created, updated);

-- name: findRecord
SELECT {recordColumns} FROM records WHERE account = ?1 AND kind = ?2 AND id = ?3;

-- name: findRecordName
SELECT id FROM records WHERE account = ?1 AND kind = ?2 AND name = ?3 AND name <> '';

-- name: insertRecord
INSERT INTO records (account, kind, id, revision, name, until, created, updated, sum, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT DO NOTHING;

-- name: updateRecord
UPDATE records SET revision = ?4, name = ?5, until = ?6, created = ?7, updated = ?8, sum = ?9, data = ?10
WHERE account = ?1 AND kind = ?2 AND id = ?3;

-- name: deleteRecord
DELETE FROM records WHERE account = ?1 AND kind = ?2 AND id = ?3;

-- name: forgetRecords
DELETE FROM records WHERE rowid IN (SELECT rowid FROM records WHERE until <> 0 AND until < ?1 ORDER BY until LIMIT ?2);

-- name: countRecords
SELECT count(*) FROM records;

-- name: lastRevision
-- 0 if there is none, -1 if it is damaged.
SELECT ifnull((SELECT CASE WHEN sum IS roux_sum(id, last) THEN last ELSE -1 END FROM record_revisions),
    CASE WHEN EXISTS (SELECT 1 FROM records) THEN -1 ELSE 0 END);

-- name: largestRevision
SELECT ifnull(max(revision), 0) FROM records;

-- name: putLastRevision
INSERT INTO record_revisions (id, last, sum) VALUES (1, ?1, roux_sum(1, ?1)) ON CONFLICT DO UPDATE SET last = excluded.last, sum = excluded.sum;

-- name: badRecords
SELECT account || ' ' || kind || ' ' || id FROM records NOT INDEXED WHERE sum IS NOT {recordSum} OR NOT roux_blob(data);

-- name: badRevisions
SELECT last FROM record_revisions WHERE sum IS NOT roux_sum(id, last);
