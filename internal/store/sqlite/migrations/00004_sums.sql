-- +goose Up

-- Checksums of columns that no other checksum covers; see format/sum.go. A row of an
-- earlier release gets the checksums of its current content.
ALTER TABLE runs ADD COLUMN start_sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE runs ADD COLUMN head_sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE runs ADD COLUMN park_sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE idempotency ADD COLUMN sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE plans ADD COLUMN sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE notes ADD COLUMN sum INTEGER NOT NULL DEFAULT -1;
ALTER TABLE snapshots ADD COLUMN sum INTEGER NOT NULL DEFAULT -1;

UPDATE runs SET
    start_sum = roux_sum(account, run, recipe, version, plan_hash, created),
    head_sum = roux_sum(account, run, status, updated, ended, code, message, used, failures, quarantine, owes),
    park_sum = roux_sum(account, run, parked, wake_at);
UPDATE idempotency SET sum = roux_sum(account, key, body_hash, run, until);
UPDATE plans SET sum = roux_sum(hash, data);
UPDATE notes SET sum = roux_sum(name, value);
UPDATE snapshots SET sum = roux_sum(account, run, last, format);
