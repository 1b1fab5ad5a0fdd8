// SPDX-License-Identifier: Apache-2.0

// Package reference is the reference of the recipe language, which docs/language.md shows
// as a whole and `roux help TOPIC` in parts. The tables of fields are generated from the
// rules that the parser uses, and the tables of functions from examples that a test
// evaluates, so both agree with the engine.
//
// The package decides nothing about recipes; it only describes them.
package reference

import (
	"embed"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/compile/recipe"
)

//go:embed text
var texts embed.FS

// A Topic is one part of the reference.
type Topic struct {
	Name  string // what `roux help` calls it
	Title string
	What  string // one sentence
	Text  string // Markdown, without the title
}

// names are the topics in the order of the page, each with its summary.
var names = []struct{ name, what string }{
	{"recipe", "What a recipe consists of: fields, input, outputs, durations."},
	{"steps", "The fields that every step has, order and names."},
	{"action", "A step that calls an action."},
	{"condition", "A step that runs one of two lists of steps."},
	{"parallel", "A step that runs branches at the same time."},
	{"loop", "A step that runs its steps for each item of a list or file, or as long as a condition asks for it."},
	{"transform", "A step that computes a value."},
	{"wait", "A step that waits for a time, a signal or a person."},
	{"fail", "A step that ends its scope with a failure."},
	{"children", "A step that runs another recipe."},
	{"failures", "Retries, fallbacks, the effect of a failure on other steps, undoing."},
	{"cel", "The expression language: names in scope, values, functions with examples."},
	{"templates", "Placeholders, filters and blocks in texts."},
	{"limits", "What one run may use."},
}

// Topics returns all topics, in the order of the page.
func Topics() []Topic {
	list := make([]Topic, len(names))
	for i, n := range names {
		list[i] = load(n.name, n.what)
	}
	return list
}

// others maps further words to topics.
var others = map[string]string{
	"expression": "cel", "expressions": "cel", "function": "cel", "functions": "cel", "names": "cel",
	"template": "templates", "filter": "templates", "filters": "templates",
	"failure": "failures", "retry": "failures", "fallback": "failures",
	"child": "children", "nesting": "children", "recursion": "children",
	"step": "steps", "limit": "limits", "duration": "recipe", "durations": "recipe",
}

// Find returns the topic of that name, or the one that describes the field or function of
// that name.
func Find(name string) (Topic, bool) {
	word := strings.ToLower(name)
	if other, ok := others[word]; ok {
		word = other
	}
	for _, n := range names {
		if n.name == word {
			return load(n.name, n.what), true
		}
	}
	for _, n := range names {
		if topic := load(n.name, n.what); describes(topic.Text, word) {
			return topic, true
		}
	}
	return Topic{}, false
}

// describes reports whether a text has a table row about the field of that name, or one
// with a call of the function. text and name are in lower case.
func describes(text, name string) bool {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r != '_' && r != '.' && !unicode.IsLetter(r) }) {
		return false
	}
	for line := range strings.Lines(strings.ToLower(text)) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		first, _, _ := strings.Cut(line[len("| "):], " | ")
		if first == "`"+name+"`" {
			return true
		}
		for rest := first; ; {
			before, after, found := strings.Cut(rest, name+"(")
			if !found {
				break
			}
			if last, _ := utf8.DecodeLastRuneInString(before); !unicode.IsLetter(last) && last != '_' {
				return true
			}
			rest = after
		}
	}
	return false
}

func load(name, what string) Topic {
	raw, err := texts.ReadFile("text/" + name + ".md")
	if err != nil {
		panic("reference: " + err.Error()) // it is embedded
	}
	head, body, _ := strings.Cut(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\n")
	return Topic{Name: name, Title: strings.TrimPrefix(head, "# "), What: what, Text: fill(strings.TrimSpace(body)) + "\n"}
}

// fill replaces the placeholders of the text by the tables.
func fill(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "<!-- ")
		switch object, fields := strings.CutPrefix(command, "fields "); {
		case ok && fields:
			b.WriteString(fieldTable(strings.TrimSuffix(object, " -->")))
		case ok && command == "examples -->":
			b.WriteString(exampleTable("expression", Examples))
		case ok && command == "templates -->":
			b.WriteString(exampleTable("text", Templates))
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

// fieldTable returns the table of the fields of one object of the format.
func fieldTable(object string) string {
	var b strings.Builder
	b.WriteString("| field | value | default | purpose |\n| --- | --- | --- | --- |\n")
	for _, f := range recipe.Form.Fields(object) {
		def := f.Default
		if f.Required {
			def = "required"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s For example `%s`. |\n", f.Name, f.Takes, def, f.Doc, strings.ReplaceAll(f.Example, "|", "\\|"))
	}
	return b.String()
}

// exampleTable returns the table of the examples of one kind of source.
func exampleTable(kind string, groups []Group) string {
	var b strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&b, "**%s**\n\n| %s | result |\n| --- | --- |\n", group.Title, kind)
		for _, e := range group.List {
			cell := strings.NewReplacer("|", "\\|")
			fmt.Fprintf(&b, "| `%s` | `%s` |\n", cell.Replace(e.Source), cell.Replace(e.Result))
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Page returns docs/language.md below its head.
func Page() string {
	var b strings.Builder
	for _, t := range Topics() {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", t.Title, anchor(t.Title), t.What)
	}
	for _, t := range Topics() {
		fmt.Fprintf(&b, "\n## %s\n\n%s", t.Title, t.Text)
	}
	return b.String()
}

func anchor(title string) string { return strings.ReplaceAll(strings.ToLower(title), " ", "-") }
