// SPDX-License-Identifier: Apache-2.0

package moderation

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
)

func set(t *testing.T, text string) *Set {
	t.Helper()
	var all map[string]Config
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	out := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(out.Close)
	s, err := New(all, out, func(name string) string { return map[string]string{"ROUX_MODERATION_KEY": "sesame"}[name] })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ask(t *testing.T, s *Set, by []string, texts ...string) (action.Verdict, error) {
	t.Helper()
	g, err := s.Of(by)
	if err != nil {
		return action.Verdict{}, err
	}
	value, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	return g.Check(t.Context(), &action.Moderation{Phase: "output", Account: "acme", Run: "run_1", Step: "a", Attempt: 1, Action: "llm", Value: value, Texts: texts})
}

func TestTerms(t *testing.T) {
	s := set(t, `{"words": {"kind": "terms", "terms": ["Bad", "very ugly", "mud*", "悪い", "ﬁlth"], "patterns": ["(?i)\\bkey-[0-9]{4}\\b"], "category": "words"}}`)
	for text, want := range map[string]bool{
		"":                                      false,
		"all is well":                           false,
		"this is bad":                           true,
		"BAD.":                                  true,
		"badge":                                 false,
		"a bad-tempered man":                    true,
		"bäd":                                   false,
		"b\u200bad":                             true, // with a space of no width
		"ｂａｄ":                                   true, // full width
		"very   ugly":                           true,
		"very\nUgly!":                           true,
		"very well, ugly":                       false,
		"muddy":                                 true,
		"mud":                                   true,
		"amud":                                  false,
		"とても悪いです":                               true,
		"filth":                                 true,
		"KEY-1234":                              true,
		"key-12345":                             false,
		"a\u00adb\u00ada\u00add":                false,
		"b\u00ada\u00add":                       true,
		strings.Repeat("well ", 50_000) + "bad": true,
	} {
		v, err := ask(t, s, nil, "first", text)
		if err != nil || v.Flagged != want {
			t.Errorf("%.40q: flagged %v, %v; want %v", text, v.Flagged, err, want)
		}
		if v.Flagged && (!slices.Equal(v.Categories, []string{"words"}) || strings.Contains(v.Reason, "bad")) {
			t.Errorf("%.40q: %+v", text, v)
		}
	}
	many := make([]string, maxTerms)
	for i := range many {
		many[i] = "term" + strings.Repeat("x", i%50) + string(rune('a'+i%26)) + "y"
	}
	raw, _ := json.Marshal(map[string]any{"words": Config{Kind: Terms, Terms: many}})
	if v, err := ask(t, set(t, string(raw)), nil, strings.Repeat("some text that is long ", 40_000)); err != nil || v.Flagged {
		t.Error(v, err)
	}
	costly := set(t, `{"words": {"kind": "terms", "patterns": ["(a|b|c|d){1,60}x"]}}`)
	if _, err := ask(t, costly, nil, strings.Repeat("a", 16<<20)); fault.CodeOf(err) != fault.ValueTooLarge {
		t.Errorf("a text that costs too much: %v", err)
	}
}

// All moderators must pass a value; those in this process are asked first, and the first that flags
// it decides.
func TestChain(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, `{"flagged": false}`)
	}))
	defer server.Close()
	s := set(t, `{"a-service": {"kind": "http", "url": "`+server.URL+`"}, "words": {"kind": "terms", "terms": ["bad"]}, "more": {"kind": "terms", "terms": ["worse"]}}`)
	if v, err := ask(t, s, nil, "well"); err != nil || v.Flagged || !slices.Equal(v.By, []string{"more", "words", "a-service"}) || asked != 1 {
		t.Errorf("%+v, %v, %d requests", v, err, asked)
	}
	if v, err := ask(t, s, nil, "bad"); err != nil || !v.Flagged || !slices.Equal(v.By, []string{"words"}) || asked != 1 {
		t.Errorf("%+v, %v, %d requests", v, err, asked)
	}
	if v, err := ask(t, s, []string{"more"}, "bad"); err != nil || v.Flagged || !slices.Equal(v.By, []string{"more"}) {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := ask(t, s, []string{"more", "missing"}, "bad"); fault.CodeOf(err) != fault.ProviderNotConfigured || !strings.Contains(err.Error(), "a-service") {
		t.Errorf("one that is not configured: %v", err)
	}
	if _, err := ask(t, nil, nil, "x"); fault.CodeOf(err) != fault.ProviderNotConfigured {
		t.Errorf("none is configured: %v", err)
	}
	own := (*Set)(nil).Add(gateway{})
	if v, err := ask(t, own, []string{Gateway}, "x"); err != nil || !v.Flagged || !slices.Equal(v.By, []string{Gateway}) {
		t.Errorf("%+v, %v", v, err)
	}
}

