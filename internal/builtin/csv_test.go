// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// asJSON returns a value as one line, to compare.
func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := jsonx.Canonical(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestCSVToJSON(t *testing.T) {
	s := store(t)
	for _, tt := range []struct {
		name  string
		input m
		want  string // rows
		cols  string
		delim string
	}{
		{"plain", m{"text": "a,b\n1,2\n3,4\n"}, `[{"a":"1","b":"2"},{"a":"3","b":"4"}]`, `["a","b"]`, ","},
		{"quotes, commas and line ends in cells (RFC 4180)", m{"text": "a,b\r\n\"x, \"\"y\"\"\",\"1\r\n2\"\r\n"}, `[{"a":"x, \"y\"","b":"1\n2"}]`, `["a","b"]`, ","},
		{"a byte order mark", m{"text": "\ufeffa\n1\n"}, `[{"a":"1"}]`, `["a"]`, ","},
		{"semicolons, told by themselves", m{"text": "name;price\nbread;3,20\nmilk;1,15\n"}, `[{"name":"bread","price":"3,20"},{"name":"milk","price":"1,15"}]`, `["name","price"]`, ";"},
		{"tabs", m{"text": "a\tb, c\n1\t2\n"}, `[{"a":"1","b, c":"2"}]`, `["a","b, c"]`, "\t"},
		{"bars", m{"text": "a|b\n1|2"}, `[{"a":"1","b":"2"}]`, `["a","b"]`, "|"},
		{"a delimiter by name", m{"text": "a;b,c\n1;2,3\n", "delimiter": ","}, `[{"a;b":"1;2","c":"3"}]`, `["a;b","c"]`, ","},
		{"one column", m{"text": "word\nferry\n"}, `[{"word":"ferry"}]`, `["word"]`, ","},
		{"inferred, exact", m{"text": "n\n9007199254740993\n-5\n1.50\n1e3\n007\n+1\n9223372036854775808\ntrue\nnull\n\"\"\n", "types": "infer"},
			`[{"n":9007199254740993},{"n":-5},{"n":1.5},{"n":1000},{"n":"007"},{"n":"+1"},{"n":"9223372036854775808"},{"n":true},{"n":"null"},{"n":null}]`, `["n"]`, ","},
		{"strings unless asked", m{"text": "n\n1\n"}, `[{"n":"1"}]`, `["n"]`, ","},
		{"repeated and missing names", m{"text": "a,,a,a_2,\n1,2,3,4,5\n"}, `[{"a":"1","a_2":"3","a_2_2":"4","column_2":"2","column_5":"5"}]`, `["a","column_2","a_2","a_2_2","column_5"]`, ","},
		{"no header", m{"text": "1,2\n", "header": false}, `[{"column_1":"1","column_2":"2"}]`, `["column_1","column_2"]`, ","},
		{"no header, names given", m{"text": "1,2\n", "header": false, "columns": []any{"x", "y"}}, `[{"x":"1","y":"2"}]`, `["x","y"]`, ","},
		{"names in place of the header", m{"text": "a,b\n1,2\n", "columns": []any{"x", "y"}}, `[{"x":"1","y":"2"}]`, `["x","y"]`, ","},
		{"ragged rows, padded", m{"text": "a,b\n1\n1,2,3\n", "ragged": "pad"}, `[{"a":"1","b":""},{"a":"1","b":"2","column_3":"3"}]`, `["a","b","column_3"]`, ","},
		{"empty lines are no rows", m{"text": "a\n\n1\n\n"}, `[{"a":"1"}]`, `["a"]`, ","},
		{"a header only", m{"text": "a,b\n"}, `[]`, `["a","b"]`, ","},
		{"nothing", m{"text": ""}, `[]`, `[]`, ","},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := call(t, s, "csv-to-json", tt.input)
			if err != nil {
				t.Fatal(err)
			}
			rows := out["rows"].([]any)
			if got := asJSON(t, rows); got != tt.want || asJSON(t, out["columns"]) != tt.cols || out["delimiter"] != tt.delim || out["rowCount"] != int64(len(rows)) || out["truncated"] != false {
				t.Errorf("got  %s %v %q\nwant %s %s %q", got, out["columns"], out["delimiter"], tt.want, tt.cols, tt.delim)
			}
		})
	}
	out, err := call(t, s, "csv-to-json", m{"text": "a\n1\n2\n3\n", "limit": 2})
	if err != nil || asJSON(t, out["rows"]) != `[{"a":"1"},{"a":"2"}]` || out["truncated"] != true || out["rowCount"] != int64(2) {
		t.Errorf("with a limit: %v, %v", out, err)
	}
	out, err = call(t, s, "csv-to-json", m{"text": "a\n1\n2\n", "limit": 2})
	if err != nil || out["truncated"] != false {
		t.Errorf("with a limit that suffices: %v, %v", out, err)
	}
	file := upload(t, s, "big.csv", []byte("a;b\n1;x\n2;\"y\nz\"\n"))
	out, err = call(t, s, "csv-to-json", m{"file": file.Hash, "types": "infer", "output": "file"})
	if err != nil || content(t, s, out["file"]) != "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\\nz\"}\n" || out["rows"] != nil || out["rowCount"] != int64(2) {
		t.Errorf("as a file: %v, %v", out, err)
	}
}

