// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/layout"
	"github.com/roux-engine/roux/internal/plan"
)

// TestGoldenPictures: a recipe with every kind of step, in every form; the
// picture with the edges of data; and the one that leads right.
func TestGoldenPictures(t *testing.T) {
	p := compiled(t, "kinds")
	for ending, got := range all(t, FromPlan(p, "kinds", false), Options{}) {
		golden(t, "kinds"+ending, got)
	}
	right, err := FromPlan(p, "kinds", true).SVG(Options{Direction: layout.Right})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "kinds-right-bindings.svg", right)
	for ending, got := range all(t, FromPlan(compiled(t, "hostile"), "hostile", false), Options{}) {
		golden(t, "hostile"+ending, got)
	}
}

// TestA31_NothingBreaksOut: for any recipe, the SVG is well-formed and has no
// script, address or attribute from the recipe, and no form has control
// characters or changes the reading direction.
func TestA31_NothingBreaksOut(t *testing.T) {
	p := compiled(t, "hostile")
	pic := FromPlan(p, "</title><script>alert(1)</script>\x1b[31m\u202e\xff", true)
	pic.Note = "]]> <b> \x00"
	for ending, text := range all(t, pic, Options{}) {
		for _, r := range text {
			if unicode.IsControl(r) && r != '\n' || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar {
				t.Errorf("%s holds %U", ending, r)
			}
		}
		if ending == ".svg" {
			elements(t, text)
			continue
		}
		if ending == ".mmd" && strings.Contains(text, "<script") {
			t.Errorf("a script in %s:\n%s", ending, text)
		}
	}
	if dot := pic.DOT(Options{}); strings.Count(strings.ReplaceAll(strings.ReplaceAll(dot, `\\`, ""), `\"`, ""), `"`)%2 != 0 {
		t.Errorf("quotes in DOT do not pair:\n%s", dot)
	}
}

// elements parses an SVG and checks that it has only the few elements that we
// write.
func elements(t *testing.T, svg string) map[string]int {
	t.Helper()
	ours := []string{"svg", "title", "desc", "style", "rect", "g", "text", "tspan", "path"}
	count := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, svg)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		count[start.Name.Local]++
		if !slices.Contains(ours, start.Name.Local) {
			t.Errorf("an element %s", start.Name.Local)
		}
		for _, a := range start.Attr {
			if strings.HasPrefix(a.Name.Local, "on") || strings.Contains(a.Name.Local, "href") || strings.Contains(a.Value, "url(") {
				t.Errorf("an attribute %s=%q", a.Name.Local, a.Value)
			}
		}
	}
}

// TestEveryStepIsNamed: for screen readers, the picture has a title and a
// description, and so do every step and every edge.
func TestEveryStepIsNamed(t *testing.T) {
	pic := FromPlan(compiled(t, "kinds"), "kinds", false)
	svg, err := pic.SVG(Options{})
	if err != nil {
		t.Fatal(err)
	}
	count := elements(t, svg)
	if want := 1 + len(pic.Nodes) + len(pic.Edges); count["title"] != want {
		t.Errorf("%d titles, want %d", count["title"], want)
	}
	if want := 1 + len(pic.Nodes); count["desc"] != want {
		t.Errorf("%d descriptions, want %d", count["desc"], want)
	}
	if !strings.Contains(svg, "prefers-color-scheme:dark") || !strings.Contains(svg, "system-ui") {
		t.Error("the sheet has no dark theme or no system font")
	}
}

// TestTextFitsItsWidth: no line of the text form exceeds the width; a picture
// that does not fit becomes a list.
func TestTextFitsItsWidth(t *testing.T) {
	for _, name := range []string{"kinds", "hostile"} {
		pic := FromPlan(compiled(t, name), name, false)
		for _, dir := range []layout.Direction{layout.Down, layout.Right} {
			for _, width := range []int{40, 60, 80, 120} {
				text, err := pic.Text(Options{Width: width, Direction: dir})
				if err != nil {
					t.Fatal(err)
				}
				for l := range strings.Lines(text) {
					if n := columns(strings.TrimSuffix(l, "\n")); n > width {
						t.Errorf("%s at %d: %d columns: %s", name, width, n, l)
					}
				}
			}
		}
	}
	list, err := FromPlan(compiled(t, "kinds"), "kinds", false).Text(Options{Width: 40})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "kinds-40.txt", list)
}

