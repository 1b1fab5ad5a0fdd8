// SPDX-License-Identifier: Apache-2.0

package emulate

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// fal is the protocol of fal's queue: https://fal.ai/docs/documentation/model-apis/inference/queue.
//
// The URLs of a job have only the owner and the alias of its model, also if the model has a path.
type fal struct{}

func (fal) name() string     { return "fal" }
func (fal) scheme() string   { return "Key" }
func (fal) idempotent() bool { return false }

// statusClientClosed is what fal answers about a request that was cancelled.
const statusClientClosed = 499

func (fal) failed(_ int, message string) object { return object{"detail": message} }

func (fal) read(r *http.Request, body []byte) (*job, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	var input json.RawMessage
	if err := json.Unmarshal(body, &input); err != nil {
		return nil, err
	}
	app := r.PathValue("owner") + "/" + r.PathValue("alias")
	j, err := newJob(strings.TrimSuffix(app+"/"+r.PathValue("path"), "/"), input, r.URL.Query().Get("fal_webhook"), nil)
	if err != nil {
		return nil, err
	}
	j.id, j.base = newUUID(), "http://"+r.Host+"/fal/"+app+"/requests/"
	return j, nil
}

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (fal) show(j *job, status string) object {
	return object{
		"status": status, "request_id": j.id, "status_url": j.base + j.id + "/status", "response_url": j.base + j.id, "cancel_url": j.base + j.id + "/cancel",
	}
}

func (p fal) accepted(j *job) (int, object) {
	o := p.show(j, "IN_QUEUE")
	o["gateway_request_id"], o["queue_position"] = j.id, 0
	return http.StatusOK, o
}

// polled returns the status of a job. A failed job is COMPLETED, too.
func (p fal) polled(j *job) (int, object) {
	switch j.state {
	case JobQueued:
		o := p.show(j, "IN_QUEUE")
		o["queue_position"] = 0
		return http.StatusAccepted, o
	case JobRunning:
		o := p.show(j, "IN_PROGRESS")
		o["logs"] = nil
		return http.StatusAccepted, o
	}
	o := p.show(j, "COMPLETED")
	o["logs"], o["metrics"] = nil, object{"inference_time": j.took()}
	switch j.state {
	case JobFailed:
		o["error"] = j.failure
	case JobCancelled:
		o["error"], o["error_type"] = "Request was cancelled", "client_cancelled"
	}
	return http.StatusOK, o
}

func (fal) cancelled(_ *job, ended bool) (int, object) {
	if ended {
		return http.StatusBadRequest, object{"status": "ALREADY_COMPLETED"}
	}
	return http.StatusAccepted, object{"status": "CANCELLATION_REQUESTED"}
}

// result returns what the model has answered. Errors of models are a list, all others a text.
func (fal) result(j *job) (int, any) {
	switch j.state {
	case JobDone:
		return http.StatusOK, j.echo()
	case JobFailed:
		return http.StatusUnprocessableEntity, object{"detail": []object{{"loc": []string{"body"}, "msg": j.failure, "type": "value_error"}}}
	case JobCancelled:
		return statusClientClosed, object{"detail": "Request was cancelled", "error_type": "client_cancelled"}
	}
	return http.StatusBadRequest, object{"detail": "Request is still in progress"}
}

// falResult answers what a job has resulted in.
func (s *Jobs) falResult(w http.ResponseWriter, r *http.Request, p jobProtocol) {
	s.mu.Lock()
	j := s.find(p, r.PathValue("id"))
	if j != nil {
		j.reads++
		j = j.copy()
	}
	s.mu.Unlock()
	if j == nil {
		fail(w, p, http.StatusNotFound, "Request not found")
		return
	}
	status, result := fal{}.result(j)
	writeJSON(w, status, result)
}

func (p fal) event(j *job, _ string) object {
	status, payload := p.result(j)
	o := object{"request_id": j.id, "gateway_request_id": j.id, "status": "OK", "error": nil, "payload": payload}
	if status != http.StatusOK {
		o["status"], o["error"] = "ERROR", fmt.Sprintf("Invalid status code: %d", status)
	}
	return o
}

// falUser is the user whose webhooks they are.
const falUser = "emulated-user"

func (fal) sign(by *signer, m *signedMessage, h http.Header) {
	at := strconv.FormatInt(m.at, 10)
	sum := sha256.Sum256(m.body)
	signed := strings.Join([]string{m.job, falUser, at, hex.EncodeToString(sum[:])}, "\n")
	h.Set("X-Fal-Webhook-Request-Id", m.job)
	h.Set("X-Fal-Webhook-User-Id", falUser)
	h.Set("X-Fal-Webhook-Timestamp", at)
	h.Set("X-Fal-Webhook-Signature", hex.EncodeToString(ed25519.Sign(by.private, []byte(signed))))
}

// falKeys answers the keys that verify fal's webhooks.
func (s *Jobs) falKeys(w http.ResponseWriter, _ *http.Request) {
	public := s.signer.private[ed25519.PrivateKeySize-ed25519.PublicKeySize:]
	writeJSON(w, http.StatusOK, object{"keys": []object{{
		"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": "emulated", "x": base64.RawURLEncoding.EncodeToString(public),
	}}})
}
