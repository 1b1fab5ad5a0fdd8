// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Limits of rows-query.
const (
	maxGroups = 100_000
	maxSorted = 64 << 20 // bytes of rows that are kept to be sorted
)

// celProp describes an input with an expression over a row. "x-cel" lists the
// names it can use, which compile checks.
const (
	celProp   = `"type": "string", "minLength": 1, "maxLength": 16384, "x-cel": ["row", "index", "with"]`
	orderProp = `"type": "string", "minLength": 1, "maxLength": 16384, "x-cel": ["result", "row", "index", "with"]`
)

// rowsQuery returns the action rows-query, which filters, computes, groups,
// sums and sorts the rows of a list or file of any size.
func rowsQuery() action.Action {
	return action.Action{
		Name:        "rows-query",
		Version:     "1.0.0",
		Description: "Filters, computes, groups, sums and sorts the rows of a list or file of any size, by CEL for each row.",
		Cost:        1,
		Input: schema(`{
			"type": "object",
			"properties": {
				"rows": {"type": "array", "description": "The rows: any values, most often objects."},
				"file": {"type": "string", "format": "file", "pattern": "^sha256_[0-9a-f]{64}$", "description": "Hash of a file with the rows: a JSON array, or one JSON value a line; csv-to-json makes one of a CSV table. A step that is given no rows gets the run's only file."},
				"with": {"type": "object", "description": "Values that the expressions see as with.NAME. Give what comes from outside here, and never write it into an expression by a template."},
				"where": {` + celProp + `, "description": "CEL: which rows count, such as row.price > with.least. The expressions see the row as row and its position, from 0, as index."},
				"select": {"type": "object", "minProperties": 1, "maxProperties": 256, "additionalProperties": {` + celProp + `}, "description": "The fields of each row of the result with CEL that gives them. Default: the row as it is. Not with groupBy."},
				"groupBy": {"type": "object", "minProperties": 1, "maxProperties": 16, "additionalProperties": {` + celProp + `}, "description": "Rows with equal values are one row of the result, which has these fields with CEL that gives them, and those of aggregate. In the order of their first appearance."},
				"aggregate": {"type": "object", "minProperties": 1, "maxProperties": 64, "additionalProperties": {
					"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": false,
					"properties": {
						"sum": {` + celProp + `, "description": "The sum of a number; null counts as nothing. Whole numbers are added exactly."},
						"avg": {` + celProp + `, "description": "The mean of a number; null when there is none."},
						"min": {` + celProp + `, "description": "The least value; null when there is none."},
						"max": {` + celProp + `, "description": "The greatest value; null when there is none."},
						"count": {` + celProp + `, "description": "How many rows a condition holds for; true counts them all."},
						"list": {` + celProp + `, "description": "All values, in their order."}
					}
				}, "description": "What to compute over the rows: of each group as fields of its row, and of all of them as totals. For each name one of sum, avg, min, max and list with CEL that gives the value, or count with CEL that says which rows; {\"count\": \"true\"} counts all."},
				"sortBy": {"type": "array", "minItems": 1, "maxItems": 16, "items": {
					"type": "object", "required": ["by"], "additionalProperties": false,
					"properties": {
						"by": {` + orderProp + `, "description": "CEL over result, the row of the result; without groupBy also over row and index."},
						"order": {"enum": ["asc", "desc"], "default": "asc", "description": "null comes last with asc and first with desc; numbers before texts."}
					}
				}, "description": "The order of the result. Equal rows stay as they are."},
				"offset": {"type": "integer", "minimum": 0, "default": 0, "description": "How many rows of the result to leave out at its beginning."},
				"limit": {"type": "integer", "minimum": 0, "description": "The most rows to give."},
				` + outputProp + `
			},
			` + exactlyOne + `: ["rows", "file"],
			"additionalProperties": false
		}`),
		Output: schema(`{
			"type": "object",
			"properties": {
				"rows": {"type": "array", "description": "The result; missing with output: file. Over 1 MiB it is a list in a file, like any other."},
				"file": {"type": "string", "format": "file", "description": "With output: file. The result, one JSON value a line."},
				` + fileNameProp + `,
				"rowCount": {"type": "integer", "minimum": 0, "description": "How many rows the result has."},
				"matched": {"type": "integer", "minimum": 0, "description": "For how many rows where holds."},
				"read": {"type": "integer", "minimum": 0, "description": "How many rows there were."},
				"totals": {"type": "object", "description": "With aggregate. The same over all rows that matched."}
			},
			"required": ["rowCount", "matched", "read"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("rows", "A list of values, or a file of them.", "application/json", typeJSONLines),
			OutputTypes: types("rows", "A list of rows, or a file of JSON lines.", "application/json", typeJSONLines),
			BranchConditions: []action.BranchCondition{
				condition("has-rows", `output.rowCount > 0`, "There is a row in the result."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "2m"},
		},
		Streams: []string{"rows"},
		Limits: []string{"Lists and files of any size; they are streamed.", "1 MiB a row.", "100,000 groups, 64 MiB of groups and of rows that are to be sorted; with limit only the rows that are given count.",
			"A result of 32 MiB inline, 1 GiB in a file."},
		Faults: []fault.Code{fault.InputInvalid, fault.TemplateError, fault.ExpressionLimit, fault.ValueTooLarge, fault.FileNotFound, fault.FileInvalid, fault.FileUnsupported, fault.FileTooLarge, fault.OutputTooLarge},
		Examples: []action.Example{
			example("Totals by group, the largest first.", map[string]any{
				"rows":      []any{map[string]any{"kind": "tea", "price": 3}, map[string]any{"kind": "jam", "price": 5}, map[string]any{"kind": "tea", "price": 4}},
				"groupBy":   map[string]any{"kind": "row.kind"},
				"aggregate": map[string]any{"total": map[string]any{"sum": "row.price"}, "items": map[string]any{"count": "true"}},
				"sortBy":    []any{map[string]any{"by": "result.total", "order": "desc"}},
			}),
			example("The dearest rows of a file, with some of their fields.", map[string]any{
				"file": "file", "where": "row.price >= with.least", "with": map[string]any{"least": 10},
				"select": map[string]any{"name": "row.name", "price": "row.price"}, "sortBy": []any{map[string]any{"by": "row.price", "order": "desc"}}, "limit": 20,
			}),
		},
		Run: runRowsQuery,
	}
}

type queryInput struct {
	File      string                       `json:"file"`
	With      json.RawMessage              `json:"with"`
	Where     string                       `json:"where"`
	Select    map[string]string            `json:"select"`
	GroupBy   map[string]string            `json:"groupBy"`
	Aggregate map[string]map[string]string `json:"aggregate"`
	SortBy    []struct{ By, Order string } `json:"sortBy"`
	Offset    int64                        `json:"offset"`
	Limit     *int64                       `json:"limit"`
	target
}

func runRowsQuery(ctx context.Context, task *action.Task) (action.Result, error) {
	var in queryInput
	if err := decode(task, &in); err != nil {
		return action.Result{}, err
	}
	if err := checkOneSource("rows", task.Has("rows"), in.File); err != nil {
		return action.Result{}, err
	}
	q, err := newQuery(&in)
	if err != nil {
		return action.Result{}, err
	}
	out := map[string]any{}
	if in.Output == "file" {
		info, err := storeOutput(ctx, task, in.fileName("rows.jsonl"), typeJSONLines, func(w *bufio.Writer) error {
			return q.run(ctx, task, func(row []byte) error {
				_, err := w.Write(append(row, '\n'))
				return err
			})
		})
		if err != nil {
			return action.Result{}, err
		}
		out["file"], out["name"] = info.Hash, info.Name
	} else {
		rows := []byte{'['}
		err := q.run(ctx, task, func(row []byte) error {
			if len(rows) > 1 {
				rows = append(rows, ',')
			}
			if rows = append(rows, row...); len(rows) > maxResultInMemory {
				return resultTooLarge("the result")
			}
			return nil
		})
		if err != nil {
			return action.Result{}, err
		}
		out["rows"] = json.RawMessage(append(rows, ']'))
	}
	out["rowCount"], out["matched"], out["read"] = q.given, q.matched, q.read
	if q.totals != nil {
		if out["totals"], err = q.totals.fields(); err != nil {
			return action.Result{}, err
		}
	}
	return action.Result{Output: out}, nil
}

// A query is the compiled query and its state so far.
type query struct {
	in         *queryInput
	vars       expr.MapVars
	where      *program
	fields     []program   // of select
	keys       []program   // of groupBy
	aggregates []aggregate // of aggregate
	order      []program
	totals     *group
	groups     map[string]*group
	groupOrder []*group // in order of first appearance
	sorted     []result
	memory     int // bytes kept
	read       int64
	matched    int64
	accepted   int64 // rows of the result before offset and limit
	given      int64
}

// A program is one compiled expression, with the name of its input for
// messages.
type program struct {
	*expr.Program
	name string // of the field that it computes
	at   string
}

func compileProgram(at, name, src string) (program, error) {
	p, err := expr.Compile(src)
	if err != nil {
		return program{}, fault.Wrap(fault.InputInvalid, err, "%s: %s", at, fault.Message(err))
	}
	return program{p, name, at}, nil
}

// compilePrograms compiles the expressions of an object, ordered by name.
func compilePrograms(at string, sources map[string]string) (all []program, err error) {
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		p, err := compileProgram(at+"."+name, name, sources[name])
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func newQuery(in *queryInput) (q *query, err error) {
	q = &query{in: in, vars: expr.MapVars{"with": map[string]any{}}, groups: map[string]*group{}}
	if in.With != nil {
		if q.vars["with"], err = jsonx.Decode(in.With, jsonx.Limits{}); err != nil {
			return nil, fault.Wrap(fault.InputInvalid, err, "with: %v", err)
		}
	}
	if in.GroupBy != nil && in.Select != nil {
		return nil, fault.New(fault.InputInvalid, `"select" and "groupBy" are both given: the rows of groups have the fields of groupBy and aggregate`)
	}
	if in.Where != "" {
		p, err := compileProgram("where", "", in.Where)
		if err != nil {
			return nil, err
		}
		q.where = &p
	}
	if q.fields, err = compilePrograms("select", in.Select); err != nil {
		return nil, err
	}
	if q.keys, err = compilePrograms("groupBy", in.GroupBy); err != nil {
		return nil, err
	}
	if q.aggregates, err = compileAggregates(in); err != nil {
		return nil, err
	}
	if len(q.aggregates) > 0 {
		q.totals = q.newGroup(nil)
	}
	for i, by := range in.SortBy {
		p, err := compileProgram(fmt.Sprintf("sortBy[%d]", i), cmp.Or(by.Order, "asc"), by.By)
		if err != nil {
			return nil, err
		}
		q.order = append(q.order, p)
	}
	return q, nil
}

// run reads all rows and calls give for those of the result, as canonical JSON.
func (q *query) run(ctx context.Context, task *action.Task, give func([]byte) error) error {
	err := eachRow(ctx, task, q.in.File, func(n int64, row any) error {
		q.read = n
		if err := q.row(row, give); err != nil {
			return fault.Wrap(fault.CodeOf(err), err, "row %d: %s", n, fault.Message(err))
		}
		return nil
	})
	if err != nil {
		return err
	}
	delete(q.vars, "row")
	delete(q.vars, "index")
	for _, g := range q.groupOrder {
		fields, err := g.fields()
		if err != nil {
			return err
		}
		if err := q.accept(fields, give); err != nil {
			return err
		}
	}
	return q.emitSorted(give)
}

// row processes one row.
func (q *query) row(row any, give func([]byte) error) error {
	q.vars["row"], q.vars["index"] = row, q.read-1
	if q.where != nil {
		v, err := q.eval(q.where)
		if err != nil {
			return err
		}
		holds, ok := v.(bool)
		if !ok {
			return fault.New(fault.InputInvalid, "where gives %s, want true or false", jsonKind(v))
		}
		if !holds {
			return nil
		}
	}
	q.matched++
	if q.totals != nil || q.keys != nil {
		if err := q.aggregateRow(); err != nil || q.keys != nil {
			return err
		}
	}
	if q.fields == nil {
		return q.accept(row, give)
	}
	made := make(map[string]any, len(q.fields))
	for i := range q.fields {
		v, err := q.eval(&q.fields[i])
		if err != nil {
			return err
		}
		made[q.fields[i].name] = v
	}
	return q.accept(made, give)
}

func (q *query) eval(p *program) (any, error) {
	v, err := p.Eval(q.vars)
	if err != nil {
		return nil, fault.Wrap(fault.CodeOf(err), err, "%s: %s", p.at, fault.Message(err))
	}
	return v, nil
}

// accept adds a row to the result: it is emitted at once, or kept to be sorted.
func (q *query) accept(v any, give func([]byte) error) error {
	row, err := jsonx.Canonical(v)
	if err != nil {
		return fault.Wrap(fault.InputInvalid, err, "the result: %v", err)
	}
	if q.order == nil {
		return q.emit(row, give)
	}
	q.vars["result"] = v
	r := result{row: row, keys: make([]any, len(q.order))}
	for i := range q.order {
		if r.keys[i], err = q.eval(&q.order[i]); err != nil {
			return err
		}
	}
	return q.keepForSorting(r)
}

// emit calls give for a row of the result, unless offset or limit exclude it.
func (q *query) emit(row []byte, give func([]byte) error) error {
	q.accepted++
	if q.accepted <= q.in.Offset || q.in.Limit != nil && q.given >= *q.in.Limit {
		return nil
	}
	q.given++
	return give(row)
}

// eachRow reads the rows of an action whose input is a list or a file of rows.
func eachRow(ctx context.Context, task *action.Task, file string, use func(n int64, row any) error) error {
	n := int64(0)
	if file != "" {
		s, err := openText(ctx, task, file)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		return eachValue(&progressReader{r: s, size: s.size, reporter: report(task), text: "reading rows"}, func(row any) error {
			n++
			return use(n, row)
		})
	}
	for raw, err := range task.Items(ctx, "rows") {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		n++
		row, err := jsonx.Decode(raw, jsonx.Limits{})
		if err != nil {
			return fault.Wrap(fault.InputInvalid, err, "row %d: %v", n, err)
		}
		if err := use(n, row); err != nil {
			return err
		}
	}
	return nil
}
