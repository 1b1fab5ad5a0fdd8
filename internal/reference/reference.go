// SPDX-License-Identifier: Apache-2.0

// Package reference holds the reference of the recipe language: what docs/language.md
// says as a whole, and `roux help TOPIC` in parts. The tables of fields come from the
// rules by which recipes are read, the table of functions from examples that a test
// evaluates, so neither can differ from what runs.
//
// It decides nothing about a recipe; it describes it.
package reference

import (
	"embed"
	"fmt"
	"strings"

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

// names are the topics in the order of the page, each with its sentence.
var names = []struct{ name, what string }{
	{"recipe", "What a recipe consists of: fields, input, outputs, durations."},
	{"steps", "The fields that every step has, order and names."},
	{"action", "A step that calls an action."},
	{"condition", "A step that runs one of two lists of steps."},
	{"parallel", "A step that runs branches beside each other."},
	{"loop", "A step that runs its steps for each item of a list or file."},
	{"transform", "A step that computes a value."},
	{"wait", "A step that waits for a time or a signal."},
	{"fail", "A step that ends its scope with a failure."},
	{"failures", "Retries, fallbacks, what a failure does to the rest, undoing."},
	{"cel", "The expression language: names in scope, values, functions with examples."},
	{"templates", "Placeholders, filters and blocks in texts."},
	{"limits", "What one run may use."},
}

// Topics are all parts, in the order of the page.
func Topics() []Topic {
	list := make([]Topic, len(names))
	for i, n := range names {
		list[i] = load(n.name, n.what)
	}
	return list
}

// Find is the topic of that name.
func Find(name string) (Topic, bool) {
	for _, n := range names {
		if n.name == strings.ToLower(name) {
			return load(n.name, n.what), true
		}
	}
	return Topic{}, false
}

func load(name, what string) Topic {
	raw, err := texts.ReadFile("text/" + name + ".md")
	if err != nil {
		panic("reference: " + err.Error()) // it is embedded
	}
	head, body, _ := strings.Cut(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\n")
	return Topic{Name: name, Title: strings.TrimPrefix(head, "# "), What: what, Text: fill(strings.TrimSpace(body)) + "\n"}
}

// fill puts the tables where the text asks for them.
func fill(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "<!-- ")
		switch object, fields := strings.CutPrefix(command, "fields "); {
		case ok && fields:
			b.WriteString(fieldTable(strings.TrimSuffix(object, " -->")))
		case ok && command == "examples -->":
			b.WriteString(exampleTable())
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

// fieldTable lists the fields of one object of the format.
func fieldTable(object string) string {
	var b strings.Builder
	b.WriteString("| field | takes | what for |\n| --- | --- | --- |\n")
	for _, f := range recipe.Fields(object) {
		name := "`" + f.Name + "`"
		if f.Required {
			name += " (required)"
		}
		what := f.Doc
		if f.Example != "" {
			what += " For example `" + strings.ReplaceAll(f.Example, "|", "\\|") + "`."
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, f.Takes, what)
	}
	return b.String()
}

// exampleTable lists functions, each with an example.
func exampleTable() string {
	var b strings.Builder
	for _, group := range Examples {
		fmt.Fprintf(&b, "**%s**\n\n| expression | gives |\n| --- | --- |\n", group.Title)
		for _, e := range group.List {
			cell := strings.NewReplacer("|", "\\|")
			fmt.Fprintf(&b, "| `%s` | `%s` |\n", cell.Replace(e.Source), cell.Replace(e.Result))
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Page is docs/language.md below its head.
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