// TestDataEdges: with bindings, there is an edge from each output to its
// readers, unless an edge of order exists already.
func TestDataEdges(t *testing.T) {
	pic := FromPlan(compiled(t, "kinds"), "kinds", true)
	got := map[string]string{}
	for _, e := range pic.Edges {
		if e.Label != "" && e.Kind != Opens {
			got[e.From+" > "+e.To] = string(e.Kind) + " " + e.Label
		}
	}
	want := map[string]string{
		"fetch > size":                     "follows pages",
		"fetch > size.then.too-many":       "reads pages",
		"fetch > size.else.count":          "reads pages",
		"size.else.count > size.else.note": "follows count",
		"fetch > each":                     "reads pages",
		"fetch > publish":                  "reads pages",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestElseOfEveryCondition: from a condition without else, an edge leads to the
// next step. Where there is none, the card says that the run continues.
func TestElseOfEveryCondition(t *testing.T) {
	pic := FromPlan(compiledText(t, "sides", []byte(`name: sides
steps:
  - id: between
    condition: {expression: 'true', then: [{id: last-of-side, condition: {expression: 'true', then: [{id: a, transform: {expression: '1'}}]}}]}
  - id: both
    condition: {expression: 'true', then: [{id: b, transform: {expression: '1'}}], else: [{id: c, transform: {expression: '1'}}]}
  - id: last
    when: 'true'
    continue_on_error: true
    condition: {expression: 'true', then: [{id: d, transform: {expression: '1'}}]}
`)), "sides", false)
	drawn := map[string]bool{}
	for _, e := range pic.Edges {
		if e.Kind == Passes {
			drawn[e.From] = true
		}
	}
	for i := range pic.Nodes {
		n := &pic.Nodes[i]
		if n.Kind != "condition" {
			continue
		}
		edge, said := n.ID == "between", n.ID == "last" || n.ID == "between.then.last-of-side"
		if got := slices.Contains(pic.cardLines(n), "else: goes on"); drawn[n.ID] != edge || got != said {
			t.Errorf("%s: an else edge: %v, said on the card: %v; want %v, %v", n.ID, drawn[n.ID], got, edge, said)
		}
	}
}

// TestImpliedEdges: a step after b, which is after a, has no edge from a; edges
// that only look implied stay.
func TestImpliedEdges(t *testing.T) {
	step := func(wave int32, preds ...int32) plan.Step { return plan.Step{Wave: wave, Preds: preds} }
	p := &plan.Plan{Steps: []plan.Step{step(0), step(1, 0), step(2, 0, 1), step(0), step(3, 0, 2, 3)}}
	for i, want := range [][]int32{nil, {0}, {1}, nil, {2, 3}} {
		if got := directPreds(p, int32(i)); !slices.Equal(got, want) {
			t.Errorf("step %d comes directly after %v, want %v", i, got, want)
		}
	}
}

// TestFit: a text is cut to its width, never within a character, and only when
// it must be.
func TestFit(t *testing.T) {
	for _, tt := range []struct {
		text string
		room int
		want string
	}{
		{"short", 10, "short"}, {"exactly", 7, "exactly"}, {"too long for it", 8, "too lon…"},
		{"日本語", 6, "日本語"}, {"日本語の", 6, "日本…"}, {"", 3, ""}, {"cut at space", 5, "cut…"},
	} {
		if got := fitColumns(tt.text, tt.room); got != tt.want {
			t.Errorf("fitColumns(%q, %d) = %q, want %q", tt.text, tt.room, got, tt.want)
		}
	}
	for _, s := range []string{"WWWWWWWWWWWWWWWWWWWWWWWW", "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii", "日本語日本語日本語日本語"} {
		if got := pixels(fit(s, 13, 100), 13); got > 100 || got < 80 {
			t.Errorf("%s is cut to %d of 100 pixels", s, got)
		}
	}
	for _, tt := range []struct {
		text string
		rows int
	}{{"short", 1}, {"", 1}, {`has(facts.extended.pageCount) && facts.extended.pageCount > 500`, 2}, {strings.Repeat("W", 90), 2}, {strings.Repeat("日", 90), 2}} {
		rows := wrap(tt.text, 12, 176)
		if len(rows) != tt.rows {
			t.Errorf("%q takes %d rows, want %d", tt.text, len(rows), tt.rows)
		}
		for _, row := range rows {
			if pixels(row, 12) > 176 {
				t.Errorf("the row %q is %d wide", row, pixels(row, 12))
			}
		}
	}
}

// TestNotationsHoldTogether: in Mermaid and DOT, every name that an edge, a
// style or a class uses is declared once, and every group that is opened is
// closed.
func TestNotationsHoldTogether(t *testing.T) {
	kinds := FromPlan(compiled(t, "kinds"), "kinds", true)
	p, frames := story(t, "everything")
	run, err := until(t, p, frames, 0, false).Picture("everything", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, pic := range []*Picture{kinds, run} {
		mermaid, dot := pic.Mermaid(Options{}), pic.DOT(Options{})
		declared := map[string]int{}
		for _, m := range regexp.MustCompile(`(?m)^ *(?:subgraph )?([ng]\d+)(?:\[|\(|\{)`).FindAllStringSubmatch(mermaid, -1) {
			declared[m[1]]++
		}
		for _, m := range regexp.MustCompile(`(?m)^  ([ng]\d+) (?:-->|==>|-\.->)(?:\|"[^"]*"\|)? ([ng]\d+)$|^  style (g\d+) `).FindAllStringSubmatch(mermaid, -1) {
			for _, name := range m[1:] {
				if name != "" && declared[name] != 1 {
					t.Errorf("mermaid: %s is declared %d times", name, declared[name])
				}
			}
		}
		if want := len(pic.Nodes) + len(pic.Groups); len(declared) != want {
			t.Errorf("mermaid declares %d names, want %d", len(declared), want)
		}
		if opens, ends := strings.Count(mermaid, "subgraph "), len(regexp.MustCompile(`(?m)^ *end$`).FindAllString(mermaid, -1)); opens != ends {
			t.Errorf("mermaid: %d subgraphs, %d ends", opens, ends)
		}
		edges := regexp.MustCompile(`(?m)^  (\w+) -> (\w+)`).FindAllStringSubmatch(dot, -1)
		if len(edges) != len(pic.Edges) {
			t.Errorf("dot: %d edges, want %d", len(edges), len(pic.Edges))
		}
		for _, m := range edges {
			for _, name := range m[1:] {
				if strings.Count(dot, " "+name+" [label=") != 1 {
					t.Errorf("dot: %s is not declared once", name)
				}
			}
		}
		for _, m := range regexp.MustCompile(`l(?:head|tail)=(cluster_g\d+)`).FindAllStringSubmatch(dot, -1) {
			if !strings.Contains(dot, "subgraph "+m[1]+" {") {
				t.Errorf("dot: there is no %s", m[1])
			}
		}
	}
}

var calls = regexp.MustCompile(`action: \{name: ["']?([\w-]+)`)

// Every recipe that compiles can be drawn: 64 levels, with a compensation in
// the last.
func TestDeepestRecipe(t *testing.T) {
	const deepest = 64
	indent := "  "
	var text strings.Builder
	fmt.Fprintf(&text, "name: deep\nlimits: {max_scope_depth: %d}\nsteps:\n", deepest)
	for i := range deepest {
		fmt.Fprintf(&text, "%[1]s- id: c%[2]d\n%[1]s  condition:\n%[1]s    expression: parameters.go\n%[1]s    then:\n", indent, i)
		indent += "      "
	}
	fmt.Fprintf(&text, "%[1]s- id: leaf\n%[1]s  action: {name: work}\n%[1]s  compensate: {action: {name: undo}}\n", indent)
	p := compiledText(t, "deep", []byte(text.String()))
	for _, width := range []int{0, 2_000} {
		for form, out := range all(t, FromPlan(p, "deep", true), Options{Width: width}) {
			if form != ".txt" && !strings.Contains(out, "leaf") || form == ".txt" && width > 0 && !strings.Contains(out, "leaf") {
				t.Errorf("%s of width %d lacks the innermost step", form, width)
			}
		}
	}
}

// TestRecipesOfTheHouse draws every recipe of the compiler's and the machine's
// tests in every form: none is refused, every SVG is well-formed, and cards do
// not overlap and are inside their groups.
func TestRecipesOfTheHouse(t *testing.T) {
	var texts []string
	for _, pattern := range []string{"../compile/testdata/*.txt", "../machine/testdata/*.txt"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, _, _ := strings.Cut(string(data), "\n====")
			text, _, _ = strings.Cut(text, "\n----")
			texts = append(texts, text+"\n")
		}
	}
	drawn := 0
	for _, text := range texts {
		var decls []*action.Action
		known := map[string]bool{}
		for _, m := range calls.FindAllStringSubmatch(text, -1) {
			if !known[m[1]] {
				known[m[1]] = true
				decls = append(decls, &action.Action{Name: m[1], Version: "1.0.0"})
			}
		}
		p, _, _, _ := compile.Source("recipe.yaml", []byte(text), compile.Options{Actions: catalogue.New(decls...)})
		if p == nil {
			continue
		}
		drawn++
		pic := FromPlan(p, "recipe", true)
		for _, dir := range []layout.Direction{layout.Down, layout.Right} {
			elements(t, all(t, pic, Options{Direction: dir})[".svg"])
			v, err := pic.View(Options{Direction: dir})
			if err != nil {
				t.Fatal(err)
			}
			apart(t, v, text)
		}
	}
	if drawn < 60 {
		t.Errorf("%d recipes were drawn, want at least 60", drawn)
	}
}

func apart(t *testing.T, v *View, text string) {
	t.Helper()
	groups := map[string]layout.Box{"": {W: v.Width, H: v.Height}}
	for _, g := range v.Groups {
		groups[g.ID] = g.Box
	}
	for i, n := range v.Nodes {
		g := groups[n.Group]
		if n.X < g.X || n.Y < g.Y || n.X+n.W > g.X+g.W || n.Y+n.H > g.Y+g.H {
			t.Errorf("%v lies outside %v of\n%s", n.Box, g, text)
		}
		for _, m := range v.Nodes[i+1:] {
			if n.X < m.X+m.W && m.X < n.X+n.W && n.Y < m.Y+m.H && m.Y < n.Y+n.H {
				t.Errorf("%v overlaps %v of\n%s", n.Box, m.Box, text)
			}
		}
	}
}

// lanes is a recipe of n lanes of five steps between a first and a last step.
// The lanes in other call another action; a loop comes before the last step.
func lanes(n int, other map[int]bool) string {
	var b strings.Builder
	b.WriteString("name: lanes\norder: none\nsteps:\n  - {id: begin, transform: {expression: '1'}}\n")
	var ends []string
	for l := range n {
		last, action := "begin", "work"
		if other[l] {
			action = "undo"
		}
		for k := range 5 {
			id := fmt.Sprintf("lane%d-%d", l, k)
			fmt.Fprintf(&b, "  - {id: %s, dependsOn: [%s], action: {name: %s}}\n", id, last, action)
			last = id
		}
		ends = append(ends, last)
	}
	fmt.Fprintf(&b, "  - {id: each, dependsOn: [%s], loop: {over: '[1]', steps: [{id: in, transform: {expression: '1'}}]}}\n", strings.Join(ends, ", "))
	b.WriteString("  - {id: end, dependsOn: [each], transform: {expression: '2'}}\n")
	return b.String()
}

// TestOverview: in the overview of a large plan, equal lanes are one card,
// chains are one card, and owned graphs are part of their step's card; nothing
// is lost.
func TestOverview(t *testing.T) {
	p := compiledText(t, "lanes", []byte(lanes(60, map[int]bool{7: true, 9: true})))
	pic := FromPlan(p, "lanes", false).Overview()
	var got []string
	for _, n := range pic.Nodes {
		got = append(got, n.Label+"|"+n.Lines[0])
	}
	want := []string{"begin|1", "lane0-0 … lane0-4 ×58|290, in 58 lanes", "lane7-0 … lane7-4 ×2|10, in 2 lanes", "each … end|3"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(pic.Edges) != 4 || pic.Note != "overview: 304 steps on 4 cards" {
		t.Errorf("%d edges, %q", len(pic.Edges), pic.Note)
	}
	for ending, text := range all(t, pic, Options{}) {
		golden(t, "overview"+ending, text)
	}
	// For any plan, each step is on one card, and every edge has both ends.
	for _, name := range []string{"kinds", "hostile"} {
		full := FromPlan(compiled(t, name), name, true)
		small := full.Overview()
		cards := map[string]bool{}
		for _, n := range small.Nodes {
			cards[n.ID] = true
		}
		for _, e := range small.Edges {
			if !cards[e.From] || !cards[e.To] || e.From == e.To {
				t.Errorf("%s: an edge from %s to %s", name, e.From, e.To)
			}
		}
		if len(small.Nodes) == 0 || len(small.Nodes) > len(full.Nodes) {
			t.Errorf("%s: %d cards for %d steps", name, len(small.Nodes), len(full.Nodes))
		}
	}
}

// TestOtherWays: a condition without else has an edge for false, and a fallback
// has an edge to the successors of its step, which has its own edges too.
func TestOtherWays(t *testing.T) {
	p := compiledText(t, "ways", []byte(`name: ways
steps:
  - {id: check, condition: {expression: "true", then: [{id: big, transform: {expression: "1"}}]}}
  - {id: fetch, action: {name: work}, onError: {strategy: fallback, fallbackStep: {id: copy, action: {name: work}}}}
  - {id: last, transform: {expression: "1"}}
`))
	var got []string
	for _, e := range FromPlan(p, "ways", false).Edges {
		if e.Kind != Opens {
			got = append(got, fmt.Sprintf("%s %s %s", e.From, e.Kind, e.To))
		}
	}
	want := []string{"check/ follows fetch", "check passes fetch", "fetch follows last", "fetch.fallback rejoins last"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
