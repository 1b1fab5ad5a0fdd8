-- +goose Up

-- The runs of an account that have not ended are counted by this index, so it has the
-- suspended ones as well. A start reads only those that are not (parked = 0).
DROP INDEX runs_live;
CREATE INDEX runs_live ON runs (parked, account, run) WHERE ended = 0 OR owes = 1;

-- The queued runs of an account, in the order in which they are admitted: updated is
-- when a run was queued.
CREATE INDEX runs_queued ON runs (account, updated, run) WHERE status = 'queued';
