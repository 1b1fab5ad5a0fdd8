-- +goose Up

-- What has changed in an account: a row for each commit that wrote or deleted a head of
-- the account or recorded an entry, with the changes first to last; see format/changes.go.
-- at is the time of the last of them. The newest row of an account always stays, because
-- the next number follows from it: when its changes are removed, first becomes last + 1.
CREATE TABLE feed (
    account TEXT    NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    sum     INTEGER NOT NULL,
    PRIMARY KEY (account, last)
) WITHOUT ROWID;
