// SPDX-License-Identifier: Apache-2.0

// Package docpage writes pages about the interface over HTTP, for people.
//
// It decides what the pages look like: the reference that is made from an OpenAPI document, and
// the table of errors. They need no network and no script. It serves nothing.
package docpage

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/roux-engine/roux/fault"
)

// docsStyle is the only style of pages. It loads nothing from elsewhere.
const docsStyle = `body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:62rem;padding:1rem;color:#16191d;background:#fff}
h1,h2,h3{line-height:1.2}h2{margin-top:3rem;border-bottom:1px solid #8a929c}h3{margin-top:2rem}
code,.path{font-family:ui-monospace,monospace;font-size:13px}table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0;border-bottom:1px solid #d8dce1}
nav ul{columns:2;padding-left:1rem}a{color:#1763c7}.gone{color:#b3470b}
@media(prefers-color-scheme:dark){body{color:#e8eaed;background:#0f1115}a{color:#5ea8ff}th,td{border-color:#3a4048}.gone{color:#ff9a57}}
@media(max-width:40rem){nav ul{columns:1}}`

// Policy is the Content-Security-Policy of the pages. It lets them have their style and nothing else: no script, no picture, no font, no
// frame around it.
var Policy = sync.OnceValue(func() string {
	sum := sha256.Sum256([]byte(docsStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

// An apiDocument is what the page shows of an OpenAPI document.
type apiDocument struct {
	Info       struct{ Title, Version, Description string }
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]*apiOperation
	Components struct{ Schemas map[string]*apiSchema }
}

type apiOperation struct {
	ID                   string `json:"operationId"`
	Summary, Description string
	Tags                 []string
	Deprecated           bool
	Security             []map[string][]string
	Parameters           []apiParameter
	RequestBody          *apiBody
	Responses            map[string]*apiBody
	method, path         string
}

type apiParameter struct {
	Name, In, Description string
	Required              bool
	Schema                *apiSchema
}

type apiBody struct {
	Description string
	Content     map[string]struct{ Schema *apiSchema }
	Headers     map[string]json.RawMessage
}

type apiSchema struct {
	Ref                  string `json:"$ref"`
	Type                 json.RawMessage
	Format, Description  string
	Enum                 []any
	Examples             []any
	Default              any
	Required             []string
	Properties           map[string]*apiSchema
	Items                *apiSchema
	OneOf, AnyOf         []*apiSchema
	AdditionalProperties json.RawMessage
	Minimum, Maximum     *float64
	MinLength, MaxLength *int
	MaxItems             *int
}

// Reference returns the page of an OpenAPI document.
func Reference(data []byte) ([]byte, error) {
	d := new(apiDocument)
	if err := json.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("the OpenAPI document cannot be read: %w", err)
	}
	p := new(docsWriter)
	p.begin(d.Info.Title + ": the interface over HTTP")
	p.write("<h1>%s %s</h1><p>%s</p>\n", d.Info.Title, d.Info.Version, d.Info.Description)
	p.write("<p><a href=\"/openapi.json\">OpenAPI document</a>, for programs. <a href=\"/docs/errors\">Errors</a>: what each code means and what to do.</p>\n")
	groups := map[string][]*apiOperation{}
	for path, item := range d.Paths {
		for method, o := range item {
			o.method, o.path = strings.ToUpper(method), path
			tag := strings.Join(o.Tags, " ")
			groups[tag] = append(groups[tag], o)
		}
	}
	tags := slices.Sorted(maps.Keys(groups))
	for _, tag := range tags {
		slices.SortFunc(groups[tag], func(a, b *apiOperation) int {
			return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.method, b.method))
		})
	}
	p.contents(tags, groups)
	for _, tag := range tags {
		p.write("<h2 id=\"tag-%s\">%s</h2>\n", tag, tag)
		for _, t := range d.Tags {
			if t.Name == tag {
				p.write("<p>%s</p>\n", t.Description)
			}
		}
		for _, o := range groups[tag] {
			p.operation(o)
		}
	}
	p.write("<h2 id=\"schemas\">Schemas</h2>\n")
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		p.write("<h3 id=\"schema-%s\">%s</h3>\n", name, name)
		if s.Description != "" {
			p.write("<p>%s</p>\n", s.Description)
		}
		p.fields(s)
	}
	return p.page(), nil
}

