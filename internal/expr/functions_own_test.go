// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// ownVars are the variables of the tests of our own functions.
func ownVars() MapVars {
	return MapVars{
		NowVar: "2026-11-23T16:05:06.789Z", SeedVar: "acc\x00run\x00step\x001",
		"rows": []any{
			map[string]any{"kind": "a", "n": int64(1)}, map[string]any{"kind": "b", "n": int64(2)}, map[string]any{"kind": "a", "n": int64(3)},
		},
		"o": map[string]any{"b": int64(2), "a": []any{int64(1)}, "c": 0.5},
		"t": "text", "n": int64(7), "f": 2.5, "nothing": nil,
	}
}

// The results and errors of our own functions.
func TestOwnFunctions(t *testing.T) {
	for src, want := range map[string]string{
		"[1, 2, 3].sum()":                                    "6",
		"[].sum()":                                           "0",
		"[1, 2.5].sum()":                                     "3.5",
		"[1u, 2].sum()":                                      "3",
		"rows.map(r, r.n).sum()":                             "6",
		"[9223372036854775807, 1, -1].sum()":                 "9223372036854775807",
		"[9007199254740993, 0].sum()":                        "9007199254740993",
		"[9223372036854775807, 1].sum()":                     "! sum: 9223372036854775808 does not fit into a 64-bit integer",
		"[duration('1h'), duration('30m')].sum()":            `"1h30m0s"`,
		"[duration('1h'), 1].sum()":                          "! sum: want numbers or durations, not both",
		"[duration('2562047h'), duration('2562047h')].sum()": "! sum: the duration is too long",
		"[1, 'x'].sum()":                                     "! sum: element 1 is of type string, want numbers",
		"t.sum()":                                            "! no such overload",
		"[1, 2].avg()":                                       "1.5",
		"[9223372036854775807, 9223372036854775807].avg()":   "9.223372036854776e+18",
		"[0.5, 1].avg()":                                     "0.75",
		"[].avg()":                                           "! avg: the list is empty",
		"[duration('1h')].avg()":                             "! avg: want numbers, got durations",
		"rows.reduce(s, r, 0, s + r.n)":                      "6",
		"[1, 2, 3].reduce(acc, x, [], acc + [size(acc)])":    "[0,1,2]",
		"[].reduce(a, x, 'none', a + x)":                     `"none"`,
		"{'a': 1, 'b': 2}.reduce(s, k, '', s + k)":           `"ab"`,
		"['x', 'y'].reduce(m, k, {}, m.merge({k: size(m)}))": `{"x":0,"y":1}`,
		"[1].reduce(x, x, 0, x)":                             "! reduce: the two names must differ",
		"[1].reduce(1, x, 0, x)":                             "! want a name here",
		"rows.groupBy(r, r.kind)":                            `{"a":[{"kind":"a","n":1},{"kind":"a","n":3}],"b":[{"kind":"b","n":2}]}`,
		"rows.groupBy(r, r.kind).transformMap(k, v, v.map(r, r.n).sum())": `{"a":4,"b":2}`,
		"rows.groupBy(r, r.n > 1).transformList(k, v, [k, size(v)])":      "[[false,1],[true,2]]",
		"rows.groupBy(r, r.n)":      "! has a key of type int: want strings",
		"rows.groupBy(r, r)":        "! groupBy: the key of element 0 is of type map",
		"rows.groupBy(1, 2)":        "! argument is not an identifier",
		"[1, 2].zip(['a', 'b'])":    `[[1,"a"],[2,"b"]]`,
		"[].zip([])":                "[]",
		"[1].zip([])":               "! zip: one list has 1 elements, the other 0",
		"o.merge({'b': 3, 'd': 4})": `{"a":[1],"b":3,"c":0.5,"d":4}`,
		"{}.merge({})":              "{}",
		"o.merge(rows)":             "! no such overload",
		"range(3)":                  "[0,1,2]",
		"range(2, 5)":               "[2,3,4]",
		"range(5, 0, -2)":           "[5,3,1]",
		"range(0, 10, 4)":           "[0,4,8]",
		"range(3, 3) + range(-1)":   "[]",
		"range(9223372036854775805, 9223372036854775807)": "[9223372036854775805,9223372036854775806]",
		"range(1, 2, 0)": "! range: the step is 0",
		"range(-9223372036854775807, 9223372036854775807, 9223372036854775807)": "[-9223372036854775807,0]",
		"range(f)":                                          "! no such overload",
		"'%s is %d, %.2f'.format([t, n, f])":                `"text is 7, 2.50"`,
		"'%s'.format([o])":                                  `"{a: [1], b: 2, c: 0.5}"`,
		"'%s'.format([])":                                   "! index 0 out of range",
		"'%.101f'.format([f])":                              "! precision",
		"toJson(o)":                                         `"{\"a\":[1],\"b\":2,\"c\":0.5}"`,
		"toJson(9007199254740993)":                          `"9007199254740993"`,
		"toJson(nothing)":                                   `"null"`,
		"toJson({1: 2})":                                    "! want strings",
		"fromJson(toJson(o)) == o":                          "true",
		"fromJson('[9007199254740993, 1.5]')":               "[9007199254740993,1.5]",
		"fromJson('{\"a\": 1, \"a\": 2}')":                  "! fromJson: ",
		"fromJson('{')":                                     "! fromJson: ",
		"fromJson('[{\"$roux\": \"ref\"}]')":                `! the key "$roux" is reserved`,
		"fromJson(n)":                                       "! no such overload",
		"json.parse('{').hasValue()":                        "false",
		"json.parse('[1]').value()[0]":                      "1",
		"base64.decodeUrl('_-8')":                           `"/+8="`,
		"base64.encodeUrl(b'\\xff\\xef')":                   `"_-8="`,
		"base64.decodeUrl('*')":                             "! base64.decodeUrl: ",
		"date('2026-01-31')":                                `"2026-01-31T00:00:00Z"`,
		"date('2026-01-31T10:00:00+02:00')":                 `"2026-01-31T08:00:00Z"`,
		"date('31.12.2026', '%d.%m.%Y')":                    `"2026-12-31T00:00:00Z"`,
		"date('soon')":                                      `! date: "soon" is no date: want one like 2026-01-31, or a layout`,
		"date('soon', '%d.%m.%Y')":                          `! date: "soon" does not fit the layout "%d.%m.%Y"`,
		"date('2026-01-31').format('%A %e %B %Y, week %V')": `"Saturday 31 January 2026, week 05"`,
		"date('2026-01-31').format('100%')":                 "! ends with %",
		"date('2026-01-31').format('100%%')":                `"100%"`,
		"date('2026-01-31').format('%d%%')":                 `"31%"`,
		"date('2026-01-31').format('%d%%%')":                "! ends with %",
		"date('2026-01-31').addDate(0, 1, 0)":               `"2026-02-28T00:00:00Z"`,
		"date('2024-02-29').addDate(1, 0, 1)":               `"2025-03-01T00:00:00Z"`,
		"date('2026-03-31').addDate(0, -13, 0)":             `"2025-02-28T00:00:00Z"`,
		"date('2026-01-31').addDate(9999, 0, 0)":            "! addDate: the year 12025 is not between 1 and 9999",
		"date('2026-01-31').addDate(0, 0, 9999999)":         "! addDate: 9999999 is too many",
		"now().startOf('minute')":                           `"2026-11-23T16:05:00Z"`,
		"now().startOf('hour')":                             `"2026-11-23T16:00:00Z"`,
		"now().startOf('day')":                              `"2026-11-23T00:00:00Z"`,
		"date('2026-11-22').startOf('week')":                `"2026-11-16T00:00:00Z"`,
		"now().startOf('week')":                             `"2026-11-23T00:00:00Z"`,
		"now().startOf('month')":                            `"2026-11-01T00:00:00Z"`,
		"now().startOf('year')":                             `"2026-01-01T00:00:00Z"`,
		"now().startOf('decade')":                           `! startOf: "decade" is no unit: want minute, hour, day, week, month or year`,
		"now() - date('2026-11-23') < duration('17h')":      "true",
		"uuid() == uuid() && uuid('a') == uuid('a')":        "true",
		"uuid() != uuid('a') && uuid('a') != uuid('b')":     "true",
		"uuid().matches('^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$')": "true",
		"uuid(n)": "! no such overload",
		"[1, 2, 2].hasAny([2, 9]) && [1, 2].hasAll([2]) && [2].hasOnly([1, 2]) && [1, 2].hasExactly([2, 1])": "true",
	} {
		got := byUs(src, ownVars())
		if text, refused := strings.CutPrefix(want, "! "); refused {
			if !strings.HasPrefix(got, "error: ") || !strings.Contains(got, text) {
				t.Errorf("%s = %s, want an error that says %q", src, got, text)
			}
		} else if got != want {
			t.Errorf("%s = %s, want %s", src, got, want)
		}
	}
}

