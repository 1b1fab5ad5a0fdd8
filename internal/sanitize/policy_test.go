// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

func TestX171_R26_Policies(t *testing.T) {
	input := func() map[string]any {
		return map[string]any{
			"plain": "costs $5 (net) {x}", "n": int64(1),
			"shell": "a ${HOME} b ${x} c", "ticks": "a `id` b", "deep": map[string]any{"list": []any{"ok", "x$(id)y", "two\n$(a\nb)lines"}},
		}
	}
	kept, err := Policy("").Apply(input())
	if err != nil || !reflect.DeepEqual(kept.Input, input()) || kept.Count != 0 {
		t.Errorf("by default: %+v, %v", kept, err)
	}
	given := input()
	got, err := Strip.Apply(given)
	want := map[string]any{
		"plain": "costs $5 (net) {x}", "n": int64(1),
		"shell": "a  c", "ticks": "a  b", "deep": map[string]any{"list": []any{"ok", "xy", "two\nlines"}},
	}
	if err != nil || !reflect.DeepEqual(got.Input, want) {
		t.Errorf("strip: %v, %v", got.Input, err)
	}
	if changed := []string{"/deep/list/1", "/deep/list/2", "/shell", "/ticks"}; !reflect.DeepEqual(got.Changed, changed) || got.Count != 4 {
		t.Errorf("it says that it changed %v, %d", got.Changed, got.Count)
	}
	if !reflect.DeepEqual(given, input()) {
		t.Errorf("what was given has changed: %v", given)
	}
	_, err = Reject.Apply(input())
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != fault.InputInvalid || len(e.Diags) != 4 {
		t.Fatalf("reject: %v", err)
	}
	for i, at := range []string{"/deep/list/1", "/deep/list/2", "/shell", "/ticks"} {
		if msg := e.Diags[i].Msg; !strings.HasPrefix(msg, "input"+at+": ") || strings.Contains(msg, "id)") || strings.Contains(msg, "HOME") {
			t.Errorf("%s: %s", at, msg)
		}
	}
}

// Names are not changed: two could become the same one.
func TestX171_NamesAreRefused(t *testing.T) {
	for _, p := range []Policy{Reject, Strip} {
		_, err := p.Apply(map[string]any{"a": map[string]any{"x`id`": int64(1)}})
		if fault.CodeOf(err) != fault.InputInvalid || !strings.Contains(fault.Message(err), "name") {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// What is in a file cannot be looked at.
func TestX171_LargeValuesAreRefused(t *testing.T) {
	if _, err := Strip.Apply(map[string]any{"a": jsonx.Large{Size: 3}}); fault.CodeOf(err) != fault.InputInvalid {
		t.Error(err)
	}
}

func TestX171_TheStricterPolicyApplies(t *testing.T) {
	for _, tt := range []struct{ a, b, want Policy }{
		{"", "", ""}, {Keep, "", ""}, {Keep, Strip, Strip}, {Strip, "", Strip}, {Strip, Reject, Reject}, {Reject, Keep, Reject},
	} {
		if got := tt.a.With(tt.b); got != tt.want {
			t.Errorf("%q with %q is %q, want %q", tt.a, tt.b, got, tt.want)
		}
	}
}

// Nothing is left of what is stripped, also where removing one thing makes another, and stripping is idempotent.
func TestX171_NothingIsLeft(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	stripped, refused := 0, 0
	for range 8_000 {
		var b strings.Builder
		for range dice.IntN(24) {
			b.WriteString([]string{"$", "{", "}", "`", "(", ")", "a", "\n", "${", "$("}[dice.IntN(10)])
		}
		got, err := Strip.Apply(map[string]any{"x": b.String()})
		if err != nil {
			refused++
			continue
		}
		text := got.Input["x"].(string)
		if found(text) {
			t.Fatalf("%q becomes %q", b.String(), text)
		}
		if got.Count == 0 && text != b.String() {
			t.Fatalf("%q becomes %q, and it does not say so", b.String(), text)
		}
		if again, err := Strip.Apply(got.Input); err != nil || again.Count != 0 {
			t.Fatalf("%q is stripped again: %+v, %v", text, again, err)
		}
		stripped += got.Count
	}
	if stripped < 500 || refused > 0 {
		t.Errorf("%d texts were stripped and %d refused", stripped, refused)
	}
}

// A text that would be stripped again and again is refused after a bounded number of rounds (A11).
func TestX171_A11_RoundsAreBounded(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("$", n) + strings.Repeat("(\n)", n) } // a round removes one pair
	if got, err := Strip.Apply(map[string]any{"x": nested(maxRounds)}); err != nil || got.Input["x"] != "" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, n := range []int{maxRounds + 1, 50_000} {
		if _, err := Strip.Apply(map[string]any{"x": nested(n)}); !strings.Contains(fault.Message(err), "leaves more of it") {
			t.Errorf("%d rounds: %v", n, err)
		}
	}
}

// What is found is what the expressions of the rule find.
func TestX171_FoundIsWhatIsRemoved(t *testing.T) {
	marks := []string{"$", "{", "}", "(", ")", "`", "a", "\n"}
	for n := range 8 * 8 * 8 * 8 * 8 {
		text := ""
		for k := n; k > 0; k /= len(marks) {
			text += marks[k%len(marks)]
		}
		want := false
		for _, e := range expansions {
			want = want || e.MatchString(text)
		}
		if found(text) != want {
			t.Errorf("found(%q) = %v", text, !want)
		}
	}
}
