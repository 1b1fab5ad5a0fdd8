// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
)

// shared reads a file of the conformance vectors, which are not part of the project. It
// skips the test if they are absent.
func shared(t *testing.T, path ...string) []byte {
	t.Helper()
	dir := os.Getenv("ROUX_SHARED")
	if dir == "" {
		root, err := filepath.Abs(filepath.Join("..", ".."))
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(root, "..", "shared")
	}
	raw, err := os.ReadFile(filepath.Join(append([]string{dir, "data", "vectors"}, path...)...))
	if err != nil {
		t.Skipf("no vectors: %v (set ROUX_SHARED)", err)
	}
	return raw
}

// differences reads one table of testdata/conformance.md: name -> reason.
func differences(t *testing.T, heading string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("testdata/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(raw), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("conformance.md has no section %q", heading)
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	out := map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 2 {
			continue
		}
		name, reason := strings.Trim(strings.TrimSpace(cells[0]), "`"), strings.TrimSpace(cells[1])
		if name == "case" || strings.HasPrefix(name, "--") {
			continue
		}
		if reason == "" {
			t.Errorf("%s: a difference without a reason", name)
		}
		out[name] = reason
	}
	return out
}

// settle compares the result of a case with the table of differences.
func settle(t *testing.T, table map[string]string, name string, ok bool, format string, args ...any) {
	t.Helper()
	_, listed := table[name]
	delete(table, name)
	switch {
	case !ok && !listed:
		t.Errorf("%s: "+format, append([]any{name}, args...)...)
	case ok && listed:
		t.Errorf("%s passes but is listed as a difference", name)
	}
}

func unsettled(t *testing.T, table map[string]string) {
	t.Helper()
	for name := range table {
		t.Errorf("%s is listed as a difference but there is no such case", name)
	}
}

// X31, X33: every case of the conformance tests of CEL passes or is a difference with a
// reason.
func TestX31_X33_CELConformance(t *testing.T) {
	var cases []struct {
		File, Section, Name, Expr string
		Bindings                  map[string]map[string]json.RawMessage
		Value                     map[string]json.RawMessage
		Error                     string
	}
	if err := json.Unmarshal(shared(t, "cel", "cases.json"), &cases); err != nil {
		t.Fatal(err)
	}
	table := differences(t, "CEL")
	passed := 0
	for _, c := range cases {
		name := strings.TrimSuffix(c.File, ".textproto") + "/" + c.Section + "/" + c.Name
		vars := MapVars{}
		for k, v := range c.Bindings {
			vars[k], _ = vectorInput(t, v)
		}
		var got any
		p, err := Compile(c.Expr)
		if err == nil {
			got, err = p.Eval(vars)
		}
		if c.Error != "" {
			settle(t, table, name, err != nil, "%s = %v, want an error: %s", c.Expr, got, c.Error)
			continue
		}
		want, can := vectorValue(t, c.Value)
		ok := err == nil && can && reflect.DeepEqual(got, want)
		if ok {
			passed++
		}
		settle(t, table, name, ok, "%s = %#v, %v; want %#v", c.Expr, got, err, want)
	}
	unsettled(t, table)
	t.Logf("%d cases, %d values as the reference has them", len(cases), passed)
}

// vectorInput returns a tagged value as a variable may have it; types that JSON does not
// have are values of the interpreter.
func vectorInput(t *testing.T, tagged map[string]json.RawMessage) (any, bool) {
	for tag, raw := range tagged {
		if tag == "uint" {
			n, err := strconv.ParseUint(unquote(raw), 10, 64)
			return n, err == nil
		}
		if tag == "bytes" {
			b, err := hex.DecodeString(unquote(raw))
			return b, err == nil
		}
	}
	return vectorValue(t, tagged)
}

func unquote(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}

