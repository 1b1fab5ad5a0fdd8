// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const namedRecipe = `name: named
steps:
  - id: look
    action: {name: file-inspect}
  - id: make
    action: {name: text-join, parameters: {items: ["equal ", "bytes"], output: file, name: "{{ input.made }}.txt"}}
outputs:
  looked: steps.look.output.name
  type: steps.look.output.mimeType
  inText: files[0].name
  given: fileHashes[0]
  made: steps.make.output.file
`

// A file keeps the name that it came with in its run, whatever an older upload of
// equal bytes was called: for actions, in expressions, and for --save. So does a
// file that a step makes.
func TestFilesKeepTheNamesOfTheirRun(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ROUX_DATA", filepath.Join(dir, "data"))
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	recipe := write("named.yaml", namedRecipe)
	// The store knows both contents under other names.
	for _, args := range [][]string{{"files", "put", write("older.md", "a,b\n1,2\n")}, {"files", "put", write("elder.csv", "equal bytes")}} {
		if _, talk, code := inProcess("", args...); code != 0 {
			t.Fatal(talk)
		}
	}
	for _, name := range []string{"one", "two"} {
		into := filepath.Join(dir, "out-"+name)
		out, talk, code := inProcess("", "run", recipe, "--file", write(name+".csv", "a,b\n1,2\n"), "--input", "made=by-"+name, "--save", into, "-o", "json")
		if code != 0 {
			t.Fatal(talk)
		}
		var res struct {
			Outputs struct{ Looked, Type, InText string } `json:"outputs"`
		}
		if err := json.Unmarshal([]byte(out), &res); err != nil {
			t.Fatal(err)
		}
		if o := res.Outputs; o.Looked != name+".csv" || o.InText != name+".csv" || o.Type != "text/csv" {
			t.Errorf("run %s: %+v", name, o)
		}
		entries, err := os.ReadDir(into)
		if err != nil {
			t.Fatal(err)
		}
		var saved []string
		for _, e := range entries {
			saved = append(saved, e.Name())
		}
		if want := []string{"by-" + name + ".txt", name + ".csv"}; !slices.Equal(saved, want) {
			t.Errorf("run %s saved %v, want %v", name, saved, want)
		}
	}
}
