// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"net/http/httptest"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/provider/emulate"
)

const asking = `
name: asking
steps:
  - id: ask
    action: {name: llm_service, parameters: {prompt: "a secret question", model: small}}
    outputBinding: answer
  - id: again
    action: {name: llm, parameters: {prompt: "{{ answer.text }}", model: "{{ 'sm' + 'all' }}"}}
  - id: translate
    action: {name: translate-text, parameters: {text: "a secret text", targetLanguage: de}}
  - id: wrong
    continue_on_error: true
    action: {name: llm, parameters: {prompt: "a secret question", model: unknown}}
  - id: count
    action: {name: word-count, parameters: {text: "one two"}}
`

// Spans of attempts that ask a model say so by the conventions for generative AI, and have nothing of
// what is asked or answered; other spans do not.
func TestModelSpans(t *testing.T) {
	srv := httptest.NewServer(emulate.New(emulate.Config{}).Handler())
	t.Cleanup(srv.Close)
	e := &spans{}
	s := &site{t: t, dir: t.TempDir(), rules: map[string]engine.AccountRules{account: {Unmetered: true}}, models: map[string]provider.Config{
		"house": {Kind: provider.OpenAI, URL: srv.URL + "/v1", KeyEnv: "ROUX_MODEL_KEY", Model: "small", MaxTokens: 100, Prices: map[string]provider.ModelPrice{"small": {Input: "1", Output: "1"}}},
	}}
	s.open(Config{Exporter: ExportTo(e)})
	s.run(engine.StartRequest{Plan: s.plan(asking), Recipe: "asking"})
	s.stop()
	attempts := map[string]sdktrace.ReadOnlySpan{}
	for _, span := range e.get() {
		var all []string
		for _, a := range span.Attributes() {
			all = append(all, string(a.Key)+"="+a.Value.String())
		}
		text := strings.Join(all, " ")
		step, isAttempt := strings.CutSuffix(span.Name(), " attempt")
		if asks := isAttempt && step != "count"; strings.Contains(text, "gen_ai.") != asks {
			t.Errorf("%s: %s", span.Name(), text)
		}
		if strings.Contains(text, "secret") {
			t.Errorf("%s shows what was asked: %s", span.Name(), text)
		}
		if isAttempt {
			attempts[step] = span
		}
	}
	for step, want := range map[string]map[string]string{
		"ask": {
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "house", "gen_ai.request.model": "small", "gen_ai.response.model": "small",
			"gen_ai.response.finish_reasons": `["stop"]`,
		},
		"again":     {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "house", "gen_ai.request.model": "", "gen_ai.response.model": "small", "gen_ai.response.finish_reasons": `["stop"]`},
		"translate": {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "", "gen_ai.usage.input_tokens": ""},
		"wrong":     {"gen_ai.operation.name": "chat", "gen_ai.request.model": "unknown", "gen_ai.response.model": "", "error.type": "PRICE_UNKNOWN"},
	} {
		span := attempts[step]
		if span == nil {
			t.Errorf("%s has no attempt", step)
			continue
		}
		for key, value := range want {
			if got := attr(span, key); got != value {
				t.Errorf("%s: %s is %q, want %q", step, key, got, value)
			}
		}
	}
	if span := attempts["ask"]; span != nil {
		if in, out := attr(span, "gen_ai.usage.input_tokens"), attr(span, "gen_ai.usage.output_tokens"); in == "" || in == "0" || out == "" || out == "0" {
			t.Errorf("it used %q and %q tokens", in, out)
		}
	}
}
