// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEverythingAtOnce: malformed parts do not hide other errors, and cause no cascading
// errors in other steps.
func TestEverythingAtOnce(t *testing.T) {
	src := `name: many
order: backwards
steps:
  - id: a
    action: {name: nowhere}
    timeout: 5mm
  - id: b
    outputBindng: x
    transform: {expression: "1"}
    outputBinding: y
  - id: c
    condition:
      expression: y == 1
      then:
        - {id: d, action: {name: nowhere}}
        - {id: e, transform: {expression: 5}}
        - {id: f, transform: {expression: nothing + 1}}
  - {id: g, dependsOn: [h], transform: {expression: "1"}}
  - {id: h, dependsOn: [g], transform: {expression: steps.a.output}}
  - id: p
    parallel:
      waitFor: all
      branches:
        - [{id: q, transform: {expression: missing}}]
        - [{id: r, wait: {duration: soon}}]
`
	_, _, _, diags := Source("many.yaml", []byte(src), Options{})
	var got []string
	for _, d := range diags {
		got = append(got, d.Rule+"@"+strings.TrimPrefix(d.Pos.String(), "many.yaml:"))
	}
	want := []string{"unknown-value@2:8", "unknown-action@5:20", "bad-duration@6:14", "unknown-field@8:5", "unknown-action@15:34",
		"wrong-type@16:43", "undefined-name@17:43", "cycle@18:25", "undefined-name@24:44", "bad-duration@25:37"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		for _, d := range diags {
			t.Log(d)
		}
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestWhatHasProblemsIsLookedAt: a field that is misspelt, unknown or wrong does not hide
// other errors in its step, and a misspelt field is read as the one that was meant.
func TestWhatHasProblemsIsLookedAt(t *testing.T) {
	for _, tt := range []struct{ name, step, want string }{
		{"an unknown field", "{id: a, colour: red, transform: {expression: 1 + 'a'}}", "unknown-field type"},
		{"a misspelt kind", "{id: a, actoin: {name: nowhere}}", "unknown-field unknown-action"},
		{"a misspelt field inside", "{id: a, action: {name: nowhere, parametrs: {x: 1}}}", "unknown-action unknown-field"},
		{"a misspelt field that needs another", "{id: a, inputBinding: {x: '1'}, transform: {expression: '1'}}", "unknown-field not-for-kind"},
		{"a misspelt field beside the right one", "{id: a, timeot: 5, timeout: 1s, transform: {expression: nope}}", "unknown-field wrong-type undefined-name"},
		{"a bad duration", "{id: a, timeout: 5mm, transform: {expression: nope}}", "bad-duration undefined-name"},
		{"a bad retry", "{id: a, retryPolicy: {maxAttempts: many, jitter: 7}, action: {name: nowhere}}", "wrong-type out-of-range unknown-action"},
		{"a bad condition of a step", "{id: a, when: 7, transform: {expression: nope}}", "wrong-type undefined-name"},
		{"a bad setting of a loop", "{id: a, loop: {over: nope, maxConcurrency: 0, steps: [{transform: {expression: nix}}]}}", "undefined-name out-of-range undefined-name"},
		{"a bad setting in a scope", "{id: a, loop: {over: '[1]', steps: [{timeout: x, transform: {expression: nix}}]}}", "bad-duration undefined-name"},
		{"an expression that is none", "{id: a, transform: {expression: 5}}", "wrong-type"},
		{"an action that is none", "{id: a, action: nowhere}", "wrong-type"},
		{"parameters that are none", "{id: a, action: {name: nowhere, parameters: 7}, when: 1 + 'a'}", "unknown-action wrong-type type"},
		{"an input that is none", "{id: a, when: 1 + 'a', action: {name: nowhere}, inputBindings: {x: 5, y: '1 + true'}}", "type unknown-action wrong-type type"},
		{"a condition of a step beside an expression that is none", "{id: a, when: 1 + 'a', transform: {expression: 5}}", "type wrong-type"},
		{"a condition of a step beside an action that is none", "{id: a, when: 1 + 'a', action: nowhere}", "type wrong-type"},
		{"an expression of a condition that is none", "{id: a, condition: {expression: 5, then: [{transform: {expression: nope}}]}}", "wrong-type undefined-name"},
		{"a side that is none", "{id: a, condition: {expression: nope, then: {id: b}}}", "wrong-type"},
		{"an else that is none", "{id: a, condition: {expression: 1 + 'a', then: [{action: {name: nowhere}}], else: 5}}", "type unknown-action wrong-type"},
		{"a branch that is none", "{id: a, parallel: {branches: [{id: b}, [{action: {name: nowhere}}]]}}", "wrong-type unknown-action"},
		{"a loop over none", "{id: a, loop: {over: 5, steps: [{transform: {expression: nope + item.x}}]}}", "wrong-type undefined-name"},
		{"a loop without over", "{id: a, loop: {steps: [{transform: {expression: nope}}]}}", "missing-field undefined-name"},
		{"steps that are none", "{id: a, loop: {over: 1 + 'a', steps: 5}}", "type wrong-type"},
		{"two kinds", "{id: a, action: {name: nowhere}, transform: {expression: nope}}", "unknown-action step-kind"},
		{"no kind", "{id: a, when: 1 + 'a'}", "step-kind type"},
		{"a name that is none", "{id: [a], action: {name: nowhere}}", "wrong-type unknown-action"},
		{"a name that may not be", "{id: a b, action: {name: nowhere}}", "bad-text unknown-action"},
		{"a binding that may not be", "{id: a, outputBinding: b c, action: {name: nowhere}}", "bad-text unknown-action"},
		{"a name given twice", "{id: a, id: b, action: {name: nowhere}}", "duplicate-key unknown-action"},
		{"steps before that are none", "{id: a, dependsOn: b, action: {name: nowhere}}", "wrong-type unknown-action"},
		{"a step before that is none", "{id: a, dependsOn: [7], action: {name: nowhere}}", "wrong-type unknown-action"},
		{"a strategy that is none", "{id: a, onError: {strategy: 5}, action: {name: nowhere}}", "wrong-type unknown-action"},
		{"a fallback that is none", "{id: a, onError: {strategy: fallback, fallbackStep: 5}, action: {name: nowhere}}", "wrong-type unknown-action"},
		{"a fallback that is wrong", "{id: a, onError: {strategy: fallback, fallbackStep: {id: b, transform: {expression: 5}}}, action: {name: nowhere}}", "wrong-type unknown-action"},
		{"retries that are none", "{id: a, retryPolicy: 5, action: {name: nowhere}}", "wrong-type unknown-action"},
		{"contracts that are none", "{id: a, contracts: {input: 5}, action: {name: nowhere}}", "wrong-type unknown-action"},
		{"an undoing that is none", "{id: a, compensate: {action: 5}, action: {name: nowhere}}", "wrong-type unknown-action"},
		{"a wait that is none", "{id: a, wait: {duration: 5}, when: 1 + 'a'}", "wrong-type type"},
		{"a message that is none", "{id: a, fail: {message: 5}, when: 1 + 'a'}", "wrong-type type"},
		{"an entry that is none", "7\n  - {id: b, action: {name: nowhere}}", "wrong-type unknown-action"},
		{"a binding that is none", "{id: a, outputBinding: 5, transform: {expression: '1'}}\n  - {id: b, action: {name: nowhere}, when: x == 1}", "wrong-type unknown-action"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, _, diags := Source("x.yaml", []byte("name: x\nsteps:\n  - "+tt.step+"\n"), Options{})
			var got []string
			for _, d := range diags {
				got = append(got, d.Rule)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, want %s", diags, tt.want)
			}
		})
	}
}

// TestAboveWhatCannotBeRead: the part above a syntax error is checked, and nothing is
// reported as missing that may be below it.
func TestAboveWhatCannotBeRead(t *testing.T) {
	const above = "steps:\n  - {id: a, colour: red, transform: {expression: 1 + 'a'}}\n" +
		"  - {id: b, dependsOn: [d], transform: {expression: later + steps.c.output}}\n"
	for _, tt := range []struct{ name, below, want string }{
		{"in a step", "  - id: c\n    action: {name: nowhere}\n    when: [oops\n  - id: d\n", "unknown-field type syntax"},
		{"at its beginning", "  - [oops\nname: x\n", "unknown-field type syntax"},
		{"below the steps", "outputs: {x: 'a\nname: x\n", "unknown-field syntax type"},
		{"above other steps", "  - id: c\n     when: x\n    wait: {}\n  - {id: z, action: {name: nowhere}, when: 1 + 'a'}\noutputs: {x: 1 + 'a'}\n",
			"unknown-field type syntax unknown-action type type"},
		{"in a bracket above other steps", "  - id: c\n    when: [oops\n  - id: d\n    wait: {}\n  - id: e\n    action: {name: nowhere}\n", "unknown-field type syntax unknown-action"},
		{"twice", "  - id: c\n     when: x\n    wait: {}\n  - {id: d, action: {name: nowhere}}\n  - id: e\n     when: x\n    wait: {}\n", "unknown-field type syntax"},
		{"by an indentation", "  - id: c\n     when: x\n    wait: {}\n", "unknown-field type syntax"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _, _, diags := Source("x.yaml", []byte(above+tt.below), Options{})
			var got []string
			for _, d := range diags {
				got = append(got, d.Rule)
			}
			slices.Sort(got)
			want := strings.Fields(tt.want)
			slices.Sort(want)
			if p != nil || !slices.Equal(got, want) {
				t.Errorf("got %v, want %s", diags, tt.want)
			}
		})
	}
}

