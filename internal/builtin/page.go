// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// Page returns the documentation page of an action as Markdown, from its
// declaration alone. errorsPage is where error codes are explained, such as
// "../errors.md"; "" leaves out the links. It works for any action, not only
// those of this package.
func Page(a action.Action, errorsPage string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", a.Name, a.Description)
	facts(&b, a)
	inputs := schemaRows(a.Input)
	section(&b, "Input", inputs, "Takes any object.")
	if names := exactlyOneOf(a.Input); len(names) > 0 {
		fmt.Fprintf(&b, "\nExactly one of %s is given.\n", code(names, " and "))
	}
	gives := "Gives any value."
	if a.Waits != "" {
		gives = "Gives null."
	}
	section(&b, "Output", schemaRows(a.Output), gives)
	mediaTypes(&b, a.Metadata)
	if conds := a.Metadata.BranchConditions; len(conds) > 0 {
		b.WriteString("\n## Conditions\n\nReady-made for condition steps; in a recipe the step's binding stands in place of `output`.\n\n| name | expression | true when |\n| --- | --- | --- |\n")
		for _, c := range conds {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", c.Name, codeCell(c.Expression), cellText(c.Description))
		}
	}
	if len(a.Limits) > 0 {
		b.WriteString("\n## Limits\n\n")
		for _, l := range a.Limits {
			fmt.Fprintf(&b, "- %s\n", l)
		}
	}
	if len(a.Faults) > 0 {
		b.WriteString("\n## Errors\n\nBeside those that any step may end with, such as a timeout or an input that does not fit the table above.\n\n| code | means | what to do |\n| --- | --- | --- |\n")
		for _, f := range a.Faults {
			row, _ := fault.Lookup(f)
			name := "`" + string(f) + "`"
			if errorsPage != "" && row.Code == f {
				name = fmt.Sprintf("[%s](%s#%s)", name, errorsPage, strings.ToLower(string(f)))
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", name, cellText(cmp.Or(row.Meaning, "A code of the service behind it.")), cellText(row.Remedy))
		}
	}
	if len(a.Examples) > 0 {
		b.WriteString("\n## Examples\n")
		for _, ex := range a.Examples {
			fmt.Fprintf(&b, "\n%s\n\n```yaml\n%s```\n", ex.Title, Snippet(a, ex))
		}
	}
	return b.String()
}

// facts writes the facts of one line each.
func facts(b *strings.Builder, a action.Action) {
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(b, "| %s | %s |\n", name, text)
		}
	}
	b.WriteString("| | |\n| --- | --- |\n")
	line("Version", a.Version)
	line("Also called", code(a.Aliases, ", "))
	cost := fmt.Sprintf("%d credits a completed call", a.Cost)
	switch a.Cost {
	case 0:
		cost = "free"
	case 1:
		cost = "1 credit a completed call"
	}
	if a.Price != "" {
		cost = a.Price + " credits a completed call"
	}
	line("Cost", cost)
	if d := a.Metadata.DurationRange; d != nil {
		line("Takes", fmt.Sprintf("%s to %s", d.Min, d.Max))
	}
	line("Beside itself", map[bool]string{true: "may run in parallel branches and concurrent loops", false: "runs alone: not in parallel branches or concurrent loops"}[a.Metadata.MayRunInParallel()])
	line("Provider", a.Provider)
	if a.Delivery == action.AtMostOnce {
		line("After a crash", "is not attempted again (at most once)")
	}
	if a.Waits != "" {
		line("Waits", "holds no worker while it waits and survives restarts")
	}
}

func section(b *strings.Builder, title string, rows []schemaRow, none string) {
	fmt.Fprintf(b, "\n## %s\n\n", title)
	if len(rows) == 0 {
		b.WriteString(none + "\n")
		return
	}
	b.WriteString("| name | type | default | |\n| --- | --- | --- | --- |\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", r.name, r.kind, r.def, cellText(r.text))
	}
}

