// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// TestCanonicalVectors runs the published vectors of RFC 8785.
func TestCanonicalVectors(t *testing.T) {
	dir := sharedDir(t, "jcs")
	files, err := filepath.Glob(filepath.Join(dir, "input", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors in %s: %v", dir, err)
	}
	for _, file := range files {
		input, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, "output", filepath.Base(file)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := CanonicalRaw(input); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %s, %v, want %s", filepath.Base(file), got, err, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, tt := range []struct {
		name string
		v    any
		want string
	}{
		{"order is by UTF-16", map[string]any{"\U0001F600": int64(1), "\ufb33": int64(2), "a": int64(3), "": int64(4), "aa": int64(5), "A": int64(6)}, "{\"\":4,\"A\":6,\"a\":3,\"aa\":5,\"\U0001F600\":1,\"\ufb33\":2}"},
		{"escapes are minimal", "\x00\b\t\n\f\r\"\\/\x1f\x7f<>&\u2028ä", `"\u0000\b\t\n\f\r\"\\/\u001f` + "\x7f<>&\u2028ä\""},
		{"integers are exact", []any{int64(math.MaxInt64), int64(math.MinInt64), int64(1<<53 + 1), 7}, `[9223372036854775807,-9223372036854775808,9007199254740993,7]`},
		{"floats are shortest", []any{1.0, 4.50, 2e-3, 1e-7, 1e21, 1e-27, 333333333.33333329, math.Copysign(0, -1), 5e-324, math.MaxFloat64}, `[1,4.5,0.002,1e-7,1e+21,1e-27,333333333.3333333,0,5e-324,1.7976931348623157e+308]`},
		{"large floats stay floats", []any{float64(1 << 53), float64(1<<53 + 2), 1e18, -1e20}, `[9007199254740992,9.007199254740994e+15,1e+18,-1e+20]`},
		{"raw JSON is rewritten", map[string]any{"r": json.RawMessage(`{ "b": 1.50, "a": [] }`)}, `{"r":{"a":[],"b":1.5}}`},
		{"empty", []any{map[string]any{}, []any{}, "", nil, true, false}, `[{},[],"",null,true,false]`},
	} {
		got, err := Canonical(tt.v)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.name, got, err, tt.want)
		}
	}
	prefix := []byte("x")
	if got, err := AppendCanonical(prefix, "a"); err != nil || string(got) != `x"a"` {
		t.Errorf("AppendCanonical gives %s, %v", got, err)
	}
}

// TestCanonicalStringsAnywhere: strings are examined eight bytes at a time, so characters
// to escape are tested at every offset.
func TestCanonicalStringsAnywhere(t *testing.T) {
	for c := range rune(0x100) {
		for at := range 20 {
			text := strings.Repeat("a", at) + string(c) + strings.Repeat("b", 20-at)
			want, err := jsontext.AppendQuote(nil, text)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Canonical(text); string(got) != string(want) || err != nil {
				t.Fatalf("Canonical(%q) = %s, %v, want %s", text, got, err, want)
			}
			if v, err := Decode(want, Limits{}); v != text || err != nil {
				t.Fatalf("Decode(%s) = %q, %v", want, v, err)
			}
		}
	}
}

// TestCanonicalRefuses: a value without canonical form is an error.
func TestCanonicalRefuses(t *testing.T) {
	loop := []any{nil}
	loop[0] = loop
	ring := map[string]any{}
	ring["a"] = ring
	for _, v := range []any{
		math.NaN(), math.Inf(1), math.Inf(-1), "a\xff", map[string]any{"\xff": nil}, []any{"a", "\xed\xa0\x80"}, struct{}{}, float32(1), uint64(1),
		json.Number("1"), json.RawMessage("{"), json.RawMessage(""), loop, ring, []string{"a"},
	} {
		if got, err := Canonical(v); err == nil {
			t.Errorf("%T gives %.40s", v, got)
		}
	}
}

// values generates values of the types that Decode returns.
func values() *rapid.Generator[any] {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", "\ufb33", "\U0001F600", "\x00", "é", "<"}))
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), toAny), rapid.Map(rapid.Int64(), toAny),
		rapid.Map(rapid.Float64(), toAny), rapid.Map(text, toAny),
	)
	v := leaf
	for range 3 {
		inner := v
		v = rapid.OneOf(inner,
			rapid.Map(rapid.SliceOfN(inner, 0, 4), func(l []any) any { return append([]any{}, l...) }),
			rapid.Map(rapid.MapOfN(text, inner, 0, 4), toAny),
		)
	}
	return v
}

