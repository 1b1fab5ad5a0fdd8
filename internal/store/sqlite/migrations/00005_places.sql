-- +goose Up

-- Checksums of what says where the events of a run are, of marks, and of the
-- epoch; see sums.go. A chunk of an earlier release keeps -1, which is no
-- checksum: chunks hold most of a large store, and to set one writes it anew.
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