func TestJSONToCSV(t *testing.T) {
	s := store(t)
	row := func(kv ...any) m {
		r := m{}
		for i := 0; i < len(kv); i += 2 {
			r[kv[i].(string)] = kv[i+1]
		}
		return r
	}
	for _, tt := range []struct {
		name  string
		input m
		want  string
	}{
		{"columns as they appear", m{"rows": []any{row("b", 1, "a", 2), row("c", 3, "a", nil)}}, "a,b,c\n2,1,\n,,3\n"},
		{"columns by name", m{"rows": []any{row("b", 1, "a", 2)}, "columns": []any{"b", "x", "a"}}, "b,x,a\n1,,2\n"},
		{"values of every kind", m{"rows": []any{row("a", 9007199254740993, "b", 1.5, "c", true, "d", []any{1, "x"}, "e", m{"k": nil})}}, "a,b,c,d,e\n9007199254740993,1.5,true,\"[1,\"\"x\"\"]\",\"{\"\"k\"\":null}\"\n"},
		{"quotes", m{"rows": []any{row("a", "x,y", "b", "say \"hi\"", "c", "1\n2", "d", " x")}}, "a,b,c,d\n\"x,y\",\"say \"\"hi\"\"\",\"1\n2\",\" x\"\n"},
		{"lists", m{"rows": []any{[]any{1, "a"}, []any{2}}}, "1,a\n2\n"},
		{"lists with names", m{"rows": []any{[]any{1, "a"}, []any{2}}, "columns": []any{"n", "t"}}, "n,t\n1,a\n2,\n"},
		{"no header", m{"rows": []any{row("a", 1)}, "header": false}, "1\n"},
		{"another delimiter and line end", m{"rows": []any{row("a", 1, "b", "x;y")}, "delimiter": ";", "lineEnd": "crlf"}, "a;b\r\n1;\"x;y\"\r\n"},
		{"a row of one empty cell", m{"rows": []any{row("a", "")}}, "a\n\"\"\n"},
		{"nothing", m{"rows": []any{}}, ""},
		{"nothing with names", m{"rows": []any{}, "columns": []any{"a"}}, "a\n"},
	} {
		out, err := call(t, s, "json-to-csv", tt.input)
		if err != nil || out["text"] != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.name, out["text"], err, tt.want)
		}
	}
	for name, text := range map[string]string{"lines.jsonl": "{\"a\":1}\n\n{\"b\":\"=x\"}\n", "list.json": " [ {\"a\":1}, {\"b\":\"=x\"} ] "} {
		file := upload(t, s, name, []byte(text))
		out, err := call(t, s, "json-to-csv", m{"file": file.Hash, "output": "file", "name": "t.csv"})
		if err != nil || content(t, s, out["file"]) != "a,b\n1,\n,'=x\n" || out["rowCount"] != int64(2) || out["escaped"] != int64(1) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
}

