-- +goose Up

-- The documents of the service; see the package records. data is a blob with a checksum
-- of its own (format/blob.go), and the last column, so that a list of keys does not read it.
CREATE TABLE records (
    account  TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    until    INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    sum      INTEGER NOT NULL,
    data     BLOB    NOT NULL,
    PRIMARY KEY (account, kind, id)
);

CREATE UNIQUE INDEX records_name ON records (account, kind, name) WHERE name <> '';
CREATE INDEX records_until ON records (until) WHERE until <> 0;

-- The revisions up to last may have been given to records.
CREATE TABLE record_revisions (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL,
    sum  INTEGER NOT NULL
);
