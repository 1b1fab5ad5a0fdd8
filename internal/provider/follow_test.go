// SPDX-License-Identifier: Apache-2.0

//go:build !small

package provider

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/provider/jobapi"
)

// A stream of a response is read from behind a cursor: events that come twice are left out, the end of
// another response or what is no event breaks it, and a service without streams is understood.
func TestX131_Follow(t *testing.T) {
	const (
		hi   = `data: {"type":"response.output_text.delta","sequence_number":4,"delta":"hi "}` + "\n\n"
		you  = `data: {"type":"response.output_text.delta","sequence_number":5,"delta":"you"}` + "\n\n"
		done = `{"id":"resp_1","status":"completed","usage":{"input_tokens":1,"output_tokens":1}}`
		end  = `data: {"type":"response.completed","sequence_number":7,"response":` + done + `}` + "\n\n"
	)
	for what, test := range map[string]struct {
		kind, body, after string
		want, cursor      string
		ended             bool
		code              fault.Code
	}{
		"all of it":              {"text/event-stream", ": ping\n\n" + hi + you + end, "", "hi you", "5", true, ""},
		"doubled":                {"text/event-stream", hi + hi + you + hi + end, "", "hi you", "5", true, ""},
		"behind a cursor":        {"text/event-stream", hi + you + end, "4", "you", "5", true, ""},
		"it breaks":              {"text/event-stream", hi + you[:20], "", "hi ", "4", false, fault.ServiceUnavailable},
		"the end of another one": {"text/event-stream", hi + strings.Replace(end, "resp_1", "resp_2", 1), "", "hi ", "4", false, fault.ProviderError},
		"an event without end":   {"text/event-stream", hi + strings.Replace(end, `"response":`+done, `"response":null`, 1), "", "hi ", "7", false, fault.ServiceUnavailable},
		"no number":              {"text/event-stream", hi + "data: {\"type\":\"x\"}\n\n", "", "hi ", "4", false, fault.ProviderError},
		"no JSON":                {"text/event-stream", "data: hello\n\n", "", "", "", false, fault.ProviderError},
		"no stream, over":        {"application/json", done, "", "", "", true, ""},
		"no stream, under way":   {"application/json", `{"id":"resp_1","status":"in_progress"}`, "", "", "", false, ""},
		"no usage":               {"text/event-stream", strings.Replace(end, `"usage"`, `"used"`, 1), "", "", "", true, ""},
	} {
		t.Run(what, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.URL.Query(); r.URL.Path != "/responses/resp_1" || got.Get("stream") != "true" || got.Get("starting_after") != test.after || r.Header.Get("Accept") != "text/event-stream" {
					t.Errorf("asked for %s, %v", r.URL, r.Header)
				}
				w.Header().Set("Content-Type", test.kind)
				_, _ = w.Write([]byte(test.body))
			}))
			defer srv.Close()
			out := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
			defer out.Close()
			set, err := New(map[string]Config{"o": {Kind: jobapi.OpenAI, URL: srv.URL, Prices: map[string]ModelPrice{"m": {Input: "1", Output: "1"}}}}, out, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, cursor := "", ""
			st, err := set.JobServices()["o"].(action.Follower).Follow(context.Background(), &action.SubmittedJob{Provider: "o", ID: "resp_1", Handle: []byte(`{"model":"m"}`)}, test.after, func(p action.Piece) {
				text, cursor = text+p.Text, p.Cursor
			})
			if text != test.want || cursor != test.cursor || (st.Result != nil) != test.ended || fault.CodeOf(err) != test.code {
				t.Errorf("%q to %q, ended %t, %v", text, cursor, st.Result != nil, err)
			}
		})
	}
}
