// SPDX-License-Identifier: Apache-2.0

package lens

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Bounds of one version of a lens, in bytes.
const (
	MaxTemplate = 256 << 10
	MaxContract = 64 << 10 // of the schema of the input, and of that of the output
	MaxModel    = 200
	// MaxDigits bounds a version that is a number and is written by hand: the next ones are numbers too.
	MaxDigits = 15
	// MaxDocument bounds the text of a file: the template may be written with an escape for each of
	// its characters.
	MaxDocument = 2 << 20
)

// A Document is a version of a lens as it is written in a file.
type Document struct {
	Lens      string    `json:"lens"`
	Version   string    `json:"version,omitempty"` // "" = the next whole number
	Model     string    `json:"model,omitempty"`
	Template  string    `json:"template"`
	Contracts Contracts `json:"contracts,omitzero"`
}

// Contracts say what a lens takes and gives (X25).
type Contracts struct {
	Input  json.RawMessage `json:"input,omitempty"`  // JSON Schema of the values of the placeholders; nil = none
	Output json.RawMessage `json:"output,omitempty"` // JSON Schema of the answer; nil = none
}

const (
	wantID      = "1 to 64 letters, digits, '_', '.' and '-', of which the first is a letter or a digit"
	wantVersion = wantID + `, such as "2"`
)

var (
	idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	number = regexp.MustCompile(`^[1-9][0-9]{0,15}$`)
	digits = regexp.MustCompile(`^[0-9]+$`)
)

// Form is how lenses are written in files.
var Form = form.New[Document](&form.Table{
	Rules: map[string]form.Rule{
		"Document.lens":      {Doc: "The id by which steps name the lens.", Required: true, Pattern: form.Match(idForm.String(), wantID), Example: "summarize"},
		"Document.version":   {Null: true, Doc: "The version. Without one it is the next whole number.", Pattern: form.Match(idForm.String(), wantVersion), Example: "2"},
		"Document.model":     {Null: true, Doc: "The model that is asked.", Def: "that of the account", Pattern: form.Text, Example: "small"},
		"Document.template":  {Doc: "The prompt, with {{ placeholders }}.", Required: true, Pattern: form.Text, Example: "Summarize in {{ language }}: {{ text }}"},
		"Document.contracts": {Null: true, Doc: "What the lens takes and gives."},
		"Contracts.input":    {Null: true, Doc: "JSON Schema of the values of the placeholders.", Shape: form.JSONSchema},
		"Contracts.output":   {Null: true, Doc: "JSON Schema of the answer.", Shape: form.JSONSchema},
	},
	Nouns: map[string]string{"Document": "a lens", "Contracts": "contracts"},
})

// mark is the field that tells a lens from a recipe.
const mark = "lens"

// Is reports whether the text of a file is that of a lens, which may have problems. A recipe with a
// field of that name is none: it has no template, and steps.
func Is(file string, text []byte) bool {
	if !bytes.Contains(text, []byte(mark)) || len(text) > MaxDocument {
		return false
	}
	tree, _ := form.Read(file, text, form.Options{MaxBytes: MaxDocument})
	if tree == nil || tree.Child(mark) == nil {
		return false
	}
	isRecipe := func(field string) bool { return tree.Child(field) != nil }
	return tree.Child("template") != nil || !slices.ContainsFunc([]string{"steps", "nodes", "workflow"}, isRecipe)
}

// Unreadable reports whether the text of a file cannot be read at all, so that nobody knows whether it
// is meant to be a lens.
func Unreadable(file string, text []byte) bool {
	tree, _ := form.Read(file, text, form.Options{MaxBytes: MaxDocument})
	return tree == nil
}