// A31: a formula for a spreadsheet becomes text; numbers stay numbers.
func TestA31_Formulas(t *testing.T) {
	s := store(t)
	cells := func(input m) string {
		t.Helper()
		input["header"] = false
		out, err := call(t, s, "json-to-csv", input)
		if err != nil {
			t.Fatal(err)
		}
		return out["text"].(string)
	}
	for cell, want := range map[string]string{
		"=1+1": "'=1+1", "+1": "'+1", "-1+1": "'-1+1", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t=1", "\r=1": "\"'\r=1\"", "\n=1": "\"'\n=1\"", "＝1": "'＝1",
		"=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0", "=HYPERLINK(\"http://x\",\"y\")": "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"",
		"-5": "-5", "-5.5e3": "-5.5e3", "a=1": "a=1", "'=1": "'=1", "-": "'-", "": "\"\"",
	} {
		if got := cells(m{"rows": []any{[]any{cell}}}); got != want+"\n" {
			t.Errorf("%q is written %q, want %q", cell, got, want)
		}
	}
	if got := cells(m{"rows": []any{[]any{-5, -0.5, m{"=a": "=b"}}}}); got != "-5,-0.5,\"{\"\"=a\"\":\"\"=b\"\"}\"\n" {
		t.Errorf("numbers and nested values: %q", got)
	}
	if got := cells(m{"rows": []any{[]any{"=1+1"}}, "formulas": "keep"}); got != "=1+1\n" {
		t.Errorf("kept: %q", got)
	}
	out, err := call(t, s, "json-to-csv", m{"rows": []any{m{"=cmd": 1}}})
	if err != nil || out["text"] != "'=cmd\n1\n" || out["escaped"] != int64(1) {
		t.Errorf("names of columns: %v, %v", out, err)
	}
}

// A written CSV reads back unchanged, except for Windows line ends and the
// apostrophe of A31.
func TestCSVRoundTrip(t *testing.T) {
	cell := rapid.StringOf(rapid.SampledFrom([]rune("ab1 ,;|\t\"'\n=é-")))
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 1, 4, rapid.ID[string]).Draw(t, "columns")
		rows := []any{}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			row := m{}
			for _, c := range columns {
				row[c] = cell.Draw(t, c)
			}
			rows = append(rows, row)
		}
		names := make([]any, len(columns))
		for i, c := range columns {
			names[i] = c
		}
		delimiter := rapid.SampledFrom([]string{",", ";", "\t", "|"}).Draw(t, "delimiter")
		out, err := direct(t, "json-to-csv", m{"rows": rows, "columns": names, "formulas": "keep", "delimiter": delimiter})
		if err != nil {
			t.Fatal(err)
		}
		back, err := direct(t, "csv-to-json", m{"text": out["text"], "delimiter": delimiter})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back["rows"], rows) || !reflect.DeepEqual(back["columns"], names) {
			t.Fatalf("%q\nwas  %q\ngave %q", out["text"], rows, back["rows"])
		}
	})
}

