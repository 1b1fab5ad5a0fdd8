// SPDX-License-Identifier: Apache-2.0

// Package meter is what steps call when limits are measured from outside: a service that holds
// requests for a while, carries out jobs, and passes calls of models on to a real server of them.
// It notes when each began and ended by one clock, counts what is under way at once, and judges from
// those notes alone whether the limits that the pages promise were kept, and how much of them was used.
//
// It never asks Roux anything, and knows of it only what a service of the outside world can see: a
// caller that was killed has closed its connection.
package meter

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A Span is a piece of work, from the arrival of its request to its end.
type Span struct {
	Kind       string // local, remote, job, or the name of a provider of models
	At         string // the step
	Begin, End int64  // µs since 1970; End is 0 while it goes on
	Dead       bool   // its caller has closed the connection, or cancelled the job
	Failed     bool   // the meter refused it on purpose
	Tokens     int64  // that a model has used
}

// A Meter is the service. Its fields are set before it is used.
type Meter struct {
	// Hold is how long each request and each job takes.
	Hold time.Duration
	// Accept is how long the answer to a submission takes, after the job has begun.
	Accept time.Duration
	// Secret signs webhooks, as Standard Webhooks does.
	Secret []byte
	// Do sends webhooks, and calls to Models.
	Do func(*http.Request) (*http.Response, error)
	// Models is the URL of a server of models; see ServeHTTP.
	Models string
	// Fails decides whether the n-th call of a provider (from 0) that arrives at a time is refused.
	Fails func(provider string, n int, at time.Time) bool
	// Slow is how long a call of a model takes at least.
	Slow time.Duration

	mu    sync.Mutex
	spans []*Span
	live  map[*Span]bool
	most  int
	worst []Span // what was under way when most was reached
	jobs  map[string]*job
	byKey map[string]*job
	calls map[string]int
}

// Start serves a meter on a free port, until stop is called.
func (m *Meter) Start() (url string, stop func() error, err error) {
	m.live, m.jobs, m.byKey, m.calls = map[*Span]bool{}, map[string]*job{}, map[string]*job{}, map[string]int{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hold", m.hold)
	mux.HandleFunc("POST /plain/v1/jobs", m.submit)
	mux.HandleFunc("GET /plain/v1/jobs/{id}", m.poll)
	mux.HandleFunc("DELETE /plain/v1/jobs/{id}", m.cancel)
	mux.HandleFunc("POST /models/{provider}/", m.model)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(ln) }()
	return "http://" + ln.Addr().String(), server.Close, nil
}

func now() int64 { return time.Now().UnixMicro() }

// begin notes the beginning of a piece of work. Calls of models are not counted among what is under
// way at once.
func (m *Meter) begin(kind, at string, counts bool) *Span {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.add(kind, at, counts)
}

// add is begin with the lock held.
func (m *Meter) add(kind, at string, counts bool) *Span {
	s := &Span{Kind: kind, At: at, Begin: now()}
	m.spans = append(m.spans, s)
	if counts {
		m.live[s] = true
		if len(m.live) > m.most {
			m.most, m.worst = len(m.live), nil
			for l := range m.live {
				m.worst = append(m.worst, *l)
			}
		}
	}
	return s
}

func (m *Meter) end(s *Span, dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endLocked(s, dead)
}

// endLocked is end; m.mu is held.
func (m *Meter) endLocked(s *Span, dead bool) {
	s.End, s.Dead = now(), dead
	delete(m.live, s)
}

// Most returns how much was under way at once at most, and what that was.
func (m *Meter) Most() (int, []Span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most, slices.Clone(m.worst)
}

// Spans returns what was noted so far, in the order in which it began.
func (m *Meter) Spans() []Span {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Span, len(m.spans))
	for i, s := range m.spans {
		list[i] = *s
	}
	return list
}

// hold holds a request for as long as a step takes. It has ended before its caller can know.
func (m *Meter) hold(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s := m.begin(q.Get("kind"), q.Get("at"), true)
	timer := time.NewTimer(m.Hold)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		m.end(s, true)
		return
	case <-timer.C:
		m.end(s, false)
	}
	answer(w, http.StatusOK, map[string]any{"at": s.At})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// number names the n-th of something.
func number(prefix string, n int) string { return prefix + strconv.Itoa(n) }
