// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"reflect"
	"strings"
	"testing"
)

var plainTexts = []string{
	`null`, `true`, `false`, `0`, `-1`, `1234567890`, `123456789012345678`, `9223372036854775807`, `-9223372036854775808`,
	`9223372036854775808`, `-0`, `01`, `1.5`, `1e3`, `1.0`, `-`, `--1`, `""`, `"a"`, `"ä"`, "\"\xff\"", `"a\nb"`, `"\u0041"`, `"\/"`, `"\x"`, `"a`,
	"\"\x01\"", `[]`, `[1]`, `[1,2,"x",[],{}]`, `[1,]`, `[,]`, `[1 ,2]`, `[1`, `{}`, `{"a":1}`, `{"a":1,"b":{"c":[null]}}`,
	`{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"a":1,}`, `{"a" :1}`, `{"a"}`, `{"a":}`, `{"ä":1}`, `{"a\n":1}`, `{"$roux":1}`, `{"a":{"$roux":1}}`,
	`{"$roux":"ref","bytes":3,"hash":"sha256_` + strings.Repeat("a", 64) + `","size":3,"type":"string"}`,
	` 1`, `1 `, `1 2`, `nul`, `nulll`, `truex`, ``, `{`, `[`, `"\`, `{"a":"\"b"}`, `{"a":"\\"}`, `{"a":1.25,"b":2}`,
	strings.Repeat("[", 59) + strings.Repeat("]", 59), strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65),
}

// samePlain checks that the fast path has the same results and errors as the decoder.
func samePlain(t *testing.T, text []byte) {
	t.Helper()
	for _, lim := range []Limits{{}, {Large: true}, {Tokens: 3}, {Depth: 2}, {Bytes: 10}} {
		got, err := Decode(text, lim)
		want, wantErr := decode(text, lim)
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(err, wantErr) {
			t.Errorf("%q with %+v:\ngot  %#v, %v\nwant %#v, %v", text, lim, got, err, want, wantErr)
		}
	}
}

// sameSelect checks that Select returns the canonical text of the value that decoding
// finds.
func sameSelect(t *testing.T, text []byte, path ...string) {
	t.Helper()
	v, err := decode(text, Limits{Large: true})
	if err != nil {
		return // Select accepts only canonical JSON
	}
	if canonical, err := Canonical(v); err != nil || string(canonical) != string(text) {
		return
	}
	part, ok := Select(text, path)
	if !ok {
		return
	}
	for _, name := range path {
		m, isMap := v.(map[string]any)
		if v, ok = m[name]; !isMap || !ok {
			t.Errorf("%q has no %q, and Select finds %q", text, path, part)
			return
		}
	}
	want, err := Canonical(v)
	if err != nil || string(part) != string(want) {
		t.Errorf("%q at %q: Select finds %q, want %q (%v)", text, path, part, want, err)
	}
}

func TestPlainIsJSON(t *testing.T) {
	for _, text := range plainTexts {
		samePlain(t, []byte(text))
		sameSelect(t, []byte(text))
		sameSelect(t, []byte(text), "a")
		sameSelect(t, []byte(text), "b")
		sameSelect(t, []byte(text), "b", "c")
		sameSelect(t, []byte(text), "bytes")
	}
}

// Common values take the fast path.
func TestSelectFinds(t *testing.T) {
	text := []byte(`{"a":1,"b":{"c":["x",null],"d":"line\nä"},"e":1.5}`)
	for want, path := range map[string][]string{
		`1`:                              {"a"},
		`["x",null]`:                     {"b", "c"},
		`"line\nä"`:                      {"b", "d"},
		`{"c":["x",null],"d":"line\nä"}`: {"b"},
	} {
		if got, ok := Select(text, path); !ok || string(got) != want {
			t.Errorf("%q: %q, %v", path, got, ok)
		}
	}
	for _, path := range [][]string{{"e"}, {"f"}, {"a", "b"}, {}} {
		if got, ok := Select(text, path); ok {
			t.Errorf("%q: %q is not plain", path, got)
		}
	}
}

func FuzzPlain(f *testing.F) {
	for _, text := range plainTexts {
		f.Add([]byte(text), "a")
	}
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		samePlain(t, text)
		sameSelect(t, text)
		sameSelect(t, text, name)
		sameSelect(t, text, name, "a")
	})
}

func BenchmarkDecodeSmall(b *testing.B) {
	text := []byte(`{"name":"x","ok":true,"size":12345}`)
	for name, fn := range map[string]func([]byte, Limits) (any, error){"quick": Decode, "tokens": decode} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := fn(text, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSelect(b *testing.B) {
	text := []byte(`{"name":"x","ok":true,"size":12345}`)
	for b.Loop() {
		if _, ok := Select(text, []string{"size"}); !ok {
			b.Fatal("not found")
		}
	}
}
