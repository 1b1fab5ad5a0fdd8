// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/provider"
)

// The parts of streams.
const (
	half     = `data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"half"}}]}` + "\n\n"
	stop     = `data: {"id":"1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usage    = `data: {"id":"1","model":"m","choices":[],"usage":{"prompt_tokens":8,"completion_tokens":5}}` + "\n\n"
	noUsage  = `data: {"id":"1","model":"m","choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}` + "\n\n"
	done     = "data: [DONE]\n\n"
	image    = "data:image/png;base64,iVBORw0KGgo="
	imageOf  = `"images":[{"type":"image_url","image_url":{"url":"` + image + `"}}]`
	counted  = `"usage":{"prompt_tokens":8,"completion_tokens":5}`
	response = `{"id":"1","model":"m","choices":[{"index":0,"message":{"content":"whole"},"finish_reason":"stop"}]`
)

func freeOfCharge(c *provider.Config) {
	c.Prices = map[string]provider.ModelPrice{"m": {Input: "0", Output: "0"}}
}

// askOpenAI calls a service that sends a text, whatever it is asked.
func askOpenAI(t *testing.T, text string, stream bool, change ...func(*provider.Config)) (*provider.Answer, error) {
	t.Helper()
	m, err := find(t, provider.OpenAI, replay(t, text, 0), "m", change...)
	if err != nil {
		t.Fatal(err)
	}
	a, _, err := ask(t, m, stream)
	return a, err
}

// An error in a successful response is a failure, wherever it is.
func TestOpenAIErrors(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		stream     bool
		code       fault.Code
		says       string
	}{
		{"a piece", half + `data: {"error":{"message":"Too many.","code":429}}` + "\n\n" + done, true, fault.RateLimited, "(429): Too many."},
		{"a piece after text", half + `data: {"id":"1","error":{"message":"Gone.","code":"server_error"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}` + "\n\n" + done, true, fault.ServiceUnavailable, "(server_error): Gone."},
		{"a piece after a comment", half + ": PROCESSING\n\nevent: error\n" + `data: {"error":{"message":"Full.","type":"overloaded_error"}}` + "\n\n", true, fault.ServiceUnavailable, "(overloaded_error): Full."},
		{"a piece after the end", half + stop + usage + `data: {"id":"1","error":"no more"}` + "\n\n" + done, true, fault.ProviderError, "no more"},
		{"a choice", half + `data: {"id":"1","choices":[{"index":0,"delta":{},"error":{"message":"Broken.","code":502},"finish_reason":"stop"}]}` + "\n\n" + usage + done, true, fault.ProviderError, "(502): Broken."},
		{"a finish reason", half + `data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"error"}]}` + "\n\n" + usage + done, true, fault.ProviderError, "does not say why"},
		{"a document for a stream", `{"error":{"message":"No credit.","code":402}}`, true, fault.ProviderError, "(402): No credit."},
		{"a document", `{"error":{"message":"Too many.","code":429}}`, false, fault.RateLimited, "(429): Too many."},
		{"an answer", response + "," + counted + `,"error":{"message":"Gone.","code":503}}`, false, fault.ServiceUnavailable, "(503): Gone."},
		{"a choice of an answer", `{"id":"1","choices":[{"message":{"content":"half"},"finish_reason":"stop","error":{"message":"Broken."}}],` + counted + `}`, false, fault.ProviderError, "Broken."},
		{"a finish reason of an answer", `{"id":"1","choices":[{"message":{"content":"half"},"finish_reason":"error"}],` + counted + `}`, false, fault.ProviderError, "does not say why"},
		{"an answer without a finish reason", `{"id":"1","choices":[{"message":{"content":"half"},"finish_reason":null}],` + counted + `}`, false, fault.ProviderError, "no answer of its protocol"},
		{"an answer without a choice", `{"id":"1","choices":[],` + counted + `}`, false, fault.ProviderError, "no answer of its protocol"},
		{"a document that is cut off", response, false, fault.ProviderError, "no answer of its protocol"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := askOpenAI(t, tt.text, tt.stream)
			if !errors.Is(err, tt.code) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%+v, %v, want %s with %q", a, err, tt.code, tt.says)
			}
		})
	}
}

