// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
)

var snippet = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// notRun are the actions whose examples cannot run in a test.
var notRun = map[string]string{
	"http":           "a service",
	"llm":            "a model provider",
	"claude":         "a model provider",
	"translate-text": "a model provider",
	"sleep":          "patience",
	// TestX235_KilledProcess and docs/nesting.md run them.
	"workspace-write": "a workspace", "workspace-read": "a workspace", "workspace-list": "a workspace",
}

// Every recipe on the pages of the actions compiles without a warning, and those that
// need no file and no outside service complete.
func TestRecipesOfThePages(t *testing.T) {
	var decls []*action.Action
	for _, a := range builtin.Actions(builtin.Config{}) {
		decls = append(decls, &a)
	}
	catalogue := catalogue.New(decls...)
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	compiled, ran := 0, 0
	for _, a := range decls {
		page, err := os.ReadFile(filepath.Join("docs", "actions", a.Name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range snippet.FindAllStringSubmatch(string(page), -1) {
			text := strings.ReplaceAll(found[1], "\r\n", "\n")
			_, _, _, diags := compile.Source(a.Name+".yaml", []byte(text), compile.Options{Actions: catalogue})
			for _, d := range diags {
				t.Errorf("%s: %v\n%s", a.Name, d, text)
			}
			compiled++
			if strings.Contains(text, "--file") || notRun[a.Name] != "" {
				continue
			}
			id, err := e.Start(t.Context(), roux.Request{Recipe: []byte(text), Source: a.Name + ".yaml"})
			if err != nil {
				t.Errorf("%s: %v\n%s", a.Name, err, text)
				continue
			}
			if res, err := e.Wait(t.Context(), id); err != nil || res.Status != "completed" {
				t.Errorf("%s: %+v, %v\n%s", a.Name, res, err, text)
			}
			ran++
		}
	}
	if compiled <= ran || ran < 10 {
		t.Errorf("%d recipes compiled, %d ran: the pages have lost their examples", compiled, ran)
	}
	t.Logf("%d recipes compiled, %d ran", compiled, ran)
}
