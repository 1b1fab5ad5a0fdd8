// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/rest"
)

// A type with a part that would not be read or sent does not start.
func TestUnfitTypes(t *testing.T) {
	type none struct{}
	for want, register := range map[string]func(*rest.Router){
		"a parameter cannot be of the type []string": func(rt *rest.Router) {
			handle[struct {
				Names []string `query:"names"`
			}, none](rt)
		},
		"the field Count of the body has a default": func(rt *rest.Router) {
			handle[struct {
				Body struct {
					Count int `json:"count" default:"1"`
				}
			}, none](rt)
		},
		"have defaults, which only fields of the body may have": func(rt *rest.Router) {
			handle[struct {
				Body struct {
					Items []struct {
						Kind string `json:"kind" default:"a"`
					} `json:"items"`
				}
			}, none](rt)
		},
		"the header Age is no text": func(rt *rest.Router) {
			handle[none, struct {
				Age int `header:"Age"`
			}](rt)
		},
	} {
		rt := newRouter()
		register(rt)
		if err := rt.Start(); err == nil || !strings.Contains(err.Error(), "new-post: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("Start = %v, want %q", err, want)
		}
	}
}

// A field that a body does not have is answered with the one that was meant, or with all.
func TestUnknownFieldsHaveHints(t *testing.T) {
	rt := newRouter()
	type item struct {
		Amount int `json:"amount,omitempty"`
	}
	handle[struct {
		Body struct {
			Parameters map[string]any  `json:"parameters,omitempty"`
			Items      []item          `json:"items,omitempty"`
			Named      map[string]item `json:"named,omitempty"`
		}
	}, struct{}](rt)
	if err := rt.Start(); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"parameterz":{}}`:            `"unexpected property; did you mean \"parameters\"?"`,
		`{"zzz":1}`:                    `"unexpected property; the fields are items, named, parameters"`,
		`{"items":[{},{"amuont":1}]}`:  `"unexpected property; did you mean \"amount\"?"`,
		`{"named":{"a":{"amuont":1}}}`: `"unexpected property; did you mean \"amount\"?"`,
	} {
		w := post(t, rt, body)
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is answered with %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
}

// An answer to a request with very many wrong places names a hundred of them.
func TestManyWrongPlaces(t *testing.T) {
	rt := newRouter()
	handle[struct {
		Body struct {
			Name string `json:"name,omitempty"`
		}
	}, struct{}](rt)
	if err := rt.Start(); err != nil {
		t.Fatal(err)
	}
	var body strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&body, `,"n%d":1`, i)
	}
	w := post(t, rt, "{"+body.String()[1:]+"}")
	if n := strings.Count(w.Body.String(), `"pointer"`); w.Code != http.StatusUnprocessableEntity || n != 100 || !strings.Contains(w.Body.String(), "10000 places") {
		t.Errorf("%d with %d places: %.300s", w.Code, n, w.Body)
	}
}

func newRouter() *rest.Router {
	return rest.New(rest.Config{Open: access.Anyone("acme"), Rate: -1, Logger: slog.New(slog.DiscardHandler), Now: time.Now, Tags: map[string]string{"new": "New ones."}})
}

// post sends a body to the operation that handle has registered.
func post(t *testing.T, rt *rest.Router, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/new", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	rt.ServeHTTP(w, r)
	return w
}

func handle[I, O any](rt *rest.Router) {
	rest.Handle(rt, rest.Op("new-post", http.MethodPost, "/v1/new", "New"), rest.Needs(access.RunsRead), func(context.Context, *I) (*O, error) { return new(O), nil })
}
