// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
)

// X225, X209, R20: the line of a step that has completed.
func TestX225_X209_StepLines(t *testing.T) {
	var log bytes.Buffer
	hidden := 0
	s := newSite(t, Config{Steps: NewLogger(&log, LogJSON, nil, func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == "stepName" {
			hidden++
		}
		return a
	})}, noop(), flaky(1))
	head := s.run(engine.StartRequest{Plan: s.plan(nested), Recipe: "outer", Correlation: "order-17"})
	s.stop()
	var first map[string]any
	for _, line := range lines(log.String(), `"stepId":"first"`) {
		if err := json.Unmarshal([]byte(line), &first); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]any{
		"level": "info", "msg": "recipe step completed", "executionId": head.Run, "recipeId": "outer", "stepId": "first", "stepName": "first",
		"creditsUsed": 2.0, "outputBinding": "greeting", "accountId": account, "correlationId": "order-17", "attempt": 1.0,
	} {
		if first[key] != want {
			t.Errorf("%s is %v, want %v", key, first[key], want)
		}
	}
	if d, err := time.ParseDuration(first["duration"].(string)); err != nil || d <= 0 {
		t.Errorf("the duration is %v", first["duration"])
	}
	for part, n := range map[string]int{
		`"msg":"recipe step completed"`: 8, `"stepId":"each[1].part"`: 1, `"msg":"recipe step retrying"`: 1,
		`"msg":"recipe execution completed"`: 3, `"code":"SERVICE_UNAVAILABLE"`: 1,
	} {
		if got := lines(log.String(), part); len(got) != n {
			t.Errorf("%d lines have %s, want %d:\n%s", len(got), part, n, log.String())
		}
	}
	if hidden == 0 {
		t.Error("ReplaceAttr is not called")
	}
}

// R20: durations are written as Go writes them, in each format.
func TestR20_Durations(t *testing.T) {
	for format, want := range map[string]string{LogJSON: `"d":"1.5s"`, LogText: "d=1.5s", LogOff: ""} {
		var log bytes.Buffer
		NewLogger(&log, format, nil, nil).Info("x", "d", 1500*time.Millisecond)
		if got := log.String(); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// X209: the correlation of a request.
func TestX209_Correlation(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct {
		what string
		h    http.Header
		want string
		code fault.Code
	}{
		{"nothing", http.Header{}, "", ""},
		{"a correlation", http.Header{"X-Correlation-Id": {"order-17"}}, "order-17", ""},
		{"both", http.Header{"X-Correlation-Id": {"order-17"}, "Traceparent": {parent}}, "order-17", ""},
		{"a traceparent", http.Header{"Traceparent": {parent}}, parent, ""},
		{"one that is none", http.Header{"Traceparent": {"what"}}, "", ""},
		{"two", http.Header{"Traceparent": {parent, parent}}, "", ""},
		{"a long one", http.Header{"Traceparent": {"01" + parent[2:] + "-" + strings.Repeat("x", 128)}}, "", ""},
		{"128 bytes", http.Header{"X-Correlation-Id": {strings.Repeat("x", 128)}}, strings.Repeat("x", 128), ""},
		{"129 bytes", http.Header{"X-Correlation-Id": {strings.Repeat("x", 129)}}, "", fault.RequestMalformed},
		{"an empty one", http.Header{"X-Correlation-Id": {""}}, "", fault.RequestMalformed},
		{"a line break", http.Header{"X-Correlation-Id": {"a\nb"}}, "", fault.RequestMalformed},
		{"no ASCII", http.Header{"X-Correlation-Id": {"ä"}}, "", fault.RequestMalformed},
		{"two correlations", http.Header{"X-Correlation-Id": {"a", "b"}}, "", fault.RequestMalformed},
	} {
		got, err := Correlation(c.h)
		if got != c.want || fault.CodeOf(err) != c.code {
			t.Errorf("%s: %q, %v", c.what, got, err)
		}
	}
}
