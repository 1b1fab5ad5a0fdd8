// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/provider/emulate"
)

// A sourceBlock is a definition of the document about pipelines, which has lost its indentation there: indent has
// that of each line, in levels, and the last one is that of all further lines. Some have lost their line breaks,
// too. Where it says more than one pipeline can, change makes a pipeline of it.
type sourceBlock struct {
	name    string
	after   string // a line of the document, with the block after it
	indent  string
	oneLine bool
	lines   int // 0 = as many as indent has
	change  func(text string) string
	files   map[string]string // pipelines that it names, by their paths
	input   []string
	answer  string // of the model
	output  string // the result, JSON
	code    string // with which it fails; "" = it completes
}

// gives is a pipeline whose steps are variables with these values.
func gives(name string, variables ...string) string {
	text := "workflow:\n  name: " + name + "\n  steps:\n"
	for i := 0; i < len(variables); i += 2 {
		text += "    - {name: " + variables[i] + ", type: set_variable, value: " + variables[i+1] + "}\n"
	}
	return text
}

// sourceBlocks are the definitions of the document, each once.
var sourceBlocks = []sourceBlock{
	{
		name: "complete_analysis", after: "# Proposed approach - composed pipelines", indent: "011233233233",
		files: map[string]string{
			"pipelines/data_extraction.yaml": gives("data_extraction", "rows", "3"), "pipelines/data_cleaning.yaml": gives("data_cleaning", "rows", "2"),
			"pipelines/analysis.yaml": gives("analysis", "mean", "1.5"),
		},
		output: `{"extract_data":3,"clean_data":2,"analyze":1.5}`,
	},
	{
		name: "sub_workflow", after: "Step Definition Schema", indent: "01111122344" + "112222222" + "11222232234411" + "2", lines: 48,
		// It shows all sources, of which a step has one.
		change: func(text string) string {
			text = regexp.MustCompile(`(?m)^ +pipeline_ref:.*\n`).ReplaceAllString(text, "")
			text = regexp.MustCompile(`(?s)  pipeline: # Inline.*?prompt: "..."\n`).ReplaceAllString(text, "")
			head := "workflow:\n  name: all\n  settings: {depth: 2}\n  base_threshold: 0.5\n  steps:\n    - {name: previous, type: set_variable, value: [1]}\n"
			return head + "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
		},
		files: map[string]string{"path/to/pipeline.yaml": gives("nested",
			"analysis", `{metrics: {accuracy: "{{ inputs.threshold }}"}}`, "report", `{summary: "{{ inputs.mode }}", recommendations: ["{{ inputs.config.depth }}"]}`,
			"final", `"{{ inputs.data }}"`)},
		output: `{"previous":[1],"sub_workflow":{"final":[1],"accuracy_score":0.75,"summary":"production","recommendations":[2]}}`,
	},
	{
		name: "data_analysis", after: "# main.yaml", indent: "011233344344" + "233344",
		files: map[string]string{
			"components/data_prep.yaml": gives("data_prep", "cleaned_data", `"{{ inputs.source }}.{{ inputs.format }}"`, "metadata", "{rows: 2}"),
			"components/analysis.yaml":  gives("analysis", "said", `"{{ inputs.data }} has {{ inputs.config.rows }} rows"`),
		},
		input:  []string{"data_source=a", "data_format=csv"},
		output: `{"prepare_data":{"cleaned_data":"a.csv","metadata":{"rows":2}},"analyze":"a.csv has 2 rows"}`,
	},
	{
		name: "adaptive_processing", after: "Conditional Sub-Pipelines", indent: "011233" + "233334" + "233334",
		files: map[string]string{"processors/text.yaml": gives("text", "kind", "text"), "processors/structured.yaml": gives("structured", "kind", "rows")},
		input: []string{"x=1"}, answer: `{"type": "structured"}`,
		output: `{"detect_type":{"type":"structured"},"process_structured":"rows"}`,
	},
	{
		name: "recursive_analyzer", after: "Recursive Processing", indent: "011233" + "23333" + "455" + "56" + "56",
		input: []string{"item=a"}, answer: `{"sub_items": []}`, output: `{"analyze_item":{"sub_items":[]},"process_children":[]}`,
	},
	{
		name: "recursive_analyzer, without end", after: "Recursive Processing", indent: "011233" + "23333" + "455" + "56" + "56",
		input: []string{"item=a"}, answer: `{"sub_items": ["b"]}`, code: "DEPTH_EXCEEDED",
	},
	{
		name: "resilient_processor", after: "Error Recovery Pattern", indent: "011" + "23334" + "2333344",
		files: map[string]string{
			"primary.yaml":  "workflow:\n  name: primary\n  steps:\n    - {name: broken, type: fail, fail: {code: BROKEN, message: it is broken}}\n",
			"fallback.yaml": gives("fallback", "said", `"{{ inputs.error.code }} of {{ inputs.original_input }}"`),
		},
		input: []string{"data=x"}, output: `{"fallback_processing":"BROKEN of x"}`,
	},
	{
		name: "resilient_processor, without a failure", after: "Error Recovery Pattern", indent: "011" + "23334" + "2333344",
		files: map[string]string{"primary.yaml": gives("primary", "one", "1"), "fallback.yaml": gives("fallback", "two", "2")},
		input: []string{"data=x"}, output: `{"primary_processing":1}`,
	},
	{
		name: "shared_analysis", after: "Extract Repeated Patterns", indent: "011233", oneLine: true,
		files: map[string]string{"common/analysis.yaml": gives("analysis", "mean", "1.5")}, output: `{"analyze":1.5}`,
	},
	{
		name: "main_workflow", after: "Decompose Large Pipelines", indent: "011233233", oneLine: true,
		files:  map[string]string{"phases/ingestion.yaml": gives("ingestion", "rows", "3"), "phases/processing.yaml": gives("processing", "rows", "2")},
		output: `{"phase1":3,"phase2":2}`,
	},
}

