// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/action/actiontest"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/provider/emulate"
)

// modelAction returns an action with two providers, of both kinds, at one server.
func modelAction(t testing.TB, name string, handler http.Handler) *action.Action {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	out := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	t.Cleanup(out.Close)
	prices := map[string]provider.ModelPrice{"small": {Input: "1", Output: "1"}, "emulate-truncated": {Input: "1", Output: "1"}}
	models, err := provider.New(map[string]provider.Config{
		"a": {Kind: provider.OpenAI, URL: srv.URL + "/v1", Model: "small", Prices: prices},
		"b": {Kind: provider.Anthropic, URL: srv.URL, Model: "small", Prices: prices},
	}, out, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range Actions(Config{Models: models}) {
		if a.Name == name {
			return &a
		}
	}
	t.Fatalf("there is no action %s", name)
	return nil
}

func callModel(t testing.TB, s *blob.Store, a *action.Action, input m, opts ...actiontest.Option) (actiontest.Output, m, error) {
	t.Helper()
	out, err := actiontest.Call(t, *a, input, append(opts, actiontest.WithFiles(s.Files("acme")))...)
	return out, out.Object(), err
}

// An answer is text, a JSON value where it is one document, usage and price (X101). Each piece of a
// stream is reported as it comes (X174), and none without a stream.
func TestX101_X174_Model(t *testing.T) {
	s := store(t)
	a := modelAction(t, "llm", emulate.New(emulate.Config{}).Handler())
	if a.Price == "" || a.Cost != 0 || a.Provider != "llm" {
		t.Errorf("it declares a price of %q and a cost of %d", a.Price, a.Cost)
	}
	for _, provider := range []string{"a", "b"} {
		var said actiontest.Reports
		res, out, err := callModel(t, s, a, m{"prompt": `{"type": "text"}`, "provider": provider, "temperature": 0}, actiontest.Capture(&said))
		if err != nil || fmt.Sprint(out["json"]) != "map[type:text]" || out["provider"] != provider || fmt.Sprint(out["usage"]) != "map[cachedTokens:0 calls:1 inputTokens:4 outputTokens:4]" || res.Price != "0.000008" {
			t.Errorf("%v, a price of %s, %v", out, res.Price, err)
		}
		if want := []string{`{"type":`, ` "text"}`}; !slices.Equal(said.Deltas, want) || len(said.Previews) != 0 {
			t.Errorf("pieces %q, want %q; previews %s", said.Deltas, want, said.Previews)
		}
		said = actiontest.Reports{}
		_, out, err = callModel(t, s, a, m{"messages": []any{m{"role": "system", "content": "Be brief."}, m{"role": "user", "content": "hello"}}, "provider": provider, "stream": false}, actiontest.Capture(&said))
		if err != nil || out["text"] != "hello" || out["json"] != nil || len(said.Deltas) != 0 {
			t.Errorf("%v, pieces %q, %v", out, said.Deltas, err)
		}
	}
	if _, _, err := callModel(t, s, a, m{"system": "Be brief."}); !errors.Is(err, fault.InputInvalid) {
		t.Errorf("without a prompt: %v", err)
	}
	if _, _, err := callModel(t, s, a, m{"prompt": "hello", "model": "large"}); !errors.Is(err, fault.PriceUnknown) {
		t.Errorf("without a price: %v", err)
	}
	if _, _, err := callModel(t, s, a, m{"prompt": "hello", "provider": "c"}); !errors.Is(err, fault.ProviderNotConfigured) || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("another provider: %v", err)
	}
}

// An image of an answer is stored, shown to watchers and in the output, streamed or not (X164, X165).
func TestX164_ModelMedia(t *testing.T) {
	s := store(t)
	png := []byte("\x89PNG\r\n\x1a\n")
	said := `{"content": "Here: ", "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,` + base64.StdEncoding.EncodeToString(png) + `"}}]}`
	a := modelAction(t, "llm", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Stream bool }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		const end = `"finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}`
		if !in.Stream {
			_, _ = io.WriteString(w, `{"choices": [{"message": `+said+`, `+end)
			return
		}
		_, _ = io.WriteString(w, `data: {"choices": [{"delta": `+said+"}]}\n\n"+`data: {"choices": [{"delta": {"content": "a drawing"}, `+end+"\n\ndata: [DONE]\n\n")
	}))
	for stream, text := range map[bool]string{true: "Here: a drawing", false: "Here: "} {
		var reports actiontest.Reports
		_, out, err := callModel(t, s, a, m{"prompt": "draw", "stream": stream}, actiontest.Capture(&reports))
		if err != nil || out["text"] != text {
			t.Fatalf("%v, %v", out, err)
		}
		if stream && !slices.Equal(reports.Deltas, []string{"Here: ", "a drawing"}) {
			t.Errorf("pieces %q", reports.Deltas)
		}
		kept := out["media"].([]any)[0].(map[string]any)
		if len(out["media"].([]any)) != 1 || kept["mimeType"] != "image/png" {
			t.Fatalf("media %v", out["media"])
		}
		hash := kept["file"].(string)
		if want := fmt.Sprintf(`[{"mime":"image/png","type":"media","url":%q}]`, hash); fmt.Sprintf("%s", reports.Previews) != want {
			t.Errorf("previews %s, want %s", reports.Previews, want)
		}
		f, err := s.Files("acme").Open(t.Context(), hash)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(f); err != nil || !bytes.Equal(data, png) {
			t.Errorf("the file is %q, %v", data, err)
		}
		_ = f.Close()
	}
}

