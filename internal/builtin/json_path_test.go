// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// document is the example of RFC 6901, and a little more.
const document = `{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,
	"orders":[{"id":1,"items":[{"p":3},{"p":4}]},{"id":2,"items":[]},{"id":3,"items":[{"p":5.5},{}]}],"n":null,"big":9007199254740993,"a.b":{"[0]":"x"}}`

func TestJSONPath(t *testing.T) {
	s := store(t)
	file := upload(t, s, "doc.json", []byte("\xef\xbb\xbf"+document)).Hash
	for path, want := range map[string]string{
		// RFC 6901, section 5
		"/foo": `["bar","baz"]`, "/foo/0": `"bar"`, "/": "0", "/a~1b": "1", "/c%d": "2", "/e^f": "3", "/g|h": "4", "/i\\j": "5", "/k\"l": "6", "/ ": "7", "/m~0n": "8",
		"/n": "null", "/big": "9007199254740993", "/orders/2/items/0/p": "5.5",
		"foo": `["bar","baz"]`, "foo[1]": `"baz"`, "$.foo[1]": `"baz"`, "$[\"foo\"][0]": `"bar"`, "['foo'][0]": `"bar"`, "n": "null",
		"orders[0].items[1].p": "4", "orders[*].id": "[1,2,3]", "orders[*].items[*].p": "[3,4,5.5]", "orders.*.id": "[1,2,3]", "foo[*]": `["bar","baz"]`,
		"[\"a.b\"][\"[0]\"]": `"x"`, "orders[1].items[*]": "[]", "foo.*": `["bar","baz"]`, "orders[0].*": `[1,[{"p":3},{"p":4}]]`, "nothing[*]": "[]",
	} {
		for source, input := range map[string]m{"value": {"value": json.RawMessage(document)}, "file": {"file": file}} {
			input["path"] = path
			out, err := call(t, s, "json-path", input)
			if err != nil {
				t.Errorf("%s of the %s: %v", path, source, err)
				continue
			}
			if got := asJSON(t, out["value"]); got != want || out["found"] != (want != "[]") {
				t.Errorf("%s of the %s: %s (%v), want %s", path, source, got, out["found"], want)
			}
		}
	}
	whole, err := call(t, s, "json-path", m{"file": file, "path": ""})
	if want, _ := jsonx.Decode([]byte(document), jsonx.Limits{}); err != nil || !reflect.DeepEqual(whole["value"], want) {
		t.Errorf("the whole: %v, %v", whole, err)
	}
	for _, missing := range []string{"/x", "/foo/2", "/foo/-", "/foo/01", "foo.bar", "n.x", "orders[7].id", "[0]"} {
		out, err := call(t, s, "json-path", m{"file": file, "path": missing, "default": nil})
		if err != nil || out["value"] != nil || out["found"] != false || out["count"] != int64(0) {
			t.Errorf("%s with a default: %v, %v", missing, out, err)
		}
	}
	for output, want := range map[string]string{"/orders/1": `{"id":2,"items":[]}` + "\n", "orders[*].id": "1\n2\n3\n", "/x": "\"none\"\n"} {
		out, err := call(t, s, "json-path", m{"file": file, "path": output, "output": "file", "default": "none"})
		if err != nil || content(t, s, out["file"]) != want {
			t.Errorf("%s as a file: %v, %v", output, out, err)
		}
	}
}

// Every part of a value is found by its JSON Pointer, and by a path where no
// name prevents that, with the same result inline.
func TestEveryPlaceIsFound(t *testing.T) {
	leaf := rapid.OneOf(rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.String(), func(s string) any { return s }))
	value := leaf
	for range 3 {
		inner := value
		value = rapid.OneOf(inner, rapid.Map(rapid.SliceOfN(inner, 0, 4), func(l []any) any { return append([]any{}, l...) }),
			rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "", "~", "/", "0", "a.b", "*", "é", "[0]", "~1"}), inner, 0, 4), func(m map[string]any) any { return m }))
	}
	rapid.Check(t, func(t *rapid.T) {
		v := value.Draw(t, "value")
		raw, err := jsonx.Canonical(v)
		if err != nil {
			t.Skip("no JSON")
		}
		at, pointer, path := v, "", "$"
		for moved := true; moved; {
			var key string
			moved = false
			switch here := at.(type) {
			case []any:
				if len(here) > 0 && rapid.Bool().Draw(t, "deeper") {
					moved = true
					i := rapid.IntRange(0, len(here)-1).Draw(t, "index")
					key, at = strconv.Itoa(i), here[i]
					path += "[" + key + "]"
				}
			case map[string]any:
				if len(here) > 0 && rapid.Bool().Draw(t, "deeper") {
					moved = true
					key = rapid.SampledFrom(slices.Sorted(maps.Keys(here))).Draw(t, "name")
					at = here[key]
					quoted, _ := json.Marshal(key)
					path += "[" + string(quoted) + "]"
					key = jsonx.EscapeToken(key)
				}
			}
			if moved {
				pointer += "/" + key
			}
		}
		for _, where := range []string{pointer, path} {
			out, err := direct(t, "json-path", m{"value": json.RawMessage(raw), "path": where})
			if err != nil || !reflect.DeepEqual(out["value"], at) {
				t.Fatalf("%s of %s: %v, %v, want %v", where, raw, out["value"], err, at)
			}
		}
	})
}

