// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/plan"
)

// Recipe is the name of the built-in recipe whose runs are deliveries.
const Recipe = "webhook-delivery"

const (
	// sendTime is how long an attempt may take, from the connection to the end of the answer.
	sendTime = 15 * time.Second
	// maxAnswer is how much of an answer is read, so that the connection can be used again.
	// None of it is kept.
	maxAnswer = 64 << 10
	// attempts is how often a delivery is tried: after 5 s, 20 s, 80 s, 5, 21 and 85 minutes,
	// 6 hours, and then every 8 hours, each less up to a fifth: 3 days on average.
	attempts = 17
	// failingFor is how long nothing must have been delivered when a delivery is given up, for
	// the hook to be disabled.
	failingFor = 48 * time.Hour
	// concurrent bounds the deliveries of all hooks that are sent at one time.
	concurrent = 256
)

// source is the recipe of deliveries. An outcome that another attempt cannot change has a
// code that it does not name.
const source = `name: ` + Recipe + `
ttl: 168h
inputSchema:
  type: object
  required: [message, event, payload]
  properties:
    message: {type: string}
    event: {type: string}
    payload: {type: string}
    test: {type: boolean}
    resent: {type: string}
steps:
  - id: send
    action: {name: webhook-deliver}
    inputBindings: {message: input.message, event: input.event, payload: input.payload, test: "has(input.test) && input.test"}
    timeout: 30s
`

const tried = `    retryPolicy:
      maxAttempts: %d
      initialDelay: 5s
      backoffMultiplier: 4
      maxDelay: 8h
      jitter: 0.2
      retryableErrors: [HTTP_STATUS, RATE_LIMITED, SERVICE_UNAVAILABLE, PROVIDER_ERROR, STEP_TIMEOUT, SECRET_INVALID, STORE_FAILED]
`

func (h *Hooks) plan(text string) (*plan.Plan, error) {
	a := h.Action()
	p, _, _, diags := compile.Source(Recipe+".yaml", []byte(text), compile.Options{Actions: catalogue.New(&a)})
	if p == nil {
		return nil, fault.Invalid(fault.InternalError, diags)
	}
	return p, nil
}

// Action returns the action of deliveries. It belongs into the engine, and not into what
// the recipes of users may call.
func (h *Hooks) Action() action.Action {
	return action.Action{
		Name: "webhook-deliver", Version: "1.0.0", Description: "Sends a message to a webhook.", Slots: concurrent, Run: h.send,
		Input: json.RawMessage(`{"type": "object", "required": ["message", "event", "payload"], "properties": {
			"message": {"type": "string"}, "event": {"type": "string"}, "payload": {"type": "string"}, "test": {"type": "boolean"}}}`),
		Output: json.RawMessage(`{"type": "object", "required": ["status"], "properties": {"status": {"type": "integer"}}}`),
	}
}

// A sent is the outcome of a delivery that has succeeded.
type sent struct {
	Status int `json:"status"`
}

// send makes one attempt at a delivery. The keys are read at the call, so they are in no
// journal, and a rotation counts for deliveries that wait.
func (h *Hooks) send(ctx context.Context, task *action.Task) (action.Result, error) {
	select {
	case <-h.attached:
	case <-ctx.Done():
		return action.Result{}, ctx.Err()
	}
	account, id, _ := strings.Cut(task.Account, ":")
	if !Internal(task.Account) {
		return action.Result{}, fault.New(fault.ActionNotFound, "only deliveries of webhooks may call this action")
	}
	var in struct {
		Message, Payload string
		Test             bool
	}
	if err := task.Decode(&in); err != nil {
		return action.Result{}, err
	}
	hook, err := h.Get(ctx, account, id)
	switch {
	case fault.CodeOf(err) == fault.RecordNotFound:
		return action.Result{}, fault.New(fault.TooLate, "the webhook was deleted")
	case err != nil:
		return action.Result{}, unavailable(err)
	case !hook.Enabled && !in.Test:
		return action.Result{}, fault.New(fault.TooLate, "the webhook is disabled: %s", hook.Reason)
	}
	status, err := h.post(ctx, account, hook, in.Message, in.Payload)
	if !in.Test && ctx.Err() == nil {
		h.note(ctx, account, id, task.Attempt, status, err)
	}
	return action.Result{Output: sent{status}}, err
}

// unavailable is an error of the store in a form that is tried again.
func unavailable(err error) error {
	if fault.CodeOf(err) == fault.SecretInvalid {
		return err
	}
	return fault.Wrap(fault.ServiceUnavailable, err, "the webhook cannot be read: %s", fault.Message(err))
}

// note records what an attempt says about its hook.
func (h *Hooks) note(ctx context.Context, account, id string, attempt, status int, failed error) {
	var err error
	switch {
	case failed == nil:
		err = h.healthy(ctx, account, id)
	case status == http.StatusGone:
		err = h.Disable(ctx, account, id, "the receiver answered 410 Gone")
	default:
		var since int64
		since, err = h.failing(ctx, account, id)
		if err == nil && attempt >= attempts && h.now()-since >= failingFor.Microseconds() {
			err = h.Disable(ctx, account, id, "no delivery has succeeded since "+time.UnixMicro(since).UTC().Format(time.RFC3339))
		}
	}
	if err != nil { // the next attempt notes it again
		h.cfg.Logger.Warn("the state of a webhook cannot be noted", "account", account, "hook", id, "err", err)
	}
}

// post sends a message and returns the status of the answer; 0 = there was none.
func (h *Hooks) post(ctx context.Context, account string, hook *Hook, message, body string) (int, error) {
	all, err := h.keysOf(ctx, account, hook.ID)
	if err != nil {
		return 0, unavailable(err)
	}
	now := h.cfg.Now()
	signature, err := sign(all.valid(now.UnixMicro()), message, now, []byte(body))
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, sendTime, fault.New(fault.StepTimeout, "the receiver did not answer within %s", sendTime))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, fault.New(fault.InputInvalid, "the URL of the webhook cannot be used")
	}
	req.Header = headers(message, now, signature)
	resp, err := h.cfg.Send(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	// The status counts even if the rest of the answer never comes.
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	return resp.StatusCode, verdict(resp, now)
}

// verdict is nil if an answer says that the message has arrived. Every other one is tried
// again, but 410.
func verdict(resp *http.Response, now time.Time) error {
	code := fault.HTTPStatus
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return nil
	case s == http.StatusGone:
		code = fault.NotFound // which is not tried again
	case s == http.StatusTooManyRequests:
		code = fault.RateLimited
	case s == http.StatusServiceUnavailable:
		code = fault.ServiceUnavailable
	case s >= 500:
		code = fault.ProviderError
	}
	err := fault.New(code, answered, resp.StatusCode, http.StatusText(resp.StatusCode))
	err.RetryAfterMS = egress.RetryAfter(resp.Header.Get("Retry-After"), now)
	return err
}

// answered is the message of an attempt that a status has failed; answeredStatus reads it.
const answered = "the receiver answered %d %s"

// answeredStatus returns the status in the message of a failed attempt; 0 = there is none.
func answeredStatus(text string) (status int) {
	if _, err := fmt.Sscanf(text, "the receiver answered %d", &status); err != nil {
		return 0
	}
	return status
}
