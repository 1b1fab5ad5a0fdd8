// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// shop are rows for the tests of rows-query.
func shop() []any {
	return []any{
		m{"kind": "tea", "name": "assam", "price": 3, "sold": int64(9_007_199_254_740_993)},
		m{"kind": "jam", "name": "fig", "price": 5.5, "sold": 4},
		m{"kind": "tea", "name": "sencha", "price": 4, "sold": 1},
		m{"kind": "jam", "name": "plum", "price": nil, "sold": 0},
		m{"kind": nil, "name": "salt", "price": 1, "sold": 2},
	}
}

func TestRowsQuery(t *testing.T) {
	s := store(t)
	for name, tt := range map[string]struct {
		in   m
		want string
	}{
		"as they are": {m{"limit": 1, "offset": 1}, `{"matched":5,"read":5,"rowCount":1,"rows":[{"kind":"jam","name":"fig","price":5.5,"sold":4}]}`},
		"filtered": {m{"where": "row.kind == with.kind && index > 0", "with": m{"kind": "tea"}, "select": m{"n": "row.name", "at": "index"}},
			`{"matched":1,"read":5,"rowCount":1,"rows":[{"at":2,"n":"sencha"}]}`},
		"sorted": {m{"select": m{"n": "row.name"}, "sortBy": []any{m{"by": "row.price", "order": "desc"}, m{"by": "result.n"}}},
			`{"matched":5,"read":5,"rowCount":5,"rows":[{"n":"plum"},{"n":"fig"},{"n":"sencha"},{"n":"assam"},{"n":"salt"}]}`},
		"the first of the sorted": {m{"select": m{"n": "row.name"}, "sortBy": []any{m{"by": "row.name"}}, "offset": 1, "limit": 2},
			`{"matched":5,"read":5,"rowCount":2,"rows":[{"n":"fig"},{"n":"plum"}]}`},
		"grouped": {m{"groupBy": m{"kind": "row.kind"}, "aggregate": m{
			"total": m{"sum": "row.sold"}, "mean": m{"avg": "row.price"}, "least": m{"min": "row.price"}, "most": m{"max": "row.name"},
			"dear": m{"count": "row.price != null && row.price > 3"}, "names": m{"list": "row.name"}}},
			`{"matched":5,"read":5,"rowCount":3,"rows":[` +
				`{"dear":1,"kind":"tea","least":3,"mean":3.5,"most":"sencha","names":["assam","sencha"],"total":9007199254740994},` +
				`{"dear":1,"kind":"jam","least":5.5,"mean":5.5,"most":"plum","names":["fig","plum"],"total":4},` +
				`{"dear":0,"kind":null,"least":1,"mean":1,"most":"salt","names":["salt"],"total":2}],` +
				`"totals":{"dear":2,"least":1,"mean":3.375,"most":"sencha","names":["assam","fig","sencha","plum","salt"],"total":9007199254741000}}`},
		"only totals": {m{"limit": 0, "aggregate": m{"n": m{"count": "true"}, "sum": m{"sum": "row.price"}}}, `{"matched":5,"read":5,"rowCount":0,"rows":[],"totals":{"n":5,"sum":13.5}}`},
		"exact on the way": {m{"limit": 0, "aggregate": m{"n": m{"sum": "index == 0 ? 9223372036854775807 : index == 1 ? 1 : index == 2 ? -1 : 0"},
			"a": m{"avg": "index < 2 ? 9223372036854775807 : -9223372036854775807"}}},
			`{"matched":5,"read":5,"rowCount":0,"rows":[],"totals":{"a":-1.8446744073709553e+18,"n":9223372036854775807}}`},
		"distinct": {m{"groupBy": m{"kind": "row.kind"}}, `{"matched":5,"read":5,"rowCount":3,"rows":[{"kind":"tea"},{"kind":"jam"},{"kind":null}]}`},
		"of none":  {m{"where": "false", "aggregate": m{"a": m{"avg": "row.price"}, "b": m{"sum": "row.price"}, "c": m{"max": "row.price"}, "d": m{"list": "row"}}}, `{"matched":0,"read":5,"rowCount":0,"rows":[],"totals":{"a":null,"b":0,"c":null,"d":[]}}`},
		"groups sorted": {m{"groupBy": m{"kind": "row.kind"}, "aggregate": m{"n": m{"count": "true"}}, "sortBy": []any{m{"by": "result.kind"}}},
			`{"matched":5,"read":5,"rowCount":3,"rows":[{"kind":"jam","n":2},{"kind":"tea","n":2},{"kind":null,"n":1}],"totals":{"n":5}}`},
	} {
		t.Run(name, func(t *testing.T) {
			in := m{"rows": shop()}
			for k, v := range tt.in {
				in[k] = v
			}
			out, err := call(t, s, "rows-query", in)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := jsonx.Canonical(out); string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestRowsQueryRefuses(t *testing.T) {
	s := store(t)
	for name, tt := range map[string]struct {
		in   m
		code fault.Code
		says string
	}{
		"no rows":         {m{}, fault.InputInvalid, `neither "rows" nor "file"`},
		"bad CEL":         {m{"where": "row.price >"}, fault.InputInvalid, "where: "},
		"no condition":    {m{"where": "row.price"}, fault.InputInvalid, "row 1: where gives a number, want true or false"},
		"a missing field": {m{"select": m{"x": "row.missing"}}, fault.TemplateError, "row 1: select.x: "},
		"no number":       {m{"aggregate": m{"x": m{"sum": "row.name"}}}, fault.InputInvalid, "row 1: aggregate.x.sum gives a text, want a number"},
		"no order":        {m{"sortBy": []any{m{"by": "row"}}}, fault.InputInvalid, "row 1: sortBy[0] gives an object"},
		"no least":        {m{"aggregate": m{"x": m{"min": "[row.name]"}}}, fault.InputInvalid, "row 1: aggregate.x.min: a list has no order"},
		"one name twice":  {m{"groupBy": m{"x": "row.kind"}, "aggregate": m{"x": m{"count": "true"}}}, fault.InputInvalid, `both make a field "x"`},
		"select of groups": {m{"groupBy": m{"x": "row.kind"}, "select": m{"y": "1"}}, fault.InputInvalid,
			`"select" and "groupBy" are both given`},
		"rows of groups": {m{"groupBy": m{"x": "row.kind"}, "sortBy": []any{m{"by": "row.price"}}}, fault.TemplateError, "sortBy[0]"},
		"overflow":       {m{"aggregate": m{"x": m{"sum": "9223372036854775807"}}}, fault.InputInvalid, "aggregate.x.sum: the sum is larger"},
	} {
		t.Run(name, func(t *testing.T) {
			in := m{"rows": shop()}
			for k, v := range tt.in {
				in[k] = v
			}
			if name == "no rows" {
				delete(in, "rows")
			}
			if _, err := call(t, s, "rows-query", in); fault.CodeOf(err) != tt.code || !strings.Contains(fault.Message(err), tt.says) {
				t.Errorf("%v, want %s with %q", err, tt.code, tt.says)
			}
		})
	}
}

// A file is read row by row. The rows kept for sorting are limited, unless only
// the first ones are wanted.
func TestRowsQueryStreams(t *testing.T) {
	s := store(t)
	var lines strings.Builder
	pad := strings.Repeat("p", 2_000)
	const n = 40_000
	for i := range n {
		fmt.Fprintf(&lines, `{"n":%d,"pad":%q}`+"\n", (i*7_919)%n, pad)
	}
	file := upload(t, s, "rows.jsonl", []byte(lines.String())).Hash
	order := []any{m{"by": "row.n"}}
	if _, err := call(t, s, "rows-query", m{"file": file, "sortBy": order}); fault.CodeOf(err) != fault.ValueTooLarge || !strings.Contains(fault.Message(err), "give a limit") {
		t.Errorf("sorting 80 MB: %v", err)
	}
	out, err := call(t, s, "rows-query", m{"file": file, "sortBy": order, "select": m{"n": "row.n"}, "offset": n/2 - 10, "limit": 3})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := jsonx.Canonical(out["rows"]); string(got) != `[{"n":19990},{"n":19991},{"n":19992}]` {
		t.Errorf("%s", got)
	}
	out, err = call(t, s, "rows-query", m{"file": file, "aggregate": m{"sum": m{"sum": "row.n"}}, "output": "file", "name": "all.jsonl"})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := jsonx.Canonical(out["totals"]); string(got) != fmt.Sprintf(`{"sum":%d}`, n*(n-1)/2) || out["name"] != "all.jsonl" {
		t.Errorf("%s, %v", got, out["name"])
	}
}

// The order of values is total, and exact between integers and floats.
func TestCompareValues(t *testing.T) {
	value := rapid.OneOf(
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.Float64().AsAny(), rapid.StringN(0, 3, -1).AsAny(),
		rapid.SampledFrom([]any{int64(1)<<53 + 1, float64(1 << 53), int64(math.MinInt64), float64(-1 << 63), float64(1 << 63), int64(math.MaxInt64), 0.5, -0.5, int64(0), int64(3)}),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := value.Draw(t, "a"), value.Draw(t, "b"), value.Draw(t, "c")
		order := func(x, y any) int {
			n, err := compareValues(x, y)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if order(a, b) != -order(b, a) {
			t.Fatalf("%v and %v: %d and %d", a, b, order(a, b), order(b, a))
		}
		if order(a, b) <= 0 && order(b, c) <= 0 && order(a, c) > 0 {
			t.Fatalf("%v <= %v <= %v", a, b, c)
		}
	})
	if n, _ := compareValues(int64(1)<<53+1, float64(1<<53)); n != 1 {
		t.Errorf("2^53 + 1 against 2^53: %d", n)
	}
	all := []any{nil, "b", "a", int64(2), 1.5, true, false}
	slices.SortFunc(all, func(a, b any) int { n, _ := compareValues(a, b); return n })
	if got, _ := jsonx.Canonical(all); string(got) != `[false,true,1.5,2,"a","b",null]` {
		t.Errorf("%s", got)
	}
}
