-- +goose Up

-- A pack holds the compactions of many runs in one commit; see format/pack.go for
-- its data.
CREATE TABLE packs (
    id   INTEGER PRIMARY KEY,
    data BLOB NOT NULL
);

-- The pack with the first events of a run, and the last of these events. Most runs
-- have no other compaction and need no row in pieces.
ALTER TABLE runs ADD COLUMN pack INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN packed INTEGER NOT NULL DEFAULT 0;

-- The packs with the later compactions of a run.
CREATE TABLE pieces (
    account TEXT    NOT NULL,
    run     TEXT    NOT NULL,
    last    INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    pack    INTEGER NOT NULL,
    PRIMARY KEY (account, run, last)
) WITHOUT ROWID;