// TestX3_Deprecated: a deprecated recipe compiles with a warning (R36).
func TestX3_Deprecated(t *testing.T) {
	p, _, _, diags := Source("old.yaml", []byte("name: old\nstatus: deprecated\nsteps: [{id: a, transform: {expression: '1'}}]\n"), Options{})
	if p == nil || len(diags) != 1 || diags[0].Rule != "deprecated" || diags[0].Pos.Line != 2 {
		t.Errorf("plan %v, diagnostics %v", p != nil, diags)
	}
}

// TestCircles: of the cycles of a step the shortest is reported, and of a long cycle only
// the beginning.
func TestCircles(t *testing.T) {
	ring := func(n int, more ...string) string {
		var b strings.Builder
		b.WriteString("name: ring\norder: none\nlimits: {max_total_steps: 100000}\nsteps:\n")
		for i := range n {
			waits := []string{fmt.Sprintf("s%d", (i+1)%n)}
			if i == n/2 {
				waits = append(waits, more...)
			}
			fmt.Fprintf(&b, "  - {id: s%d, dependsOn: [%s], transform: {expression: '1'}}\n", i, strings.Join(waits, ", "))
		}
		return b.String()
	}
	for _, tt := range []struct{ name, src, want string }{
		{"two", ring(2), `step "s0" waits for "s1", which waits for "s0"`},
		{"a chord", ring(40, "s19"), `step "s19" waits for "s20", which waits for "s19"`},
		{"a longer chord", ring(40, "s10", "s18"), `step "s18" waits for "s19", which waits for "s20", which waits for "s18"`},
		{"ten thousand", ring(10_000), `"s7", which waits for 9992 more steps, the last of which waits for "s0"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, _, diags := Source("ring.yaml", []byte(tt.src), Options{})
			told := ""
			for _, d := range diags {
				if d.Rule == "cycle" {
					told += d.Msg + "\n"
				}
			}
			if !strings.Contains(told, tt.want) || len(told) > 4_000 || len(fmt.Sprint(diags)) > 100_000 {
				t.Errorf("%d bytes: %.600s, want %s", len(told), told, tt.want)
			}
		})
	}
}
