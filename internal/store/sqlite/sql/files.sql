-- SPDX-License-Identifier: Apache-2.0

-- name: putName
INSERT INTO file_refs (account, hash, run) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING;

-- name: dropNames
DELETE FROM file_refs WHERE account = ?1 AND run = ?2;

-- name: references
SELECT run FROM file_refs
WHERE account = ?1 AND hash IN (?2, ?3) GROUP BY run ORDER BY run LIMIT ?4;

-- name: releaseFiles
-- A damaged row stays as it is, because a new checksum would make it look whole.
INSERT INTO file_released (account, hash, at, sum)
SELECT account, hash, ?3, roux_sum(account, hash, ?3) FROM file_refs WHERE account = ?1 AND run = ?2
ON CONFLICT DO UPDATE SET at = excluded.at, sum = excluded.sum
WHERE excluded.at > at AND sum = roux_sum(account, hash, at);

-- name: released
SELECT hash, at, sum FROM file_released WHERE account = ?1 AND hash IN (?2, ?3);

-- name: forgetFile
DELETE FROM file_released WHERE account = ?1 AND hash = ?2;
