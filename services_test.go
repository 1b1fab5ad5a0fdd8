// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// studio is an outside service over HTTP that draws pictures. It answers at once, works, and
// then sends a webhook with a signature.
type studio struct {
	*httptest.Server
	mu      sync.Mutex
	drawn   map[string]string // by id of the job: "" while it draws
	notify  string            // where webhooks go
	refused int               // webhooks that were answered with another status than 200
}

const studioKey = "a key that both know"

func sign(body []byte) string {
	mac := hmac.New(sha256.New, []byte(studioKey))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

func newStudio(t *testing.T) *studio {
	s := &studio{drawn: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /jobs", func(w http.ResponseWriter, r *http.Request) {
		id := "job-" + r.Header.Get("Idempotency-Key")
		s.mu.Lock()
		s.drawn[id] += ""
		s.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": id})
	})
	mux.HandleFunc("GET /jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]string{"id": r.PathValue("id"), "picture": s.drawn[r.PathValue("id")]})
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// finish ends all jobs, and sends a webhook for each.
func (s *studio) finish(t *testing.T, signature func([]byte) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.drawn {
		s.drawn[id] = "a boat"
		body, err := json.Marshal(map[string]string{"event": "drawn-" + id, "id": id})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.notify, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Signature", signature(body))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			s.refused++
		}
	}
}

// drawing is what a program knows of the studio.
type drawing struct{ url string }

func (d drawing) draw(ctx context.Context, task *action.Task) (action.Result, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"/jobs", nil)
	if err != nil {
		return action.Result{}, err
	}
	req.Header.Set("Idempotency-Key", task.EffectKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return action.Result{}, fault.Wrap(fault.ServiceUnavailable, err, "the studio does not answer")
	}
	defer func() { _ = resp.Body.Close() }()
	var job struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&job); err != nil {
		return action.Result{}, fault.Wrap(fault.ProviderError, err, "the studio gave no id")
	}
	return action.Result{Job: &action.Job{Provider: "studio", ID: job.ID}}, nil
}

func (d drawing) Poll(ctx context.Context, job *action.SubmittedJob) (action.JobState, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/jobs/"+job.ID, nil)
	if err != nil {
		return action.JobState{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return action.JobState{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	var state struct{ Picture string }
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil || state.Picture == "" {
		return action.JobState{}, err
	}
	return action.JobState{Result: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{"picture": state.Picture}}, nil
	}}, nil
}

func (d drawing) Receive(header http.Header, body []byte) (action.Webhook, error) {
	if !hmac.Equal([]byte(header.Get("Signature")), []byte(sign(body))) {
		return action.Webhook{}, errors.New("forged")
	}
	var about struct{ Event, ID string }
	err := json.Unmarshal(body, &about)
	return action.Webhook{Job: about.ID, ID: about.Event}, err
}

func (d drawing) Read(ctx context.Context, job *action.SubmittedJob, _ []byte) (action.JobState, error) {
	return d.Poll(ctx, job) // the webhook says only that there is something to know
}

func (d drawing) Cancel(context.Context, *action.SubmittedJob) error { return nil }

// X129, X131, X132: a program's own service over real sockets. The step waits without a worker
// until a webhook comes that is signed.
func TestX131_ServiceOfAProgram(t *testing.T) {
	studio := newStudio(t)
	d := drawing{studio.URL}
	e, err := roux.Open(t.Context(), roux.Options{
		Dir: t.TempDir(), Services: map[string]action.Service{"studio": d},
		Actions: []action.Action{{Name: "draw", Version: "1.0.0", Provider: "studio", Run: d.draw}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, roux.MaxWebhook))
		if err == nil {
			err = e.Deliver(r.Context(), "studio", r.Header, body)
		}
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer hooks.Close()
	studio.notify = hooks.URL
	id, err := e.Start(t.Context(), roux.Request{Recipe: []byte("name: drawn\nsteps:\n  - {id: a, action: {name: draw}, outputBinding: made}\noutputs: {is: made.picture}\n")})
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range e.Watch(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "node.waiting" {
			break
		}
	}
	studio.finish(t, func([]byte) string { return sign([]byte("something else")) })
	if studio.refused != 1 {
		t.Errorf("%d forged webhooks were refused, want 1", studio.refused)
	}
	studio.finish(t, sign)
	studio.finish(t, sign)
	if studio.refused != 1 {
		t.Errorf("%d webhooks were refused in all, want 1", studio.refused)
	}
	res, err := e.Wait(t.Context(), id)
	if err != nil || res.Status != "completed" || string(res.Outputs) != `{"is":"a boat"}` {
		t.Errorf("the run is %+v (%v)", res, err)
	}
	if err := e.Deliver(t.Context(), "studio", nil, make([]byte, roux.MaxWebhook+1)); fault.CodeOf(err) != fault.RequestTooLarge {
		t.Errorf("a large webhook: %v", err)
	}
}
