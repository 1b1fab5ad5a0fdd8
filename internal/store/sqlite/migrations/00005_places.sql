-- +goose Up

-- Checksums of the locations of a run's events, of the marks of deleted runs, and of
-- the epoch; see format/sum.go. A chunk of an earlier release keeps -1, which means no
-- checksum, because chunks are most of a large store, and setting one rewrites it.
ALTER TABLE runs ADD COLUMN reach_sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE runs ADD COLUMN place_sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE chunks ADD COLUMN sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE pieces ADD COLUMN sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE file_released ADD COLUMN sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE deleted ADD COLUMN sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE owner ADD COLUMN sum INTEGER NOT NULL DEFAULT -1;

UPDATE runs SET
    reach_sum = roux_sum(account, run, last),
    place_sum = roux_sum(account, run, pack, packed);
UPDATE pieces SET sum = roux_sum(account, run, last, first, pack);
UPDATE file_released SET sum = roux_sum(account, hash, at);
UPDATE deleted SET sum = roux_sum(account, run, before);
UPDATE owner SET sum = roux_sum(id, epoch);
