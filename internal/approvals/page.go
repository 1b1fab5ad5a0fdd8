// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/approval"
)

// style is that of all pages, which load nothing.
const style = `body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}
h1{font-size:1.4rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f2;padding:.75rem;border-radius:4px;max-height:30rem;overflow:auto}
label{display:block;margin-top:1rem;font-weight:600}label.check{font-weight:400}input,select,textarea{font:inherit;width:100%;box-sizing:border-box;padding:.4rem}
input[type=checkbox]{width:auto}small{display:block;font-weight:400;color:#555}.error{color:#a40000;border-left:4px solid;padding-left:.75rem}
button{font:inherit;padding:.5rem 1.2rem;margin:1.2rem .6rem 0 0}dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}dd{margin:0;overflow-wrap:anywhere}`

// A writer writes HTML. What is not markup goes through text.
type writer struct{ bytes.Buffer }

func (w *writer) markup(s string) { w.WriteString(s) }
func (w *writer) text(s string)   { w.WriteString(html.EscapeString(s)) }

// attr writes an attribute.
func (w *writer) attr(name, value string) {
	w.markup(" " + name + `="`)
	w.text(value)
	w.markup(`"`)
}

func document(title string, body func(w *writer)) []byte {
	w := new(writer)
	w.markup(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>`)
	w.text(title)
	w.markup("</title><style>" + style + "</style></head><body><h1>")
	w.text(title)
	w.markup("</h1>")
	body(w)
	w.markup("</body></html>\n")
	return w.Bytes()
}

func messagePage(title, text string) []byte {
	return document(title, func(w *writer) {
		w.markup("<p>")
		w.text(text)
		w.markup("</p>")
	})
}

// sentence makes a sentence of a message.
func sentence(msg string) string {
	r, n := utf8.DecodeRuneInString(msg)
	if n == 0 {
		return msg
	}
	return string(unicode.ToUpper(r)) + msg[n:] + "."
}

func donePage(l *approval.Linked, a *approval.Answer) []byte {
	text := "It is recorded that " + l.For + " has " + string(a.Decision) + " this. The link does not work again."
	return messagePage(l.Title, text)
}

func day(at int64) string { return time.UnixMicro(at).UTC().Format("2 January 2006, 15:04 MST") }

// formPage asks. given has what was filled in before, of a form that did not fit.
func formPage(l *approval.Linked, given url.Values, problem string) []byte {
	return document(l.Title, func(w *writer) {
		if problem != "" {
			w.markup(`<p class="error">`)
			w.text(sentence(problem))
			w.markup("</p>")
		}
		if l.Text != "" {
			w.markup("<pre>")
			w.text(l.Text)
			w.markup("</pre>")
		}
		if shown := valueText(l.Value); shown != "" {
			w.markup("<pre>")
			w.text(shown)
			w.markup("</pre>")
		}
		w.markup("<dl>")
		for _, row := range [][2]string{{"Answers as", l.For}, {"Asked", day(l.Asked)}, {"Until", day(l.Expires)}, {"Run", l.Run}, {"Step", l.Step}} {
			w.markup("<dt>" + row[0] + "</dt><dd>")
			w.text(row[1])
			w.markup("</dd>")
		}
		w.markup(`</dl><form method="post" accept-charset="utf-8">`)
		for _, f := range fieldsOf(l.Form) {
			f.write(w, given)
		}
		w.markup(`<label>Comment<textarea name="comment" rows="3" maxlength="4000">`)
		w.text(given.Get("comment"))
		w.markup("</textarea></label>")
		for _, d := range l.Decisions {
			if verb := verbs[d]; verb != "" {
				w.markup(`<button type="submit" name="decision"`)
				w.attr("value", string(d))
				if d == approval.Rejected {
					w.markup(" formnovalidate")
				}
				w.markup(">" + verb + "</button>")
			}
		}
		w.markup("</form>")
	})
}

// verbs are the buttons. A value is not edited on a page.
var verbs = map[approval.Decision]string{approval.Approved: "Approve", approval.Rejected: "Reject"}

// valueText is a value as it is shown: a text as it is, another one as JSON with line breaks.
func valueText(raw []byte) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// A field is a property of a form.
type field struct {
	name        string
	required    bool
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Type        any               `json:"type"`
	Enum        []json.RawMessage `json:"enum"`
	Default     json.RawMessage   `json:"default"`
	Format      string            `json:"format"`
	MaxLength   int               `json:"maxLength"`
	Minimum     json.RawMessage   `json:"minimum"`
	Maximum     json.RawMessage   `json:"maximum"`
}

// fieldPrefix begins the names of the fields of a form, so that none is that of another control.
const fieldPrefix = "v."

// fieldsOf returns the properties of a form, the required ones first.
func fieldsOf(form []byte) (list []*field) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(form, &s) != nil {
		return nil
	}
	for name, raw := range s.Properties {
		f := new(field)
		if json.Unmarshal(raw, f) != nil {
			f = new(field) // an unusual schema: JSON is asked for, and checked
		}
		f.name, f.required = name, slices.Contains(s.Required, name)
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b *field) int {
		if a.required != b.required {
			if a.required {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return list
}

// kind is the control of a field: what has no own one is asked for as JSON.
func (f *field) kind() string {
	if len(f.Enum) > 0 {
		return "enum"
	}
	switch f.Type {
	case "string", "boolean", "integer", "number":
		return f.Type.(string)
	}
	return "json"
}

func (f *field) write(w *writer, given url.Values) {
	value := valueText(f.Default)
	if given != nil {
		value = given.Get(fieldPrefix + f.name)
	}
	label := cmp.Or(f.Title, f.name)
	if f.kind() == "boolean" {
		w.markup(`<label class="check"><input type="checkbox" value="true"`)
		w.attr("name", fieldPrefix+f.name)
		if value == "true" {
			w.markup(" checked")
		}
		w.markup("> ")
		w.text(label)
		f.describe(w)
		w.markup("</label>")
		return
	}
	w.markup("<label>")
	w.text(label)
	if !f.required {
		w.markup(" (optional)")
	}
	f.describe(w)
	switch f.kind() {
	case "enum":
		f.options(w, value)
	case "json":
		f.open(w, `<textarea rows="4" placeholder="JSON"`)
		w.text(value)
		w.markup("</textarea>")
	case "string":
		if f.MaxLength > 200 || f.Format == "multiline" {
			f.open(w, `<textarea rows="4"`)
			w.text(value)
			w.markup("</textarea>")
			break
		}
		f.open(w, `<input type="text"`, "value", value)
	default:
		step := "any"
		if f.Type == "integer" {
			step = "1"
		}
		f.open(w, `<input type="number"`, "value", value, "step", step, "min", string(f.Minimum), "max", string(f.Maximum))
	}
	w.markup("</label>")
}

// open opens the control of a field with its name and attributes, of which empty ones are left out.
func (f *field) open(w *writer, tag string, attrs ...string) {
	w.markup(tag)
	w.attr("name", fieldPrefix+f.name)
	for i := 0; i < len(attrs); i += 2 {
		if attrs[i+1] != "" {
			w.attr(attrs[i], attrs[i+1])
		}
	}
	if f.MaxLength > 0 {
		w.attr("maxlength", strconv.Itoa(f.MaxLength))
	}
	if f.required {
		w.markup(" required")
	}
	w.markup(">")
}

func (f *field) options(w *writer, value string) {
	f.open(w, "<select")
	if !f.required || value == "" {
		w.markup(`<option value=""></option>`)
	}
	for _, raw := range f.Enum {
		w.markup("<option")
		w.attr("value", valueText(raw))
		if valueText(raw) == value {
			w.markup(" selected")
		}
		w.markup(">")
		w.text(valueText(raw))
		w.markup("</option>")
	}
	w.markup("</select>")
}

func (f *field) describe(w *writer) {
	if f.Description != "" {
		w.markup("<small>")
		w.text(f.Description)
		w.markup("</small>")
	}
}

// readForm reads what was filled in on the page of a request.
func readForm(l *approval.Linked, body []byte) (given url.Values, a *approval.Answer, err error) {
	given, err = url.ParseQuery(string(body))
	if err != nil || !utf8.ValidString(given.Encode()) {
		return nil, nil, fault.New(fault.InputInvalid, "the form cannot be read")
	}
	a = &approval.Answer{Decision: approval.Decision(given.Get("decision")), Comment: strings.ReplaceAll(given.Get("comment"), "\r\n", "\n")}
	if verbs[a.Decision] == "" {
		return given, nil, fault.New(fault.InputInvalid, "choose one of the buttons")
	}
	fields := fieldsOf(l.Form)
	if len(fields) == 0 || a.Decision == approval.Rejected { // who rejects need not fill it in
		return given, a, nil
	}
	values := map[string]json.RawMessage{}
	for _, f := range fields {
		raw, err := f.read(given)
		if err != nil {
			return given, nil, err
		}
		if raw != nil {
			values[f.name] = raw
		}
	}
	a.Values, err = json.Marshal(values)
	return given, a, err
}

// read returns the value of a field; nil = it was left empty.
func (f *field) read(given url.Values) (json.RawMessage, error) {
	text := given.Get(fieldPrefix + f.name)
	kind := f.kind()
	if kind == "boolean" {
		return json.RawMessage(strconv.FormatBool(text == "true")), nil
	}
	if text == "" && (kind != "string" || !f.required) {
		return nil, nil
	}
	switch kind {
	case "enum":
		for _, raw := range f.Enum {
			if valueText(raw) == text {
				return raw, nil
			}
		}
	case "string":
		return json.Marshal(strings.ReplaceAll(text, "\r\n", "\n"))
	default:
		if json.Valid([]byte(text)) {
			return json.RawMessage(text), nil
		}
	}
	return nil, fault.New(fault.InputInvalid, "%s: the value is no %s", cmp.Or(f.Title, f.name), kinds[kind])
}

// kinds are what a field wants, for messages.
var kinds = map[string]string{"enum": "one of the possible values", "integer": "number", "number": "number", "json": "JSON"}