// now() and uuid() depend only on the step, not on a clock or on randomness, and no source
// can name the variables behind them.
func TestNowAndUUIDAreVariables(t *testing.T) {
	for src, want := range map[string]string{"now()": "undefined: now()", "uuid()": "undefined: uuid()", "uuid('x')": "undefined: uuid()"} {
		p, err := Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = p.Eval(MapVars{}); !errors.Is(err, fault.TemplateError) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s without a step: %v, want %q", src, err, want)
		}
		ps := Check(src, false, &Env{}, "")
		if len(ps) != 1 || ps[0].Msg != want || ps[0].Offset != 0 {
			t.Errorf("%s checked without a step: %+v", src, ps)
		}
	}
	for _, src := range []string{"@now", "`@now`", "input.@now"} {
		if _, err := Compile(src); err == nil {
			t.Errorf("%s compiles", src)
		}
	}
}

// If a list or a text is in a file, our functions return an error that says so.
func TestOwnFunctionsOfLargeValues(t *testing.T) {
	vars := largeVars()
	vars["list"], vars["text"], vars["part"] = bigList, bigText, []any{int64(1), bigText}
	for _, src := range []string{
		"list.sum()", "list.avg()", "part.sum()", "list.reduce(a, x, 0, a + x)", "list.groupBy(x, x)", "part.groupBy(x, x)", "list.zip([1])", "[1].zip(list)",
		"{}.merge(list)", "range(list)", "'%s'.format([text])", "'%s'.format([[{'a': text}]])", "text.format([1])", "toJson(list)", "toJson({'a': [list]})",
		"fromJson(text)", "json.parse(text)", "json.encode(text)", "strings.quote(text)", "text.reverse()", "list.reverse()", "date(text)", "date('2026', text)",
		"list.hasAny([1])", "[1].hasAll(list)", "uuid(text)", "list.exists(i, x, x == 1)", "list.transformList(i, x, x)", "list.transformMap(i, x, x)",
		"base64.decodeUrl(text)", "list.sortBy(x, x)", "list.all(i, x, i >= 0)",
	} {
		vars[SeedVar] = "a"
		p, err := Compile(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		if v, err := p.Eval(vars); !errors.Is(err, fault.ValueTooLarge) {
			t.Errorf("%s = %v, %v; want VALUE_TOO_LARGE", src, v, err)
		}
	}
}

// The sum and the mean of integers are those of unbounded arithmetic.
func TestSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Int64(), 1, 20).Draw(t, "list")
		vals, sum := make([]any, len(list)), new(big.Int)
		for i, n := range list {
			vals[i] = n
			sum.Add(sum, big.NewInt(n))
		}
		if got := byUs("l.sum()", MapVars{"l": vals}); sum.IsInt64() && got != sum.String() || !sum.IsInt64() && !strings.HasPrefix(got, "error: ") {
			t.Fatalf("sum of %v: %s, want %s", list, got, sum)
		}
		mean, _ := new(big.Rat).SetFrac(sum, big.NewInt(int64(len(list)))).Float64()
		raw, _ := jsonx.Canonical(mean)
		if got := byUs("l.avg()", MapVars{"l": vals}); got != string(raw) {
			t.Fatalf("mean of %v: %s, want %s", list, got, raw)
		}
	})
}

