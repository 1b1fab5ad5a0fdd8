// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"testing"

	"github.com/roux-engine/roux/internal/jsonschema"
)

const pageCount = `has(inspection.extended) && has(inspection.extended.pageCount) && inspection.extended.pageCount <= 100`

func BenchmarkEvalCondition(b *testing.B) { benchEval(b, pageCount, true) }

func BenchmarkEvalFormula(b *testing.B) {
	benchEval(b, `10 + (inspection.extended.pageCount * 5) + (inspection.sizeBytes / 1048576 * 2)`, int64(416))
}

func benchEval(b *testing.B, src string, want any) {
	p, err := Compile(src)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if v, err := p.Eval(vars); err != nil || v != want {
			b.Fatal(v, err)
		}
	}
}

func BenchmarkEvalPlaceholder(b *testing.B) {
	p, err := CompileTemplate(`{{ steps.fetch.output.url }}`)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Eval(vars); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenderPrompt(b *testing.B) {
	p, err := CompileTemplate("Translate to {{ parameters.lang }}:\n{{ steps.fetch.output.url }}\n{% if inspection.sizeBytes > 10 %}Large.{% endif %}")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Eval(vars); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(pageCount); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if ps := Check(pageCount, false, typedEnv, "bool"); ps != nil {
			b.Fatal(ps)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	s, err := jsonschema.Compile([]byte(`{"type": "object", "required": ["mimeType"], "properties": {"mimeType": {"type": "string"}, "sizeBytes": {"type": "integer", "minimum": 0}}}`))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if vs := s.Validate(vars["inspection"]); vs != nil {
			b.Fatal(vs)
		}
	}
}
