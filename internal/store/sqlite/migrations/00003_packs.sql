-- +goose Up

-- The folds of many runs that came with one commit; see pack.go for what data
-- holds.
CREATE TABLE packs (
    id   INTEGER PRIMARY KEY,
    data BLOB NOT NULL
);

-- Where the first events of a run are when a pack has them, and the last of
-- those: most runs have no other fold, and need no row for one.
ALTER TABLE runs ADD COLUMN pack INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN packed INTEGER NOT NULL DEFAULT 0;

-- Where its later folds are, as far as they are in packs.
CREATE TABLE pieces (
    account TEXT    NOT NULL,
    run     TEXT    NOT NULL,
    last    INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    pack    INTEGER NOT NULL,
    PRIMARY KEY (account, run, last)
) WITHOUT ROWID;
