-- SPDX-License-Identifier: Apache-2.0

-- What a start writes beside the run: its plans and its idempotency key.

-- name: putPlan
INSERT INTO plans (hash, data, sum) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING;

-- name: plan
SELECT data, sum FROM plans WHERE hash = ?1;

-- name: findKey
SELECT run, body_hash, until, sum FROM idempotency WHERE account = ?1 AND key = ?2;

-- name: putKey
INSERT INTO idempotency (account, key, body_hash, run, until, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: forgetKeys
DELETE FROM idempotency WHERE (account, key) IN (SELECT i.account, i.key FROM idempotency i
    WHERE i.until < ?1 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.account = i.account AND r.run = i.run AND r.ended = 0)
    ORDER BY i.until, i.account, i.key LIMIT ?2);
