// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/yamlx"
)

// The forms of output. A template is a form of its own: template={{ … }}.
const (
	asTable    = "table"
	asJSON     = "json"
	asLines    = "jsonl"
	asYAML     = "yaml"
	asName     = "name"
	asTemplate = "template="
)

// checkForm checks the value of -o. more lists the forms of this command alone.
func (a *app) checkForm(more []string) error {
	src, ok := strings.CutPrefix(a.output, asTemplate)
	switch {
	case slices.Contains(more, a.output):
	case ok:
		t, err := expr.CompileTemplate(src)
		if err != nil {
			a.output = asTable
			return fault.Wrap(fault.Usage, err, "-o %s%s: %s", asTemplate, view.OneLine(view.Cut(src, 80)), fault.Message(err))
		}
		a.output, a.template = asTemplate, t
	case !slices.Contains([]string{asTable, asJSON, asLines, asYAML, asName}, a.output):
		got := a.output
		a.output = asTable
		return fault.New(fault.Usage, "-o %s: want %stable, json, jsonl, yaml, name or template={{ … }}", view.OneLine(got), listed(more))
	}
	return nil
}

// listed formats the forms of one command for a message.
func listed(more []string) string {
	if len(more) == 0 {
		return ""
	}
	return strings.Join(more, ", ") + ", "
}

// forPrograms reports whether the result is written as a value and not as a table.
func (a *app) forPrograms() bool { return a.output != asTable }

// objects reports whether an error can be written in the form of the result.
func (a *app) objects() bool {
	return a.output == asJSON || a.output == asLines || a.output == asYAML
}

// show writes the result of a command in the form of -o: people prints the table,
// v is written in all other forms. A list is written as one value per line in
// jsonl, name and template. The encoding of v is a promise: its fields only grow.
// An error of the form, such as a name that a template does not find, becomes the
// error of the command.
func (a *app) show(v any, people func()) {
	switch a.output {
	case asTable:
		people()
	case asJSON, asYAML:
		a.encode(v)
	default:
		if list := reflect.ValueOf(v); list.Kind() == reflect.Slice {
			for i := range list.Len() {
				a.encode(list.Index(i).Interface())
			}
			return
		}
		a.encode(v)
	}
}

// A stream is a result of many values. Each is written at once where the form
// allows it, and all together at the end where it does not.
type stream struct {
	a    *app
	list []any
}

// stream begins a result of many values. In table form it writes nothing, and the
// caller prints.
func (a *app) stream() *stream { return &stream{a: a, list: []any{}} }

func (s *stream) add(v any) {
	switch s.a.output {
	case asTable:
	case asJSON, asYAML:
		s.list = append(s.list, v)
	default:
		s.a.encode(v)
	}
}

// end writes the values that were kept for the end.
func (s *stream) end() {
	if s.a.output == asJSON || s.a.output == asYAML {
		s.a.encode(s.list)
	}
}

// encode writes one value to standard output in the form of -o: indented in json,
// on one line in jsonl.
func (a *app) encode(v any) {
	var err error
	switch a.output {
	case asYAML, asName, asTemplate:
		err = a.encodeTree(v)
	default:
		// A write error means that the reader of standard output has gone.
		_ = writeJSON(a.stdout, v, a.output != asLines)
	}
	if err != nil && a.formErr == nil {
		a.formErr = err
	}
}

// encodeTree writes the forms that are derived from the JSON of a value.
func (a *app) encodeTree(v any) error {
	var buf bytes.Buffer
	if err := writeJSON(&buf, v, false); err != nil {
		return err
	}
	all := jsonx.Limits{Bytes: math.MaxInt32, Tokens: math.MaxInt32}
	n, problems := jsonx.Parse(buf.Bytes(), all)
	if len(problems) > 0 {
		return fault.Wrap(fault.InternalError, problems[0], "the result cannot be read back: %v", problems[0])
	}
	if a.output == asYAML {
		_, _ = a.stdout.Write(yamlx.Encode(n))
		return nil
	}
	if a.output == asName {
		name, ok := nameOf(n)
		if !ok {
			return fault.New(fault.Usage, "-o name: this result has no name; -o json shows what it has, -o 'template={{ … }}' picks from it")
		}
		a.text("%s\n", view.OneLine(name))
		return nil
	}
	return a.renderTemplate(n)
}

// nameFields lists the fields that can be the name of an element. The first one
// that it has is its name.
var nameFields = []string{"id", "eventId", "name", "command", "code", "kind", "hash", "key", "run", "step", "file"}

func nameOf(n *jsonx.Node) (string, bool) {
	if n.Kind == jsonx.String {
		return n.Text, true
	}
	if provider, job := n.Child("provider"), n.Child("job"); provider != nil && job != nil { // as `jobs show` takes it
		return provider.Text + "/" + job.Text, true
	}
	for _, f := range nameFields {
		switch c := n.Child(f); {
		case c == nil:
		case c.Kind == jsonx.String && c.Text != "":
			return c.Text, true
		case c.Kind == jsonx.Int:
			return strconv.FormatInt(c.Int, 10), true
		}
	}
	return "", false
}

// renderTemplate writes one element through the template of -o. The fields of the
// element are variables, and `it` is the element.
func (a *app) renderTemplate(n *jsonx.Node) error {
	v := n.Value()
	vars := expr.MapVars{}
	if fields, ok := v.(map[string]any); ok {
		for name, value := range fields {
			vars[name] = value
		}
	}
	vars["it"] = v
	out, err := a.template.Eval(vars)
	if err != nil {
		return fault.Wrap(fault.Usage, err, "-o template: %s; the element has %s", fault.Message(err), fieldList(n))
	}
	if s, ok := out.(string); ok {
		a.text("%s\n", view.Clean(s))
		return nil
	}
	text, err := json.Marshal(out)
	if err != nil {
		return fault.Wrap(fault.InternalError, err, "the template's result is no JSON: %v", err)
	}
	a.text("%s\n", view.Clean(string(text)))
	return nil
}

// fieldList names the fields of an element for a message.
func fieldList(n *jsonx.Node) string {
	var names []string
	for _, c := range n.Children {
		if n.Kind == jsonx.Object {
			names = append(names, c.Key)
		}
	}
	if len(names) == 0 {
		return "no fields, only `it`"
	}
	return view.OneLine(view.Cut(strings.Join(names, ", "), 300)) + " and, whole, `it`"
}