func TestTableRefusals(t *testing.T) {
	s := store(t)
	wide := strings.Repeat("x,", maxColumns) + "x"
	open := upload(t, s, "open.csv", []byte("a,b\n1,\"2\n"+strings.Repeat("3,4\n", 3<<20))).Hash
	twice := upload(t, s, "two.json", []byte(`[{"a":1}] [{"a":2}]`)).Hash
	broken := upload(t, s, "broken.jsonl", []byte("{\"a\":1}\n{\"a\":")).Hash
	double := upload(t, s, "double.json", []byte(`[{"a":1,"a":2}]`)).Hash
	for _, tt := range []struct {
		name, action string
		input        m
		code         fault.Code
		says         string
	}{
		{"too few cells", "csv-to-json", m{"text": "a,b\n1,2\n3\n"}, fault.FileInvalid, `line 3 has 1 cells, the table has 2 columns: correct it, or give "ragged": "pad"`},
		{"too many cells", "csv-to-json", m{"text": "a,b\n1,2,3\n"}, fault.FileInvalid, "line 2 has 3 cells"},
		{"a quote in a cell", "csv-to-json", m{"text": "a,b\n1,x\"y\n"}, fault.FileInvalid, "line 2, column 4: a quote stands inside a cell"},
		{"an open quote", "csv-to-json", m{"text": "a\n\"x\n"}, fault.FileInvalid, "a quote"},
		{"an open quote in a long file", "csv-to-json", m{"file": open}, fault.FileInvalid, "8 MiB: look for a quote that is not closed"},
		{"too many columns", "csv-to-json", m{"text": wide + "\n"}, fault.FileTooLarge, "4097 columns"},
		{"too many columns by padding", "csv-to-json", m{"text": "a\n" + wide + "\n", "ragged": "pad", "delimiter": ","}, fault.FileTooLarge, "line 2 has 4097 cells"},
		{"a long name", "csv-to-json", m{"text": strings.Repeat("x", 2_000) + "\n"}, fault.FileInvalid, "is there a header row?"},
		{"too many rows", "csv-to-json", m{"text": "a\n" + strings.Repeat("1\n", maxRows+1)}, fault.OutputTooLarge, `"output": "file"`},
		{"names that explode", "csv-to-json", m{"text": strings.Repeat("x", 1_000) + "\n" + strings.Repeat("1\n", 50_000)}, fault.OutputTooLarge, "32 MiB"},
		{"many cells", "csv-to-json", m{"text": strings.Repeat(",", 999) + "\n" + strings.Repeat("1\n", 2_000), "ragged": "pad", "delimiter": ","}, fault.OutputTooLarge, "1000000 cells"},
		{"a name twice", "csv-to-json", m{"text": "a,b\n", "columns": []any{"x", "x"}}, fault.InputInvalid, `names "x" twice`},
		{"rows and file", "json-to-csv", m{"rows": []any{}, "file": twice}, fault.InputInvalid, "both given"},
		{"no rows", "json-to-csv", m{}, fault.InputInvalid, `neither "rows" nor "file"`},
		{"rows of two kinds", "json-to-csv", m{"rows": []any{m{"a": 1}, []any{1}}}, fault.InputInvalid, "row 2 is a list and row 1 is not"},
		{"a row that is none", "json-to-csv", m{"file": upload(t, s, "n.json", []byte(`[1]`)).Hash}, fault.InputInvalid, "row 1 is a number"},
		{"more cells than names", "json-to-csv", m{"rows": []any{[]any{1, 2}}, "columns": []any{"a"}}, fault.InputInvalid, "row 1 has 2 cells, columns names 1"},
		{"two arrays", "json-to-csv", m{"file": twice}, fault.FileInvalid, "rows are one array, or one object a line"},
		{"a line that is cut", "json-to-csv", m{"file": broken}, fault.FileInvalid, "the text ends before its value does"},
		{"a name twice in an object", "json-to-csv", m{"file": double}, fault.FileInvalid, `the name "a" occurs twice`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := call(t, s, tt.action, tt.input)
			if !errors.Is(err, tt.code) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %.300v, want %s with %q", err, tt.code, tt.says)
			}
		})
	}
	many := strings.Builder{}
	for i := range maxColumns + 1 {
		fmt.Fprintf(&many, "{\"c%d\":1}\n", i)
	}
	if _, err := call(t, s, "json-to-csv", m{"file": upload(t, s, "many.jsonl", []byte(many.String())).Hash}); !errors.Is(err, fault.FileTooLarge) {
		t.Errorf("columns of many rows: %v", err)
	}
}

// Any bytes are a table or a fault, and a table can be written and read again.
func FuzzCSV(f *testing.F) {
	f.Add([]byte("a,b\n1,\"2\"\n"))
	f.Add([]byte("\xef\xbb\xbfa;b\r\n1;2,3\r\n\"x\"\"y\n\";4"))
	f.Add([]byte("a\tb|c\n\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &csvInput{Ragged: "pad", Types: "infer"}
		in.Text = new(string)
		table, err := openTable(strings.NewReader(strings.ToValidUTF8(string(data), "?")), in)
		if err != nil {
			return
		}
		rows, err := table.list()
		if err != nil {
			return
		}
		raw, err := jsonx.Canonical(rows)
		if err != nil {
			t.Fatalf("%q gave what JSON cannot say: %v", data, err)
		}
		task := &action.Task{Input: json.RawMessage(`{"rows":` + string(raw) + `}`)}
		w := &csvWriter{ctx: context.Background(), task: task, in: &toCSVInput{}, columns: table.columns}
		if err := w.write(io.Discard); err != nil {
			t.Fatalf("%s cannot be written: %v", raw, err)
		}
	})
}