func mediaTypes(b *strings.Builder, meta action.Metadata) {
	if len(meta.InputTypes)+len(meta.OutputTypes) == 0 {
		return
	}
	b.WriteString("\n## Types\n\n| | name | MIME types | |\n| --- | --- | --- | --- |\n")
	for _, side := range []struct {
		what string
		defs []action.TypeDefinition
	}{{"takes", meta.InputTypes}, {"gives", meta.OutputTypes}} {
		for _, d := range side.defs {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", side.what, d.Name, code(d.MimeTypes, " "), cellText(d.Description))
		}
	}
}

// Snippet returns a recipe of one step that runs an example. A file input whose
// value in the example is "file" is not a parameter: it gets a file of the run.
func Snippet(a action.Action, ex action.Example) string {
	var input map[string]any
	v, err := jsonx.Decode(ex.Input, jsonx.Limits{})
	if input, _ = v.(map[string]any); err != nil || input == nil {
		return ""
	}
	params := make(map[string]any, len(input))
	for name, v := range input {
		params[name] = v
	}
	files := slices.DeleteFunc(jsonschema.FileFields(a.Input), func(f string) bool { return input[f] != "file" })
	for _, f := range files {
		delete(params, f)
	}
	head := "name: " + a.Name + "-example\n"
	if len(files) > 0 {
		head = "# roux run example.yaml --file FILE\n" + head
	}
	call := map[string]any{"name": a.Name}
	if len(params) > 0 {
		call["parameters"] = params
	}
	step := map[string]any{"id": strings.ReplaceAll(a.Name, "-", "_"), "action": call, "outputBinding": "result"}
	if len(files) > 1 {
		bind := map[string]any{}
		for i, f := range files {
			bind[f] = fmt.Sprintf("fileHashes[%d]", i)
		}
		step["inputBindings"] = bind
	}
	body, err := jsonx.Canonical(map[string]any{"steps": []any{step}, "outputs": map[string]any{"result": "result"}})
	if err != nil {
		return ""
	}
	node, bad := jsonx.Parse(body, jsonx.Limits{})
	if bad != nil {
		return ""
	}
	orderSnippet(node)
	return head + string(yamlx.Encode(node))
}

// orderSnippet sorts the fields of a recipe into their usual order.
func orderSnippet(n *jsonx.Node) {
	order := []string{"steps", "id", "name", "parameters", "action", "inputBindings", "outputBinding", "outputs"}
	slices.SortStableFunc(n.Children, func(a, b *jsonx.Node) int {
		return cmp.Compare(slices.Index(order, a.Key), slices.Index(order, b.Key))
	})
	for _, c := range n.Children {
		if c.Key != "parameters" && c.Key != "outputs" {
			orderSnippet(c)
		}
	}
}

// Index returns the page that lists actions.
func Index(actions []action.Action, dir string) string {
	var b strings.Builder
	b.WriteString("| action | | credits | takes |\n| --- | --- | --- | --- |\n")
	for _, a := range slices.SortedFunc(slices.Values(actions), func(a, b action.Action) int { return cmp.Compare(a.Name, b.Name) }) {
		var takes []string
		for _, d := range a.Metadata.InputTypes {
			takes = append(takes, d.MimeTypes...)
		}
		fmt.Fprintf(&b, "| [`%s`](%s/%s.md) | %s | %s | %s |\n", a.Name, dir, a.Name, cellText(a.Description), cmp.Or(a.Price, fmt.Sprint(a.Cost)), code(takes, " "))
	}
	return b.String()
}

// A schemaRow is a property in a table: its path, type, default and text.
type schemaRow struct{ name, kind, def, text string }

// A property is the part of a schema that the tables show.
type property struct {
	Type        any             `json:"type"`
	Enum        []any           `json:"enum"`
	Const       any             `json:"const"`
	Default     json.RawMessage `json:"default"`
	Description string          `json:"description"`
	Format      string          `json:"format"`
	Minimum     *json.Number    `json:"minimum"`
	Maximum     *json.Number    `json:"maximum"`
	MinLength   *int            `json:"minLength"`
	MaxLength   *int            `json:"maxLength"`
	MinItems    *int            `json:"minItems"`
	MaxItems    *int            `json:"maxItems"`
	Items       json.RawMessage `json:"items"`
	Properties  json.RawMessage `json:"properties"`
	Required    []string        `json:"required"`
	AnyOf       []property      `json:"anyOf"`
	OneOf       []property      `json:"oneOf"`
	ExactlyOne  []string        `json:"x-exactlyOne"`
}

