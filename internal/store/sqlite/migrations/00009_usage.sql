-- +goose Up

-- The state of an account also says what it has used in each day. The entries lead to all
-- states, so those without that are removed and made again.
DELETE FROM ledger_states;
