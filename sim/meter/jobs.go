// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// A job is done when the meter's time to hold has passed, whether or not anybody knows of it. The
// same Idempotency-Key gives the same job.
type job struct {
	id       string
	span     *Span
	callback string
	done     chan struct{} // closed when it has ended
}

const (
	// redeliver is the time between two webhooks until one is accepted.
	redeliver = 50 * time.Millisecond
	// redeliverFor is for how long they are sent.
	redeliverFor = 2 * time.Minute
)

// submit accepts a job. Its answer comes late, if Accept says so: a caller that dies meanwhile has
// begun a job of which it knows nothing.
func (m *Meter) submit(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Input    struct{ At string }
		Callback string
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	j := m.jobOf(r.Header.Get("Idempotency-Key"), in.Input.At, in.Callback)
	time.Sleep(m.Accept)
	m.answerJob(w, j, http.StatusCreated)
}

// jobOf returns the job of a key, which begins now if there is none.
func (m *Meter) jobOf(key, at, callback string) *job {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j := m.byKey[key]; j != nil {
		return j
	}
	j := &job{id: number("job_", len(m.jobs)+1), span: m.add("job", at, true), callback: callback, done: make(chan struct{})}
	m.jobs[j.id], m.byKey[key] = j, j
	go m.carryOut(j)
	return j
}

// carryOut ends a job when its time has come, and reports it.
func (m *Meter) carryOut(j *job) {
	select {
	case <-j.done:
		return
	case <-time.After(m.Hold):
	}
	if !m.endJob(j, false) || j.callback == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), redeliverFor)
	defer cancel()
	for n := 0; ctx.Err() == nil && !m.deliver(ctx, j, n); n++ {
		time.Sleep(redeliver)
	}
}

// endJob ends a job that has not ended, and reports whether it did.
func (m *Meter) endJob(j *job, cancelled bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j.span.End != 0 {
		return false
	}
	m.endLocked(j.span, cancelled)
	close(j.done)
	return true
}

func (m *Meter) stateOf(j *job) map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := "working"
	switch {
	case j.span.Dead:
		state = "cancelled"
	case j.span.End != 0:
		state = "done"
	}
	return map[string]any{"id": j.id, "status": state, "result": map[string]any{"at": j.span.At}}
}

// deliver sends the webhook of a job once, and reports whether it was accepted.
func (m *Meter) deliver(ctx context.Context, j *job, n int) bool {
	body, err := json.Marshal(m.stateOf(j))
	if err != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.callback, bytes.NewReader(body))
	if err != nil {
		return false
	}
	id, at := number(j.id+"-", n), strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, m.Secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", at)
	req.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	res, err := m.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode/100 == 2
}

func (m *Meter) poll(w http.ResponseWriter, r *http.Request) {
	if j := m.find(w, r); j != nil {
		m.answerJob(w, j, http.StatusOK)
	}
}

func (m *Meter) cancel(w http.ResponseWriter, r *http.Request) {
	if j := m.find(w, r); j != nil {
		m.endJob(j, true)
		m.answerJob(w, j, http.StatusOK)
	}
}

func (m *Meter) find(w http.ResponseWriter, r *http.Request) *job {
	m.mu.Lock()
	j := m.jobs[r.PathValue("id")]
	m.mu.Unlock()
	if j == nil {
		http.NotFound(w, r)
	}
	return j
}

func (m *Meter) answerJob(w http.ResponseWriter, j *job, status int) { answer(w, status, m.stateOf(j)) }