// text returns the block with its line breaks and its indentation.
func (b *sourceBlock) text(t *testing.T, document string) string {
	t.Helper()
	_, rest, ok := strings.Cut(document, "\n"+b.after+"\n")
	if !ok {
		t.Fatalf("the document has no line %q", b.after)
	}
	if b.oneLine {
		rest, _, _ = strings.Cut(rest, "\n")
		rest = rest[strings.Index(rest, "workflow:"):]
		rest = regexp.MustCompile(` (- name:|name:|steps:|type:|pipeline_file:)`).ReplaceAllString(rest, "\n$1")
		rest = strings.ReplaceAll(rest, "-\nname", "- name")
	}
	n := cmp.Or(b.lines, len(b.indent))
	var out strings.Builder
	for i, line := range strings.SplitN(rest, "\n", n+1)[:n] {
		level := b.indent[min(i, len(b.indent)-1)] - '0'
		out.WriteString(strings.Repeat("  ", int(level)) + line + "\n")
	}
	return out.String()
}

// TestX13_SourceDefinitions: each definition of the document about pipelines runs as it stands, with pipelines in the
// directories that it names and a model at a service (X13–X19, X37, X43, X59–X61, X64, X123, X230, X233).
func TestX13_SourceDefinitions(t *testing.T) {
	document, err := os.ReadFile(filepath.Join(cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared"), "sources", "recursive-pipelines.txt"))
	if err != nil {
		t.Skipf("the source documents are not here (ROUX_SHARED): %v", err)
	}
	named := map[string]bool{}
	for _, b := range sourceBlocks {
		t.Run(b.name, func(t *testing.T) {
			withModels(t, emulate.Config{Answer: b.answer})
			dir := t.TempDir()
			text := b.text(t, strings.ReplaceAll(string(document), "\r\n", "\n"))
			if b.change != nil {
				text = b.change(text)
			}
			files := map[string]string{"main.yaml": text}
			for name, text := range b.files {
				files[name] = text
			}
			for name, text := range files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"run", filepath.Join(dir, "main.yaml"), "-o", "json"}
			for _, in := range b.input {
				args = append(args, "--input", in)
			}
			out, talk, exit := inProcess("", args...)
			var run struct {
				Outputs map[string]any
				Error   struct{ Code string }
			}
			if err := json.Unmarshal([]byte(out), &run); err != nil {
				t.Fatalf("exit %d: %v\n%s\n%s\n%s", exit, err, text, out, talk)
			}
			if (b.code == "") != (exit == 0) || run.Error.Code != b.code {
				t.Fatalf("exit %d, want the code %q\n%s\n%s", exit, b.code, out, talk)
			}
			for _, name := range []string{"detect_type", "analyze_item"} { // the fields that the answer has are of interest
				if said, ok := run.Outputs[name].(map[string]any); ok {
					for _, field := range []string{"text", "json", "media", "usage", "model", "provider", "stopReason"} {
						delete(said, field)
					}
				}
			}
			var want map[string]any
			if b.code == "" {
				if err := json.Unmarshal([]byte(b.output), &want); err != nil {
					t.Fatal(err)
				}
			}
			if b.code == "" && !reflect.DeepEqual(run.Outputs, want) {
				t.Errorf("outputs %v, want %v\n%s", run.Outputs, want, talk)
			}
		})
		named[regexp.MustCompile(`^\w+`).FindString(b.name)] = true
	}
	// Every definition of the document is in the table.
	for _, m := range regexp.MustCompile(`workflow:\s+name: "(\w+)"\s+steps:\s+- name`).FindAllStringSubmatch(string(document), -1) {
		if !named[m[1]] {
			t.Errorf("the definition %q of the document is not run", m[1])
		}
	}
	if len(named) != 8 {
		t.Errorf("%d definitions, want 8", len(named))
	}
}
