// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"github.com/roux-engine/roux/internal/jsonx"
)

// libraryEnv is cel-go with our extensions, in their newest versions.
var libraryEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.CrossTypeNumericComparisons(true), cel.EnableIdentifierEscapeSyntax(), cel.DefaultUTCTimeZone(true), cel.OptionalTypes(),
		ext.Strings(), ext.Lists(), ext.Math(), ext.Sets(), ext.Encoders(), ext.TwoVarComprehensions(), ext.Bindings(),
	)
})

// byLibrary evaluates an expression with cel-go.
func byLibrary(src string, vars map[string]any) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint("panic: ", p)
		}
	}()
	env, err := libraryEnv()
	if err != nil {
		return err.Error()
	}
	var opts []cel.EnvOption
	for name := range vars {
		opts = append(opts, cel.Variable(name, cel.DynType))
	}
	if env, err = env.Extend(opts...); err != nil {
		return "error: " + err.Error()
	}
	tree, iss := env.Compile(src)
	if iss.Err() != nil {
		return "error: " + iss.Err().Error()
	}
	prog, err := env.Program(tree)
	if err != nil {
		return "error: " + err.Error()
	}
	out, _, err := prog.Eval(vars)
	if err != nil {
		return "error: " + err.Error()
	}
	v, err := toJSON(out, MaxInput)
	return asText(v, err)
}

func byUs(src string, vars map[string]any) string {
	p, err := Compile(src)
	if err != nil {
		return "error: " + err.Error()
	}
	return asText(p.Eval(MapVars(vars)))
}

func asText(v any, err error) string {
	if err == nil {
		var raw []byte
		if raw, err = jsonx.Canonical(v); err == nil {
			return string(raw)
		}
	}
	return "error: " + err.Error()
}

func sameResult(a, b string) bool {
	return a == b || strings.HasPrefix(a, "error: ") && strings.HasPrefix(b, "error: ")
}

// pools are the arguments with which functions are called.
var pools = map[string][]string{
	"string":    {"''", "'a'", "'abab'", "'héllo'", "'%s'", "'%d-%.2f'", "'12'", "'1.5'", "'true'", "'2026-01-02T03:04:05Z'", "'1h30m'", "'a\"b\\n'", "'%z'", "' x '", "'[1]'", "'YQ=='"},
	"int":       {"0", "1", "2", "-1", "5", "100", "9007199254740993", "9223372036854775807", "-9223372036854775808"},
	"uint":      {"1u", "7u"},
	"double":    {"0.0", "1.5", "-2.5", "1e300", "3.0"},
	"bool":      {"true", "false"},
	"null":      {"null"},
	"bytes":     {"b'ab'", "b''"},
	"list":      {"[]", "[1, 2, 2]", "['b', 'a']", "[[1], [2, [3]]]", "[1.5, 2]", "[{'a': 1}]", "['x', 1, 2.0]", "[true, null]"},
	"map":       {"{}", "{'a': 1, 'b': 'x'}", "{'k': [1]}"},
	"timestamp": {"timestamp('2026-01-02T03:04:05Z')"},
	"duration":  {"duration('90m')", "duration('-1s')"},
	"optional":  {"optional.of(1)", "optional.none()", "optional.of('a')"},
}

func pool(t *types.Type) []string {
	switch t.Kind() {
	case types.StringKind:
		return pools["string"]
	case types.IntKind:
		return pools["int"]
	case types.UintKind:
		return pools["uint"]
	case types.DoubleKind:
		return pools["double"]
	case types.BoolKind:
		return pools["bool"]
	case types.BytesKind:
		return pools["bytes"]
	case types.ListKind:
		return pools["list"]
	case types.MapKind:
		return pools["map"]
	case types.TimestampKind:
		return pools["timestamp"]
	case types.DurationKind:
		return pools["duration"]
	case types.OpaqueKind:
		return pools["optional"]
	}
	var all []string
	for _, k := range slices.Sorted(maps.Keys(pools)) {
		all = append(all, pools[k]...)
	}
	return all
}

