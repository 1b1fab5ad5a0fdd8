// SPDX-License-Identifier: Apache-2.0

package texts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// TestDashedIDs: an id with dashes is a name in the code of a template, and nowhere else.
func TestDashedIDs(t *testing.T) {
	d := dashes{ids: map[string]bool{"fetch-page": true, "a-b": true, "a-b-c": true}, src: &form.Source{}, is: indexed}
	w := &Rewriter{Code: d.code, Templates: true, Source: d.src}
	for _, row := range []struct{ text, want string }{
		{"{{ fetch-page.output }}", "{{ steps['fetch-page'].output }}"},
		{"{{fetch-page}}{{-fetch-page-}} {{- fetch-page -}}", "{{steps['fetch-page']}}{{-steps['fetch-page']-}} {{- steps['fetch-page'] -}}"},
		{"{{ steps.fetch-page.result.x }}", "{{ steps['fetch-page'].result.x }}"},
		{"{% for x in fetch-page.output %}{{ x }}{% endfor %}", "{% for x in steps['fetch-page'].output %}{{ x }}{% endfor %}"},
		{"ä {{ fetch-page.output + 'fetch-page' + \"a-b\" }} ö {{ a-b.output }}", "ä {{ steps['fetch-page'].output + 'fetch-page' + \"a-b\" }} ö {{ steps['a-b'].output }}"},
		{"{{ a-b-c.output - a-b.output }}", "{{ steps['a-b-c'].output - steps['a-b'].output }}"},
		{"fetch-page {# fetch-page #} { fetch-page } {{ 'it\\'s fetch-page' }}", ""},
		{"{{ a-b-d.output }} {{ x.a-b }} {{ input.fetch-page }} {{ my-fetch-page.output }} {{ fetch-pages }} {{ a - b }}", ""},
		{"{{ fetch-page.output", ""},
		{"{{ 'open fetch-page }}", ""},
		{"", ""},
	} {
		want := row.want
		if want == "" {
			want = row.text
		}
		if got := message(w, row.text); got != want {
			t.Errorf("%q: %q, want %q", row.text, got, want)
		}
	}
}

// message returns a template as it is after w has rewritten the recipe that has it.
func message(w *Rewriter, text string) string {
	fail := &recipe.Fail{Message: text}
	w.Recipe(&recipe.Recipe{Steps: []*recipe.Step{{Fail: fail}}})
	return fail.Message
}

// BenchmarkDashedIDs: the time of each id does not grow with the text.
func BenchmarkDashedIDs(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		d := dashes{ids: map[string]bool{"a-b": true}, is: indexed}
		w := &Rewriter{Code: d.code, Templates: true}
		text := strings.Repeat("{{ a-b.output }} ", n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				message(w, text)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/id")
		})
	}
}