func exactlyOneOf(raw json.RawMessage) []string {
	var p property
	_ = json.Unmarshal(raw, &p) // no schema means no rule
	return p.ExactlyOne
}

func schemaRows(raw json.RawMessage) []schemaRow {
	var p property
	if json.Unmarshal(raw, &p) != nil {
		return nil
	}
	return p.rows("", nil)
}

// rows lists the properties in the order of their declaration, each followed by
// those inside it.
func (p *property) rows(prefix string, out []schemaRow) []schemaRow {
	for _, member := range members(p.Properties) {
		var child property
		if json.Unmarshal(member.raw, &child) != nil {
			continue
		}
		row := schemaRow{name: prefix + member.name, kind: child.kind(), text: child.Description}
		switch {
		case child.Default != nil:
			row.def = codeCell(string(child.Default))
		case slices.Contains(p.Required, member.name):
			row.def = "required"
		}
		out = append(out, row)
		out = child.rows(row.name+".", out)
		var item property
		if json.Unmarshal(child.Items, &item) == nil {
			out = item.rows(row.name+"[].", out)
		}
	}
	return out
}

// kind returns the type of a value in words.
func (p *property) kind() string {
	if alternatives := append(slices.Clone(p.AnyOf), p.OneOf...); len(alternatives) > 0 {
		var kinds []string
		for _, a := range alternatives {
			if k := a.kind(); !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
		return strings.Join(kinds, " or ")
	}
	if p.Const != nil {
		p.Enum = []any{p.Const}
	}
	if p.Enum != nil {
		var values []string
		for _, v := range p.Enum {
			text, _ := json.Marshal(v) // a value decoded from JSON always encodes
			values = append(values, codeCell(strings.Trim(string(text), `"`)))
		}
		return strings.Join(values, ", ")
	}
	var names []string
	switch t := p.Type.(type) {
	case string:
		names = []string{t}
	case []any:
		for _, v := range t {
			names = append(names, fmt.Sprint(v))
		}
	default:
		return "any value"
	}
	for i, name := range names {
		switch {
		case name == "string" && p.Format == "file":
			names[i] = "file"
		case name == "string":
			names[i] = "text" + bounds(p.MinLength, p.MaxLength, "characters")
		case name == "array":
			names[i] = "list" + p.elements() + bounds(p.MinItems, p.MaxItems, "elements")
		case name == "integer" || name == "number":
			names[i] = name + bounds(p.Minimum, p.Maximum, "")
		}
	}
	return strings.Join(names, " or ")
}

func (p *property) elements() string {
	var item property
	if json.Unmarshal(p.Items, &item) != nil {
		return ""
	}
	return " of " + item.kind()
}

// bounds returns the limits of a number or a length in words.
func bounds[T any](least, most *T, unit string) string {
	if unit != "" {
		unit = " " + unit
	}
	switch {
	case least != nil && most != nil:
		return fmt.Sprintf(", %v to %v%s", *least, *most, unit)
	case least != nil:
		return fmt.Sprintf(", %v%s or more", *least, unit)
	case most != nil:
		return fmt.Sprintf(", up to %v%s", *most, unit)
	}
	return ""
}

type member struct {
	name string
	raw  json.RawMessage
}

// members returns the members of an object in order.
func members(raw json.RawMessage) (out []member) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil
	}
	for dec.More() {
		name, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return out
		}
		out = append(out, member{fmt.Sprint(name), value})
	}
	return out
}

// cellText returns text for a table cell; codeCell returns code for one.
func cellText(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
}

func codeCell(text string) string { return "`" + strings.ReplaceAll(text, "|", `\|`) + "`" }

func code(names []string, between string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = "`" + n + "`"
	}
	return strings.Join(quoted, between)
}