func TestJSONPathRefusals(t *testing.T) {
	s := store(t)
	file := upload(t, s, "doc.json", []byte(document)).Hash
	deep := upload(t, s, "deep.json", []byte(strings.Repeat("[", 100_000))).Hash
	half := upload(t, s, "half.json", []byte(`{"a":1,"b":[`)).Hash
	many := upload(t, s, "many.json", []byte("["+strings.Repeat("1,", maxMatches)+"1]")).Hash
	for _, tt := range []struct {
		name  string
		input m
		code  fault.Code
		says  string
	}{
		{"no such member", m{"file": file, "path": "/orders/0/itms"}, fault.InputInvalid, `/orders/0 has no member "itms"; it has "id", "items"`},
		{"no such element", m{"file": file, "path": "foo[2]"}, fault.InputInvalid, "/foo has 2 elements and none at 2"},
		{"into a number", m{"file": file, "path": "big.x"}, fault.InputInvalid, "/big is a number"},
		{"a list by name", m{"file": file, "path": "foo.bar"}, fault.InputInvalid, "/foo is a list"},
		{"neither", m{"path": "/a"}, fault.InputInvalid, `neither "value" nor "file"`},
		{"both", m{"path": "/a", "value": nil, "file": file}, fault.InputInvalid, "both given"},
		{"a filter", m{"value": []any{}, "path": "$[?(@.a)]"}, fault.InputInvalid, "filters, slices and places counted from the end"},
		{"from the end", m{"value": []any{}, "path": "a[-1]"}, fault.InputInvalid, "counted from the end"},
		{"an open bracket", m{"value": []any{}, "path": "a[0"}, fault.InputInvalid, "not closed"},
		{"two dots", m{"value": []any{}, "path": "a..b"}, fault.InputInvalid, "want a name after the dot"},
		{"a dot at the end", m{"value": []any{}, "path": "a."}, fault.InputInvalid, "want a name after the dot"},
		{"a bad pointer", m{"value": []any{}, "path": "/a~2"}, fault.InputInvalid, "write ~0 for ~"},
		{"too many parts", m{"value": []any{}, "path": strings.Repeat("/a", 101)}, fault.InputInvalid, "more than 100 parts"},
		{"too deep", m{"file": deep, "path": "/x"}, fault.FileTooLarge, "nested more than 512 deep"},
		{"a part of half a text", m{"file": half, "path": "/a"}, fault.FileInvalid, "ends before its value does"},
		{"too many matches", m{"file": many, "path": "[*]"}, fault.OutputTooLarge, `"output": "file"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := call(t, s, "json-path", tt.input)
			if !errors.Is(err, tt.code) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %v, want %s with %q", err, tt.code, tt.says)
			}
		})
	}
}

// A07: the published parsing tests: valid JSON is read, invalid JSON is
// refused, and nothing crashes. Duplicate names are refused on purpose.
func TestA07_JSONPathConformance(t *testing.T) {
	dir := os.Getenv("ROUX_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared") // beside the module
	}
	files, _ := filepath.Glob(filepath.Join(dir, "data", "vectors", "json-parsing", "*.json"))
	if len(files) == 0 {
		t.Skip("no shared test data (set ROUX_SHARED)")
	}
	s := store(t)
	counted := map[byte]int{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(name)
		counted[base[0]]++
		_, err = call(t, s, "json-path", m{"file": upload(t, s, base, data).Hash, "path": ""})
		twice := strings.HasPrefix(base, "y_object_duplicated_key")
		switch {
		case base[0] == 'y' && !twice && err != nil:
			t.Errorf("%s is refused: %v", base, err)
		case (base[0] == 'n' || twice) && err == nil:
			t.Errorf("%s is accepted", base)
		case err != nil && !errors.Is(err, fault.FileInvalid) && !errors.Is(err, fault.FileTooLarge) && !errors.Is(err, fault.FileUnsupported):
			t.Errorf("%s: %v", base, err)
		}
	}
	if counted['y'] < 10 || counted['n'] < 10 {
		t.Errorf("only %v tests", counted)
	}
}
