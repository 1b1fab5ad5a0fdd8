// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/recipetest"
)

// TestTestingPage: docs/testing.md.
func TestTestingPage(t *testing.T) { runPage(t, "testing") }

// The fields of a test file in docs/testing.md are those of its form.
func TestTestingFieldsPage(t *testing.T) {
	const name = "../../docs/testing.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), "<!-- fields -->\n")
	_, after, ends := strings.Cut(rest, "<!-- /fields -->")
	if !found || !ends {
		t.Fatal("the page has lost the marks of the fields")
	}
	want := before + "<!-- fields -->\n" + testFields() + "<!-- /fields -->" + after
	if *rewrite {
		if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(page) {
		t.Error("the fields in docs/testing.md are not current: run `make rewrite` and read the diff")
	}
}

// testFields describes the fields of test files.
func testFields() string {
	var b strings.Builder
	b.WriteString("## All fields\n\nGenerated from the table of the fields by `make rewrite`.\n")
	for _, o := range []struct{ name, title string }{
		{"Suite", "A test file"}, {"Test", "A test"}, {"Mocks", "`mocks`"}, {"Answer", "An answer"}, {"Failure", "The error of an answer"}, {"Decision", "An approval"}, {"Signal", "A signal"},
		{"Expect", "`expect`"}, {"ExpectError", "`error` in `expect`"}, {"ExpectStep", "A step in `expect`"}, {"ExpectCredits", "`credits` in `expect`"},
	} {
		fmt.Fprintf(&b, "\n### %s\n\n| field | takes | default | what it is |\n| --- | --- | --- | --- |\n", o.title)
		for _, f := range recipetest.Form.Fields(o.name) {
			def := f.Default
			switch {
			case f.Required:
				def = "**required**"
			case def == "":
				def = "none"
			}
			doc := f.Doc
			if !strings.HasSuffix(f.Example, ": null") {
				doc += " For example `" + f.Example + "`."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Takes, def, strings.ReplaceAll(doc, "|", "\\|"))
		}
	}
	b.WriteString("\n")
	return b.String()
}
