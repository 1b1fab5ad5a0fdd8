// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Group is steps that a recipe has at several places: the same up to the names that they give.
type Group struct {
	Steps [][]*recipe.Step // at each place, in the order of the recipe
}

// maxCompared bounds the steps of a recipe that are compared.
const maxCompared = 2000

// Repeated returns the groups of at least two steps, one after the other, that a recipe has more than once. A
// step is in one group only, the longest.
func Repeated(r *recipe.Recipe) []Group {
	var lists [][]*recipe.Step
	n := 0
	collect := func(steps []*recipe.Step) {
		if n += len(steps); len(steps) > 1 && n <= maxCompared {
			lists = append(lists, steps)
		}
	}
	collect(r.Steps)
	r.Each(func(s *recipe.Step) {
		for _, inner := range s.Scopes() {
			collect(inner)
		}
		if s.Loop != nil {
			collect(s.Loop.Steps)
		}
	})
	k := &shapes{of: map[*recipe.Step]string{}, known: map[string]bool{}}
	for _, list := range lists {
		for _, s := range list {
			k.of[s] = shape(s)
		}
	}
	r.Each(func(s *recipe.Step) {
		for _, name := range []string{s.ID, s.OutputBinding, transformBinding(s)} {
			k.known[name] = name != ""
		}
	})
	return groups(lists, k)
}

// shapes are the texts of steps, and the names of the recipe.
type shapes struct {
	of    map[*recipe.Step]string
	known map[string]bool
}

// groups finds equal sequences of shapes, the longest first.
func groups(lists [][]*recipe.Step, k *shapes) (found []Group) {
	longest := 0
	for _, list := range lists {
		longest = max(longest, len(list))
	}
	used := map[*recipe.Step]bool{}
	for n := min(longest, 20); n >= 2; n-- {
		at := map[string][][]*recipe.Step{}
		var order []string
		for _, list := range lists {
			for i := 0; i+n <= len(list); i++ {
				part := list[i : i+n]
				if slices.ContainsFunc(part, func(s *recipe.Step) bool { return s == nil || used[s] }) {
					continue
				}
				key := k.sequence(part)
				if at[key] == nil {
					order = append(order, key)
				}
				if n := len(at[key]); n > 0 && overlaps(at[key][n-1], part) {
					continue
				}
				at[key] = append(at[key], part)
			}
		}
		for _, key := range order {
			free := slices.DeleteFunc(at[key], func(part []*recipe.Step) bool {
				return slices.ContainsFunc(part, func(s *recipe.Step) bool { return used[s] })
			})
			if len(free) < 2 {
				continue
			}
			for _, part := range free {
				for _, s := range part {
					used[s] = true
				}
			}
			found = append(found, Group{free})
		}
	}
	return found
}

func overlaps(a, b []*recipe.Step) bool {
	return slices.ContainsFunc(b, func(s *recipe.Step) bool { return slices.Contains(a, s) })
}

// sequence is the shape of steps one after the other, in which the names that they give are numbered, and those
// that they read from outside as well.
func (k *shapes) sequence(part []*recipe.Step) string {
	var b strings.Builder
	names := map[string]string{}
	for i, s := range part {
		for _, name := range []string{s.ID, s.OutputBinding, transformBinding(s)} {
			if name != "" && names[name] == "" {
				names[name] = "$" + strconv.Itoa(i) + "." + strconv.Itoa(len(names))
			}
		}
	}
	for _, s := range part {
		b.WriteString(k.renamed(k.of[s], names))
		b.WriteByte('\n')
	}
	return b.String()
}

func transformBinding(s *recipe.Step) string {
	if s.Transform == nil {
		return ""
	}
	return s.Transform.OutputBinding
}

// renamed replaces the words of a text that are names.
func (k *shapes) renamed(text string, names map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		n := 0
		for i+n < len(text) && wordByte(text[i+n]) {
			n++
		}
		if n == 0 {
			b.WriteByte(text[i])
			i++
			continue
		}
		word := text[i : i+n]
		if names[word] == "" && (k.known[word] || strings.HasSuffix(text[:i], "input.")) {
			names[word] = "@" + strconv.Itoa(len(names))
		}
		if to := names[word]; to != "" {
			word = to
		}
		b.WriteString(word)
		i += n
	}
	return b.String()
}

func wordByte(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// shape is a step as text, without what is for people only.
func shape(s *recipe.Step) string {
	cut := *s
	cut.Name = ""
	raw, err := json.Marshal(&cut)
	if err != nil || len(raw) > expr.MaxTemplate {
		return s.Ptr // equal to no other
	}
	text, err := jsonx.CanonicalRaw(raw)
	if err != nil {
		return s.Ptr
	}
	return string(text)
}
