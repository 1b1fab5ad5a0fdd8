// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/config"
)

// pipelinesSource is the document about pipelines.
func pipelinesSource(t *testing.T) string {
	t.Helper()
	document, err := os.ReadFile(filepath.Join(cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared"), "sources", "recursive-pipelines.txt"))
	if err != nil {
		t.Skipf("the source documents are not here (ROUX_SHARED): %v", err)
	}
	return strings.ReplaceAll(string(document), "\r\n", "\n")
}

// nestedPipelines run as many pipelines as the document counts: of "analysis" 42 at depth 2, and 3 that are too deep,
// which are the one that is refused and the two that it fails.
var nestedPipelines = map[string]string{
	"main.yaml": `workflow:
  name: main
  steps:
    - name: each
      type: for_loop
      over: "{{ inputs.items }}"
      as: item
      steps: [{name: phase, type: pipeline, pipeline_file: ./middle.yaml}]
    - name: too_deep
      type: pipeline
      pipeline_file: ./analysis.yaml
      inputs: {deeper: true}
      config: {continue_on_error: true}
`,
	"middle.yaml": "workflow:\n  name: middle\n  steps: [{name: analyze, type: pipeline, pipeline_file: ./analysis.yaml, inputs: {deeper: false}}]\n",
	"analysis.yaml": `workflow:
  name: analysis
  steps:
    - {name: mean, type: set_variable, value: 1.5}
    - name: deeper
      type: pipeline
      condition: "{{ inputs.deeper }}"
      pipeline_ref: analysis
      inputs: {deeper: true}
      config: {max_depth: 2}
`,
}

// TestX224_ServerHasTheLines: what the document about pipelines shows of a running system is there: the four metrics, in
// the words of a server that has run nested pipelines (X224), the tree (X212) and the settings (X28, X162, X230, X231, X234, X236).
func TestX224_ServerHasTheLines(t *testing.T) {
	document := pipelinesSource(t)
	dir, data, metrics := t.TempDir(), shortDir(t), freeAddress(t)
	for name, text := range nestedPipelines {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := start(t, nil, "serve", "--data", data, "--listen", freeAddress(t), "--admin", metrics)
	server.until("curl -H")
	items := "items=[" + strings.TrimSuffix(strings.Repeat("1,", 41), ",") + "]"
	if out, talk, code := roux(t, nil, "run", filepath.Join(dir, "main.yaml"), "--data", data, "--input", items); code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, talk)
	}
	shown := fetched(t, "http://"+metrics+"/metrics")
	tree, talk, code := roux(t, nil, "trace", "@last", "--data", data, "--children", "all")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, talk)
	}
	t.Run("metrics", func(t *testing.T) { sourceMetrics(t, document, shown) })
	t.Run("tree", func(t *testing.T) { sourceTree(t, document, tree) })
	t.Run("settings", func(t *testing.T) { sourceSettings(t, document) })
	server.stop()
}

func fetched(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, err)
	}
	return string(text)
}

// sourceMetrics finds each line of a metric. The order of the labels and the space between them say nothing in the format.
// The document's numbers of runs and errors are those of nestedPipelines; its duration and memory are of another machine.
func sourceMetrics(t *testing.T, document, shown string) {
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(pipeline_nested_\w+)\{(.*)\} ([0-9.]+)$`).FindAllStringSubmatch(document, -1) {
		names[m[1]] = true
		labels := strings.Split(m[2], ", ")
		slices.Sort(labels)
		series, number := m[1]+"{"+strings.Join(labels, ",")+"}", regexp.QuoteMeta(m[3])
		if !strings.HasSuffix(m[1], "_total") {
			number = `(0\.0*[1-9].*|[1-9].*)`
		}
		if strings.Contains(m[1], "duration") {
			number = `[0-9].*` // runs of transforms alone may take no time
		}
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + " " + number + "$").MatchString(shown) {
			got := regexp.MustCompile(`(?m)^pipeline_nested_.*`).FindAllString(shown, -1)
			t.Errorf("the server does not say %s %s but\n%s", series, number, strings.Join(got, "\n"))
		}
	}
	if len(names) != 4 {
		t.Errorf("the document has the metrics %v, want 4", names)
	}
}

// sourceTree finds the lines of the tree printer in the words of the document.
func sourceTree(t *testing.T, document, tree string) {
	title := regexp.MustCompile(`IO\.puts\("(Execution Tree:)"\)`).FindStringSubmatch(document)
	run := regexp.MustCompile(`IO\.puts\("#\{padding\}(├─ )#\{context\.pipeline_name\}( \(depth: )#\{context\.nesting_depth\}(\))"\)`).FindStringSubmatch(document)
	if title == nil || run == nil {
		t.Fatal("the document prints no tree")
	}
	if !strings.HasPrefix(tree, title[1]+"\n") {
		t.Errorf("the tree has no title %q:\n%s", title[1], tree)
	}
	// Of the 41 items of the loop 20 are shown, and the step after it has a run, too.
	for name, runs := range map[string][]int{"main": {1, 0, 0}, "middle": {0, 20, 0}, "analysis": {0, 1, 21}} {
		for depth, want := range runs {
			line := fmt.Sprintf("%s%s%s%d%s", run[1], name, run[2], depth, run[3])
			if got := strings.Count(tree, line); got != want {
				t.Errorf("%q is there %d times, want %d:\n%.3000s", line, got, want, tree)
			}
		}
	}
	// Steps and results, under the run that they are of.
	if n := len(regexp.MustCompile(`(?m)^(│| )+[├└]─ ✓ mean .*completed`).FindAllString(tree, -1)); n != 22 {
		t.Errorf("%d steps \"mean\" are shown, want 22:\n%.3000s", n, tree)
	}
}

// sourceSettings finds the settings of the document's configuration by their names.
func sourceSettings(t *testing.T, document string) {
	_, part, ok := strings.Cut(document, "C. Configuration Reference\n")
	list := regexp.MustCompile(`(?m)^(\w+): (.*?),?$`).FindAllStringSubmatch(part, -1)
	if !ok || len(list) != 6 {
		t.Fatalf("the document has the settings %v, want 6", list)
	}
	for _, m := range list {
		i := slices.IndexFunc(config.All(), func(s config.Setting) bool { return s.Key == m[1] })
		switch {
		case i < 0:
			t.Errorf("there is no setting %s", m[1])
		case config.All()[i].Env != "ROUX_"+strings.ToUpper(m[1]):
			t.Errorf("%s is also %s", m[1], config.All()[i].Env)
		}
	}
}