type gateway struct{}

func (gateway) Check(context.Context, *action.Moderation) (action.Verdict, error) {
	return action.Verdict{Flagged: true}, nil
}

// A moderator over HTTP: what it is sent, and what its answers mean. Whatever is no verdict passes
// nothing (A30).
func TestHTTP(t *testing.T) {
	var got struct {
		auth, path string
		body       []byte
	}
	status, answer, header := 200, "", http.Header{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.auth, got.path = r.Header.Get("Authorization"), r.URL.Path
		got.body, _ = io.ReadAll(r.Body)
		for name := range header {
			w.Header().Set(name, header.Get(name))
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	s := set(t, `{"m": {"kind": "http", "url": "`+server.URL+`/check", "key_env": "ROUX_MODERATION_KEY"}}`)
	answer = `{"flagged": true, "categories": ["hate"], "reason": "no"}`
	v, err := ask(t, s, nil, "hello")
	if err != nil || !v.Flagged || v.Reason != "no" || !slices.Equal(v.Categories, []string{"hate"}) {
		t.Errorf("%+v, %v", v, err)
	}
	if want := `{"phase":"output","account":"acme","run":"run_1","step":"a","attempt":1,"action":"llm","value":["hello"],"texts":["hello"]}`; string(got.body) != want || got.auth != "Bearer sesame" || got.path != "/check" {
		t.Errorf("%s %s\n%s\nwant\n%s", got.auth, got.path, got.body, want)
	}
	for answered, code := range map[string]fault.Code{
		`{"flagged": false}`: "",
		`{}`:                 fault.ProviderError,
		`{"flagged": "no"}`:  fault.ProviderError,
		`flagged`:            fault.ProviderError,
		``:                   fault.ProviderError,
		`{"flagged": false, "reason": "` + strings.Repeat("x", maxResponse) + `"}`: fault.ProviderError,
	} {
		answer = answered
		if v, err := ask(t, s, nil, "hello"); fault.CodeOf(err) != code || v.Flagged {
			t.Errorf("%.40q: %+v, %v", answered, v, err)
		}
	}
	answer, status = `{"flagged": false}`, 429
	header.Set("Retry-After", "7")
	var f *fault.Error
	if _, err := ask(t, s, nil, "hello"); !errors.As(err, &f) || f.Code != fault.ServiceUnavailable || f.RetryAfterMS != 7000 {
		t.Errorf("429: %v", err)
	}
	status = 302
	header.Set("Location", "/elsewhere")
	if _, err := ask(t, s, nil, "hello"); fault.CodeOf(err) != fault.ServiceUnavailable || got.path != "/check" {
		t.Errorf("a redirect: %v, at %s", err, got.path)
	}
	if _, err := ask(t, s, nil, strings.Repeat("x", maxRequest)); fault.CodeOf(err) != fault.ValueTooLarge {
		t.Errorf("too large: %v", err)
	}
	server.Close()
	if _, err := ask(t, s, nil, "hello"); fault.CodeOf(err) != fault.ServiceUnavailable {
		t.Errorf("away: %v", err)
	}
	if _, err := ask(t, set(t, `{"m": {"kind": "http", "url": "`+server.URL+`", "key_env": "ROUX_MODERATION_OTHER"}}`), nil, "x"); fault.CodeOf(err) != fault.ProviderNotConfigured {
		t.Errorf("without its key: %v", err)
	}
}

// A moderator that is silent gives no verdict, and is not waited for longer than its timeout.
func TestSilentModerator(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	s := set(t, `{"m": {"kind": "http", "url": "`+server.URL+`", "timeout": "50ms"}}`)
	began := time.Now()
	if _, err := ask(t, s, nil, "hello"); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

// OpenAI's moderation API.
func TestOpenAI(t *testing.T) {
	answer, body, path := "", "", ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		body, path = string(raw), r.URL.Path
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	s := set(t, `{"m": {"kind": "openai", "url": "`+server.URL+`/v1/", "key_env": "ROUX_MODERATION_KEY"}}`)
	strict := set(t, `{"m": {"kind": "openai", "url": "`+server.URL+`/v1", "thresholds": {"violence": 0.2}}}`)
	clean := `{"flagged": false, "categories": {"violence": false, "hate": false}, "category_scores": {"violence": 0.1, "hate": 0.01}}`
	harsh := `{"flagged": true, "categories": {"violence": true, "hate": false}, "category_scores": {"violence": 0.9, "hate": 0.01}}`
	slight := `{"flagged": false, "categories": {"violence": false}, "category_scores": {"violence": 0.2}}`
	for _, tt := range []struct {
		set     *Set
		results string
		flagged bool
		code    fault.Code
	}{
		{s, clean + "," + clean, false, ""},
		{s, clean + "," + harsh, true, ""},
		{s, clean + "," + slight, false, ""},
		{strict, clean + "," + slight, true, ""},
		{strict, clean + "," + clean, false, ""},
		{s, clean, false, fault.ProviderError},
		{s, clean + `, {}`, false, fault.ProviderError},
		{strict, clean + `, {"flagged": false}`, false, fault.ProviderError},
		{strict, clean + `, {"flagged": false, "category_scores": {"hate": 0}}`, false, fault.ProviderError},
	} {
		answer = `{"results": [` + tt.results + `]}`
		v, err := ask(t, tt.set, nil, "one", "two")
		if v.Flagged != tt.flagged || fault.CodeOf(err) != tt.code || tt.flagged && !slices.Equal(v.Categories, []string{"violence"}) {
			t.Errorf("%s: %+v, %v", tt.results, v, err)
		}
	}
	if body != `{"input":["one","two"],"model":"omni-moderation-latest"}` || path != "/v1/moderations" {
		t.Errorf("%s %s", path, body)
	}
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		`{"gateway": {"kind": "terms", "terms": ["x"]}}`: "want a name",
		`{"a b": {"kind": "terms", "terms": ["x"]}}`:     "want a name",
		`{"m": {}}`:                "want terms, http or openai",
		`{"m": {"kind": "terms"}}`: "want terms or patterns",
		`{"m": {"kind": "terms", "terms": ["x"], "url": "https://x.test"}}`:                   "has terms, patterns and category",
		`{"m": {"kind": "terms", "terms": ["x", "..."]}}`:                                     "terms[1]: \"...\" has no letters",
		`{"m": {"kind": "terms", "terms": ["two words*"]}}`:                                   "only a single word",
		`{"m": {"kind": "terms", "patterns": ["("]}}`:                                         "patterns[0]",
		`{"m": {"kind": "terms", "patterns": ["x*"]}}`:                                        "matches every text",
		`{"m": {"kind": "http"}}`:                                                             "want url",
		`{"m": {"kind": "http", "url": "ftp://x.test"}}`:                                      "url: ",
		`{"m": {"kind": "http", "url": "https://x.test?key=1"}}`:                              "without a query",
		`{"m": {"kind": "http", "url": "https://x.test", "terms": ["x"]}}`:                    "belong to the kind terms",
		`{"m": {"kind": "http", "url": "https://x.test", "model": "x"}}`:                      "belong to the kind openai",
		`{"m": {"kind": "http", "url": "https://x.test", "key_env": "ROUX_MASTER_KEY"}}`:      "key_env: ",
		`{"m": {"kind": "http", "url": "https://x.test", "timeout": "1h"}}`:                   "timeout ",
		`{"m": {"kind": "openai", "thresholds": {"hate": 0}}}`:                                "thresholds: \"hate\"",
		`{"m": {"kind": "openai", "thresholds": {"hate": 0.5}, "key_env": "ROUX_MODEL_KEY"}}`: "",
		`{"m": {"kind": "terms", "terms": ["` + strings.Repeat("x", maxTermBytes+1) + `"]}}`:  "bytes: want at most",
	} {
		var all map[string]Config
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		err := Check(all)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
