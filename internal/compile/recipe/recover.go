// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"bytes"

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// maxDropped is how many steps, up from the place at which a text cannot be read, are
// left out in turn: the cause may stand above the place.
const maxDropped = 3

// parseWithoutStep builds the tree of a YAML text without the step that cannot be read: its
// lines are left empty, so that all others stand where they stood. It is nil where the
// place is in no step, or something else cannot be read either.
func parseWithoutStep(src []byte, problems []*jsonx.Error, lim jsonx.Limits) *jsonx.Node {
	if len(problems) != 1 || problems[0].Rule != jsonx.RuleSyntax {
		return nil
	}
	lines := bytes.SplitAfter(src, []byte("\n"))
	indent := stepIndent(lines)
	if indent < 0 {
		return nil
	}
	outside := func(line []byte) bool {
		text := bytes.TrimLeft(line, " ")
		return len(bytes.TrimSpace(text)) > 0 && len(line)-len(text) <= indent
	}
	begin := min(int(problems[0].Pos.Line), len(lines)) - 1
	end := begin + 1
	for end < len(lines) && !outside(lines[end]) {
		end++
	}
	for range maxDropped {
		for begin >= 0 && !outside(lines[begin]) {
			begin--
		}
		if begin < 0 || !isItem(lines[begin], indent) {
			return nil
		}
		for i := begin; i < end; i++ {
			lines[i] = []byte("\n")
		}
		if tree, _ := yamlx.Parse(bytes.Join(lines, nil), lim); tree != nil {
			return tree
		}
		begin--
	}
	return nil
}

// stepIndent is how far the steps of a recipe are indented; -1 when that cannot be told.
func stepIndent(lines [][]byte) int {
	found := false
	for _, line := range lines {
		text := bytes.TrimSpace(line)
		if found && len(text) > 0 && text[0] != '#' {
			if indent := len(line) - len(bytes.TrimLeft(line, " ")); isItem(line, indent) {
				return indent
			}
			return -1
		}
		found = found || bytes.Equal(text, []byte("steps:"))
	}
	return -1
}

// isItem says that a line begins an entry of a list that is indented so far.
func isItem(line []byte, indent int) bool {
	return len(line) > indent && len(bytes.TrimLeft(line[:indent], " ")) == 0 && bytes.HasPrefix(line[indent:], []byte("- "))
}

// maxTruncated bounds how many lines above the place at which a text cannot be read
// are tried as its end.
const maxTruncated = 50

// parsePrefix builds the tree of what stands above the place at which a YAML text
// cannot be read, without the step that was begun last; nil where nothing can be.
func parsePrefix(src []byte, problems []*jsonx.Error, lim jsonx.Limits) *jsonx.Node {
	if len(problems) != 1 || problems[0].Rule != jsonx.RuleSyntax {
		return nil
	}
	lines := bytes.SplitAfterN(src, []byte("\n"), int(problems[0].Pos.Line)+1)
	for n := len(lines) - 1; n > max(0, len(lines)-1-maxTruncated); n-- {
		tree, _ := yamlx.Parse(bytes.Join(lines[:n], nil), lim)
		if tree == nil {
			continue
		}
		steps := tree.Child("steps")
		if w := tree.Child("plan_definition"); w != nil {
			steps = w.Child("steps")
		}
		if steps == nil || len(steps.Children) < 2 {
			return nil
		}
		steps.Children = steps.Children[:len(steps.Children)-1]
		return tree
	}
	return nil
}
