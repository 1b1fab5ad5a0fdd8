// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/provider/emulate"
	"github.com/roux-engine/roux/internal/provider/jobapi"
)

const testKey = "sk-this-is-never-shown"

var kinds = []string{provider.OpenAI, provider.Anthropic}

// find returns the model of a service at an address.
func find(t testing.TB, kind, url, model string, change ...func(*provider.Config)) (*provider.Model, error) {
	t.Helper()
	if kind == provider.OpenAI {
		url += "/v1"
	}
	c := provider.Config{Kind: kind, URL: url, KeyEnv: "ROUX_MODEL_TEST_KEY", Stall: "200ms", Prices: map[string]provider.ModelPrice{model: {Input: "0.5", Output: "2", Cached: "0.1"}}}
	for _, f := range change {
		f(&c)
	}
	out := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	t.Cleanup(out.Close)
	set, err := provider.New(map[string]provider.Config{"main": c}, out, func(string) string { return testKey })
	if err != nil {
		t.Fatal(err)
	}
	return set.Find(t.Context(), "acme", "", model, "")
}

// ask calls a model and returns its answer with the texts of the partial chunks.
func ask(t testing.TB, m *provider.Model, stream bool) (*provider.Answer, string, error) {
	t.Helper()
	partial := ""
	a, err := m.Call(t.Context(), &provider.Request{
		System: "Be brief.", Messages: []provider.Message{{Role: provider.User, Text: "one two three four"}}, EffectKey: "effect-1",
	}, stream, func(c provider.Chunk) { partial += c.Text })
	if err != nil && strings.Contains(err.Error(), testKey) {
		t.Errorf("the error has the key: %v", err)
	}
	return a, partial, err
}

func emulator(t testing.TB, cfg emulate.Config) (*emulate.Server, string) {
	t.Helper()
	s := emulate.New(cfg)
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return s, srv.URL
}

// Both protocols, streaming and not, give the same answer, usage and end. A stream is partial
// chunks whose texts are the answer (X101, X129, X130, X173).
func TestX101_X129_X130_X173_Answers(t *testing.T) {
	_, url := emulator(t, emulate.Config{Key: testKey})
	for _, kind := range kinds {
		for _, stream := range []bool{true, false} {
			for _, mode := range []string{"m", "emulate-slow", "emulate-double-start"} {
				t.Run(fmt.Sprint(kind, stream, mode), func(t *testing.T) {
					m, err := find(t, kind, url, mode)
					if err != nil {
						t.Fatal(err)
					}
					a, partial, err := ask(t, m, stream)
					if err != nil {
						t.Fatal(err)
					}
					if a.Text != "one two three four" || a.Model != mode || a.Truncated() || a.StopReason == "" || a.Usage != (provider.Usage{Input: 8, Output: 5}) {
						t.Errorf("%+v", a)
					}
					if stream && partial != a.Text || !stream && partial != "" {
						t.Errorf("partial %q", partial)
					}
				})
			}
		}
	}
}

// The emulator streams as fast as it is asked to, and by its clock a reader knows how late each
// piece is.
func TestClockOfTheEmulator(t *testing.T) {
	_, url := emulator(t, emulate.Config{Mode: emulate.Clock, Rate: 200})
	for _, kind := range kinds {
		m, err := find(t, kind, url, "m")
		if err != nil {
			t.Fatal(err)
		}
		began, last := time.Now(), int64(0)
		a, partial, err := ask(t, m, true)
		if err != nil || partial != a.Text || len(a.Text) != 4*17 {
			t.Fatalf("%s: %+v, partial %q, %v", kind, a, partial, err)
		}
		for at := range strings.FieldsSeq(a.Text) {
			us, err := strconv.ParseInt(at, 10, 64)
			if err != nil || us <= last || us < began.UnixMicro() || us > time.Now().UnixMicro() {
				t.Errorf("%s: the times are %s, %v", kind, a.Text, err)
			}
			last = us
		}
		if took := time.Since(began); took < 20*time.Millisecond {
			t.Errorf("%s: four pieces took %s", kind, took)
		}
	}
}

