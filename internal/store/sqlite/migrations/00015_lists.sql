-- +goose Up

-- What few runs have beside their rows: labels, and that a user deleted them; see the
-- package marks. data is a blob with a checksum of its own. Runs of earlier releases have
-- none, also if they were started with labels.
CREATE TABLE run_marks (
    account TEXT NOT NULL,
    run     TEXT NOT NULL,
    data    BLOB NOT NULL,
    PRIMARY KEY (account, run)
) WITHOUT ROWID;

-- The runs with a label, and those that a user deleted, in the order of lists.
CREATE TABLE run_labels (
    account TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    value   TEXT    NOT NULL,
    created INTEGER NOT NULL,
    run     TEXT    NOT NULL,
    PRIMARY KEY (account, key, value, created, run)
) WITHOUT ROWID;

CREATE TABLE hidden_runs (
    account TEXT    NOT NULL,
    created INTEGER NOT NULL,
    run     TEXT    NOT NULL,
    PRIMARY KEY (account, created, run)
) WITHOUT ROWID;

-- The runs of a recipe, and those that have ended and are not completed.
CREATE INDEX runs_recipe ON runs (account, recipe, created, run) WHERE root = '';
CREATE INDEX runs_failed ON runs (account, created, run) WHERE root = '' AND ended <> 0 AND status <> 'completed';
