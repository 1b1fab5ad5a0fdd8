// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/action/actiontest"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/media"
)

func TestMain(m *testing.M) {
	media.Dispatch()
	os.Exit(m.Run())
}

func find(t testing.TB, name string) *action.Action {
	t.Helper()
	for _, a := range Actions(Config{}) {
		if a.Name == name {
			return &a
		}
	}
	t.Fatalf("there is no action %s", name)
	return nil
}

func store(t testing.TB) *blob.Store {
	t.Helper()
	s, err := blob.Open(blob.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func upload(t testing.TB, s *blob.Store, name string, data []byte) action.FileInfo {
	t.Helper()
	info, err := s.Put(context.Background(), "acme", bytes.NewReader(data), name, "")
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// call runs an action as a run does.
func call(t testing.TB, s *blob.Store, name string, input map[string]any) (map[string]any, error) {
	t.Helper()
	a := find(t, name)
	out, err := actiontest.Call(t, *a, input, actiontest.WithFiles(s.Files("acme")))
	if err == nil && out.Cost != a.Cost {
		t.Errorf("%s cost %d credits, declared %d", name, out.Cost, a.Cost)
	}
	return out.Object(), err
}

func reportPDF(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", "report.pdf"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// samples are the files for the examples of actions: for each action, one per
// file input.
func samples(t testing.TB) map[string][]actiontest.Option {
	report := actiontest.Sample("file", "report.pdf", reportPDF(t))
	photo := actiontest.Sample("file", "photo.jpg", portrait(t))
	written := t.TempDir()
	for _, name := range []string{"notes/today.txt", "out/report.pdf"} {
		if err := os.MkdirAll(filepath.Join(written, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(written, name), []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	space := actiontest.WithWorkspace(written)
	prose := actiontest.Sample("file", "prose.txt", []byte("The ferry sails at noon.\n\nBe there.\n"))
	return map[string][]actiontest.Option{
		"file-inspect":     {report},
		"pdf-to-markdown":  {report},
		"resize-image":     {photo},
		"convert-image":    {photo},
		"csv-to-json":      {actiontest.Sample("file", "prices.csv", []byte("name;price\nbread;3,20\n"))},
		"json-to-csv":      {actiontest.Sample("file", "rows.jsonl", []byte("{\"a\":1}\n{\"a\":2}\n"))},
		"json-path":        {actiontest.Sample("file", "report.json", []byte(`{"meta":{"title":"x"}}`))},
		"rows-query":       {actiontest.Sample("file", "rows.jsonl", []byte("{\"name\":\"tea\",\"price\":12}\n{\"name\":\"jam\",\"price\":8}\n"))},
		"text-split":       {prose},
		"text-replace":     {prose},
		"word-count":       {prose},
		"hash":             {prose},
		"workspace-write":  {prose, space},
		"workspace-read":   {space},
		"workspace-list":   {space},
		"html-to-markdown": {actiontest.Sample("file", "page.html", []byte("<!doctype html><h1>Ferry</h1>"))},
		"markdown-to-html": {actiontest.Sample("file", "page.md", []byte("# Ferry\n"))},
		"llm":              {actiontest.NoRun("they need a model provider; TestX101_X164_X174_Model")},
		"claude":           {actiontest.NoRun("they need a model provider; TestClaude")},
		"translate-text":   {actiontest.NoRun("they need a model provider; TestX160_TranslateText")},
		"http":             {actiontest.NoRun("they need a service; TestHTTP_Answers has one")},
	}
}

// X10, X11, X12: every action declares its inputs and outputs, ready-made
// predicates that evaluate on its own output, its duration, its limits, and
// examples that work.
func TestX10_X11_X12_Declarations(t *testing.T) {
	with := samples(t)
	for _, a := range Actions(Config{}) {
		t.Run(a.Name, func(t *testing.T) {
			actiontest.Check(t, a, append(with[a.Name], actiontest.Published())...)
			if !a.Metadata.MayRunInParallel() {
				t.Error("it may not run beside others")
			}
			if files := jsonschema.FileFields(a.Input); len(files) > 0 && len(a.Examples) > 0 && with[a.Name] == nil {
				t.Errorf("it reads files (%v): give samples one, so that its examples are run", files)
			}
		})
	}
}

// X12: the conditions distinguish types and sizes.
func TestX12_BranchConditions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		output map[string]any
		want   bool
	}{
		{"is-pdf", map[string]any{"mimeType": "application/pdf"}, true},
		{"is-pdf", map[string]any{"mimeType": "image/png"}, false},
		{"is-image", map[string]any{"mimeType": "image/png"}, true},
		{"is-image", map[string]any{"mimeType": "text/plain"}, false},
		{"is-portrait", map[string]any{"extended": map[string]any{"shownWidth": int64(2), "shownHeight": int64(3)}}, true},
		{"is-portrait", map[string]any{"extended": map[string]any{"shownWidth": int64(3), "shownHeight": int64(3)}}, false},
		{"is-portrait", map[string]any{"extended": map[string]any{"pageCount": int64(3)}}, false},
		{"is-small", map[string]any{"sizeBytes": int64(10485759)}, true},
		{"is-small", map[string]any{"sizeBytes": int64(10485760)}, false},
	} {
		found := false
		for _, c := range find(t, "file-inspect").Metadata.BranchConditions {
			if c.Name != tt.name {
				continue
			}
			found = true
			p, err := expr.Compile(c.Expression)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := p.Eval(expr.MapVars{"output": tt.output}); err != nil || got != tt.want {
				t.Errorf("%s of %v = %v, %v", tt.name, tt.output, got, err)
			}
		}
		if !found {
			t.Errorf("file-inspect has no condition %s", tt.name)
		}
	}
}

// X10, X11: the inputs and outputs of each action, by name and MIME pattern:
// any file can be inspected, only a PDF can be read.
func TestX10_X11_Types(t *testing.T) {
	for name, want := range map[string]string{
		"file-inspect":    "file */* -> facts application/json, 1ms to 10s",
		"pdf-to-markdown": "document application/pdf -> markdown text/markdown, 50ms to 5m",
		"resize-image":    "image image/jpeg image/png image/gif image/bmp image/tiff image/webp -> resized image/jpeg image/png image/gif image/bmp image/tiff, 30ms to 30s",
		"convert-image":   "image image/jpeg image/png image/gif image/bmp image/tiff image/webp -> converted image/jpeg image/png image/gif image/bmp image/tiff, 30ms to 30s",
	} {
		m := find(t, name).Metadata
		in, out := m.InputTypes[0], m.OutputTypes[0]
		got := fmt.Sprintf("%s %s -> %s %s, %s to %s", in.Name, strings.Join(in.MimeTypes, " "), out.Name, strings.Join(out.MimeTypes, " "), m.DurationRange.Min, m.DurationRange.Max)
		if got != want || len(m.InputTypes) != 1 || len(m.OutputTypes) != 1 {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// X158, X159: a file is identified by its hash and described by its content.
func TestX158_X159_FileInspect(t *testing.T) {
	s := store(t)
	for _, tt := range []struct {
		name string
		data []byte
		want map[string]any
	}{
		{"report.pdf", reportPDF(t), map[string]any{"mimeType": "application/pdf",
			"extended": map[string]any{"pageCount": int64(4), "encrypted": false, "title": "The Ferry of Lindholm: A Year in Numbers", "author": "The Roux authors"}}},
		{"note.txt", []byte("hello"), map[string]any{"mimeType": "text/plain", "extended": map[string]any{}}},
		{"posing.pdf", []byte("GIF89a\x03\x00\x02\x00\x00\x00\x00;"), map[string]any{"mimeType": "image/gif",
			"extended": map[string]any{"width": int64(3), "height": int64(2), "format": "gif", "orientation": int64(1),
				"shownWidth": int64(3), "shownHeight": int64(2), "hasAlpha": false, "animated": false}}},
		{"empty", nil, map[string]any{"mimeType": "text/plain", "extended": map[string]any{}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			info := upload(t, s, tt.name, tt.data)
			tt.want["hash"], tt.want["name"], tt.want["sizeBytes"] = info.Hash, tt.name, int64(len(tt.data))
			got, err := call(t, s, "file-inspect", map[string]any{"file": info.Hash})
			if err != nil || fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got  %v, %v\nwant %v", got, err, tt.want)
			}
		})
	}
}

// X160: the text of a PDF, with and without Markdown.
func TestX160_PDFToMarkdown(t *testing.T) {
	s := store(t)
	file := upload(t, s, "report.pdf", reportPDF(t)).Hash
	got, err := call(t, s, "pdf-to-markdown", map[string]any{"file": file})
	if err != nil {
		t.Fatal(err)
	}
	content := got["content"].(string)
	for _, want := range []string{
		"# The Ferry of Lindholm: A Year in Numbers\n\nThe ferry of Lindholm crosses the sound",
		"\n\n## Summary\n\n", "\n\n### Who Travels\n\n", "\n- who keeps the spare engine",
		"| Quarter | Crossings | Passengers | On time |\n| --- | --- | --- | --- |\n| January to March | 1,846 | 24,118 | 91 percent |",
		"| Insurance and fees | 11,306 |",
	} {
		if !strings.Contains(content, want) {
			t.Errorf("the text lacks %q", want)
		}
	}
	headings := got["headings"].([]any)
	if got["pageCount"] != int64(4) || got["title"] != "The Ferry of Lindholm: A Year in Numbers" || len(headings) != 11 || len(got["pages"].([]any)) != 4 {
		t.Errorf("pages %v, title %v, %d headings: %v", got["pageCount"], got["title"], len(headings), headings)
	}
	if words := got["wordCount"].(int64); words < 850 || words > 1_000 {
		t.Errorf("%d words", words)
	}
	plain, err := call(t, s, "pdf-to-markdown", map[string]any{"file": file, "preserveFormatting": false})
	if err != nil {
		t.Fatal(err)
	}
	if text := plain["content"].(string); strings.ContainsAny(text, "#|") || !strings.Contains(text, "Summary\n\nThe boat made") {
		t.Errorf("preserveFormatting: false gave marks: %.300s", text)
	}
	if plain["wordCount"] != got["wordCount"] {
		t.Errorf("words differ: %v and %v", plain["wordCount"], got["wordCount"])
	}
}

// An invalid input is refused with a code and a message.
func TestRefusals(t *testing.T) {
	s := store(t)
	text := upload(t, s, "note.txt", []byte("hello")).Hash
	broken := upload(t, s, "broken.pdf", []byte("%PDF-1.4\nnothing more")).Hash
	badImage := upload(t, s, "bad.png", append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 40)...)).Hash
	foreign, err := s.Put(context.Background(), "other", strings.NewReader("theirs"), "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, action string
		input        map[string]any
		code         fault.Code
		says         string
	}{
		{"no file", "file-inspect", map[string]any{}, fault.InputContractViolation, "file"},
		{"an unknown field", "pdf-to-markdown", map[string]any{"file": text, "preserveFormating": true}, fault.InputContractViolation, "preserveFormating"},
		{"a path for a hash", "file-inspect", map[string]any{"file": "../../etc/passwd"}, fault.InputContractViolation, "file"}, // A15
		{"a file nobody stored", "file-inspect", map[string]any{"file": "sha256_" + strings.Repeat("0", 64)}, fault.FileNotFound, "sha256_000"},
		{"another account's file", "file-inspect", map[string]any{"file": foreign.Hash}, fault.FileNotFound, foreign.Hash}, // I17
		{"a text as PDF", "pdf-to-markdown", map[string]any{"file": text}, fault.FileUnsupported, "note.txt is text/plain: want application/pdf"},
		{"a broken PDF", "pdf-to-markdown", map[string]any{"file": broken}, fault.FileInvalid, "damaged"},
		{"inspecting a broken PDF", "file-inspect", map[string]any{"file": broken}, fault.FileInvalid, "damaged"},
		{"inspecting a broken image", "file-inspect", map[string]any{"file": badImage}, fault.FileInvalid, "damaged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := call(t, s, tt.action, tt.input)
			if !errors.Is(err, tt.code) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %v, want %s with %q", err, tt.code, tt.says)
			}
		})
	}
}
