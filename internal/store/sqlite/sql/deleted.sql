-- SPDX-License-Identifier: Apache-2.0

-- name: markDeleted
INSERT INTO deleted (account, run, before, sum) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO UPDATE SET before = ?3, sum = ?4;

-- name: deletedRuns
SELECT account, run, before, sum FROM deleted;

-- name: halfRemoved
SELECT account, run, before, sum FROM deleted d
WHERE EXISTS (SELECT 1 FROM chunks c WHERE c.account = d.account AND c.run = d.run)
    OR EXISTS (SELECT 1 FROM pieces p WHERE p.account = d.account AND p.run = d.run)
    OR EXISTS (SELECT 1 FROM runs r WHERE r.account = d.account AND r.root = d.run AND r.root <> '') LIMIT ?1;

-- name: forgetDeleted
DELETE FROM deleted WHERE before <= ifnull((SELECT min(id) FROM journal), before)
    AND NOT EXISTS (SELECT 1 FROM chunks c WHERE c.account = deleted.account AND c.run = deleted.run)
    AND NOT EXISTS (SELECT 1 FROM pieces p WHERE p.account = deleted.account AND p.run = deleted.run)
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.account = deleted.account AND r.root = deleted.run AND r.root <> '');

-- name: treeRuns
-- The runs below a root, in the order of treeRun.scan.
SELECT {headColumns}, r.last, r.pack, r.packed, r.reach_sum, r.place_sum
FROM runs r INDEXED BY runs_tree WHERE r.account = ?1 AND r.root = ?2 AND r.root <> '';
