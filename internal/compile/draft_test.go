// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEverythingAtOnce: problems of form do not hide problems of meaning, and a
// step with a problem makes no noise elsewhere.
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

// TestWhatHasProblemsIsLookedAt: a field that is misspelt, unknown or wrong does not
// hide what else is wrong in its step, and a misspelt one is taken for what it means.
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

// TestAboveWhatCannotBeRead: what stands above the place at which a text cannot be
// read is looked at, and nothing is said to be missing that may stand below.
func TestAboveWhatCannotBeRead(t *testing.T) {
	const above = "steps:\n  - {id: a, colour: red, transform: {expression: 1 + 'a'}}\n" +
		"  - {id: b, dependsOn: [d], transform: {expression: later + steps.c.output}}\n"
	for _, tt := range []struct{ name, below, want string }{
		{"in a step", "  - id: c\n    action: {name: nowhere}\n    when: [oops\n  - id: d\n", "unknown-field type syntax"},
		{"at its beginning", "  - [oops\nname: x\n", "unknown-field type syntax"},
		{"below the steps", "outputs: {x: 'a\nname: x\n", "unknown-field syntax type"},
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

// TestX3_Deprecated: a deprecated recipe still compiles, and says so (R36).
func TestX3_Deprecated(t *testing.T) {
	p, _, _, diags := Source("old.yaml", []byte("name: old\nstatus: deprecated\nsteps: [{id: a, transform: {expression: '1'}}]\n"), Options{})
	if p == nil || len(diags) != 1 || diags[0].Rule != "deprecated" || diags[0].Pos.Line != 2 {
		t.Errorf("plan %v, diagnostics %v", p != nil, diags)
	}
}

// TestCircles: of the circles that a step is in the shortest is told, and of a long
// one only its beginning.
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
