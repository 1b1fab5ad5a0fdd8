-- +goose Up

-- One row per group commit; see format/row.go for its data.
CREATE TABLE journal (
    id   INTEGER PRIMARY KEY,
    data BLOB NOT NULL
);

-- Events that need no journal row any more. Keyed by their last event, so that
-- "how far do chunks reach" is answered by the index alone.
CREATE TABLE chunks (
    account TEXT    NOT NULL,
    run     TEXT    NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    PRIMARY KEY (account, run, last)
);

CREATE TABLE snapshots (
    account TEXT    NOT NULL,
    run     TEXT    NOT NULL,
    last    INTEGER NOT NULL,
    format  INTEGER NOT NULL,
    state   BLOB    NOT NULL,
    PRIMARY KEY (account, run)
);

-- last is the run's last event when the head was written: what the journal and
-- the chunks must at least reach.
CREATE TABLE runs (
    account    TEXT    NOT NULL,
    run        TEXT    NOT NULL,
    recipe     TEXT    NOT NULL,
    version    TEXT    NOT NULL,
    plan_hash  TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    created    INTEGER NOT NULL,
    updated    INTEGER NOT NULL,
    ended      INTEGER NOT NULL,
    code       TEXT    NOT NULL,
    message    TEXT    NOT NULL,
    used       INTEGER NOT NULL,
    failures   INTEGER NOT NULL,
    quarantine TEXT    NOT NULL,
    owes       INTEGER NOT NULL,
    last       INTEGER NOT NULL,
    parked     INTEGER NOT NULL DEFAULT 0,
    wake_at    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (account, run)
) WITHOUT ROWID;

CREATE INDEX runs_newest ON runs (account, created, run);
CREATE INDEX runs_live ON runs (account, run) WHERE parked = 0 AND (ended = 0 OR owes = 1);
CREATE INDEX runs_wake ON runs (wake_at, account, run) WHERE wake_at > 0;

CREATE TABLE plans (
    hash TEXT PRIMARY KEY,
    data BLOB NOT NULL
);

-- "until" is when the key may be forgotten, UTC µs.
CREATE TABLE idempotency (
    account   TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    body_hash TEXT    NOT NULL,
    run       TEXT    NOT NULL,
    until     INTEGER NOT NULL,
    PRIMARY KEY (account, key)
) WITHOUT ROWID;

CREATE TABLE notes (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE owner (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL
);
