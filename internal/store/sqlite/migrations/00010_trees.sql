-- +goose Up

-- A child run has the root of its tree and the run that has started it; both are '' for a
-- root run. start_sum has them only if they are set, so that earlier rows keep theirs.
ALTER TABLE runs ADD COLUMN root TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN parent TEXT NOT NULL DEFAULT '';

-- Lists and retention find roots, and the runs of a tree through their root.
DROP INDEX runs_newest;
CREATE INDEX runs_newest ON runs (account, created, run) WHERE root = '';
DROP INDEX runs_ended;
CREATE INDEX runs_ended ON runs (ended, account, run) WHERE ended <> 0 AND owes = 0 AND root = '';
CREATE INDEX runs_tree ON runs (account, root, parent, created, run) WHERE root <> '';
