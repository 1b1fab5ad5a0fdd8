// SPDX-License-Identifier: Apache-2.0

package form

import (
	"bytes"
	"slices"

	"github.com/roux-engine/roux/internal/jsonx"
)

// maxDropped is how many steps are dropped at most: first the one with the syntax error,
// then also those above it, because the cause may be above the position of the error.
const maxDropped = 3

// parseWithoutStep parses a YAML text without the step that has a syntax error. It
// replaces the lines of the step by empty ones, so that all others keep their positions.
// It returns nil when the error is not in a step, or when the rest has an error too.
func (opt Options) parseWithoutStep(src []byte, problems []*jsonx.Error, lim jsonx.Limits) *jsonx.Node {
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
		if tree, _ := opt.YAML(bytes.Join(lines, nil), lim); tree != nil {
			return tree
		}
		begin--
	}
	return nil
}

// stepLists are the names of the list that has what a text runs.
var stepLists = []string{"steps", "nodes"}

// stepIndent returns the indentation of the steps of a text, or -1 if it is unclear.
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
		name, isKey := bytes.CutSuffix(text, []byte(":"))
		found = found || isKey && slices.Contains(stepLists, string(name))
	}
	return -1
}

// isItem reports whether a line begins an item of a list with that indentation.
func isItem(line []byte, indent int) bool {
	return len(line) > indent && len(bytes.TrimLeft(line[:indent], " ")) == 0 && bytes.HasPrefix(line[indent:], []byte("- "))
}

// maxTruncated bounds how many lines above a syntax error are tried as the end of the
// text.
const maxTruncated = 50

// parsePrefix parses the part of a YAML text above a syntax error. It leaves out the last
// step of that part, which may be incomplete. It returns nil when no such part can be parsed.
func (opt Options) parsePrefix(src []byte, problems []*jsonx.Error, lim jsonx.Limits) *jsonx.Node {
	if len(problems) != 1 || problems[0].Rule != jsonx.RuleSyntax {
		return nil
	}
	lines := bytes.SplitAfterN(src, []byte("\n"), int(problems[0].Pos.Line)+1)
	for n := len(lines) - 1; n > max(0, len(lines)-1-maxTruncated); n-- {
		tree, _ := opt.YAML(bytes.Join(lines[:n], nil), lim)
		if tree == nil {
			continue
		}
		steps := stepsOf(tree)
		if steps == nil || len(steps.Children) < 2 {
			return nil
		}
		steps.Children = steps.Children[:len(steps.Children)-1]
		return tree
	}
	return nil
}

// stepsOf finds the list of steps of a tree, which may be in an object; nil = there is none.
func stepsOf(tree *jsonx.Node) *jsonx.Node {
	for _, in := range append([]*jsonx.Node{tree}, tree.Children...) {
		for _, name := range stepLists {
			if list := in.Child(name); list != nil {
				return list
			}
		}
	}
	return nil
}
