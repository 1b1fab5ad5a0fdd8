// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
)

// The program of the page runs, and goes on in the same directory.
func TestProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for range 2 {
		var out strings.Builder
		if err := run(t.Context(), dir, &out); err != nil || out.String() != `completed {"title":"The ferry sa","words":3}`+"\n" {
			t.Errorf("%q, %v", out.String(), err)
		}
	}
}

var block = regexp.MustCompile("(?ms)^```go\n// (\\S+)\n(.*?)^```$")

// Every piece of Go on the page is a file of this directory, or the rest of one, so
// that what is read there is what is compiled and run here.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../own-action.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), "\r\n", "\n")
	blocks := block.FindAllStringSubmatch(text, -1)
	if len(blocks) != strings.Count(text, "```go\n") || len(blocks) < 4 {
		t.Errorf("%d of %d pieces of Go begin with the name of their file", len(blocks), strings.Count(text, "```go\n"))
	}
	for _, b := range blocks {
		file, err := os.ReadFile(b[1])
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(strings.ReplaceAll(string(file), "\r\n", "\n"), strings.TrimPrefix(b[2], "package main\n")) {
			t.Errorf("%s has not what the page shows:\n%s", b[1], b[2])
		}
	}
	// The action is as short as the page says.
	body := blocks[0][2][strings.Index(blocks[0][2], "var shorten"):]
	if n := strings.Count(strings.TrimSpace(body), "\n") + 1; n > 20 {
		t.Errorf("the action has %d lines", n)
	}
}

// The recipes of the page run with its actions.
func TestRecipes(t *testing.T) {
	page, err := os.ReadFile("../own-action.md")
	if err != nil {
		t.Fatal(err)
	}
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir(), Actions: []action.Action{shorten, pay}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	recipes := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(recipes) == 0 {
		t.Error("the page has no recipe")
	}
	for _, r := range recipes {
		id, err := e.Start(t.Context(), roux.Request{Recipe: []byte(strings.ReplaceAll(r[1], "\r\n", "\n"))})
		if err != nil {
			t.Errorf("%v\n%s", err, r[1])
			continue
		}
		if res, err := e.Wait(t.Context(), id); err != nil || res.Status != "completed" {
			t.Errorf("%+v, %v\n%s", res, err, r[1])
		}
	}
}
