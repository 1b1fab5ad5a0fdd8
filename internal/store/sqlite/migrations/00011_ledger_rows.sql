-- +goose Up

-- The entries of an account are a row of each commit, as its changes are: those numbered
-- first to last; see format/entries.go. at is when the last of them was recorded, which
-- never goes back within an account; an entry's own time may be earlier.
ALTER TABLE ledger RENAME TO ledger_entries;

CREATE TABLE ledger (
    account TEXT    NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    sum     INTEGER NOT NULL,
    PRIMARY KEY (account, last)
) WITHOUT ROWID;

-- The keys of entries, except those that follow from a reservation and an event of its
-- run: their reservation is here, and an event is stored once.
CREATE TABLE ledger_keys (
    account TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    sum     INTEGER NOT NULL,
    PRIMARY KEY (account, key)
) WITHOUT ROWID;

-- A row that fails its checksum goes on failing it.
INSERT INTO ledger (account, first, last, at, data, sum)
SELECT account, seq, seq, at, roux_entry_row(key, data),
    roux_sum(account, seq, seq, at, roux_entry_row(key, data)) + (sum IS NOT roux_sum(account, seq, key, at, data))
FROM ledger_entries;

INSERT INTO ledger_keys (account, key, seq, sum)
SELECT account, key, seq, roux_sum(account, key, seq) FROM ledger_entries;

DROP TABLE ledger_entries;
