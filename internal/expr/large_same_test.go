// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// An expression has the same result for a text or list in a file as for the same value
// inline, or fails with VALUE_TOO_LARGE.
func TestALargeValueIsNeverAnother(t *testing.T) {
	hash := func(letter string) string { return "sha256_" + strings.Repeat(letter, 64) }
	text := jsonx.Large{Hash: hash("a"), Size: 3, Bytes: 3}
	list := jsonx.Large{Hash: hash("b"), List: true, Size: 2, Bytes: 5, Refs: true}
	same := jsonx.Large{Hash: hash("c"), List: true, Size: 2, Bytes: 5, Refs: true} // with other references
	vars := func(text, list, same any) MapVars {
		return MapVars{"t": text, "l": list, "k": same, "s": "abc", "two": []any{int64(1), int64(2)}, "m": map[string]any{"abc": int64(1)}}
	}
	oneTwo := []any{int64(1), int64(2)}
	few, many := vars("abc", oneTwo, oneTwo), vars(text, list, same)
	inline := strings.NewReplacer(string(text.Append(nil)), `"abc"`, string(list.Append(nil)), "[1,2]", string(same.Append(nil)), "[1,2]")
	for src := range strings.Lines(largeSources) {
		src = strings.TrimSpace(src)
		p, err := Compile(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		want, wrong := p.Eval(few)
		got, err := p.Eval(many)
		if errors.Is(err, fault.ValueTooLarge) || err != nil && wrong != nil {
			continue
		}
		if a, b := asText(want, wrong), inline.Replace(asText(got, err)); a != b {
			t.Errorf("%s gives %s, for what lies in a file %s", src, a, b)
		}
	}
}

const largeSources = `sets.contains([t], [s])
	sets.contains([s], [t])
	sets.contains([1, s], [t, 1])
	sets.equivalent([l], [two])
	sets.equivalent([two], [k])
	sets.intersects([l], [k])
	sets.intersects([1], [t])
	[t].hasAny([s])
	[s].hasAll([t])
	[t].hasOnly([s])
	[t].hasExactly([s])
	[t, s].distinct().size()
	[l, two].distinct().size()
	[l, k].distinct().size()
	[t, 'x', 1].distinct().size()
	[l].flatten().size()
	[[l]].flatten(2).size()
	[[l]].flatten(1) == [two]
	[two, l].flatten()
	[[l]].flatten(1).size()
	[t].flatten()
	t in m
	t in {'abc': 1}
	l in m
	m[t]
	m[?t].orValue(9)
	{'abc': 1}[t]
	{t: 1}
	{t: 1}['abc']
	'abc' in {t: 1}
	{t: 1} == {'abc': 1}
	{t: 1, 'abc': 2}.size()
	{t: 1}.merge({'abc': 2})
	m.merge({t: 2}).size()
	['abc'].transformMapEntry(i, k, {t: i})
	{'k': t, s: l}
	[t].groupBy(x, x)
	[t].groupBy(x, 'k').k[0]
	[l].exists(x, x == two)
	[l].exists_one(x, x == two)
	[l, k].reduce(a, x, 0, a + x.size())
	l == two || l == k
	1 / 0 == 1 || l[0] == 1
	l[0] == 1 || 1 / 0 == 1
	1 / 0 == 1 && l[0] == 2
	1 / 0 == 1 || 'b' in t.split('')
	1 / 0 == 1 || size(t.split(',')) == 1
	1 / 0 == 1 || l.exists(x, x == 1)
	1 / 0 == 1 && l.all(x, x == 3)
	1 / 0 == 1 || l.exists(i, x, x == 1)
	1 / 0 == 1 || l.map(x, x).size() == 2
	1 / 0 == 1 || l.transformMap(i, x, x).size() == 2
	1 / 0 == 1 || {t: 1}.abc == 1
	1 / 0 == 1 || m[t] == 1
	1 / 0 == 1 || m[?t].hasValue()
	1 / 0 == 1 || {'abc': 1}[t] == 1
	m['no expr.large'] == 1
	1 / 0 == 1 || ([l].flatten().size() == 2 && 1 / 0 == 1) || t in m
	[1, 2].exists(x, x / 0 == 1 || l[0] == 1)
	[0, 1].exists(x, 1 / x == 5 || l[x] == 2)
	[0, 1].map(x, 1 / 0 == x || l[x] == 1 || l[x] == 2)
	l[0] == 1 || lists.range(90000).map(a, a).size() == 1
	m.missing == 1 || l.size() == 2
	optional.of(l) == optional.of(two)
	optional.ofNonZeroValue(t).hasValue()
	cel.bind(x, l, x + x).size()
	has(t.size) || has(l.size)
	type(l) == list && type(t) == string`
