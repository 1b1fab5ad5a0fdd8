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

// checkForm reads what -o asks for. more are the forms that only this command has.
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

// listed names the forms that a command has beside the others.
func listed(more []string) string {
	if len(more) == 0 {
		return ""
	}
	return strings.Join(more, ", ") + ", "
}

// forPrograms says that the result goes to standard output as a value, in a
// form that is no table.
func (a *app) forPrograms() bool { return a.output != asTable }

// objects says that the form has room for an error beside the result.
func (a *app) objects() bool {
	return a.output == asJSON || a.output == asLines || a.output == asYAML
}

// show writes the result of a command in the form that -o asks for: for people
// by people, for programs as v. A list is one value a line in jsonl, and one
// line each by name or template. What v encodes to is a promise: its fields
// only grow. An error of the form (a name the template does not find) becomes
// the error of the command.
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

// A stream is a result that comes piece by piece: each piece is written at
// once where the form allows it, all together where it does not.
type stream struct {
	a    *app
	list []any
}

// stream begins a result of many values. In table form the caller prints
// by itself and the stream is silent.
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

// end writes what the form held back.
func (s *stream) end() {
	if s.a.output == asJSON || s.a.output == asYAML {
		s.a.encode(s.list)
	}
}

// encode writes one value to standard output: indented for json, in one line
// for jsonl, in the form that -o asks for otherwise.
func (a *app) encode(v any) {
	var err error
	switch a.output {
	case asYAML, asName, asTemplate:
		err = a.encodeTree(v)
	default:
		// A reader of standard output that went away ends the command by SIGPIPE
		// or by the next write; there is nobody left to tell.
		_ = writeJSON(a.stdout, v, a.output != asLines)
	}
	if err != nil && a.formErr == nil {
		a.formErr = err
	}
}

// encodeTree writes the forms that are made from the JSON of a value.
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

// nameFields are what an element is called by, the first that it has.
var nameFields = []string{"id", "eventId", "name", "command", "code", "kind", "hash", "key", "run", "step", "file"}

func nameOf(n *jsonx.Node) (string, bool) {
	if n.Kind == jsonx.String {
		return n.Text, true
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

// renderTemplate writes one element through the template of -o: its fields are
// variables, and `it` is the whole of it.
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
