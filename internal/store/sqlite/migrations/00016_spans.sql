-- +goose Up

-- The spans of time, of 2^20 µs, in which root runs of a recipe were created: one row for all
-- of them, where an index would have one of each. runs_newest has the runs of a span.
CREATE TABLE recipe_spans (
    account TEXT    NOT NULL,
    recipe  TEXT    NOT NULL,
    span    INTEGER NOT NULL,
    PRIMARY KEY (account, recipe, span)
) WITHOUT ROWID;

INSERT INTO recipe_spans (account, recipe, span)
SELECT DISTINCT account, recipe, created >> 20 FROM runs WHERE root = '' ORDER BY 1, 2, 3;

DROP INDEX runs_recipe;
