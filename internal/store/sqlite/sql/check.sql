-- SPDX-License-Identifier: Apache-2.0

-- name: size
SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size();

-- name: schemaObjects
SELECT type, name, ifnull(sql, '') FROM sqlite_schema;

-- name: columnTypes
SELECT name, lower(type) FROM pragma_table_info(?1);

-- The blobs, by name.

-- name: allChunks
SELECT run || ' ' || last, data FROM chunks;

-- name: allStates
SELECT run || ' ' || last, state FROM snapshots;

-- name: allPacks
SELECT id, data FROM packs;

-- The rows that fail a checksum of columns.

-- name: badRuns
SELECT run FROM runs r NOT INDEXED WHERE start_sum IS NOT {startSum} OR head_sum IS NOT {headSum}
    OR park_sum IS NOT roux_sum(account, run, parked, wake_at) AND (park_sum IS NOT -1 OR parked IS NOT 0 OR wake_at IS NOT 0)
    OR place_sum IS NOT roux_sum(account, run, pack, packed) AND (place_sum IS NOT -1 OR pack IS NOT 0 OR packed IS NOT 0)
    OR reach_sum IS NOT roux_sum(account, run, last);

-- name: orphans
-- The child runs whose root is missing, or else their parent, and what of the two is. The
-- runs of a tree that is being deleted are none.
SELECT r.run, CASE WHEN a.run IS NULL THEN 'root' ELSE 'parent' END, CASE WHEN a.run IS NULL THEN r.root ELSE r.parent END
FROM runs r INDEXED BY runs_tree
LEFT JOIN runs a ON a.account = r.account AND a.run = r.root
LEFT JOIN runs p ON p.account = r.account AND p.run = r.parent
WHERE r.root <> '' AND (a.run IS NULL OR p.run IS NULL)
    AND NOT EXISTS (SELECT 1 FROM deleted d WHERE d.account = r.account AND d.run = r.root);

-- name: badKeys
SELECT key FROM idempotency NOT INDEXED WHERE sum IS NOT roux_sum(account, key, body_hash, run, until);

-- name: badPlans
SELECT hash FROM plans NOT INDEXED WHERE sum IS NOT roux_sum(hash, data);

-- name: badNotes
SELECT name FROM notes WHERE sum IS NOT roux_sum(name, value);

-- name: badStates
SELECT run FROM snapshots NOT INDEXED WHERE sum IS NOT roux_sum(account, run, last, format);

-- name: badChunks
SELECT run FROM chunks NOT INDEXED WHERE sum IS NOT -1 AND sum IS NOT roux_sum(account, run, first, last);

-- name: badPieces
SELECT run FROM pieces WHERE sum IS NOT roux_sum(account, run, last, first, pack);

-- name: badMarks
SELECT run FROM deleted WHERE sum IS NOT roux_sum(account, run, before);

-- name: badReleases
SELECT hash FROM file_released WHERE sum IS NOT roux_sum(account, hash, at);

-- name: badOwner
SELECT epoch FROM owner WHERE sum IS NOT roux_sum(id, epoch);

-- name: badEntries
SELECT account || ' ' || last FROM ledger WHERE sum IS NOT roux_sum(account, first, last, at, data);

-- name: badEntryKeys
SELECT account || ' ' || key FROM ledger_keys WHERE sum IS NOT roux_sum(account, key, seq);

-- name: badAccounts
SELECT account || ' ' || seq FROM ledger_states NOT INDEXED WHERE sum IS NOT roux_sum(account, at, seq, state);

-- name: badChanges
SELECT account || ' ' || last FROM feed WHERE sum IS NOT roux_sum(account, first, last, at, data);
