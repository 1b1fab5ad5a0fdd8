// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/roux-engine/roux/internal/jsonx"
)

// TestEditorsPage runs the commands of docs/editors.md, and starts the server as each of its settings says.
func TestEditorsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/editors.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	p := &pageRun{t: t}
	editors := map[string][]string{}
	for _, b := range pageBlock.FindAllStringSubmatch(strings.ReplaceAll(string(page), "\r\n", "\n"), -1) {
		switch kind, text := b[1], b[2]; kind {
		case "yaml":
			name, rest, _ := strings.Cut(text, "\n")
			if err := os.WriteFile(strings.TrimPrefix(name, "# "), []byte(rest), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			p.run(shownLines(text), nil, nil)
		default:
			editors[kind] = serverCommand(t, kind, text)
		}
	}
	if len(editors) != 3 {
		t.Errorf("the page has settings for %d editors: it has lost some", len(editors))
	}
	if _, err := os.Stat(filepath.Join(".vscode", "settings.json")); err != nil {
		t.Error(err)
	}
	for kind, words := range editors {
		if !slices.Equal(words, []string{"roux", "lsp"}) {
			t.Errorf("the settings in %s start %q", kind, words)
		}
	}
	played(t, &txtar.Archive{Comment: []byte(`> {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}
> {"jsonrpc":"2.0","id":2,"method":"shutdown"}
> {"jsonrpc":"2.0","method":"exit"}
`)}, nil)
}

// serverCommand returns the command in the settings of an editor.
func serverCommand(t *testing.T, kind, text string) (words []string) {
	t.Helper()
	pattern := map[string]string{"lua": `cmd = \{(.*)\}`, "toml": `(?s)command = (.*?)\n\n`}[kind]
	if kind == "json" {
		v, err := jsonx.Decode([]byte(text), jsonx.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		settings := v.(map[string]any)
		words = append(words, settings["glspc.server.command"].(string))
		for _, arg := range settings["glspc.server.commandArguments"].([]any) {
			words = append(words, arg.(string))
		}
		return words
	}
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if pattern == "" || found == nil {
		t.Fatalf("a block of %s without a command:\n%s", kind, text)
	}
	for _, m := range regexp.MustCompile(`['"]([^'"]*)['"]`).FindAllStringSubmatch(found[1], -1) {
		words = append(words, m[1])
	}
	return words
}
