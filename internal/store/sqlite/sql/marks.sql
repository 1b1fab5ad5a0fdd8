-- SPDX-License-Identifier: Apache-2.0

-- Labels of runs, and runs that users deleted.

-- name: mark
-- Of a run (r); null if it has none.
(SELECT m.data FROM run_marks m WHERE m.account = r.account AND m.run = r.run);

-- name: findMark
SELECT data FROM run_marks WHERE account = ?1 AND run = ?2;

-- name: putMark
INSERT INTO run_marks (account, run, data) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET data = excluded.data;

-- name: dropMark
DELETE FROM run_marks WHERE account = ?1 AND run = ?2;

-- name: putLabel
INSERT INTO run_labels (account, key, value, created, run) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING;

-- name: dropLabel
DELETE FROM run_labels WHERE account = ?1 AND key = ?2 AND value = ?3 AND created = ?4 AND run = ?5;

-- name: hide
INSERT INTO hidden_runs (account, created, run) SELECT account, created, run FROM runs WHERE account = ?1 AND run = ?2 ON CONFLICT DO NOTHING;

-- name: dropHidden
DELETE FROM hidden_runs WHERE account = ?1 AND created = ?2 AND run = ?3;

-- name: labelledRuns
SELECT run FROM run_labels WHERE account = ?1 AND key = ?2 AND value = ?3 AND created >= ?4 AND (created, run) < (?5, ?6)
ORDER BY created DESC, run DESC LIMIT ?7;

-- name: hiddenRuns
SELECT run FROM hidden_runs WHERE account = ?1 AND created >= ?2 AND (created, run) < (?3, ?4)
ORDER BY created DESC, run DESC LIMIT ?5;

-- name: ofSpan
-- Runs (r) of a recipe that were created in a span (s).
r.account = s.account AND r.created >= s.span << 20 AND r.created < (s.span + 1) << 20 AND r.recipe = s.recipe;

-- name: runOfSpan
SELECT 1 FROM runs r INDEXED BY runs_newest WHERE {ofSpan} AND r.root = '';

-- name: putSpan
INSERT INTO recipe_spans (account, recipe, span) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING;

-- name: dropSpan
-- If no run is left in it.
DELETE FROM recipe_spans AS s WHERE account = ?1 AND recipe = ?2 AND span = ?3 AND NOT EXISTS ({runOfSpan});

-- name: badRunMarks
SELECT run FROM run_marks WHERE NOT roux_blob(data);

-- name: strayMarks
-- Marks, labels, hidden runs and spans of which there is no run, and runs without a span.
SELECT 'run', run, 'it has a mark and is missing' FROM run_marks m WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.account = m.account AND r.run = m.run)
UNION ALL SELECT 'run', run, 'it has a label and is missing' FROM run_labels m WHERE NOT EXISTS (SELECT 1 FROM run_marks r WHERE r.account = m.account AND r.run = m.run)
UNION ALL SELECT 'run', run, 'it has a deletion and is missing' FROM hidden_runs m WHERE NOT EXISTS (SELECT 1 FROM run_marks r WHERE r.account = m.account AND r.run = m.run)
UNION ALL SELECT 'recipe', recipe, 'no run was created in a span that it has' FROM recipe_spans s WHERE NOT EXISTS ({runOfSpan})
UNION ALL SELECT 'run', run, 'lists of its recipe do not have it' FROM runs r WHERE r.root = '' AND NOT EXISTS (
    SELECT 1 FROM recipe_spans s WHERE s.account = r.account AND s.recipe = r.recipe AND s.span = r.created >> 20);
