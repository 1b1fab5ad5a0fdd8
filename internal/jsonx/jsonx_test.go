// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/fuzztest"
)

// sharedDir returns the directory of shared test data, or skips the test.
func sharedDir(t *testing.T, elem ...string) string {
	t.Helper()
	dir := os.Getenv("ROUX_SHARED")
	if dir == "" {
		root, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
				break
			}
			if filepath.Dir(root) == root {
				t.Fatal("no go.mod above the working directory")
			}
			root = filepath.Dir(root)
		}
		dir = filepath.Join(root, "..", "shared")
	}
	dir = filepath.Join(append([]string{dir, "data", "vectors"}, elem...)...)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no shared data: %v (set ROUX_SHARED)", err)
	}
	return dir
}

// TestDecode is the table of decoded texts.
func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		text string
		want any
	}{
		{`null`, nil},
		{` true `, true},
		{`"a\u00e4\ud83d\ude00\n"`, "aä😀\n"},
		{`"\u0000"`, "\x00"},
		{`0`, int64(0)},
		{`-0`, int64(0)},
		{`9007199254740993`, int64(9007199254740993)}, // 2^53 + 1
		{`9223372036854775807`, int64(math.MaxInt64)},
		{`-9223372036854775808`, int64(math.MinInt64)},
		{`1.0`, 1.0},
		{`1e3`, 1e3},
		{`1E400`, nil},
		{`1e-400`, 0.0},
		{`[]`, []any{}},
		{`{}`, map[string]any{}},
		{`[1,[2,{"a":[]}]]`, []any{int64(1), []any{int64(2), map[string]any{"a": []any{}}}}},
		{`{"a":1,"A":2,"":3}`, map[string]any{"a": int64(1), "A": int64(2), "": int64(3)}},
	} {
		got, err := Decode([]byte(tt.text), Limits{})
		if tt.text == `1E400` {
			if err == nil {
				t.Error("1E400 was accepted")
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("Decode(%s) = %#v, %v, want %#v", tt.text, got, err, tt.want)
		}
	}
}

// TestA07_Refused: every parsing function refuses each text, with its rule and position.
func TestA07_Refused(t *testing.T) {
	for _, tt := range []struct {
		text, rule string
		line, col  int32
	}{
		{`{"a":1,"a":2}`, RuleDuplicate, 1, 8},
		{"{\"a\":1,\n \"\\u0061\":2}", RuleDuplicate, 2, 2},
		{`[{"x":{"b":1,"b":1}}]`, RuleDuplicate, 1, 14},
		{"\"\xff\"", RuleEncoding, 1, 2},
		{"[\"a\xc3\"]", RuleEncoding, 1, 4},
		{"\"\xed\xa0\x80\"", RuleEncoding, 1, 2}, // a surrogate in UTF-8
		{`"\ud800"`, RuleSyntax, 1, 2},
		{`9223372036854775808`, RuleNumber, 1, 1},
		{`[1, -9223372036854775809]`, RuleNumber, 1, 5},
		{`{"a": 1e999}`, RuleNumber, 1, 7},
		{`[-1e999]`, RuleNumber, 1, 2},
		{`NaN`, RuleSyntax, 1, 1},
		{`[Infinity]`, RuleSyntax, 1, 2},
		{`[1,]`, RuleSyntax, 1, 3},
		{`{"a":1,}`, RuleSyntax, 1, 7},
		{`{'a':1}`, RuleSyntax, 1, 2},
		{`// x`, RuleSyntax, 1, 1},
		{`1 2`, RuleSyntax, 1, 3},
		{"{}\n{}", RuleSyntax, 2, 1},
		{`[1`, RuleSyntax, 1, 3},
		{``, RuleSyntax, 1, 1},
		{"\n ä", RuleSyntax, 2, 2},
		{"\ufeff1", RuleSyntax, 1, 1},
		{"\"a\nb\"", RuleSyntax, 1, 3},
		{"01", RuleSyntax, 1, 2},
	} {
		_, decodeErr := Decode([]byte(tt.text), Limits{})
		validErr := Valid([]byte(tt.text), Limits{})
		_, problems := Parse([]byte(tt.text), Limits{})
		if len(problems) != 1 {
			t.Errorf("Parse(%q) has problems %v, want one", tt.text, problems)
			continue
		}
		for door, err := range map[string]error{"Decode": decodeErr, "Valid": validErr, "Parse": problems[0]} {
			var e *Error
			if !errors.As(err, &e) || e.Rule != tt.rule || e.Pos.Line != tt.line || e.Pos.Col != tt.col {
				t.Errorf("%s(%q) = %v (%+v), want %s at %d:%d", door, tt.text, err, e, tt.rule, tt.line, tt.col)
			}
		}
	}
}

