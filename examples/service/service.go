// SPDX-License-Identifier: Apache-2.0

// Package service is an outside service for the examples: news that are
// sometimes not to be had, and a travel office that books and takes back.
//
// It decides what it answers and remembers what it was asked, in memory. It knows
// nothing of Roux: the examples speak to it over HTTP like to any other service.
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

// A Service answers:
//
//	GET    /news?fail=N     N times 503 with Retry-After: 1, then the news
//	GET    /mirror?ms=N     the news, N milliseconds late
//	GET    /down            always 500
//	POST   /bookings        201 with an id; the same Idempotency-Key, the same id
//	POST   /payments        the same
//	POST   /shipments       409: there is no courier
//	DELETE /bookings/ID     204, also when it is gone already
//	DELETE /payments/ID     the same
//	GET    /log             what was asked of it, one line each
type Service struct {
	mu    sync.Mutex
	fails int
	ids   map[string]string // by kind and Idempotency-Key
	log   []string
}

// New returns a service that nobody has asked anything.
func New() *Service { return &Service{ids: map[string]string{}} }

// Log is what was asked of the service, in order.
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
	_, _ = fmt.Sscan(r.URL.Query().Get("fail"), &wanted) // what is no number means 0
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
	late, _ := time.ParseDuration(r.URL.Query().Get("ms") + "ms") // what is no number means at once
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-time.After(late):
		answer(w, http.StatusOK, headlines)
	case <-r.Context().Done(): // the one who asked has lost interest
	}
}

// id is a new id, or the one that was given out for the same key before.
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
	_ = json.NewEncoder(w).Encode(body) // who has gone needs no answer
}