// Images go to both kinds, a PDF to Anthropic only.
func TestModelFiles(t *testing.T) {
	s := store(t)
	a := modelAction(t, "llm", emulate.New(emulate.Config{}).Handler())
	photo, pdf := upload(t, s, "photo.jpg", portrait(t)).Hash, upload(t, s, "report.pdf", reportPDF(t)).Hash
	for _, tt := range []struct{ provider, file, text string }{
		{"a", photo, "[image_url] see"}, {"b", photo, "[image] see"}, {"b", pdf, "[document] see"}, {"a", pdf, ""},
	} {
		_, out, err := callModel(t, s, a, m{"prompt": "see", "files": []any{tt.file}, "provider": tt.provider})
		if tt.text == "" {
			if !errors.Is(err, fault.FileUnsupported) {
				t.Errorf("a PDF for the kind openai: %v", err)
			}
		} else if err != nil || out["text"] != tt.text {
			t.Errorf("%v, %v", out["text"], err)
		}
	}
}

// An answer that does not fit its schema is sent back once, and both calls are one charge.
func TestModelRepair(t *testing.T) {
	s := store(t)
	schema := m{"type": "object", "required": []any{"topic"}, "properties": m{"topic": m{"enum": []any{"delivery", "other"}}}}
	for _, provider := range []string{"a", "b"} {
		server := emulate.New(emulate.Config{Mode: emulate.InvalidJSON})
		a := modelAction(t, "llm", server.Handler())
		res, out, err := callModel(t, s, a, m{"prompt": "Where is it?", "outputSchema": schema, "provider": provider})
		if err != nil || fmt.Sprint(out["json"]) != "map[topic:delivery]" || server.Requests() != 2 {
			t.Fatalf("%v, %v, %d requests", out, err, server.Requests())
		}
		usage := out["usage"].(map[string]any)
		if want := fmt.Sprintf("0.%06d", usage["inputTokens"].(int64)+usage["outputTokens"].(int64)); res.Price != want || usage["calls"] != int64(2) {
			t.Errorf("%s credits for %v, want %s", res.Price, usage, want)
		}
		server = emulate.New(emulate.Config{Answer: "never"})
		a = modelAction(t, "llm", server.Handler())
		if _, _, err := callModel(t, s, a, m{"prompt": "Where is it?", "outputSchema": schema, "provider": provider}); !errors.Is(err, fault.OutputContractViolation) || server.Requests() != 2 {
			t.Errorf("%v, %d requests", err, server.Requests())
		}
	}
}

// The fields of a JSON answer are fields of the output of claude, which prefers the kind
// anthropic.
func TestClaude(t *testing.T) {
	s := store(t)
	a := modelAction(t, "claude", emulate.New(emulate.Config{Answer: "```json\n{\"type\": \"text\", \"model\": \"x\"}\n```"}).Handler())
	_, out, err := callModel(t, s, a, m{"prompt": "Detect the data type."})
	if err != nil || out["type"] != "text" || out["model"] != "small" || out["provider"] != "b" {
		t.Errorf("%v, %v", out, err)
	}
}

// X160: a text is translated, and one whose translation is cut fails.
func TestX160_Translates(t *testing.T) {
	s := store(t)
	a := modelAction(t, "translate-text", emulate.New(emulate.Config{}).Handler())
	file := upload(t, s, "a.md", []byte("# Good morning\n")).Hash
	for _, input := range []m{{"content": "# Good morning\n", "targetLanguage": "de"}, {"file": file, "targetLanguage": "de", "sourceLanguage": "en"}} {
		_, out, err := callModel(t, s, a, input)
		if err != nil || out["text"] != "[de] # Good morning\n" || out["wordCount"] != int64(3) || out["targetLanguage"] != "de" {
			t.Fatalf("%v, %v", out, err)
		}
		f, err := s.Files("acme").Open(t.Context(), out["translatedFileHash"].(string))
		if err != nil {
			t.Fatal(err)
		}
		if size := f.Info().Size; size != int64(len("[de] # Good morning\n")) {
			t.Errorf("the file has %d bytes", size)
		}
		_ = f.Close()
	}
	if _, _, err := callModel(t, s, a, m{"text": "Good morning to all of you", "targetLanguage": "de", "model": "emulate-truncated"}); !errors.Is(err, fault.OutputTooLarge) {
		t.Errorf("a translation that is cut: %v", err)
	}
}