// A field for errors that has none is no error.
func TestOpenAINoError(t *testing.T) {
	text := strings.ReplaceAll(half+stop+usage+done, `{"id"`, `{"error":null,"id"`)
	if a, err := askOpenAI(t, text, true); err != nil || a.Text != "half" {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := askOpenAI(t, response+","+counted+`,"error":null}`, false); err != nil || a.Text != "whole" {
		t.Errorf("%+v, %v", a, err)
	}
}

// A service that does not stream answers a request for a stream all the same.
func TestOpenAIWithoutStreams(t *testing.T) {
	m, err := find(t, provider.OpenAI, replay(t, response+","+counted+"}", 0), "m")
	if err != nil {
		t.Fatal(err)
	}
	if a, partial, err := ask(t, m, true); err != nil || a.Text != "whole" || partial != "whole" || a.Usage.Output != 5 {
		t.Errorf("%+v, partial %q, %v", a, partial, err)
	}
}

// An answer that has a price needs a usage. A stream that may only have lost it is tried again; a
// service that does not report it is not.
func TestOpenAIUsage(t *testing.T) {
	free := []func(*provider.Config){freeOfCharge}
	for _, tt := range []struct {
		name, text string
		stream     bool
		change     []func(*provider.Config)
		code       fault.Code // "" = an answer
	}{
		{"whole", half + stop + usage + done, true, nil, ""},
		{"without [DONE]", half + stop + usage, true, nil, ""},
		{"without the end of its last line", half + stop + usage + "data: [DONE]", true, nil, ""},
		{"cut off before the usage", half + stop, true, nil, fault.ServiceUnavailable},
		{"cut off in the usage", half + stop + usage[:40], true, nil, fault.ServiceUnavailable},
		{"cut off before the end", half + usage, true, nil, fault.ServiceUnavailable},
		{"without a finish reason", half + usage + done, true, nil, fault.ServiceUnavailable},
		{"without a usage", half + stop + done, true, nil, fault.ProviderNotConfigured},
		{"with a usage of 0", half + stop + noUsage + done, true, nil, fault.ProviderNotConfigured},
		{"not streamed, without a usage", response + "}", false, nil, fault.ProviderNotConfigured},
		{"free, without a usage", half + stop + done, true, free, ""},
		{"free, without a usage and [DONE]", half + stop, true, free, ""},
		{"free, without a finish reason", half, true, free, fault.ServiceUnavailable},
		{"free, not streamed, without a usage", response + "}", false, free, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := askOpenAI(t, tt.text, tt.stream, tt.change...)
			if tt.code == "" && err != nil || tt.code != "" && !errors.Is(err, tt.code) {
				t.Errorf("%+v, %v, want %q", a, err, tt.code)
			}
			if tt.code == fault.ProviderNotConfigured && err != nil && !strings.Contains(err.Error(), "set `prices`") {
				t.Errorf("the message does not say what to do: %v", err)
			}
		})
	}
}

// Media of a stream are chunks of their own, and those of a whole answer are kept (X164, X173).
func TestX164_X173_Media(t *testing.T) {
	stream := `data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"Here:",` + imageOf + `}}]}` + "\n\n" + stop + usage + done
	whole := `{"id":"1","model":"m","choices":[{"index":0,"message":{"content":"Here:",` + imageOf + `},"finish_reason":"stop"}],` + counted + `}`
	media := provider.Chunk{Type: provider.Media, URL: image, MIME: "image/png"}
	for text, want := range map[string][]provider.Chunk{stream: {{Type: provider.Partial, Text: "Here:"}, media}, whole: nil} {
		m, err := find(t, provider.OpenAI, replay(t, text, 0), "m")
		if err != nil {
			t.Fatal(err)
		}
		var got []provider.Chunk
		r := &provider.Request{Messages: []provider.Message{{Role: provider.User, Text: "draw"}}}
		a, err := m.Call(t.Context(), r, want != nil, func(c provider.Chunk) { got = append(got, c) })
		if err != nil || !slices.Equal(got, want) || a.Text != "Here:" || !slices.Equal(a.Media, []provider.Chunk{media}) {
			t.Errorf("%+v, chunks %+v, %v", a, got, err)
		}
	}
}
