// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// An aggregate is one entry of the input aggregate.
type aggregate struct {
	program
	function string // sum, avg, min, max, count or list
}

func compileAggregates(in *queryInput) (all []aggregate, err error) {
	for _, name := range slices.Sorted(maps.Keys(in.Aggregate)) {
		if _, both := in.GroupBy[name]; both {
			return nil, fault.New(fault.InputInvalid, "groupBy and aggregate both make a field %q: give one another name", name)
		}
		for how, src := range in.Aggregate[name] { // only one, by the schema
			p, err := compileProgram("aggregate."+name+"."+how, name, src)
			if err != nil {
				return nil, err
			}
			all = append(all, aggregate{p, how})
		}
	}
	return all, nil
}

// A group is a set of rows with the values aggregated over them.
type group struct {
	q            *query
	keys         []any
	accumulators []accumulator // one per aggregate
}

// An accumulator is the state of one aggregate over one group.
type accumulator struct {
	n     int64 // number of values aggregated
	total expr.Total
	best  any
	list  []any
}

func (q *query) newGroup(keys []any) *group {
	return &group{q: q, keys: keys, accumulators: make([]accumulator, len(q.aggregates))}
}

// aggregateRow adds the row to its group and to the totals.
func (q *query) aggregateRow() error {
	groups := make([]*group, 0, 2)
	if q.totals != nil {
		groups = append(groups, q.totals)
	}
	if q.keys != nil {
		g, err := q.groupOf()
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	for i := range q.aggregates {
		f := &q.aggregates[i]
		v, err := q.eval(&f.program)
		if err != nil {
			return err
		}
		for _, g := range groups {
			if err := g.add(i, f, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// groupOf returns the group of the row, and creates it if needed.
func (q *query) groupOf() (*group, error) {
	keys := make([]any, len(q.keys))
	for i := range q.keys {
		v, err := q.eval(&q.keys[i])
		if err != nil {
			return nil, err
		}
		keys[i] = v
	}
	id, err := jsonx.Canonical(keys)
	if err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "groupBy: %v", err)
	}
	g := q.groups[string(id)]
	if g != nil {
		return g, nil
	}
	if len(q.groups) == maxGroups {
		return nil, fault.New(fault.ValueTooLarge, "there are more than %d groups: group by something coarser, or filter the rows by where", maxGroups)
	}
	if err := q.reserveMemory(2*len(id) + 128*len(q.aggregates)); err != nil {
		return nil, err
	}
	g = q.newGroup(keys)
	q.groups[string(id)] = g
	q.groupOrder = append(q.groupOrder, g)
	return g, nil
}

// reserveMemory accounts for n bytes that are kept in memory.
func (q *query) reserveMemory(n int) error {
	if q.memory += n; q.memory > maxSorted {
		return fault.New(fault.ValueTooLarge, "more than %d MiB would have to be held to group and sort: filter the rows by where, select fewer fields, or give a limit", maxSorted>>20)
	}
	return nil
}

// add adds one value.
func (g *group) add(i int, f *aggregate, v any) error {
	t := &g.accumulators[i]
	switch f.function {
	case "count":
		holds, ok := v.(bool)
		if !ok {
			return fault.New(fault.InputInvalid, "%s gives %s, want true or false", f.at, jsonKind(v))
		}
		if holds {
			t.n++
		}
		return nil
	case "list":
		raw, err := jsonx.Canonical(v)
		if err != nil {
			return fault.Wrap(fault.InputInvalid, err, "%s: %v", f.at, err)
		}
		t.list = append(t.list, v)
		return g.q.reserveMemory(len(raw) + 32)
	}
	if v == nil {
		return nil
	}
	t.n++
	if f.function == "min" || f.function == "max" {
		c, err := compareValues(v, t.best)
		if err != nil {
			return fault.Wrap(fault.InputInvalid, err, "%s: %s", f.at, fault.Message(err))
		}
		if t.n == 1 || f.function == "min" && c < 0 || f.function == "max" && c > 0 {
			t.best = v
		}
		return nil
	}
	switch v := v.(type) {
	case int64:
		t.total.AddInt(v)
	case float64:
		t.total.AddDouble(v)
	default:
		return fault.New(fault.InputInvalid, "%s gives %s, want a number", f.at, jsonKind(v))
	}
	return nil
}

// value returns the result of an aggregate.
func (t *accumulator) value(how string) (any, error) {
	switch {
	case how == "count":
		return t.n, nil
	case how == "list":
		return append([]any{}, t.list...), nil
	case how == "min" || how == "max":
		return t.best, nil
	case how == "avg" && t.n == 0:
		return nil, nil
	}
	sum, ok := t.total.Sum()
	switch f, double := sum.(float64); {
	case double && (math.IsInf(f, 0) || math.IsNaN(f)):
		return nil, fault.New(fault.InputInvalid, "the sum is no number that JSON can hold")
	case how == "avg":
		return t.total.Mean(t.n), nil
	case !ok:
		return nil, fault.New(fault.InputInvalid, "the sum is larger than a whole number of 64 bits can be: add double(…)")
	}
	return sum, nil
}

// fields returns the row of a group.
func (g *group) fields() (map[string]any, error) {
	out := make(map[string]any, len(g.keys)+len(g.accumulators))
	for i, v := range g.keys {
		out[g.q.keys[i].name] = v
	}
	for i := range g.accumulators {
		f := &g.q.aggregates[i]
		v, err := g.accumulators[i].value(f.function)
		if err != nil {
			return nil, fault.Wrap(fault.CodeOf(err), err, "%s: %s", f.at, fault.Message(err))
		}
		out[f.name] = v
	}
	return out, nil
}

// A result is a row of the result that has yet to be sorted.
type result struct {
	row  []byte
	keys []any
}

// size is approximately how much memory a result takes.
func (r *result) size() int { return len(r.row) + 64*(1+len(r.keys)) }

// keepForSorting keeps a row to be sorted. With a limit, it drops rows that
// cannot be among the first.
func (q *query) keepForSorting(r result) error {
	for i, k := range r.keys {
		switch k.(type) {
		case []any, map[string]any:
			return fault.New(fault.InputInvalid, "%s gives %s, want a number, a text, true, false or null", q.order[i].at, jsonKind(k))
		}
	}
	q.sorted = append(q.sorted, r)
	q.memory += r.size()
	// Drop rows rarely, so that the cost per row is small.
	if q.in.Limit != nil {
		if most := q.in.Offset + *q.in.Limit; most >= 0 && int64(len(q.sorted)) >= 2*most+1_000 {
			q.sort()
			for i := range q.sorted[most:] {
				q.memory -= q.sorted[most:][i].size()
			}
			q.sorted = slices.Delete(q.sorted, int(most), len(q.sorted))
		}
	}
	return q.reserveMemory(0)
}

func (q *query) sort() {
	slices.SortStableFunc(q.sorted, func(a, b result) int {
		for i := range q.order {
			c, _ := compareValues(a.keys[i], b.keys[i]) // keepForSorting has refused values without an order
			if q.order[i].name == "desc" {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
}

func (q *query) emitSorted(give func([]byte) error) error {
	if q.order == nil {
		return nil
	}
	q.sort()
	for i := range q.sorted {
		if err := q.emit(q.sorted[i].row, give); err != nil {
			return err
		}
	}
	return nil
}

// compareValues orders values: booleans, numbers, texts, null. Lists and
// objects have no order.
func compareValues(a, b any) (int, error) {
	ra, rb := rank(a), rank(b)
	if ra == noOrder || rb == noOrder {
		return 0, fault.New(fault.InputInvalid, "%s has no order: want a number, a text, true or false", jsonKind(a))
	}
	if ra != rb {
		return cmp.Compare(ra, rb), nil
	}
	switch x := a.(type) {
	case bool:
		y := b.(bool)
		return cmp.Compare(map[bool]int{true: 1}[x], map[bool]int{true: 1}[y]), nil
	case string:
		return cmp.Compare(x, b.(string)), nil
	case int64:
		if y, ok := b.(int64); ok {
			return cmp.Compare(x, y), nil
		}
		return -compareFloat(b.(float64), x), nil
	case float64:
		if y, ok := b.(float64); ok {
			return cmp.Compare(x, y), nil
		}
		return compareFloat(x, b.(int64)), nil
	}
	return 0, nil
}

// noOrder is the rank of lists and objects.
const noOrder = -1

func rank(v any) int {
	switch v.(type) {
	case bool:
		return 1
	case int64, float64:
		return 2
	case string:
		return 3
	case nil:
		return 4
	}
	return noOrder
}

// compareFloat compares a float with an integer exactly.
func compareFloat(f float64, n int64) int {
	switch {
	case f >= 1<<63:
		return 1
	case f < -1<<63:
		return -1
	}
	if c := cmp.Compare(int64(f), n); c != 0 {
		return c
	}
	return cmp.Compare(f, math.Trunc(f))
}
