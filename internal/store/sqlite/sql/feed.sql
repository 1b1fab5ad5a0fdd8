-- SPDX-License-Identifier: Apache-2.0

-- What has changed in accounts.

-- name: feedEnd
SELECT first, last, at, data, sum FROM feed WHERE account = ?1 ORDER BY last DESC LIMIT 1;

-- name: putChanges
INSERT INTO feed (account, first, last, at, data, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: changesAfter
SELECT first, last, at, data, sum FROM feed WHERE account = ?1 AND last > ?2 ORDER BY last;

-- name: feedStart
SELECT first, last, at, data, sum FROM feed WHERE account = ?1 ORDER BY last LIMIT 1;

-- name: fedAccounts
-- It finds each account by one look-up, however many rows the accounts have.
WITH RECURSIVE a(account) AS (
    SELECT min(account) FROM feed WHERE account >= ?1
    UNION ALL
    SELECT (SELECT min(f.account) FROM feed f WHERE f.account > a.account) FROM a WHERE a.account IS NOT NULL
)
SELECT account FROM a WHERE account IS NOT NULL LIMIT ?2;

-- name: dropChanges
DELETE FROM feed WHERE account = ?1 AND last <= ?2;

-- name: emptyChanges
UPDATE feed SET first = last + 1, data = ?3, sum = ?4 WHERE account = ?1 AND last = ?2;
