// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
)

// sourceRecipe returns the JSON example of the recipe-system source document.
func sourceRecipe(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(cmp.Or(os.Getenv("ROUX_SHARED"), "../shared"), "sources", "recipe-system.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("the source documents are not here (ROUX_SHARED): %v", err)
	}
	_, rest, ok := bytes.Cut(text, []byte("JSON Example"))
	example, _, ok2 := bytes.Cut(rest, []byte("Condition Expressions (CEL)"))
	if !ok || !ok2 {
		t.Fatal("the example is not where it was")
	}
	return bytes.TrimSpace(example)
}

// translateText is a stand-in for the model action of this name.
func translateText(seen *[]string) action.Action {
	return action.Action{
		Name: "translate-text", Version: "1.0.0", Cost: 10,
		Input: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["text","targetLanguage"],
			"properties":{"text":{"type":"string"},"targetLanguage":{"type":"string"}}}`),
		Output: json.RawMessage(`{"type":"object","properties":{"translatedFileHash":{"type":"string"},"wordCount":{"type":"integer"}}}`),
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			var in struct{ Text, TargetLanguage string }
			if err := task.Decode(&in); err != nil {
				return action.Result{}, err
			}
			*seen = append(*seen, in.TargetLanguage)
			f, err := task.Files.Put(ctx, strings.NewReader(strings.ToUpper(in.Text)), "translated.md", "text/markdown")
			if err != nil {
				return action.Result{}, err
			}
			return action.Result{Output: map[string]any{"translatedFileHash": f.Hash, "wordCount": len(strings.Fields(in.Text))}}, nil
		},
	}
}

// bigDocument returns a file-inspect that reports a document of 101 pages.
func bigDocument() action.Action {
	for _, a := range builtin.Actions(builtin.Config{}) {
		if a.Name == "file-inspect" {
			a.Run = func(context.Context, *action.Task) (action.Result, error) {
				return action.Result{Output: map[string]any{"mimeType": "application/pdf", "sizeBytes": 5_000_000, "name": "big.pdf",
					"hash": "sha256_" + strings.Repeat("0", 64), "extended": map[string]any{"pageCount": 101}}}, nil
			}
			return a
		}
	}
	panic("no file-inspect")
}

// TestSourceExample: the example validates with the one warning that R40 requires, and
// behaves as R40 describes on both branches. X2, X4, X6, X7, X8, X9, X31, X32, X44,
// X147.
func TestSourceExample(t *testing.T) {
	text := sourceRecipe(t)
	var seen []string

	translate := translateText(&seen)
	decls := []*action.Action{&translate}
	for _, a := range builtin.Actions(builtin.Config{}) {
		decls = append(decls, &a)
	}
	p, _, _, diags := compile.Source("example.json", text, compile.Options{Actions: catalogue.New(decls...)})
	if p == nil || len(diags) != 1 || diags[0].Rule != "maybe-unbound" || !strings.Contains(diags[0].Msg, "bound on one branch only") {
		t.Fatalf("compiles: %v, diagnostics %v", p != nil, diags)
	}

	run := func(t *testing.T, actions ...action.Action) roux.Result {
		e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir(), Actions: actions})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		pdf, err := os.Open("examples/report.pdf")
		if err != nil {
			t.Fatal(err)
		}
		defer pdf.Close()
		file, err := e.Put(t.Context(), pdf, "report.pdf", "application/pdf")
		if err != nil {
			t.Fatal(err)
		}
		id, err := e.Start(t.Context(), roux.Request{Recipe: text, Source: "example.json",
			Input: map[string]any{"targetLanguage": "es"}, Files: []action.FileInfo{file}})
		if err != nil {
			t.Fatal(err)
		}
		res, err := e.Wait(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}

	t.Run("then", func(t *testing.T) {
		res := run(t, translateText(&seen))
		if res.Status != "completed" || len(seen) != 1 || seen[0] != "es" {
			t.Fatalf("%+v, translated to %v", res, seen)
		}
		var out struct {
			TranslatedFileHash string
			WordCount          int
		}
		if err := json.Unmarshal(res.Outputs, &out); err != nil || !strings.HasPrefix(out.TranslatedFileHash, "sha256_") || out.WordCount < 500 {
			t.Errorf("outputs %s", res.Outputs)
		}
	})
	// X159, X160: with only the built-in actions it validates in the same way and runs up
	// to the translation, which needs a model provider. A failed action costs nothing:
	// file-inspect and pdf-to-markdown are charged, the translation is not.
	t.Run("no provider", func(t *testing.T) {
		builtins := decls[1:]
		if p, _, _, diags := compile.Source("example.json", text, compile.Options{Actions: catalogue.New(builtins...)}); p == nil || len(diags) != 1 {
			t.Errorf("compiles: %v, diagnostics %v", p != nil, diags)
		}
		res := run(t)
		if res.Status != "failed" || !errors.Is(res.Err, fault.ProviderNotConfigured) || res.Credits != 1+5 {
			t.Fatalf("%+v", res)
		}
	})
	t.Run("else", func(t *testing.T) {
		seen = nil
		res := run(t, translateText(&seen), bigDocument())
		if res.Status != "failed" || len(seen) != 0 || !errors.Is(res.Err, fault.InputMissing) {
			t.Fatalf("%+v, translated to %v", res, seen)
		}
	})
}
