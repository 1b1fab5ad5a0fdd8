// SPDX-License-Identifier: Apache-2.0

// Package service is an external service for the examples: a news feed that is
// sometimes unavailable, and a shop whose bookings and payments can be cancelled.
//
// It decides its responses and keeps its requests in memory. It knows nothing of
// Roux: the examples call it over HTTP like any other service.
package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Service has these endpoints:
//
//	GET    /news?fail=N     N times 503 with Retry-After: 1, then the news
//	GET    /mirror?ms=N     the news, after N milliseconds
//	GET    /down            always 500
//	POST   /bookings        201 with an id, the same id for the same Idempotency-Key
//	POST   /payments        the same
//	POST   /shipments       always 409: there is no courier
//	DELETE /bookings/ID     204, even when it does not exist any more
//	DELETE /payments/ID     the same
//	GET    /log             the requests so far, one per line
type Service struct {
	mu    sync.Mutex
	fails int
	ids   map[string]string // by kind and Idempotency-Key
	log   []string
}

// New returns a service without any requests so far.
func New() *Service { return &Service{ids: map[string]string{}} }

// Log returns the requests so far, in order.
func (s *Service) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, id, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind != "log" {
		s.log = append(s.log, r.Method+" "+r.URL.Path)
	}
	switch {
	case kind == "news":
		s.news(w, r)
	case kind == "mirror":
		s.mirror(w, r)
	case kind == "down":
		answer(w, http.StatusInternalServerError, map[string]any{"error": "the service is down"})
	case kind == "log":
		answer(w, http.StatusOK, s.log)
	case r.Method == http.MethodPost && kind == "shipments":
		answer(w, http.StatusConflict, map[string]any{"error": "there is no courier today"})
	case r.Method == http.MethodPost && (kind == "bookings" || kind == "payments"):
		answer(w, http.StatusCreated, map[string]any{"id": s.id(kind, r.Header.Get("Idempotency-Key"))})
	case r.Method == http.MethodDelete && id != "":
		w.WriteHeader(http.StatusNoContent)
	default:
		answer(w, http.StatusNotFound, map[string]any{"error": "there is nothing at " + r.URL.Path})
	}
}

var headlines = map[string]any{"headline": "Ferry sails again", "source": "The Lindholm Courier"}

func (s *Service) news(w http.ResponseWriter, r *http.Request) {
	var wanted int
	_, _ = fmt.Sscan(r.URL.Query().Get("fail"), &wanted) // 0 unless it is a number
	if s.fails < wanted {
		s.fails++
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, map[string]any{"error": "come back later"})
		return
	}
	s.fails = 0
	answer(w, http.StatusOK, headlines)
}

func (s *Service) mirror(w http.ResponseWriter, r *http.Request) {
	late, _ := time.ParseDuration(r.URL.Query().Get("ms") + "ms") // no delay unless it is a number
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-time.After(late):
		answer(w, http.StatusOK, headlines)
	case <-r.Context().Done(): // the client is gone
	}
}

// id returns a new id, or the id returned before for the same key.
func (s *Service) id(kind, key string) string {
	id, ok := s.ids[kind+key]
	if !ok || key == "" {
		id = fmt.Sprintf("%s-%d", strings.TrimSuffix(kind, "s"), len(s.ids)+1)
		s.ids[kind+key] = id
	}
	return id
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client is gone
}
