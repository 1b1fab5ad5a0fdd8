// SPDX-License-Identifier: Apache-2.0

package emulate

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A delivery is a webhook of a job on its way.
type delivery struct {
	job     *job
	id      string
	start   bool            // it says that the job was accepted
	preview json.RawMessage // it says that the job has made this so far; nil = another thing
	forged  bool            // it says that the job failed, and has a wrong signature
	age     time.Duration   // of its time
	once    bool            // it is not repeated
	tries   int
	next    *delivery // is sent after it
}

// pauses are the times between the attempts of a delivery.
var pauses = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second}

// sendTimeout is how long a receiver may take to answer, as at fal.
const sendTimeout = 15 * time.Second

// webhook returns the webhook of a job that ends, and how late it is sent; nil = there is none.
func (j *job) webhook(late time.Duration) (*delivery, time.Duration) {
	if j.callback == "" || !j.onEnd {
		return nil, 0
	}
	d := &delivery{job: j, id: newID("msg_")}
	switch j.mode {
	case Lost:
		return nil, 0
	case Late:
		return d, late
	case Twice:
		d.next = &delivery{job: j, id: d.id}
	case Forged:
		return &delivery{job: j, id: newID("msg_"), forged: true, once: true, next: d}, 0
	case Old:
		d.age, d.once = time.Hour, true
	}
	return d, 0
}

// enqueue hands a delivery to the senders.
func (s *Jobs) enqueue(d *delivery) {
	s.queue = append(s.queue, d)
	s.ready.Signal()
}

// sendQueued is a sender.
func (s *Jobs) sendQueued() {
	for {
		d := s.nextQueued()
		if d == nil {
			return
		}
		s.send(d)
	}
}

// nextQueued returns nil when the emulator closes.
func (s *Jobs) nextQueued() *delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && !s.closed {
		s.ready.Wait()
	}
	if s.closed {
		return nil
	}
	d := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	return d
}

// send makes an attempt of a delivery, and sees to what follows it.
func (s *Jobs) send(d *delivery) {
	s.mu.Lock()
	j := d.job.copy()
	s.mu.Unlock()
	ok := s.post(d, j)

	s.mu.Lock()
	defer s.mu.Unlock()
	switch sent := &d.job.sent; {
	case !ok:
		sent.Refused++
	default:
		sent.Accepted++
		if d.forged || d.age > 0 {
			sent.Deceived++
		}
	}
	d.tries++
	d.job.told = d.job.told || !d.forged && !d.start && d.preview == nil
	switch {
	case !ok && !d.once && d.tries <= len(pauses):
		s.at(timer{time.Now().Add(pauses[d.tries-1]), d.job, d})
	case d.next != nil:
		s.enqueue(d.next)
	default:
		d.job.pending--
		s.settle(d.job)
	}
}

// post sends a delivery, and reports whether the receiver has accepted it. j is a copy of its job.
func (s *Jobs) post(d *delivery, j *job) bool {
	by := &s.signer
	switch {
	case d.start:
		j.state = JobQueued
	case d.preview != nil:
		j.state, j.preview = JobRunning, d.preview
	case d.forged:
		j.state, j.failure, by = JobFailed, "forged", &s.forger
	}
	body, err := json.Marshal(j.protocol.event(j, d.id))
	if err != nil {
		return false // it was made of JSON
	}
	ctx, cancel := context.WithTimeout(s.ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.callback, bytes.NewReader(body))
	if err != nil {
		return false // the URL was checked
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "roux-emulate")
	j.protocol.sign(by, &signedMessage{job: j.id, id: d.id, at: time.Now().Add(-d.age).Unix(), body: body}, req.Header)
	resp, err := s.out.RoundTrip(req)
	if err != nil {
		return false
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	_ = resp.Body.Close()
	return resp.StatusCode >= 200 && resp.StatusCode < 300
}

// A signedMessage is a webhook that is to be signed.
type signedMessage struct {
	job, id string
	at      int64 // Unix time
	body    []byte
}

// A signer has the keys that sign webhooks. They are used by hand here, and not by a library, so
// that the code that verifies them is checked against another implementation.
type signer struct {
	secret  []byte
	private ed25519.PrivateKey
}

const secretPrefix = "whsec_"

func newSecret() string {
	secret := make([]byte, 24)
	_, _ = rand.Read(secret) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(secret)
}

func newSigner(secret string) (signer, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return signer{}, errors.New("the secret of webhooks: want whsec_ and 24 to 64 bytes in base64")
	}
	seed := sha256.Sum256(key)
	return signer{secret: key, private: ed25519.NewKeyFromSeed(seed[:])}, nil
}

// standardWebhooks signs by https://www.standardwebhooks.com.
type standardWebhooks struct{}

func (standardWebhooks) sign(by *signer, m *signedMessage, h http.Header) {
	at := strconv.FormatInt(m.at, 10)
	mac := hmac.New(sha256.New, by.secret)
	mac.Write([]byte(m.id + "." + at + "."))
	mac.Write(m.body)
	h.Set("webhook-id", m.id)
	h.Set("webhook-timestamp", at)
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