// vectorValue returns the JSON value that a result must have; ok is false if JSON cannot
// represent the tagged value.
func vectorValue(t *testing.T, tagged map[string]json.RawMessage) (any, bool) {
	t.Helper()
	for tag, raw := range tagged {
		switch tag {
		case "int", "uint":
			n, err := strconv.ParseInt(unquote(raw), 10, 64)
			return n, err == nil
		case "double":
			f, err := strconv.ParseFloat(unquote(raw), 64)
			return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
		case "string", "type":
			return unquote(raw), true
		case "bytes":
			b, err := hex.DecodeString(unquote(raw))
			return base64.StdEncoding.EncodeToString(b), err == nil
		case "bool":
			return string(raw) == "true", true
		case "null":
			return nil, true
		case "list":
			var els []map[string]json.RawMessage
			if err := json.Unmarshal(raw, &els); err != nil {
				t.Fatal(err)
			}
			out := []any{}
			for _, e := range els {
				v, ok := vectorValue(t, e)
				if !ok {
					return nil, false
				}
				out = append(out, v)
			}
			return out, true
		case "map":
			var entries [][2]map[string]json.RawMessage
			if err := json.Unmarshal(raw, &entries); err != nil {
				t.Fatalf("%v: %s", err, raw)
			}
			out := map[string]any{}
			for _, e := range entries {
				k, _ := vectorValue(t, e[0])
				s, ok := k.(string)
				v, ok2 := vectorValue(t, e[1])
				if !ok || !ok2 {
					return nil, false
				}
				out[s] = v
			}
			return out, true
		}
		t.Fatalf("unknown tag %q", tag)
	}
	return nil, false
}

// X166, X167: the contract language is JSON Schema 2020-12.
func TestContractConformance(t *testing.T) {
	table := differences(t, "JSON Schema")
	for _, file := range []string{"additionalProperties", "allOf", "anyOf", "const", "enum", "items", "maxItems", "maxLength", "minItems", "minLength", "minimum", "oneOf", "pattern", "properties", "ref", "required", "type", "uniqueItems"} {
		var groups []struct {
			Description string
			Schema      json.RawMessage
			Tests       []struct {
				Description string
				Data        json.RawMessage
				Valid       bool
			}
		}
		if err := json.Unmarshal(shared(t, "json-schema", file+".json"), &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			s, err := jsonschema.Compile(g.Schema)
			for _, c := range g.Tests {
				name := file + "/" + g.Description + "/" + c.Description
				if err != nil {
					settle(t, table, name, false, "schema: %v", err)
					continue
				}
				v, err := jsonx.DecodeLenient(c.Data)
				if err != nil {
					t.Fatal(err)
				}
				vs := s.Validate(v)
				settle(t, table, name, (vs == nil) == c.Valid, "valid %v, got %v", c.Valid, vs)
			}
		}
	}
	unsettled(t, table)
}

// X39: the text of templates in the style of Jinja, as far as CEL goes.
func TestX39_TemplateConformance(t *testing.T) {
	var file struct {
		Cases []struct {
			Name, Template string
			Context        json.RawMessage
			Expect         *string
		}
	}
	if err := json.Unmarshal(shared(t, "templates", "minijinja-subset.json"), &file); err != nil {
		t.Fatal(err)
	}
	table := differences(t, "Templates")
	for _, c := range file.Cases {
		ctx, err := jsonx.DecodeLenient(c.Context)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		p, err := CompileTemplate(c.Template)
		if err == nil {
			var v any
			if v, err = p.Eval(MapVars(ctx.(map[string]any))); err == nil {
				got, err = Text(v, MaxResult)
			}
		}
		if c.Expect == nil {
			settle(t, table, c.Name, err != nil, "got %q, want an error", got)
			continue
		}
		ok := err == nil && strings.TrimRight(got, "\n") == strings.TrimRight(*c.Expect, "\n")
		settle(t, table, c.Name, ok, "%q = %q, %v; want %q", c.Template, got, err, *c.Expect)
	}
	unsettled(t, table)
}