func toAny[T any](v T) any { return v }

// TestCanonicalRoundTrip: the canonical form decodes to the original value, is a fixed
// point, and is RFC 8785 if that preserves the value.
func TestCanonicalRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := values().Draw(t, "value")
		text, err := Canonical(v)
		if err != nil {
			if strings.Contains(err.Error(), "UTF-8") || strings.Contains(err.Error(), "no JSON number") {
				t.Skip("no JSON")
			}
			t.Fatal(err)
		}
		back, err := Decode(text, Limits{})
		if err != nil || !equalNumbers(v, back) {
			t.Fatalf("%#v is written %s, which reads as %#v, %v", v, text, back, err)
		}
		again, err := Canonical(back)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%s becomes %s, %v", text, again, err)
		}
		reference := jsontext.Value(bytes.Clone(text))
		if err := reference.Canonicalize(jsontext.CanonicalizeRawFloats(false), jsontext.CanonicalizeRawInts(false)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !bytes.Equal(reference, text) {
			t.Fatalf("canonical %s, the reference keeps %s", text, reference)
		}
	})
}

// equalNumbers compares values; an integral float is decoded as an integer.
func equalNumbers(a, b any) bool {
	switch a := a.(type) {
	case float64:
		switch b := b.(type) {
		case float64:
			return a == b
		case int64:
			return math.Abs(a) <= 1<<53 && a == float64(b)
		}
		return false
	case []any:
		list, ok := b.([]any)
		return ok && slices.EqualFunc(a, list, equalNumbers)
	case map[string]any:
		m, ok := b.(map[string]any)
		if !ok || len(m) != len(a) {
			return false
		}
		for name := range a {
			if item, ok := m[name]; !ok || !equalNumbers(a[name], item) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(a, b)
	}
}

// TestCompareNames: the comparison of bytes gives the order of UTF-16 code units.
func TestCompareNames(t *testing.T) {
	name := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune{'a', 'é', 0xd7ff, 0xe000, 0xfb33, 0xffff, 0x10000, 0x1f600, 0x10ffff})))
	rapid.Check(t, func(t *rapid.T) {
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		want := slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		if got := CompareNames(a, b); got != want {
			t.Fatalf("CompareNames(%q, %q) = %d, UTF-16 says %d", a, b, got, want)
		}
	})
}

// TestParseNumber: ParseNumber accepts exactly JSON's grammar.
func TestParseNumber(t *testing.T) {
	for _, text := range []string{"0", "-0", "1", "-12", "1.5", "1e3", "1E+3", "-0.5e-3", "0e0", "1.0"} {
		if _, ok, problem := ParseNumber(text); !ok || problem != "" || !json.Valid([]byte(text)) {
			t.Errorf("%s: %v %s", text, ok, problem)
		}
	}
	for _, text := range []string{"", "-", "+1", "01", ".5", "5.", "1e", "1e+", "0x1", "NaN", "1 ", "1_0", "--1", "1.e3", "٥"} {
		if _, ok, _ := ParseNumber(text); ok || json.Valid([]byte(text)) && text != "1 " {
			t.Errorf("%q is taken for a number", text)
		}
	}
	for _, text := range []string{"9223372036854775808", "1e999"} {
		if _, ok, problem := ParseNumber(text); !ok || problem == "" {
			t.Errorf("%s: no problem", text)
		}
	}
}

func benchmarkValue() any {
	list := make([]any, 100)
	for i := range list {
		list[i] = map[string]any{
			"id": fmt.Sprintf("step_%d", i), "status": "completed", "attempt": int64(i), "score": float64(i) / 3,
			"output": map[string]any{"text": strings.Repeat("lorem ipsum ", 10), "ok": true, "none": nil},
		}
	}
	return list
}

func BenchmarkCanonical(b *testing.B) {
	v := benchmarkValue()
	text, err := Canonical(v)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	buf := make([]byte, 0, 2*len(text))
	for b.Loop() {
		if _, err := AppendCanonical(buf, v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	text, err := Canonical(benchmarkValue())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(text, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeStandard is the baseline: encoding/json into any.
func BenchmarkDecodeStandard(b *testing.B) {
	text, err := Canonical(benchmarkValue())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			b.Fatal(err)
		}
	}
}
