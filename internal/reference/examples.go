// SPDX-License-Identifier: Apache-2.0

package reference

// An Example is an expression and what it gives, as JSON.
type Example struct{ Source, Result string }

// A Group is the examples of one kind of function.
type Group struct {
	Title string
	List  []Example
}

// Examples show every operator and function once. A test evaluates each of them.
var Examples = []Group{
	{"Operators", []Example{
		{"7 / 2", "3"},
		{"7 % 2", "1"},
		{"7.0 / 2.0", "3.5"},
		{"'a' + 'b'", `"ab"`},
		{"[1] + [2]", "[1,2]"},
		{"2 in [1, 2]", "true"},
		{"'k' in {'k': 1}", "true"},
		{"1 < 2 && !false || false", "true"},
		{"2 > 1 ? 'yes' : 'no'", `"yes"`},
		{"{'a': 1}.a", "1"},
		{"['x', 'y'][1]", `"y"`},
	}},
	{"Numbers", []Example{
		{"add(1, 0.5)", "1.5"},
		{"subtract(3, 1)", "2"},
		{"multiply(2, 1.5)", "3"},
		{"divide(7, 2)", "3"},
		{"int('42')", "42"},
		{"int(3.9)", "3"},
		{"double(1)", "1"},
		{"math.greatest(1, 3, 2)", "3"},
		{"math.least([4, 2])", "2"},
		{"math.round(2.5)", "3"},
		{"math.ceil(2.1)", "3"},
		{"math.floor(2.9)", "2"},
		{"math.trunc(-2.9)", "-2"},
		{"math.abs(-3)", "3"},
		{"math.sign(-3)", "-1"},
		{"math.bitAnd(6, 3)", "2"},
		{"math.bitOr(6, 3)", "7"},
		{"math.bitXor(6, 3)", "5"},
		{"math.bitShiftLeft(1, 4)", "16"},
		{"math.bitShiftRight(16, 4)", "1"},
	}},
	{"Text", []Example{
		{"size('héllo')", "5"},
		{"string(12)", `"12"`},
		{"'Roux'.contains('ou')", "true"},
		{"'Roux'.startsWith('R')", "true"},
		{"'Roux'.endsWith('x')", "true"},
		{"'a-1'.matches('^[a-z]-[0-9]$')", "true"},
		{"'Roux'.lowerAscii()", `"roux"`},
		{"'Roux'.upperAscii()", `"ROUX"`},
		{"'  a '.trim()", `"a"`},
		{"'a,b'.split(',')", `["a","b"]`},
		{"['a', 'b'].join('-')", `"a-b"`},
		{"'aXbX'.replace('X', '')", `"ab"`},
		{"'abcd'.substring(1, 3)", `"bc"`},
		{"'abcd'.charAt(2)", `"c"`},
		{"'abab'.indexOf('b')", "1"},
		{"'abab'.lastIndexOf('b')", "3"},
		{"base64.encode(b'Roux')", `"Um91eA=="`},
		{"string(base64.decode('Um91eA=='))", `"Roux"`},
	}},
	{"Lists and objects", []Example{
		{"size([1, 2])", "2"},
		{"[1, 2, 3].filter(n, n > 1)", "[2,3]"},
		{"[1, 2].map(n, n * n)", "[1,4]"},
		{"[1, 2, 3].map(n, n > 1, n * n)", "[4,9]"},
		{"[1, 2].all(n, n > 0)", "true"},
		{"[1, 2].exists(n, n > 1)", "true"},
		{"[1, 2].exists_one(n, n > 1)", "true"},
		{"[3, 1, 2].sort()", "[1,2,3]"},
		{"[{'n': 2}, {'n': 1}].sortBy(o, o.n)", `[{"n":1},{"n":2}]`},
		{"[1, 1, 2].distinct()", "[1,2]"},
		{"[[1], [2, 3]].flatten()", "[1,2,3]"},
		{"[1, 2, 3].reverse()", "[3,2,1]"},
		{"[1, 2, 3, 4].slice(1, 3)", "[2,3]"},
		{"lists.range(3)", "[0,1,2]"},
		{"sets.contains([1, 2], [2])", "true"},
		{"sets.equivalent([1, 2], [2, 1])", "true"},
		{"sets.intersects([1], [1, 2])", "true"},
	}},
	{"What may be absent", []Example{
		{"has({'a': 1}.b)", "false"},
		{"{'a': 1}.?b.orValue(0)", "0"},
		{"optional.of(1).hasValue()", "true"},
		{"optional.none().orValue('x')", `"x"`},
	}},
	{"Times", []Example{
		{"timestamp('2026-01-02T03:04:05Z') + duration('1h')", `"2026-01-02T04:04:05Z"`},
		{"timestamp('2026-01-02T00:00:00Z') < timestamp('2026-01-03T00:00:00Z')", "true"},
		{"timestamp('2026-01-02T03:04:05Z').getFullYear()", "2026"},
		{"timestamp('2026-01-02T03:04:05Z').getHours('+02:00')", "5"},
		{"duration('90s').getMinutes()", "1"},
	}},
	{"Types", []Example{
		{"type(1) == int", "true"},
		{"bool('true')", "true"},
		{"dyn(1) == 1.0", "true"},
	}},
}
