-- SPDX-License-Identifier: Apache-2.0

-- name: begin
BEGIN IMMEDIATE;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: checkpoint
PRAGMA wal_checkpoint(PASSIVE);

-- name: restartLog
PRAGMA wal_checkpoint(RESTART);

-- name: keepLog
-- To prepare it is enough to set the limit.
PRAGMA journal_size_limit = -1;

-- name: libraryVersion
SELECT sqlite_version();

-- name: hasVersion
SELECT count(*) FROM sqlite_schema WHERE name = 'goose_db_version';

-- name: schemaVersion
SELECT ifnull(max(version_id), 0) FROM goose_db_version WHERE is_applied;

-- name: countRuns
SELECT count(*) FROM runs;

-- name: synchronous
SELECT CASE synchronous WHEN 0 THEN 'OFF' WHEN 1 THEN 'NORMAL' WHEN 2 THEN 'FULL' ELSE 'EXTRA' END FROM pragma_synchronous;

-- name: journalMode
SELECT journal_mode FROM pragma_journal_mode;

-- name: pageSize
SELECT page_size FROM pragma_page_size;
