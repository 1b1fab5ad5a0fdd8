-- SPDX-License-Identifier: Apache-2.0

-- name: markDeleted
INSERT INTO deleted (account, run, before, sum) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO UPDATE SET before = ?3, sum = ?4;

-- name: deletedRuns
SELECT account, run, before, sum FROM deleted;

-- name: halfRemoved
SELECT account, run, before, sum FROM deleted d
WHERE EXISTS (SELECT 1 FROM chunks c WHERE c.account = d.account AND c.run = d.run)
    OR EXISTS (SELECT 1 FROM pieces p WHERE p.account = d.account AND p.run = d.run) LIMIT ?1;

-- name: forgetDeleted
DELETE FROM deleted WHERE before <= ifnull((SELECT min(id) FROM journal), before)
    AND NOT EXISTS (SELECT 1 FROM chunks c WHERE c.account = deleted.account AND c.run = deleted.run)
    AND NOT EXISTS (SELECT 1 FROM pieces p WHERE p.account = deleted.account AND p.run = deleted.run);
