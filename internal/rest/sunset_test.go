// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/rest"
)

// A deprecated operation says so in every answer, also in one that is refused, and in the
// document. An operation that stays says nothing. A sunset before the deprecation is a mistake
// with which no server starts.
func TestDeprecatedOperations(t *testing.T) {
	since, gone := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 11, 1, 0, 0, 0, 0, time.UTC)
	router := func(p rest.Policy) (*rest.Router, error) {
		rt := rest.New(rest.Config{Open: access.Anyone("acme"), Rate: -1, Logger: slog.New(slog.DiscardHandler), Now: time.Now, Tags: map[string]string{"old": "Old ones.", "new": "New ones."}})
		answer := func(context.Context, *struct{}) (*struct{ Body struct{ OK bool } }, error) {
			return &struct{ Body struct{ OK bool } }{}, nil
		}
		rest.Handle(rt, rest.Op("old-get", http.MethodGet, "/v1/old", "Old"), p, answer)
		rest.Handle(rt, rest.Op("new-get", http.MethodGet, "/v1/new", "New"), rest.Needs(access.RunsRead), answer)
		return rt, rt.Start()
	}
	p := rest.Needs(access.RunsRead)
	p.Deprecated, p.Sunset = since, gone
	rt, err := router(p)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		status              int
		deprecation, sunset string
	}{
		"/v1/old": {200, "@1793491200", "Mon, 01 Nov 2027 00:00:00 GMT"}, "/v1/old?what=1": {400, "@1793491200", "Mon, 01 Nov 2027 00:00:00 GMT"}, "/v1/new": {200, "", ""},
	} {
		rec := httptest.NewRecorder()
		rt.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		if h := rec.Header(); rec.Code != want.status || h.Get("Deprecation") != want.deprecation || h.Get("Sunset") != want.sunset {
			t.Errorf("%s: %d, %v", path, rec.Code, h)
		}
	}
	doc, err := rt.Document()
	if err != nil || strings.Count(string(doc), `"deprecated":true`) != 1 || !strings.Contains(string(doc), "Deprecated since 2026-11-01. It may be gone from 2027-11-01 on.") {
		t.Errorf("the document: %s, %v", doc, err)
	}
	p.Sunset = since
	if _, err := router(p); err == nil || !strings.Contains(err.Error(), "sunset") {
		t.Errorf("it starts with a sunset that is not after: %v", err)
	}
}
