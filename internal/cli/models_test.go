// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/provider/emulate"
)

// The commands of the page work, in order and in one shell.
func TestModelsPage(t *testing.T) {
	runEmulated(t, "models", 9, "127.0.0.1:7430", freeAddress(t))
}

// The commands of the page work, with a service that carries out jobs and a server that it reports
// to.
func TestJobsPage(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skipf("a tool of the page is not installed: %s", "curl")
	}
	runEmulated(t, "jobs", 21, "127.0.0.1:7431", freeAddress(t), "127.0.0.1:7420", freeAddress(t))
}

// TestFlowPage: docs/flow.md, with lenses in files and at a server.
func TestFlowPage(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skipf("a tool of the page is not installed: %s", "curl")
	}
	runEmulated(t, "flow", 18, "127.0.0.1:7432", freeAddress(t), "127.0.0.1:7420", freeAddress(t))
}

// TestPipelinePage: docs/pipeline.md.
func TestPipelinePage(t *testing.T) {
	runEmulated(t, "pipeline", 10, "127.0.0.1:7433", freeAddress(t))
}

// runEmulated runs a page that starts an emulator, and perhaps a server, in the background of its
// shell. replace has addresses of the page, each followed by what is in its place.
func runEmulated(t *testing.T, name string, least int, replace ...string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	dir, differs, served := shortDir(t), strings.NewReplacer(replace...), ""
	if len(replace) > 2 {
		served = " --listen " + replace[3]
	}
	sh := newShell(t, dir, rouxOnPath(t)+"export ROUX_DATA=\n")
	blocks := pageBlock.FindAllStringSubmatch(differs.Replace(string(page)), -1)
	tried := 0
	for i, b := range blocks {
		switch kind, text := b[1], b[2]; kind {
		case "yaml":
			name, text, _ := strings.Cut(text, "\n")
			if err := os.WriteFile(filepath.Join(dir, strings.TrimLeft(name, "# ")), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			// A command in the background is there when its first line is.
			for _, one := range []string{"roux emulate", "roux serve"} {
				if strings.Contains(text, one) {
					text = strings.Replace(text, " &\n", served[:len(served)*strings.Count(one, "serve")]+" > ready 2>&1 &\n", 1) + "echo $! >> pids\nuntil grep -qE 'emulating|listening' ready; do :; done\n"
				}
			}
			tried += len(shownLines(text))
			text = strings.ReplaceAll(text, " # ends with 1\n", " 2>&1 || test $? = 1\n")
			shown := sh.run(text)
			if i+1 < len(blocks) && blocks[i+1][1] == "text" {
				if missing := missingLine(shown, shownLines(blocks[i+1][2])); missing != "" {
					t.Fatalf("it does not show %q but\n%s", missing, shown)
				}
			}
		}
	}
	sh.run("kill $(cat pids)\n")
	if tried < least {
		t.Errorf("%d commands on the page: it has lost some", tried)
	}
}

// withModels makes the next commands use models of an emulator.
func withModels(t *testing.T, cfg emulate.Config) {
	t.Helper()
	srv := httptest.NewServer(emulate.New(cfg).Handler())
	t.Cleanup(srv.Close)
	t.Setenv("ROUX_EGRESS_ALLOW", "127.0.0.1/32")
	t.Setenv("ROUX_PROVIDERS", `{"m": {"kind": "anthropic", "url": "`+srv.URL+`", "model": "small", "max_tokens": 8000, "prices": {"small": {"input": 1000, "output": "2000"}}}}`)
	t.Setenv("ROUX_DATA", shortDir(t))
}

// The example of the recipe-system source runs from the upload to its three outputs, and is
// charged for its steps (X160).
func TestX160_SourceWithAModel(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared"), "sources", "recipe-system.txt"))
	if err != nil {
		t.Skipf("the source documents are not here (ROUX_SHARED): %v", err)
	}
	_, rest, _ := bytes.Cut(text, []byte("JSON Example"))
	example, _, ok := bytes.Cut(rest, []byte("Condition Expressions (CEL)"))
	if !ok {
		t.Fatal("the example is not where it was")
	}
	withModels(t, emulate.Config{})
	recipe := filepath.Join(t.TempDir(), "example.json")
	if err := os.WriteFile(recipe, example, 0o600); err != nil {
		t.Fatal(err)
	}
	out, talk, code := inProcess("", "run", recipe, "--file", "../../examples/report.pdf", "--input", "targetLanguage=es", "-o", "json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, talk)
	}
	var run struct {
		Outputs struct {
			TranslatedFileHash           string
			OriginalPageCount, WordCount int
		}
		Credits struct{ Used int64 }
	}
	if err := json.Unmarshal([]byte(out), &run); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if o := run.Outputs; !strings.HasPrefix(o.TranslatedFileHash, "sha256_") || o.OriginalPageCount != 4 || o.WordCount < 850 {
		t.Errorf("%+v\n%s", o, out)
	}
	// 1 for inspecting, 5 for reading, and what the tokens of the translation cost.
	if run.Credits.Used < 8 || run.Credits.Used > 20 {
		t.Errorf("it used %d credits\n%s", run.Credits.Used, out)
	}
}
