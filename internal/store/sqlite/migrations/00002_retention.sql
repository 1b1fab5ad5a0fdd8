-- +goose Up

-- Which files the events of a run name, as long as the run is stored.
CREATE TABLE file_refs (
    account TEXT NOT NULL,
    hash    TEXT NOT NULL,
    run     TEXT NOT NULL,
    PRIMARY KEY (account, hash, run)
) WITHOUT ROWID;

CREATE INDEX file_refs_run ON file_refs (account, run);

-- It is not known which files the existing runs name, so each counts as naming
-- every file ('*').
INSERT INTO file_refs (account, hash, run) SELECT account, '*', run FROM runs;

-- When the last deleted run that named a file had ended, UTC µs.
CREATE TABLE file_released (
    account TEXT    NOT NULL,
    hash    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (account, hash)
) WITHOUT ROWID;

-- Deleted runs of which journal rows below "before" or chunks are still there.
CREATE TABLE deleted (
    account TEXT    NOT NULL,
    run     TEXT    NOT NULL,
    before  INTEGER NOT NULL,
    PRIMARY KEY (account, run)
) WITHOUT ROWID;

CREATE INDEX runs_ended ON runs (ended, account, run) WHERE ended <> 0 AND owes = 0;
CREATE INDEX idempotency_until ON idempotency (until);
