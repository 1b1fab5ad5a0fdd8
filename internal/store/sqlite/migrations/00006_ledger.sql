-- +goose Up

-- The credits of accounts: every entry that moves some, and now and then the state that
-- the entries up to one lead to. at is the time when the entry was recorded, which never
-- goes back within an account; the entry's own time may be earlier.
CREATE TABLE ledger (
    account TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    key     TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    sum     INTEGER NOT NULL,
    PRIMARY KEY (account, seq)
) WITHOUT ROWID;

CREATE UNIQUE INDEX ledger_key ON ledger (account, key);

CREATE TABLE ledger_states (
    account TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    state   BLOB    NOT NULL,
    sum     INTEGER NOT NULL,
    PRIMARY KEY (account, at, seq)
);
