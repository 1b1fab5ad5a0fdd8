// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

const (
	maxColumns   = 4_096
	maxRows      = 100_000 // listed inline
	maxCells     = 1_000_000
	maxRowsFile  = 50_000_000
	maxRecord    = 8 << 20 // bytes of one row in the file
	maxNameBytes = 1_024   // of a column

	typeJSONLines = "application/x-ndjson"
)

// csvToJSON returns the action csv-to-json, which reads a table.
func csvToJSON() action.Action {
	return action.Action{
		Name:        "csv-to-json",
		Version:     "1.0.0",
		Description: "Reads a CSV table into a list of objects, one for each row.",
		Cost:        1,
		Input: sourceSchema(`
			"delimiter": {"enum": ["auto", ",", ";", "\t", "|"], "default": "auto", "description": "What stands between cells; auto tells from the first rows."},
			"header": {"type": "boolean", "default": true, "description": "false: the first row is data. Then columns names the columns, or they are column_1, column_2 and so on."},
			"columns": {"type": "array", "minItems": 1, "maxItems": 4096, "items": {"type": "string", "minLength": 1, "maxLength": 1024}, "description": "Names for the columns, in place of those of the header row."},
			"types": {"enum": ["strings", "infer"], "default": "strings", "description": "infer: true, false and numbers as JSON writes them become such values and empty cells null; integers stay exact, and what does not fit 64 bits stays a string. 007 stays a string."},
			"ragged": {"enum": ["error", "pad"], "default": "error", "description": "Rows with too few or too many cells: an error that names the line, or missing cells are empty and others get columns of their own."},
			"limit": {"type": "integer", "minimum": 1, "description": "Reads only that many rows."},
			` + outputProp),
		Output: schema(`{
			"type": "object",
			"properties": {
				"rows": {"type": "array", "items": {"type": "object"}, "description": "The rows in their order; missing with output: file."},
				"file": {"type": "string", "format": "file", "description": "With output: file. One row a line as JSON, ready to loop over."},
				` + fileNameProp + `,
				"columns": {"type": "array", "items": {"type": "string"}, "description": "The columns in their order. An empty header cell is column_3 after its place; a repeated one gets _2, _3 and so on."},
				"rowCount": {"type": "integer", "minimum": 0, "description": "How many rows were read."},
				"delimiter": {"type": "string", "description": "What stands between cells."},
				"truncated": {"type": "boolean", "description": "Whether limit left rows out."}
			},
			"required": ["columns", "rowCount", "delimiter", "truncated"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("table", "A CSV table in UTF-8, with or without byte order mark.", "text/csv", "text/tab-separated-values", "text/plain"),
			OutputTypes: types("rows", "The rows, as a list or a file of JSON lines.", "application/json", typeJSONLines),
			BranchConditions: []action.BranchCondition{
				condition("has-rows", `output.rowCount > 0`, "The table has rows beside its header."),
				condition("is-truncated", `output.truncated`, "limit left rows out."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "2m"},
		},
		Limits: []string{"100,000 rows, 1,000,000 cells and 32 MiB inline, 50,000,000 rows and 1 GiB in a file; files are streamed.", "4,096 columns.", "8 MiB a row."},
		Faults: []fault.Code{fault.InputInvalid, fault.FileNotFound, fault.FileInvalid, fault.FileUnsupported, fault.FileTooLarge, fault.OutputTooLarge},
		Examples: []action.Example{
			example("A small table with numbers.", map[string]any{"text": "name,price\nbread,3.20\nmilk,1.15\n", "types": "infer"}),
			example("A large file, as JSON lines.", map[string]any{"file": "file", "output": "file"}),
			example("Without a header row.", map[string]any{"text": "1;2\n3;4\n", "header": false, "columns": []any{"x", "y"}}),
		},
		Run: runCSVToJSON,
	}
}

type csvInput struct {
	source
	Delimiter string   `json:"delimiter"`
	Header    *bool    `json:"header"`
	Columns   []string `json:"columns"`
	Types     string   `json:"types"`
	Ragged    string   `json:"ragged"`
	Limit     int64    `json:"limit"`
	target
}

func runCSVToJSON(ctx context.Context, task *action.Task) (action.Result, error) {
	var in csvInput
	if err := decode(task, &in); err != nil {
		return action.Result{}, err
	}
	s, err := in.open(ctx, task)
	if err != nil {
		return action.Result{}, err
	}
	defer func() { _ = s.Close() }()
	t, err := openTable(&progressReader{r: contextReader{ctx, s}, size: s.size, reporter: report(task), text: "reading rows"}, &in)
	if err != nil {
		return action.Result{}, err
	}
	out := map[string]any{}
	if in.Output == "file" {
		info, err := storeOutput(ctx, task, in.fileName(stem(s.name, "rows")+".jsonl"), typeJSONLines, t.writeLines)
		if err != nil {
			return action.Result{}, err
		}
		out["file"], out["name"] = info.Hash, info.Name
	} else if out["rows"], err = t.list(); err != nil {
		return action.Result{}, err
	}
	columns := make([]any, len(t.columns))
	for i, c := range t.columns {
		columns[i] = c
	}
	out["columns"], out["rowCount"], out["delimiter"], out["truncated"] = columns, t.rows, string(t.comma), t.truncated
	return action.Result{Output: out}, nil
}

// A table reads the rows of a CSV text one by one.
type table struct {
	r         *csv.Reader
	src       *recordMeter
	in        *csvInput
	comma     rune
	columns   []string
	first     []string // a row that was read ahead to count the columns
	rows      int64
	truncated bool
}

// A recordMeter fails when one record needs more bytes than a row may have,
// because the CSV reader itself would buffer everything after an open quote.
type recordMeter struct {
	r     io.Reader
	read  int64
	begin int64 // offset of the record, set by the table
	line  int   // line of the previous record
}

func (m *recordMeter) Read(p []byte) (int, error) {
	if m.read-m.begin > maxRecord {
		return 0, fault.New(fault.FileInvalid, "the row after line %d has more than %d MiB: look for a quote that is not closed", m.line, maxRecord>>20)
	}
	n, err := m.r.Read(p)
	m.read += int64(n)
	return n, err
}

const detectBytes = 64 << 10

func openTable(r io.Reader, in *csvInput) (*table, error) {
	br := bufio.NewReaderSize(r, detectBytes)
	head, err := br.Peek(detectBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if in.Text != nil && bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		_, _ = br.Discard(3)
		head = head[3:]
	}
	t := &table{in: in, src: &recordMeter{r: br}}
	if d := cmp.Or(in.Delimiter, "auto"); d == "auto" {
		t.comma = detectDelimiter(head, errors.Is(err, io.EOF))
	} else {
		t.comma = rune(d[0])
	}
	t.r = csv.NewReader(t.src)
	t.r.Comma, t.r.FieldsPerRecord, t.r.ReuseRecord = t.comma, -1, true
	if err := t.readHeader(); err != nil {
		return nil, err
	}
	return t, nil
}

// detectDelimiter returns the delimiter that divides the first rows into the
// same number of cells, the more cells the better; otherwise the most frequent
// one.
func detectDelimiter(head []byte, whole bool) rune {
	if !whole { // the last row may be incomplete
		if at := bytes.LastIndexByte(head, '\n'); at >= 0 {
			head = head[:at+1]
		}
	}
	best, most := ',', 0
	for _, comma := range []rune{',', ';', '\t', '|'} {
		r := csv.NewReader(bytes.NewReader(head))
		r.Comma, r.FieldsPerRecord, r.ReuseRecord = comma, -1, true
		cells, score := 0, 0
		for n := 0; n < 20; n++ {
			rec, err := r.Read()
			if err != nil {
				break
			}
			if n == 0 {
				cells = len(rec)
			} else if len(rec) != cells {
				score /= 2
			}
			if cells > 1 {
				score += 1_000 * min(cells, 1_000)
			}
		}
		if score > most {
			best, most = comma, score
		}
	}
	return best
}

func (t *table) readHeader() error {
	rec, err := t.record()
	if errors.Is(err, io.EOF) {
		t.columns = t.in.Columns
		return t.checkColumns()
	}
	if err != nil {
		return t.readFault(err)
	}
	if t.in.Header != nil && !*t.in.Header {
		t.first = append([]string{}, rec...)
		if t.columns = t.in.Columns; t.columns == nil {
			for i := range rec {
				t.columns = append(t.columns, fmt.Sprintf("column_%d", i+1))
			}
		}
		return t.checkColumns()
	}
	if t.in.Columns != nil {
		t.columns = t.in.Columns
		return t.checkColumns()
	}
	if len(rec) > maxColumns {
		return fault.New(fault.FileTooLarge, "the table has %d columns, the limit is %d", len(rec), maxColumns)
	}
	seen := map[string]bool{}
	for i, name := range rec {
		name = strings.TrimSpace(name)
		if name == "" {
			name = fmt.Sprintf("column_%d", i+1)
		}
		unique := name
		for n := 2; seen[unique]; n++ {
			unique = fmt.Sprintf("%s_%d", name, n)
		}
		seen[unique] = true
		t.columns = append(t.columns, unique)
	}
	return t.checkColumns()
}

func (t *table) checkColumns() error {
	if len(t.columns) > maxColumns {
		return fault.New(fault.FileTooLarge, "the table has %d columns, the limit is %d", len(t.columns), maxColumns)
	}
	seen := map[string]bool{}
	for i, name := range t.columns {
		switch {
		case len(name) > maxNameBytes:
			return fault.New(fault.FileInvalid, "the name of column %d has %d bytes, the limit is %d: is there a header row?", i+1, len(name), maxNameBytes)
		case seen[name]:
			return fault.New(fault.InputInvalid, "columns names %.60q twice: want a name for each column", name)
		}
		seen[name] = true
	}
	return nil
}

// next returns the next row, and io.EOF at the end of the table.
func (t *table) next() ([]string, error) {
	if t.in.Limit > 0 && t.rows == t.in.Limit {
		_, err := t.record()
		if t.truncated = err == nil; err == nil || errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, t.readFault(err)
	}
	rec, err := t.record()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, t.readFault(err)
	}
	t.rows++
	if len(rec) != len(t.columns) && t.in.Ragged != "pad" {
		line, _ := t.r.FieldPos(0)
		return nil, fault.New(fault.FileInvalid, "line %d has %d cells, the table has %d columns: correct it, or give \"ragged\": \"pad\"", line, len(rec), len(t.columns))
	}
	for len(t.columns) < len(rec) {
		if len(t.columns) == maxColumns {
			line, _ := t.r.FieldPos(0)
			return nil, fault.New(fault.FileTooLarge, "line %d has %d cells, the limit is %d", line, len(rec), maxColumns)
		}
		t.columns = append(t.columns, t.unusedName(len(t.columns)+1))
	}
	return rec, nil
}

// unusedName returns a name for a column that the header lacks.
func (t *table) unusedName(n int) string {
	name := fmt.Sprintf("column_%d", n)
	for slices.Contains(t.columns, name) {
		name += "_2"
	}
	return name
}

func (t *table) record() ([]string, error) {
	if first := t.first; first != nil {
		t.first = nil
		return first, nil
	}
	rec, err := t.r.Read()
	if err == nil {
		t.src.begin = t.r.InputOffset()
		t.src.line, _ = t.r.FieldPos(len(rec) - 1)
	}
	return rec, err
}

// readFault turns an error of the CSV reader into a fault.
func (t *table) readFault(err error) error {
	var bad *csv.ParseError
	if !errors.As(err, &bad) {
		return err
	}
	if inner := (*fault.Error)(nil); errors.As(bad.Err, &inner) {
		return inner
	}
	why := bad.Err.Error()
	switch {
	case errors.Is(bad.Err, csv.ErrQuote):
		why = "a quote stands inside or after a quoted cell; inside a cell it is written twice"
	case errors.Is(bad.Err, csv.ErrBareQuote):
		why = "a quote stands inside a cell that does not begin with one"
	}
	return fault.Wrap(fault.FileInvalid, err, "line %d, column %d: %s", bad.Line, bad.Column, why)
}

// cell returns the value of a cell.
func (t *table) cell(text string) any {
	if t.in.Types != "infer" {
		return text
	}
	switch text {
	case "":
		return nil
	case "true":
		return true
	case "false":
		return false
	}
	if v, ok, problem := jsonx.ParseNumber(text); ok && problem == "" {
		return v
	}
	return text
}

func (t *table) object(rec []string) (obj map[string]any, size int) {
	obj = make(map[string]any, len(t.columns))
	for i, name := range t.columns {
		text := ""
		if i < len(rec) {
			text = rec[i]
		}
		obj[name] = t.cell(strings.Clone(text))
		size += len(name) + len(text) + 6 // as JSON
	}
	return obj, size
}

func (t *table) list() ([]any, error) {
	rows, size := []any{}, 0
	for {
		rec, err := t.next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		obj, n := t.object(rec)
		if size += n; size > maxResultInMemory || len(rows) == maxRows || len(rows)*len(t.columns) > maxCells {
			return nil, fault.New(fault.OutputTooLarge, `the table has more than %d rows, %d cells or %d MiB: ask for "output": "file", or set "limit"`, maxRows, maxCells, maxResultInMemory>>20)
		}
		rows = append(rows, obj)
	}
}

func (t *table) writeLines(w *bufio.Writer) error {
	var line []byte
	for {
		rec, err := t.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if t.rows > maxRowsFile {
			return fault.New(fault.OutputTooLarge, "the table has more than %d rows: set \"limit\", or split the file first", maxRowsFile)
		}
		obj, _ := t.object(rec)
		if line, err = jsonx.AppendCanonical(line[:0], obj); err != nil {
			return fault.Wrap(fault.FileInvalid, err, "row %d: %v", t.rows, err)
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
}