// What goes wrong at a service has a code, whatever the protocol.
func TestFailures(t *testing.T) {
	for _, kind := range kinds {
		for _, stream := range []bool{true, false} {
			for _, tt := range []struct {
				mode   string
				code   fault.Code
				after  int64
				stream bool // it is a failure of streams only
			}{
				{emulate.RateLimit, fault.RateLimited, 7000, false},
				{emulate.Overload, fault.ServiceUnavailable, 7000, false},
				{emulate.Broken, fault.ProviderError, 0, false},
				{emulate.Stall, fault.StepTimeout, 0, false},
				{emulate.ErrorMidstream, fault.ServiceUnavailable, 0, true},
				{emulate.CutMidstream, fault.ServiceUnavailable, 0, true},
				{emulate.Splice, fault.ProviderError, 0, true},
			} {
				if tt.stream && !stream {
					continue
				}
				t.Run(fmt.Sprint(kind, stream, tt.mode), func(t *testing.T) {
					s, url := emulator(t, emulate.Config{Mode: tt.mode, RetryAfter: "7"})
					m, err := find(t, kind, url, "m")
					if err != nil {
						t.Fatal(err)
					}
					_, _, err = ask(t, m, stream)
					var f *fault.Error
					if !errors.As(err, &f) || f.Code != tt.code || f.RetryAfterMS != tt.after {
						t.Fatalf("%v (%+v), want %s", err, f, tt.code)
					}
					if setting := "providers.main.stall in the configuration"; tt.mode == emulate.Stall && !strings.Contains(f.Error(), setting) {
						t.Errorf("%q does not name the setting %s", f, setting)
					}
					if n := s.Requests(); n != 1 {
						t.Errorf("%d requests: the library tries again", n)
					}
				})
			}
		}
	}
}

// An answer that was cut says so.
func TestTruncated(t *testing.T) {
	_, url := emulator(t, emulate.Config{Mode: emulate.Truncated})
	for _, kind := range kinds {
		m, err := find(t, kind, url, "m")
		if err != nil {
			t.Fatal(err)
		}
		if a, _, err := ask(t, m, true); err != nil || !a.Truncated() {
			t.Errorf("%s: %+v, %v", kind, a, err)
		}
	}
}