// TestConformance runs the vectors of the JSON parsing suite: y_ is JSON, n_ is not, i_ may
// be either, and all parsing functions agree (A07).
func TestConformance(t *testing.T) {
	dir := sharedDir(t, "json-parsing")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d vectors in %s, %v", len(files), dir, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		v, decodeErr := Decode(text, Limits{})
		validErr := Valid(text, Limits{})
		node, problems := Parse(text, Limits{})
		if (decodeErr == nil) != (validErr == nil) || (decodeErr == nil) != (len(problems) == 0) {
			t.Errorf("%s: Decode %v, Valid %v, Parse %v differ", name, decodeErr, validErr, problems)
		}
		switch {
		case name[0] == 'y' && strings.Contains(name, "duplicated"):
			// JSON by its grammar; two values for one name are refused here (A07).
			if decodeErr == nil {
				t.Errorf("%s: the duplicate was accepted", name)
			}
		case name[0] == 'y' && decodeErr != nil:
			t.Errorf("%s: %v", name, decodeErr)
		case name[0] == 'n' && decodeErr == nil:
			t.Errorf("%s: accepted", name)
		}
		if decodeErr == nil && !reflect.DeepEqual(node.Value(), v) {
			t.Errorf("%s: Parse gives %v, Decode %v", name, node.Value(), v)
		}
	}
}

// TestA08_Limits: each limit is exact: with a limit lower by one the text is refused.
func TestA08_Limits(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	objects := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for _, tt := range []struct {
		name, text string
		lim        Limits
		good       bool
	}{
		{"a MiB", `"` + strings.Repeat("a", 1_048_574) + `"`, Limits{}, true},
		{"a MiB + 1", `"` + strings.Repeat("a", 1_048_575) + `"`, Limits{}, false},
		{"bytes", `"` + strings.Repeat("a", DefaultBytes-2) + `"`, Limits{}, true},
		{"bytes + 1", `"` + strings.Repeat("a", DefaultBytes-1) + `"`, Limits{}, false},
		{"given bytes", `[1,2]`, Limits{Bytes: 5}, true},
		{"given bytes + 1", `[1,2]`, Limits{Bytes: 4}, false},
		{"depth", nested(64), Limits{}, true},
		{"depth + 1", nested(65), Limits{}, false},
		{"depth of objects", objects(64), Limits{}, true},
		{"depth of objects + 1", objects(65), Limits{}, false},
		{"given depth", nested(3), Limits{Depth: 3}, true},
		{"given depth + 1", nested(4), Limits{Depth: 3}, false},
		{"tokens", `{"a":[1,2]}`, Limits{Tokens: 5}, true}, // object, name, list, two numbers
		{"tokens + 1", `{"a":[1,2]}`, Limits{Tokens: 4}, false},
		{"the densest list", "[" + strings.Repeat("1,", DefaultBytes/2-2) + "1]", Limits{}, true},
		{"a megabyte of brackets", strings.Repeat("[", DefaultBytes), Limits{}, false},
	} {
		_, err := Decode([]byte(tt.text), tt.lim)
		validErr := Valid([]byte(tt.text), tt.lim)
		_, problems := Parse([]byte(tt.text), tt.lim)
		if (err == nil) != tt.good || (validErr == nil) != tt.good || (len(problems) == 0) != tt.good {
			t.Errorf("%s: Decode %v, Valid %v, Parse %v, want accepted %v", tt.name, err, validErr, problems, tt.good)
		}
		var e *Error
		if !tt.good && (!errors.As(err, &e) || e.Rule != RuleLimit) {
			t.Errorf("%s: %v, want rule %s", tt.name, err, RuleLimit)
		}
	}
}

// TestA08_Memory: the heap for a text of one megabyte stays below 64 MiB.
func TestA08_Memory(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"numbers", "[" + strings.Repeat("1,", DefaultBytes/2-2) + "1]"},
		{"lists", "[" + strings.Repeat("[],", DefaultBytes/3-2) + "1]"},
		{"objects", "[" + strings.Repeat("{},", DefaultBytes/3-2) + "1]"},
		{"objects of one name", "[" + strings.Repeat(`{"":0},`, DefaultBytes/7-2) + "1]"},
		{"floats", "[" + strings.Repeat("0.1,", DefaultBytes/4-2) + "1]"},
		{"strings", "[" + strings.Repeat(`"",`, DefaultBytes/3-2) + "1]"},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		v, err := Decode([]byte(tt.text), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 64<<20 {
			t.Errorf("%s: a value of %d bytes holds %d MiB", tt.name, len(tt.text), held>>20)
		}
		runtime.KeepAlive(v)
	}
}