// A map that an expression builds iterates in the order of its keys.
func TestMadeMapsAreOrdered(t *testing.T) {
	var keys []string
	for i := range 50 {
		keys = append(keys, fmt.Sprintf("'k%02d'", (i*37)%50))
	}
	list := "[" + strings.Join(keys, ",") + "]"
	want := byUs("["+strings.Join(keys, ",")+"].sort()", nil)
	for _, made := range []string{
		list + ".transformMapEntry(i, k, {k: i})", list + ".groupBy(k, k)", list + ".reduce(m, k, {}, m.merge({k: 1}))",
		list + ".transformMapEntry(i, k, {k: i}).transformMap(k, v, v + 1)", list + ".transformMapEntry(i, k, {k: i}).merge({})",
		"fromJson(toJson(" + list + ".groupBy(k, k)))",
	} {
		for _, walk := range []string{".map(k, k)", ".transformList(k, v, k)", ".filter(k, true)", ".reduce(l, k, [], l + [k])"} {
			if got := byUs(made+walk, nil); got != want {
				t.Errorf("%s%s = %s, want %s", made, walk, got, want)
			}
		}
	}
}

// A duplicate key is refused, constant or not, and so is one of type bytes.
func TestDoubledKeys(t *testing.T) {
	vars := MapVars{"k": "a", "o": map[string]any{"x": int64(1)}, "n": math.MaxInt64}
	for src, want := range map[string]string{
		"{b'a': 1}":                              bytesKey,
		"{'a': {?b'a': optional.of(1)}}":         bytesKey,
		"[1].transformMapEntry(i, v, {b'a': v})": bytesKey,
		"{bytes('a'): 1}":                        bytesKey,
		"{'a': 1, 'a': 2}":                       `the key "a" occurs twice in a map`,
		"{1: 1, 2: 2, 1: 3}.size()":              `the key "1" occurs twice in a map`,
		"{k: 1, 'a': 2}":                         `the key "a" occurs twice in a map`,
		"{k: 1, k: 2}.a":                         `the key "a" occurs twice in a map`,
		"{k: 1, ?'a': o.?x}":                     `the key "a" occurs twice in a map`,
		"{?k: o.?x, ?'a': o.?x}":                 `the key "a" occurs twice in a map`,
		"{k: 1, ?'a': o.?y}":                     "",
		"{?'a': o.?x, ?'a': o.?y}":               "",
		"{'a': 1, k + 'b': 2, k + 'c': 3}":       "",
		"[1, 1].transformMapEntry(i, v, {v: i})": "insert failed: key 1 already exists",
	} {
		got := byUs(src, vars)
		if want == "" && strings.HasPrefix(got, "error: ") || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s = %s, want %q", src, got, want)
		}
	}
}
