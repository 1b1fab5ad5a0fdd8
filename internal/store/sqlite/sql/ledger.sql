-- SPDX-License-Identifier: Apache-2.0

-- The credits of accounts.

-- name: findEntry
SELECT seq FROM ledger_keys WHERE account = ?1 AND key = ?2;

-- name: putKeyOfEntry
INSERT INTO ledger_keys (account, key, seq, sum) VALUES (?1, ?2, ?3, ?4);

-- name: putEntries
INSERT INTO ledger (account, first, last, at, data, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: putAccount
INSERT INTO ledger_states (account, at, seq, state, sum) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: accountAt
SELECT at, seq, state, sum FROM ledger_states WHERE account = ?1 AND at <= ?2 ORDER BY at DESC, seq DESC LIMIT 1;

-- name: entriesAfter
SELECT first, last, at, data, sum FROM ledger WHERE account = ?1 AND last > ?2 ORDER BY last;

-- name: entryOf
SELECT seq, sum FROM ledger_keys WHERE account = ?1 AND key = ?2;

-- name: meteredAccounts
SELECT DISTINCT account FROM ledger ORDER BY account;

-- name: accountStates
SELECT at, seq, state, sum FROM ledger_states WHERE account = ?1 ORDER BY seq;

-- name: entryKeys
SELECT key, seq FROM ledger_keys WHERE account = ?1 ORDER BY seq;