// tried calls fn with expressions that call every function of the library with many
// arguments, and with operators, macros and chains of optionals over JSON values, as
// literals and as variables.
func tried(t *testing.T, env *cel.Env, fn func(function, src string, vars map[string]any)) {
	functions := env.Functions()
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if strings.Contains(name, "@") || name[0] == '_' {
			continue
		}
		for _, o := range functions[name].OverloadDecls() {
			for _, args := range combined(o.ArgTypes()) {
				src := name + "(" + strings.Join(args, ", ") + ")"
				if o.IsMemberFunction() {
					src = args[0] + "." + name + "(" + strings.Join(args[1:], ", ") + ")"
				}
				fn(name, src, nil)
			}
		}
	}
	vars := map[string]any{}
	for i, src := range jsonPool {
		p, err := Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		if vars[fmt.Sprint("v", i)], err = p.Eval(MapVars{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, form := range forms {
		for i := range jsonPool {
			for j := range jsonPool {
				if j > 0 && !strings.Contains(form, "B") {
					continue
				}
				fn(form, strings.NewReplacer("A", jsonPool[i], "B", jsonPool[j]).Replace(form), nil)
				fn(form, strings.NewReplacer("A", fmt.Sprint("v", i), "B", fmt.Sprint("v", j)).Replace(form), vars)
			}
		}
	}
}

// combined returns all combinations of arguments of these types.
func combined(of []*types.Type) [][]string {
	all := [][]string{nil}
	for _, t := range of {
		values := pool(t)
		if len(of) > 3 {
			values = values[:min(6, len(values))]
		}
		var longer [][]string
		for _, args := range all {
			for _, v := range values {
				longer = append(longer, append(slices.Clone(args), v))
			}
		}
		all = longer
	}
	return all
}

var jsonPool = []string{"''", "'a'", "'abab'", "12", "0", "-1", "1.5", "true", "null", "[]", "[1, 2, 2]", "['b', 'a']", "[[1], [2, [3]]]",
	"[{'a': 1}, {'b': 2}]", "{}", "{'a': 1, 'b': 'x'}", "{'k': [1], 'a': {'b': {'c': 3}}}", "9007199254740993"}

var forms = []string{
	"A + B", "A - B", "A * B", "A / B", "A % B", "A == B", "A != B", "A < B", "A >= B", "A in B", "A && B", "A || B", "A ? B : 1", "-A", "!A",
	"A[B]", "A[0]", "A.a", "A['a']", "has(A.a)", "has(A.a.b)", "{A: B}", "{A: 1, B: 2}", "[A, B]", "{'a': A}.a == B", "A == null", "type(A) == type(B)",
	"A.?a", "A.?a.?b.?c.orValue(B)", "A.?a.b", "A.?a.orValue(B)", "A.a.?b", "A[?B]", "A[?0].?a", "A[?0].orValue(B)", "A[?'a']", "A.?a[?'b'].value()",
	"[?A.?a, B]", "{?'k': A.?a, 'l': B}", "A.?a.hasValue()", "A.?a.optMap(x, x == B)", "A.?a.optFlatMap(x, x.?b)", "has(A.?a.b)",
	"optional.of(A).or(optional.of(B))", "optional.ofNonZeroValue(A)", "optional.ofNonZeroValue(A).orValue(B)", "optional.of(A) == optional.of(B)",
	"A.map(x, x)", "A.map(x, x == B)", "A.filter(x, x != B)", "A.map(x, x != B, [x])", "A.all(x, x == B)", "A.exists(x, x == B)", "A.exists_one(x, x == B)",
	"A.existsOne(x, x == B)", "A.all(i, x, x == B)", "A.exists(i, x, x == B)", "A.exists(i, x, i == B)", "A.existsOne(i, x, x == B)", "A.exists_one(i, x, i == B)",
	"A.transformList(i, x, [i, x])", "A.transformList(i, x, x != B, i)", "A.transformMap(i, x, [i, x])", "A.transformMap(k, v, v != B, k)",
	"A.transformMap(k, v, v).transformList(k, v, [k, v])", "A.transformMapEntry(k, v, {string(k): v})", "A.transformMapEntry(k, v, {'same': v})",
	"A.transformMapEntry(k, v, v != B, {string(k): B})", "cel.bind(x, A, x == B)", "A.sortBy(x, x)",
	"A.sort()", "A.distinct()", "A.reverse()", "A.flatten()", "A.slice(0, 1)", "A.first()", "A.last()", "A.join(B)", "A.split(B)", "A.contains(B)",
	"A.startsWith(B)", "A.matches(B)", "size(A)", "A.size()", "string(A)", "int(A)", "uint(A)", "double(A)", "bool(A)", "bytes(A)", "dyn(A)", "timestamp(A)",
	"duration(A)", "A.replace(B, 'z')", "A.indexOf(B)", "A.lastIndexOf(B)", "A.charAt(B)", "A.substring(B)", "'%s|%s'.format([A, B])", "'%d'.format([A])",
	"'%.3f'.format([A])", "'%e %x'.format([A, B])", "'%b'.format([A])", "strings.quote(A)", "sets.contains(A, B)", "sets.equivalent(A, B)",
	"sets.intersects(A, B)", "A.hasAny(B)", "A.hasAll(B)", "A.hasOnly(B)", "A.hasExactly(B)", "math.greatest(A, B)", "math.least(A)", "math.abs(A)",
	"math.sqrt(A)", "json.encode(A)", "json.parse(A)", "base64.encode(bytes(A))",
}

// differs returns the line of docs/cel-go.md that documents a difference, or "".
func differs(function, src, lib, our string) string {
	switch {
	case strings.HasPrefix(function, "yaml."):
		return "no YAML"
	case strings.Contains(our, "occurs twice in a map"):
		return "doubled keys"
	case strings.HasPrefix(function, "json.encode"):
		return "JSON"
	case strings.Contains(src, "{") || strings.Contains(src, "v1") || strings.Contains(src, "transformMap"):
		if sortedText(lib) == sortedText(our) {
			return "order of keys"
		}
	}
	return ""
}

// sortedText returns a text with its bytes sorted, which is equal for two lists that differ
// only in the order of their elements.
func sortedText(s string) string {
	b := []byte(s)
	slices.Sort(b)
	return string(b)
}

// Expressions have the same results as in cel-go with its extensions, except for the
// documented differences.
func TestLikeTheLibrary(t *testing.T) {
	env, err := libraryEnv()
	if err != nil {
		t.Fatal(err)
	}
	// One in seven is tried by default; ROUX_EXPRESSIONS=all tries them all.
	n, found, stride := 0, map[string]int{}, 7
	if os.Getenv("ROUX_EXPRESSIONS") == "all" {
		stride = 1
	}
	tried(t, env, func(function, src string, vars map[string]any) {
		if n++; n%stride != 0 {
			return
		}
		lib, our := byLibrary(src, vars), byUs(src, vars)
		if sameResult(lib, our) {
			return
		}
		line := differs(function, src, lib, our)
		if found[line]++; line == "" && found[line] <= 20 {
			t.Errorf("%s\ncel-go: %.200s\nours:   %.200s", src, lib, our)
		}
	})
	if n < 50_000 {
		t.Errorf("%d expressions tried, want 50,000", n)
	}
	t.Logf("%d expressions, differences by their line: %v", n, found)
}

// Each line of the page about the differences is true.
func TestDifferencesPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/cel-go.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00"), "|")
		if len(cells) != 6 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		n++
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.Trim(strings.TrimSpace(cells[i]), "`"), "\x00", "|")
		}
		src, reason := cells[1], cells[4]
		vars := map[string]any{"list": []any{int64(1), int64(2)}}
		lib, our := byLibrary(src, vars), byUs(src, vars)
		for i, got := range []string{lib, our} {
			if want := cells[2+i]; want == "an error" && !strings.HasPrefix(got, "error: ") || want == "any order" && sortedText(got) != sortedText(our) ||
				want != "an error" && want != "any order" && got != want {
				t.Errorf("%s gives %s, the page says %s", src, got, want)
			}
		}
		if sameResult(lib, our) && cells[2] != "any order" {
			t.Errorf("%s does not differ: both give %s", src, our)
		}
		if reason == "" {
			t.Errorf("%s has no reason", src)
		}
	}
	if n < 20 {
		t.Errorf("%d lines", n)
	}
}
