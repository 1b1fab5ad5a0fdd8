// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"bytes"
	"path"
	"regexp"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// Format writes a text in the standard form, with its fields in the order of its dialect. The text is nil
// when there are problems.
func Format(file string, src []byte, limit int) ([]byte, []fault.Diagnostic) {
	return FormatAs(file, src, limit, Of(file, src).Form.KeyOrder())
}

// FormatAs is Format for a text whose fields have another order.
func FormatAs(file string, src []byte, limit int, order *yamlx.Order) ([]byte, []fault.Diagnostic) {
	write := yamlx.Format
	if IsJSON(file, src) {
		write = yamlx.FormatJSON
	}
	out, problems := write(src, jsonx.Limits{Bytes: limit}, order)
	var diags []fault.Diagnostic
	for _, p := range problems {
		diags = append(diags, fault.Diagnostic{
			Code: fault.RecipeInvalid, Rule: p.Rule, Msg: p.Msg, Hint: p.Hint, Pointer: p.Pointer,
			Pos: fault.Pos{File: file, Line: int(p.Pos.Line), Col: int(p.Pos.Col), Len: int(p.Pos.Len)},
		})
	}
	if diags != nil {
		return nil, diags
	}
	return out, nil
}

// IsJSON reports whether a text is JSON: by the ending of its name, else by its content.
func IsJSON(file string, src []byte) bool {
	switch path.Ext(file) {
	case ".json":
		return true
	case ".yaml", ".yml":
		return false
	}
	return bytes.HasPrefix(bytes.TrimLeft(src, " \t\r\n"), []byte("{")) && jsonx.Valid(src, jsonx.Limits{Bytes: len(src) + 1}) == nil
}

// Tell returns the dialect of a document, as Parse reads it. ok is false when nothing in the document says
// that it is a recipe.
func Tell(doc *jsonx.Node) (l *Dialect, ok bool) {
	name, by := tell(form.Unwrapped(doc))
	if l = named(name); l == nil {
		l = recipes
	}
	return l, by != nil || form.Unwrapped(doc) != doc
}

// marked matches a field that only recipes have at their top: at the beginning of a line, or in braces.
var marked = regexp.MustCompile(`(?m)(?:^|^\{(?s:.*)["{, \n])(?:steps|nodes|edges|workflow|plan_definition|dialect)["']?[ \t]*:`)

// Seems reports whether a text that cannot be read seems to be a recipe.
func Seems(src []byte) bool { return marked.Match(src) }