// Parse reads a lens in JSON or YAML. The document is nil if it has problems, which are then all
// listed. The source, which shows their places, is never nil.
func Parse(file string, text []byte) (*Document, *form.Source, []fault.Diagnostic) {
	if len(text) > MaxDocument {
		_, d := form.Read(file, nil, form.Options{})
		return nil, d.Source(), []fault.Diagnostic{{
			Code: fault.RecipeInvalid, Rule: jsonx.RuleLimit, Pos: fault.Pos{File: file},
			Msg: fmt.Sprintf("the lens has %d bytes, the limit is %d", len(text), MaxDocument), Hint: "shorten its template",
		}}
	}
	tree, d := form.Read(file, text, form.Options{MaxBytes: MaxDocument})
	if tree == nil {
		return nil, d.Source(), d.Diagnostics()
	}
	doc := new(Document)
	d.Decode(tree, Form, doc)
	diags := d.Diagnostics()
	for _, p := range doc.check() {
		field, _, _ := strings.Cut(strings.TrimPrefix(p.Pointer, "/"), "/")
		if tree.Child(field) == nil {
			continue // it is missing, which is listed
		}
		if !slices.ContainsFunc(diags, func(d fault.Diagnostic) bool { return strings.HasPrefix(d.Pointer, p.Pointer) }) {
			p.Pos = d.Source().Pos(p.Pointer)
			diags = append(diags, p)
		}
	}
	if len(diags) > 0 {
		return nil, d.Source(), diags
	}
	return doc, d.Source(), nil
}

// check returns what is wrong with a document. It needs no text.
func (d *Document) check() (diags []fault.Diagnostic) {
	add := func(pointer, rule, hint, format string, args ...any) {
		diags = append(diags, fault.Diagnostic{Code: fault.RecipeInvalid, Rule: rule, Msg: fmt.Sprintf(format, args...), Hint: hint, Pointer: pointer})
	}
	if !idForm.MatchString(d.Lens) {
		add("/lens", "bad-text", "", "the id of a lens has %s", wantID)
	}
	switch n := len(d.Version); {
	case d.Version != "" && !idForm.MatchString(d.Version):
		add("/version", "bad-text", "", "the version of a lens has %s", wantVersion)
	case n > MaxDigits && digits.MatchString(d.Version):
		add("/version", "bad-text", "write a smaller number, or put a letter before it", "a version of only digits has at most %d, and this one has %d", MaxDigits, n)
	}
	switch n := len(d.Model); {
	case n > MaxModel:
		add("/model", "too-large", "", "model has %d bytes, the limit is %d", n, MaxModel)
	case strings.Contains(d.Model, "{{") || strings.Contains(d.Model, "{%"):
		add("/model", "bad-text", "a step may give its action another model", "the model of a lens is a name, and no template")
	case strings.ContainsFunc(d.Model, unicode.IsControl):
		add("/model", "bad-text", "", "the model of a lens is a name without control characters")
	}
	switch n := len(d.Template); {
	case strings.TrimSpace(d.Template) == "":
		add("/template", "bad-text", `for example "Summarize: {{ text }}"`, "a lens needs a template, which is text that is not blank")
	case n > MaxTemplate:
		add("/template", "too-large", "pass large texts as values of placeholders", "template has %d bytes, the limit is %d", n, MaxTemplate)
	default:
		if _, err := d.Compiled().Placeholders(); err != nil {
			add("/template", "bad-template", "", "%s", fault.Message(err))
		}
	}
	for _, c := range []struct {
		name string
		raw  json.RawMessage
	}{{"input", d.Contracts.Input}, {"output", d.Contracts.Output}} {
		if c.raw == nil {
			continue
		}
		pointer := "/contracts/" + c.name
		if n := len(c.raw); n > MaxContract {
			add(pointer, "too-large", "", "contracts.%s has %d bytes, the limit is %d", c.name, n, MaxContract)
		} else if _, err := jsonschema.Compile(c.raw); err != nil {
			add(pointer, "bad-schema", "", "contracts.%s is no JSON Schema: %s", c.name, fault.Message(err))
		}
	}
	return diags
}

// Valid returns an error that has everything that is wrong with the document, which is in no file.
func (d *Document) Valid() error {
	diags := d.check()
	if len(diags) == 0 {
		return nil
	}
	e := fault.Invalid(fault.RecipeInvalid, diags)
	e.Remedy = "Correct the fields that the diagnostics name, and put the lens again."
	return e
}

// Same reports whether two documents have the same content.
func (d *Document) Same(other *Document) bool {
	_, a, errA := contentOf(d)
	_, b, errB := contentOf(other)
	return errA == nil && errB == nil && a == b
}

// Order orders documents in the way in which they are put: by their lenses, and of each the highest
// version last. One that states no version comes after the others.
func Order(a, b *Document) int {
	if a.Lens != b.Lens || a.Version == b.Version {
		return strings.Compare(a.Lens, b.Lens)
	}
	switch "" {
	case a.Version:
		return 1
	case b.Version:
		return -1
	}
	return cmp.Or(catalogue.CompareVersions(a.Version, b.Version), strings.Compare(a.Version, b.Version))
}
