-- SPDX-License-Identifier: Apache-2.0

-- The credits of accounts.

-- name: findEntry
SELECT seq FROM ledger WHERE account = ?1 AND key = ?2;

-- name: putEntry
INSERT INTO ledger (account, seq, key, at, data, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: putAccount
INSERT INTO ledger_states (account, at, seq, state, sum) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: accountAt
SELECT at, seq, state, sum FROM ledger_states WHERE account = ?1 AND at <= ?2 ORDER BY at DESC, seq DESC LIMIT 1;

-- name: entriesAfter
SELECT seq, key, at, data, sum FROM ledger WHERE account = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3;

-- name: entryOf
SELECT seq, key, at, data, sum FROM ledger WHERE account = ?1 AND key = ?2;

-- name: meteredAccounts
SELECT DISTINCT account FROM ledger ORDER BY account;

-- name: accountStates
SELECT at, seq, state, sum FROM ledger_states WHERE account = ?1 ORDER BY seq;
