// SPDX-License-Identifier: Apache-2.0

// Package dialecttest has the tests that every dialect passes, with texts of its own in testdata, and measures how
// long a text takes.
//
// It decides what is compared with golden files, which -rewrite writes. It never decides what a text
// means.
package dialecttest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/cputime"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/yamlx"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files of testdata")

// Golden compares got with a file of testdata, or writes it with -rewrite.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; read the difference, then -rewrite\n--- got\n%s\n--- want\n%s", path, got, want)
	}
}

// Build compiles a text, which has no errors.
func Build(t *testing.T, text string, opt compile.Options) *plan.Plan {
	t.Helper()
	p, _, src, diags := compile.Source("test.yaml", []byte(text), opt)
	for _, d := range diags {
		if d.Severity == fault.SeverityError {
			t.Error(src.Format(d))
		}
	}
	if p == nil {
		t.FailNow()
	}
	return p
}

// Fields checks testdata/valid/everything.yaml, which has every field: the model that it becomes, its standard
// form, and that it compiles.
func Fields(t *testing.T, f *form.Form, opt compile.Options) {
	text, err := os.ReadFile("testdata/valid/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, src, diags := dialect.Parse("everything.yaml", text, form.Options{})
	for _, d := range diags {
		t.Error(src.Format(d))
	}
	got, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	Golden(t, "valid/everything.golden", string(got)+"\n")
	Build(t, string(text), opt)
	if out, problems := yamlx.Format(text, jsonx.Limits{}, f.KeyOrder()); len(problems) > 0 {
		t.Error(problems)
	} else {
		Golden(t, "valid/everything.fmt.golden", string(out))
	}
}

// Diagnostics checks the texts in testdata/diagnostics, at least ten, which have problems: all are reported at
// their places, with what is wanted there.
func Diagnostics(t *testing.T, opt compile.Options) {
	files, err := filepath.Glob("testdata/diagnostics/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, _, src, diags := compile.Source(filepath.Base(file), text, opt)
			if p != nil {
				t.Fatal("it has compiled")
			}
			var b strings.Builder
			for _, d := range diags {
				b.WriteString(src.Format(d))
				if d.Pointer != "" {
					fmt.Fprintf(&b, "  @ %s\n", d.Pointer)
				}
			}
			Golden(t, filepath.Join("diagnostics", strings.TrimSuffix(filepath.Base(file), ".yaml")+".golden"), b.String())
		})
	}
}

// Compile measures how long a text of 1,000 steps takes, with one template, and with a template each. step is the text of
// one, made of its number and that of its template.
func Compile(b *testing.B, head, step string, opt compile.Options) {
	for _, distinct := range []bool{false, true} {
		var text strings.Builder
		text.WriteString(head)
		for i := range 1000 {
			n := 0
			if distinct {
				n = i
			}
			fmt.Fprintf(&text, step, i, n)
		}
		Measure(b, distinct, text.String(), opt)
	}
}

// Measure measures how long a text takes.
func Measure(b *testing.B, distinct bool, text string, opt compile.Options) {
	b.Run(fmt.Sprintf("distinct=%t", distinct), func(b *testing.B) {
		began := cputime.Used()
		for b.Loop() {
			if p, _, _, diags := compile.Source("n.yaml", []byte(text), opt); p == nil {
				b.Fatal(diags)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms")
		b.ReportMetric(float64((cputime.Used()-began).Milliseconds())/float64(b.N), "cpu-ms") // the same on a busy machine
	})
}
