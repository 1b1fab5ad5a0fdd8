// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// jsonToCSV returns the action json-to-csv, which writes a table.
func jsonToCSV() action.Action {
	return action.Action{
		Name:        "json-to-csv",
		Version:     "1.0.0",
		Description: "Writes a list of objects or lists as a CSV table that spreadsheets open safely.",
		Cost:        1,
		Input: schema(`{
			"type": "object",
			"properties": {
				"rows": {"type": "array", "items": {"type": ["object", "array"]}, "description": "The rows: all objects, or all lists of cells. A value that is itself a list or object is written as JSON."},
				"file": {"type": "string", "format": "file", "pattern": "^sha256_[0-9a-f]{64}$", "description": "Hash of a file with the rows: a JSON array, or one JSON value a line. A step that is given no rows gets the run's only file."},
				"columns": {"type": "array", "minItems": 1, "maxItems": 4096, "items": {"type": "string", "maxLength": 1024}, "description": "The columns in their order; others are left out. Default: in the order of their first appearance, those of one row by name."},
				"header": {"type": "boolean", "default": true, "description": "Whether the first row names the columns. Rows that are lists have a header only when columns is given."},
				"delimiter": {"enum": [",", ";", "\t", "|"], "default": ",", "description": "What stands between cells."},
				"formulas": {"enum": ["escape", "keep"], "default": "escape", "description": "escape puts an apostrophe before texts that a spreadsheet would take for a formula (they begin with = + - @, a tab or a line end). Numbers such as -5 stay as they are."},
				"lineEnd": {"enum": ["lf", "crlf"], "default": "lf", "description": "crlf is what RFC 4180 says; every program reads lf."},
				` + outputProp + `
			},
			` + exactlyOne + `: ["rows", "file"],
			"additionalProperties": false
		}`),
		Output: schema(`{
			"type": "object",
			"properties": {
				"text": {"type": "string", "description": "The table; missing with output: file."},
				"file": {"type": "string", "format": "file", "description": "With output: file. The table."},
				` + fileNameProp + `,
				"columns": {"type": "array", "items": {"type": "string"}, "description": "The columns in their order; empty for rows that are lists."},
				"rowCount": {"type": "integer", "minimum": 0, "description": "How many rows there are, without the header."},
				"escaped": {"type": "integer", "minimum": 0, "description": "How many cells got an apostrophe."}
			},
			"required": ["columns", "rowCount", "escaped"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("rows", "A list of objects or lists, or a file of them.", "application/json", typeJSONLines),
			OutputTypes: types("table", "A CSV table in UTF-8.", "text/csv"),
			BranchConditions: []action.BranchCondition{
				condition("has-rows", `output.rowCount > 0`, "There was something to write."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "2m"},
		},
		Streams: []string{"rows"},
		Limits:  []string{"Lists and files of any size that the store takes; they are streamed, twice when columns is not given.", "4,096 columns.", "1 MiB a cell, 1,000,000 values a row.", "A table of 32 MiB inline, 1 GiB in a file."},
		Faults:  []fault.Code{fault.InputInvalid, fault.FileNotFound, fault.FileInvalid, fault.FileUnsupported, fault.FileTooLarge, fault.OutputTooLarge},
		Examples: []action.Example{
			example("A small table.", map[string]any{"rows": []any{map[string]any{"name": "bread", "price": 3.2}, map[string]any{"name": "=1+1", "price": -5}}, "columns": []any{"name", "price"}}),
			example("A file of JSON lines as a file for a spreadsheet.", map[string]any{"file": "file", "output": "file", "name": "report.csv"}),
		},
		Run: runJSONToCSV,
	}
}

type toCSVInput struct {
	File      string   `json:"file"`
	Columns   []string `json:"columns"`
	Header    *bool    `json:"header"`
	Delimiter string   `json:"delimiter"`
	Formulas  string   `json:"formulas"`
	LineEnd   string   `json:"lineEnd"`
	target
}

func runJSONToCSV(ctx context.Context, task *action.Task) (action.Result, error) {
	var in toCSVInput
	if err := decode(task, &in); err != nil {
		return action.Result{}, err
	}
	if err := checkOneSource("rows", task.Has("rows"), in.File); err != nil {
		return action.Result{}, err
	}
	c := &csvWriter{in: &in, ctx: ctx, task: task, columns: in.Columns}
	if c.columns == nil {
		if err := c.each(c.collectColumns); err != nil {
			return action.Result{}, err
		}
	}
	out := map[string]any{}
	if in.Output == "file" {
		info, err := storeOutput(ctx, task, in.fileName("table.csv"), "text/csv", func(w *bufio.Writer) error { return c.write(w) })
		if err != nil {
			return action.Result{}, err
		}
		out["file"], out["name"] = info.Hash, info.Name
	} else {
		b := boundedBuffer{}
		if err := c.write(&b); err != nil {
			return action.Result{}, err
		}
		out["text"] = b.String()
	}
	columns := make([]any, len(c.columns))
	for i, name := range c.columns {
		columns[i] = name
	}
	out["columns"], out["rowCount"], out["escaped"] = columns, c.rows, c.escaped
	return action.Result{Output: out}, nil
}

// A boundedBuffer is a text built in memory within a limit.
type boundedBuffer struct{ strings.Builder }

func (h *boundedBuffer) Write(p []byte) (int, error) {
	if h.Len()+len(p) > maxResultInMemory {
		return 0, resultTooLarge("the table")
	}
	return h.Builder.Write(p)
}

// csvWriter turns rows into a table.
type csvWriter struct {
	in      *toCSVInput
	ctx     context.Context
	task    *action.Task
	columns []string
	known   map[string]bool
	lists   bool // the rows are lists
	rows    int64
	escaped int64
	record  []string
}

// each reads the rows from the start.
func (c *csvWriter) each(use func(n int64, row any) error) error {
	return eachRow(c.ctx, c.task, c.in.File, use)
}

// eachValue reads the elements of one JSON array, or successive values.
func eachValue(r io.Reader, use func(v any) error) error {
	s := jsonx.NewStream(r, jsonx.StreamLimits{Token: 1 << 20})
	array := s.Kind() == '['
	if array {
		if _, err := s.Open(); err != nil {
			return jsonFault(err)
		}
		// This is an array of lists, or a line that is a list. What follows the first
		// element decides; rows that are lists must be in an array.
	}
	for (array && s.Kind() != ']') || (!array && s.More()) {
		v, err := s.Value()
		if err != nil {
			return jsonFault(err)
		}
		if err := use(v); err != nil {
			return err
		}
	}
	if !array {
		return nil
	}
	if err := s.Close(); err != nil {
		return jsonFault(err)
	}
	if err := s.End(); err != nil {
		return fault.Wrap(fault.FileInvalid, err, "after the JSON array: %v; rows are one array, or one object a line", err)
	}
	return nil
}

// jsonFault turns an error of reading JSON into a fault.
func jsonFault(err error) error {
	var bad *jsonx.Error
	if !errors.As(err, &bad) {
		return err
	}
	if bad.Rule == jsonx.RuleLimit {
		return fault.Wrap(fault.FileTooLarge, err, "the JSON text cannot be read: %v", err)
	}
	return fault.Wrap(fault.FileInvalid, err, "the JSON text cannot be read: %v", err)
}

// collectColumns collects the columns of a row.
func (c *csvWriter) collectColumns(n int64, row any) error {
	obj, ok := row.(map[string]any)
	if !ok {
		return nil // write returns the fault
	}
	if c.known == nil {
		c.known, c.columns = map[string]bool{}, []string{}
	}
	var fresh []string
	for name := range obj {
		if !c.known[name] {
			fresh = append(fresh, name)
		}
	}
	slices.Sort(fresh)
	for _, name := range fresh {
		if len(c.columns) == maxColumns {
			return fault.New(fault.FileTooLarge, "row %d: there are more than %d columns: name those you want in \"columns\"", n, maxColumns)
		}
		c.known[name] = true
		c.columns = append(c.columns, name)
	}
	return nil
}

func (c *csvWriter) write(to io.Writer) error {
	w := csv.NewWriter(to)
	w.Comma = rune(cmp.Or(c.in.Delimiter, ",")[0])
	w.UseCRLF = c.in.LineEnd == "crlf"
	if len(c.columns) > 0 && (c.in.Header == nil || *c.in.Header) {
		c.record = c.record[:0]
		for _, name := range c.columns {
			c.record = append(c.record, c.escapeFormula(name))
		}
		if err := w.Write(c.record); err != nil {
			return err
		}
	}
	err := c.each(func(n int64, row any) error {
		if err := c.fillRecord(n, row); err != nil {
			return err
		}
		c.rows = n
		if len(c.record) == 1 && c.record[0] == "" {
			// The library writes an empty line here, which readers skip.
			w.Flush()
			_, err := io.WriteString(to, "\"\""+map[bool]string{true: "\r\n", false: "\n"}[w.UseCRLF])
			return err
		}
		return w.Write(c.record)
	})
	if err != nil {
		return err
	}
	w.Flush()
	return w.Error()
}

// fillRecord builds the record of a row.
func (c *csvWriter) fillRecord(n int64, row any) error {
	c.record = c.record[:0]
	list, isList := row.([]any)
	obj, isObject := row.(map[string]any)
	if n == 1 {
		c.lists = isList
	}
	switch {
	case !isList && !isObject:
		return fault.New(fault.InputInvalid, "row %d is %s: want an object or a list of cells", n, jsonKind(row))
	case isList != c.lists:
		return fault.New(fault.InputInvalid, "row %d is %s and row 1 is not: want all rows alike", n, jsonKind(row))
	case isList && len(list) > maxColumns:
		return fault.New(fault.FileTooLarge, "row %d has %d cells, the limit is %d", n, len(list), maxColumns)
	case isList && c.in.Columns != nil && len(list) > len(c.columns):
		return fault.New(fault.InputInvalid, "row %d has %d cells, columns names %d", n, len(list), len(c.columns))
	}
	if isObject {
		list = list[:0]
		for _, name := range c.columns {
			list = append(list, obj[name])
		}
	}
	for i, v := range list {
		text, err := c.cell(v)
		if err != nil {
			return fault.Wrap(fault.CodeOf(err), err, "row %d, cell %d: %s", n, i+1, fault.Message(err))
		}
		c.record = append(c.record, text)
	}
	if isList { // pad, so that all rows of a table with names have the same length
		for len(c.record) < len(c.columns) {
			c.record = append(c.record, "")
		}
	}
	return nil
}

// cell returns the text of a value.
func (c *csvWriter) cell(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return c.escapeFormula(v), nil
	}
	text, err := jsonx.Canonical(v)
	if err != nil {
		return "", fault.Wrap(fault.InputInvalid, err, "%v", err)
	}
	return string(text), nil
}

// escapeFormula keeps a text from being read as a formula (A31). Spreadsheets
// also accept the full-width forms of the signs.
func (c *csvWriter) escapeFormula(text string) string {
	if c.in.Formulas == "keep" || text == "" {
		return text
	}
	switch r, _ := utf8.DecodeRuneInString(text); r {
	case '=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠':
	default:
		return text
	}
	if _, number, _ := jsonx.ParseNumber(text); number {
		return text
	}
	c.escaped++
	return "'" + text
}

// jsonKind returns the type of a value, for messages.
func jsonKind(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(v)
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "a number"
}