// A wrong key and an unknown model say what to do, and never the key.
func TestWrongKeyAndModel(t *testing.T) {
	for _, kind := range kinds {
		_, url := emulator(t, emulate.Config{Key: "another"})
		m, _ := find(t, kind, url, "m")
		if _, _, err := ask(t, m, true); !errors.Is(err, fault.ProviderNotConfigured) || !strings.Contains(err.Error(), "the variable ROUX_MODEL_TEST_KEY") {
			t.Errorf("%s: %v", kind, err)
		}
		_, url = emulator(t, emulate.Config{Models: []string{"small"}})
		m, _ = find(t, kind, url, "large")
		if _, _, err := ask(t, m, true); !errors.Is(err, fault.ProviderNotConfigured) || !strings.Contains(err.Error(), "check the model") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// What is missing is found before anything is sent.
func TestNothingIsSentWithout(t *testing.T) {
	s, url := emulator(t, emulate.Config{})
	for _, tt := range []struct {
		name, model string
		change      func(*provider.Config)
		code        fault.Code
	}{
		{"a price", "other", func(c *provider.Config) { c.Prices = nil }, fault.PriceUnknown},
		{"a key", "m", func(c *provider.Config) { c.Secret, c.KeyEnv = "model-key", "" }, fault.SecretNotFound},
	} {
		if _, err := find(t, provider.OpenAI, url, tt.model, tt.change); !errors.Is(err, tt.code) {
			t.Errorf("without %s: %v", tt.name, err)
		}
	}
	var none *provider.Set
	if _, err := none.Find(t.Context(), "acme", "", "m", ""); !errors.Is(err, fault.ProviderNotConfigured) {
		t.Errorf("without a provider: %v", err)
	}
	if s.Requests() != 0 {
		t.Error("something was sent")
	}
}

// A cancelled call ends with the cause of its context.
func TestCancel(t *testing.T) {
	_, url := emulator(t, emulate.Config{Mode: emulate.Stall})
	cause := errors.New("the run was cancelled")
	for _, kind := range kinds {
		m, err := find(t, kind, url, "m", func(c *provider.Config) { c.Stall = "1m" })
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err = m.Call(ctx, &provider.Request{Messages: []provider.Message{{Role: provider.User, Text: "a b c d"}}}, true, func(provider.Chunk) { cancel(cause) })
		if !errors.Is(err, cause) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// replay serves a recorded stream, cut into two writes at a byte.
func replay(t testing.TB, text string, at int) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(text[:at]))
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write([]byte(text[at:]))
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// recorded returns a stream of the shared data, with its chunks as events.
func recorded(t testing.TB, name string, typed bool) string {
	t.Helper()
	dir := os.Getenv("ROUX_SHARED")
	if dir == "" {
		dir = "../../../shared"
	}
	text, err := os.ReadFile(filepath.Join(dir, "data", "llm", name))
	if err != nil {
		t.Skipf("the source documents are not here (ROUX_SHARED): %v", err)
	}
	if !strings.HasSuffix(name, ".chunks.txt") {
		return strings.TrimRight(string(text), "\n") + "\n\n"
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if typed {
			_, rest, _ := strings.Cut(line, `"type":"`)
			kind, _, _ := strings.Cut(rest, `"`)
			fmt.Fprintf(&b, "event: %s\n", kind)
		}
		fmt.Fprintf(&b, "data: %s\n\n", line)
	}
	if !typed {
		b.WriteString("data: [DONE]\n\n")
	}
	return b.String()
}

// Recorded streams of both protocols are read, wherever they are cut into packets.
func TestRecordedStreams(t *testing.T) {
	for _, tt := range []struct{ kind, name, begins, stop string }{
		{provider.Anthropic, "anthropic-sse/basic_response.txt", "Hello there!", "end_turn"},
		{provider.Anthropic, "vercel-ai/anthropic-text.chunks.txt", "", "end_turn"},
		{provider.Anthropic, "anthropic-sse/refusal_response.txt", "", "refusal"},
		{provider.OpenAI, "vercel-ai/azure-chat-model-router.chunks.txt", "", "stop"},
		{provider.OpenAI, "vercel-ai/openai-compatible-tool-call.sse", "Reading", "tool_calls"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := recorded(t, tt.name, tt.kind == provider.Anthropic)
			first := ""
			for at := 0; at <= len(text); at += max(1, len(text)/50) {
				m, err := find(t, tt.kind, replay(t, text, at), "m", func(c *provider.Config) {
					c.Stall = "30s"
					if !strings.Contains(text, "usage") { // then only a free answer is one
						c.Prices = map[string]provider.ModelPrice{"m": {Input: "0", Output: "0"}}
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				a, partial, err := ask(t, m, true)
				if err != nil {
					t.Fatalf("cut at %d: %v", at, err)
				}
				if !strings.HasPrefix(a.Text, tt.begins) || a.Text != partial || a.StopReason != tt.stop {
					t.Fatalf("cut at %d: %+v, partial %q", at, a, partial)
				}
				if said := fmt.Sprintf("%+v", *a); first != "" && said != first {
					t.Fatalf("cut at %d: %s, and before %s", at, said, first)
				} else {
					first = said
				}
			}
		})
	}
}

// A recorded stream that ends early is no answer, wherever it ends.
func TestRecordedStreamsThatEnd(t *testing.T) {
	text := recorded(t, "anthropic-sse/basic_response.txt", true)
	end := strings.LastIndex(text, "event: message_stop")
	for at := 0; at < end; at += 37 {
		m, err := find(t, provider.Anthropic, replay(t, text[:at], at), "m")
		if err != nil {
			t.Fatal(err)
		}
		if a, _, err := ask(t, m, true); err == nil {
			t.Fatalf("ended at %d: %+v", at, a)
		}
	}
}

// An answer without a usage has no price, so it is refused (TestOpenAIUsage has the other protocol).
func TestAnthropicUsage(t *testing.T) {
	text := `event: message_start
data: {"type":"message_start","message":{"id":"1","type":"message","role":"assistant","model":"m","content":[]}}

event: message_stop
data: {"type":"message_stop"}

`
	m, err := find(t, provider.Anthropic, replay(t, text, 0), "m")
	if err != nil {
		t.Fatal(err)
	}
	if a, _, err := ask(t, m, true); !errors.Is(err, fault.ProviderNotConfigured) {
		t.Errorf("%+v, %v", a, err)
	}
}

// What a service says is in the message, in one line and without the key.
func TestI18_WhatAServiceSays(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"type":"error","error":{"type":"x","message":"bad\n` + testKey + ` value"}}`))
	}))
	defer srv.Close()
	for _, kind := range kinds {
		m, err := find(t, kind, srv.URL, "m")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ask(t, m, true); !errors.Is(err, fault.HTTPStatus) || !strings.HasSuffix(err.Error(), ": bad [masked] value") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Bodies and texts of any size end with an error, and so does a stream that never does.
func TestBounds(t *testing.T) {
	long := `data: {"id":"1","choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 1<<20) + `"}}]}` + "\n\n"
	for _, text := range []string{strings.Repeat(long, 9), "data: " + strings.Repeat("x", 33<<20)} {
		m, err := find(t, provider.OpenAI, replay(t, text, 0), "m", func(c *provider.Config) { c.Stall = "30s" })
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ask(t, m, true); !errors.Is(err, fault.OutputTooLarge) {
			t.Errorf("%v", err)
		}
	}
}

// A price is exact, and rounded up once.
func TestPrice(t *testing.T) {
	_, url := emulator(t, emulate.Config{})
	m, err := find(t, provider.OpenAI, url, "m")
	if err != nil {
		t.Fatal(err)
	}
	for u, want := range map[provider.Usage]string{
		{}:                                  "0",
		{Input: 1}:                          "0.000001",
		{Input: 2}:                          "0.000001",
		{Input: 1, Output: 1, Cached: 5}:    "0.000003",
		{Input: 1_000_000}:                  "0.5",
		{Input: 1_000_001, Output: 500_000}: "1.500001",
		{Input: 1 << 40, Output: 1 << 40}:   "2748779.069440",
		{Input: 1 << 62, Output: 1<<63 - 1}: "9223372036854.775807",
	} {
		if got := m.Price(u).String(); strings.TrimRight(got, "0") != strings.TrimRight(want, "0") && got != want {
			t.Errorf("%+v: %s, want %s", u, got, want)
		}
	}
}

// A configuration that cannot be meant is refused, and names what is wrong.
func TestCheck(t *testing.T) {
	for want, c := range map[string]provider.Config{
		"kind":    {Kind: "gemini"},
		"url":     {Kind: provider.OpenAI, URL: "ftp://example.com"},
		"key_env": {Kind: provider.OpenAI, KeyEnv: "AWS_SECRET_ACCESS_KEY"},
		"key_env: want the name of a variable that begins with ROUX_MODEL_": {Kind: provider.OpenAI, KeyEnv: "ROUX_MASTER_KEY"},
		"secret":                          {Kind: provider.OpenAI, Secret: "no such name!"},
		"max_tokens":                      {Kind: provider.OpenAI, MaxTokens: -1},
		"slots":                           {Kind: provider.OpenAI, Slots: 100_000},
		"stall":                           {Kind: provider.OpenAI, Stall: "soon"},
		"only jobs have the price second": {Kind: provider.OpenAI, Prices: map[string]provider.ModelPrice{"m": {Input: "1", Output: "1", Second: "1"}}},
		"how long a job has taken":        {Kind: jobapi.OpenAI, Prices: map[string]provider.ModelPrice{"m": {Input: "1", Output: "1", Second: "1"}}},
		"second needs max_seconds":        {Kind: jobapi.Replicate, Prices: map[string]provider.ModelPrice{"o/n": {Second: "0.0014"}}},
		"max_seconds is -1":               {Kind: jobapi.Replicate, Prices: map[string]provider.ModelPrice{"o/n": {Second: "1"}}, JobConfig: provider.JobConfig{MaxSeconds: -1}},
		"want job, the credits for a job, or second": {Kind: jobapi.FalQueue, Prices: map[string]provider.ModelPrice{"o/n": {}}},
		"input and output":                           {Kind: provider.OpenAI, Prices: map[string]provider.ModelPrice{"m": {Input: "1"}}},
		"amount of credits":                          {Kind: provider.OpenAI, Prices: map[string]provider.ModelPrice{"m": {Input: "1", Output: "-2"}}},
	} {
		if err := provider.Check(map[string]provider.Config{"main": c}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
	if err := provider.Check(map[string]provider.Config{"Main": {Kind: provider.OpenAI}}); err == nil {
		t.Error("a name in capitals is accepted")
	}
}

// A hostile stream ends with an answer or an error, in a bounded time.
func FuzzStream(f *testing.F) {
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", false)
	f.Add("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"1\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", true)
	f.Fuzz(func(t *testing.T, text string, anthropic bool) {
		kind := kinds[0]
		if anthropic {
			kind = kinds[1]
		}
		m, err := find(t, kind, replay(t, text, len(text)/2), "m")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if a, partial, err := ask(t, m, true); err == nil && a.Text != partial {
			t.Errorf("%q and %q", a.Text, partial)
		}
		if time.Since(begin) > 20*time.Second {
			t.Error("it does not end")
		}
	})
}