// Errors returns the page that explains every code, each at an anchor of its name.
func Errors() []byte {
	p := new(docsWriter)
	p.begin("Roux: errors")
	p.write("<h1>Errors</h1>\n")
	for _, row := range fault.All() {
		p.write("<h2 id=\"%s\">%s</h2><p>%s</p><p>What to do: %s</p><p>HTTP %v", row.Code, row.Code, row.Meaning, row.Remedy, row.HTTP)
		if row.Retryable {
			p.write("; another try can succeed")
		}
		if row.Legacy != "" {
			p.write("; %s", row.Legacy)
		}
		p.write("</p>\n")
	}
	return p.page()
}

// A docsWriter writes pages of HTML. It uses no package template: a program with templates
// keeps every exported method of every type that it has, because a template may name it, which
// is a seventh of the binary.
type docsWriter struct{ b bytes.Buffer }

// begin writes what comes before the body of a page.
func (p *docsWriter) begin(title string) {
	p.write("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/><title>%s</title><style>", title)
	p.b.WriteString(docsStyle)
	p.write("</style></head><body>\n")
}

// page ends the page and returns it.
func (p *docsWriter) page() []byte {
	p.write("</body></html>\n")
	return p.b.Bytes()
}

// write writes a text. What is filled in is escaped.
func (p *docsWriter) write(format string, args ...any) {
	for i, a := range args {
		args[i] = html.EscapeString(fmt.Sprint(a))
	}
	fmt.Fprintf(&p.b, format, args...)
}

func (p *docsWriter) contents(tags []string, groups map[string][]*apiOperation) {
	p.write("<nav>\n")
	for _, tag := range tags {
		p.write("<p><a href=\"#tag-%s\">%s</a></p><ul>", tag, tag)
		for _, o := range groups[tag] {
			p.write("<li><a class=\"path\" href=\"#%s\">%s %s</a></li>", o.ID, o.method, o.path)
		}
		p.write("</ul>\n")
	}
	p.write("<p><a href=\"#schemas\">Schemas</a></p></nav>\n")
}

func (p *docsWriter) operation(o *apiOperation) {
	p.write("<h3 id=\"%s\"><span class=\"path\">%s %s</span></h3>\n<p>%s.</p>\n", o.ID, o.method, o.path, strings.TrimSuffix(o.Summary, "."))
	if o.Description != "" {
		p.write("<p>%s</p>\n", o.Description)
	}
	if o.Deprecated {
		p.write("<p class=\"gone\">Deprecated.</p>\n")
	}
	var scopes []string
	for _, s := range o.Security {
		scopes = append(scopes, slices.Concat(slices.Collect(maps.Values(s))...)...)
	}
	if len(scopes) == 0 {
		p.write("<p>It needs no key.</p>\n")
	} else {
		p.write("<p>It needs a key with the scope <code>%s</code>.</p>\n", strings.Join(scopes, " "))
	}
	if len(o.Parameters) > 0 {
		p.write("<table><tr><th>Parameter</th><th>In</th><th>Type</th><th></th></tr>\n")
		for i := range o.Parameters {
			x := &o.Parameters[i]
			p.write("<tr><td><code>%s</code>%s</td><td>%s</td><td>", x.Name, required(x.Required), x.In)
			p.kind(x.Schema)
			p.write("</td><td>%s</td></tr>\n", x.Description)
		}
		p.write("</table>\n")
	}
	if o.RequestBody != nil {
		p.write("<p>Body: ")
		p.content(o.RequestBody)
		p.write("</p>\n")
	}
	p.write("<ul>\n")
	for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
		r := o.Responses[status]
		p.write("<li>%s: %s ", status, strings.TrimSuffix(r.Description, "."))
		if strings.HasSuffix(status, "XX") {
			p.write("(<a href=\"/docs/errors\">errors</a>)</li>\n")
			continue
		}
		p.content(r)
		if names := slices.Sorted(maps.Keys(r.Headers)); len(names) > 0 {
			p.write(" with the headers <code>%s</code>", strings.Join(names, ", "))
		}
		p.write("</li>\n")
	}
	p.write("</ul>\n")
}