// TestLongNamesDoNotMultiply: a problem has a JSON pointer, but a long name above many
// values must not be copied for each of them (A08).
func TestLongNamesDoNotMultiply(t *testing.T) {
	text := `{"` + strings.Repeat("k", 500_000) + `":[` + strings.Repeat("1,", 200_000) + `1]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, problems := Parse([]byte(text), Limits{}); len(problems) > 0 {
		t.Fatal(problems[0].Rule)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
		t.Errorf("reading it allocated %d MiB", n>>20)
	}
}

// TestParsePlaces: line, column and length count characters, not bytes.
func TestParsePlaces(t *testing.T) {
	text := "{\r\n  \"ä\": [1, \"ö😀\",\n\t-2.5e1],\n  \"a/b~\": {\"x\": null}\n}"
	n, problems := Parse([]byte(text), Limits{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, tt := range []struct {
		pointer  string
		pos, key Pos
	}{
		{"", Pos{1, 1, 1}, Pos{}},
		{"/ä", Pos{2, 8, 1}, Pos{2, 3, 3}},
		{"/ä/0", Pos{2, 9, 1}, Pos{}},
		{"/ä/1", Pos{2, 12, 4}, Pos{}},
		{"/ä/2", Pos{3, 2, 6}, Pos{}},
		{"/a~1b~0", Pos{4, 11, 1}, Pos{4, 3, 6}},
		{"/a~1b~0/x", Pos{4, 17, 4}, Pos{4, 12, 3}},
	} {
		c := n.Find(tt.pointer)
		if c == nil || c.Pos != tt.pos || c.KeyPos != tt.key {
			t.Errorf("%q: %+v, want %v, name at %v", tt.pointer, c, tt.pos, tt.key)
		}
	}
	for _, pointer := range []string{"/x", "/ä/3", "/ä/-1", "/ä/x", "/ä/0/1", "/a~1b~0/"} {
		if c := n.Find(pointer); c != nil {
			t.Errorf("%q finds %+v", pointer, c)
		}
	}
}

// TestParseGoesOn: Parse continues after local problems and reports all of them, up to a
// bound.
func TestParseGoesOn(t *testing.T) {
	n, problems := Parse([]byte(`{"a":1,"a":2,"b":[1e999,99999999999999999999],"b":0}`), Limits{})
	if n == nil || len(problems) != 4 || problems[1].Pointer != "/b/0" || problems[3].Pointer != "/b" || problems[0].First.Col != 2 {
		t.Errorf("%v", problems)
	}
	if n.Find("/b/0").Kind != Refused {
		t.Error("a refused number kept its kind")
	}
	many := `{"x":[` + strings.Repeat(`1e999,`, 1000) + `1]}`
	if _, problems := Parse([]byte(many), Limits{}); len(problems) != MaxProblems {
		t.Errorf("%d problems, want %d", len(problems), MaxProblems)
	}
	wide := `{` + strings.Repeat(`"a":1,`, 10_000) + `"a":1}`
	if _, problems := Parse([]byte(wide), Limits{}); len(problems) != MaxProblems {
		t.Errorf("%d problems, want %d", len(problems), MaxProblems)
	}
}

// FuzzDecode: the parsing functions agree with each other, and with encoding/json where that
// is as strict; the canonical form is a fixed point (A07).
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`null`, `[1,2.50,-0.0,1e-7,1E20]`, `{"b":"\u00e4\ud83d\ude00","a":{"a":[]}}`, `{"a":1,"a":2}`, `9007199254740993`, `1e999`, "\"\xff\"", `{"\ufb33":1,"\ud83d\ude00":2}`, `[[[[[[[[`, `"\u2028"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v any
		var err, validErr error
		var n *Node
		var problems []*Error
		fuzztest.Bounded(t, "Decode", func() { v, err = Decode(text, Limits{}) })
		fuzztest.Bounded(t, "Valid", func() { validErr = Valid(text, Limits{}) })
		fuzztest.Bounded(t, "Parse", func() { n, problems = Parse(text, Limits{}) })
		if (err == nil) != (validErr == nil) || (err == nil) != (len(problems) == 0) {
			t.Fatalf("Decode %v, Valid %v, Parse %v", err, validErr, problems)
		}
		var e *Error
		if err != nil {
			if v != nil || !errors.As(err, &e) || e.Rule == "" || e.Msg == "" {
				t.Fatalf("value %v with error %#v", v, err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatal("the standard library refuses it")
		}
		if !reflect.DeepEqual(n.Value(), v) {
			t.Fatalf("Parse gives %#v, Decode %#v", n.Value(), v)
		}
		canonical, err := Canonical(v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := CanonicalRaw(canonical)
		if err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("%s becomes %s, %v", canonical, again, err)
		}
		var std any
		d := json.NewDecoder(bytes.NewReader(canonical))
		d.UseNumber()
		if err := d.Decode(&std); err != nil {
			t.Fatalf("%s: %v", canonical, err)
		}
		if !sameValue(v, std) {
			t.Fatalf("%#v is written %s", v, canonical)
		}
	})
}

// sameValue compares with what the standard library read, numbers by value.
func sameValue(v, std any) bool {
	switch v := v.(type) {
	case int64:
		i, err := std.(json.Number).Int64()
		return err == nil && i == v
	case float64:
		f, err := std.(json.Number).Float64()
		return err == nil && f == v
	case []any:
		list, ok := std.([]any)
		if !ok || len(list) != len(v) {
			return false
		}
		for i := range v {
			if !sameValue(v[i], list[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		m, ok := std.(map[string]any)
		if !ok || len(m) != len(v) {
			return false
		}
		for name := range v {
			if item, ok := m[name]; !ok || !sameValue(v[name], item) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(v, std)
	}
}