func required(yes bool) string {
	if yes {
		return " (required)"
	}
	return ""
}

func (p *docsWriter) content(body *apiBody) {
	for i, kind := range slices.Sorted(maps.Keys(body.Content)) {
		if i > 0 {
			p.write(" or ")
		}
		p.write("<code>%s</code> ", kind)
		p.kind(body.Content[kind].Schema)
	}
}

// fields writes the properties of an object.
func (p *docsWriter) fields(s *apiSchema) {
	if len(s.Properties) == 0 {
		p.write("<p>")
		p.kind(s)
		p.write("</p>\n")
		return
	}
	p.write("<table><tr><th>Field</th><th>Type</th><th></th></tr>\n")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		x := s.Properties[name]
		p.write("<tr><td><code>%s</code>%s</td><td>", name, required(slices.Contains(s.Required, name)))
		p.kind(x)
		p.write("</td><td>%s", x.Description)
		for _, e := range x.Examples {
			text, _ := json.Marshal(e) // it was JSON
			p.write(" Such as <code>%s</code>.", string(text))
		}
		p.write("</td></tr>\n")
	}
	p.write("</table>\n")
}

// kind writes the type of a value, with its bounds.
func (p *docsWriter) kind(s *apiSchema) {
	switch {
	case s == nil:
		p.write("any value")
		return
	case s.Ref != "":
		name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
		p.write("<a href=\"#schema-%s\">%s</a>", name, name)
		return
	case len(s.OneOf)+len(s.AnyOf) > 0:
		for i, one := range append(s.OneOf, s.AnyOf...) {
			if i > 0 {
				p.write(" or ")
			}
			p.kind(one)
		}
		return
	}
	p.plain(s)
	for _, bound := range []struct {
		text  string
		value *int
	}{{"at least %v characters", s.MinLength}, {"at most %v characters", s.MaxLength}, {"at most %v", s.MaxItems}} {
		if bound.value != nil {
			p.write(", "+bound.text, *bound.value)
		}
	}
	if s.Minimum != nil {
		p.write(", from %s", decimal(*s.Minimum))
	}
	if s.Maximum != nil {
		p.write(", up to %s", decimal(*s.Maximum))
	}
	if s.Default != nil {
		p.write(", default <code>%s</code>", s.Default)
	}
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// plain writes the type of a value that is no reference.
func (p *docsWriter) plain(s *apiSchema) {
	if len(s.Enum) > 0 {
		for i, e := range s.Enum {
			if i > 0 {
				p.write(", ")
			}
			p.write("<code>%s</code>", e)
		}
		return
	}
	var types []string
	if json.Unmarshal(s.Type, &types) != nil {
		var one string
		if json.Unmarshal(s.Type, &one) == nil {
			types = []string{one}
		}
	}
	values := new(apiSchema)
	switch isMap := json.Unmarshal(s.AdditionalProperties, values) == nil; {
	case len(types) == 0:
		p.write("any value")
	case slices.Contains(types, "array"):
		p.write("list of ")
		p.kind(s.Items)
		types = slices.DeleteFunc(types, func(t string) bool { return t != "null" })
		if len(types) > 0 {
			p.write(", or null")
		}
	case slices.Contains(types, "object") && isMap:
		p.write("object of ")
		p.kind(values)
	default:
		p.write("%s", strings.Join(types, " or "))
		if s.Format != "" {
			p.write(" (%s)", s.Format)
		}
	}
}
