// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"
)

// Triggers are addresses to which outside systems send webhooks that start runs. Each is named
// by its id or its name.
type Triggers struct{ c *Client }

// A TriggerSignature says how deliveries are signed.
type TriggerSignature struct {
	Scheme   string `json:"scheme"`             // standard, hmac or token
	Header   string `json:"header,omitempty"`   // default of hmac: X-Hub-Signature-256 with the prefix sha256=
	Prefix   string `json:"prefix,omitempty"`   // of the value of the header
	Encoding string `json:"encoding,omitempty"` // of hmac: hex (the default) or base64
	Secret   string `json:"secret"`             // name of a secret of the account
}

// A NewTrigger is a trigger that is made. Expressions read body, headers and query.
type NewTrigger struct {
	Name        string           `json:"name"`
	Description string           `json:"description,omitempty"`
	Recipe      string           `json:"recipe"` // name or id, with @ and a version or a range
	Signature   TriggerSignature `json:"signature"`

	When       string            `json:"when,omitempty"`       // an expression; false = nothing starts
	Parameters any               `json:"parameters,omitempty"` // a text is an expression, an object has templates in it; default: the body
	Key        string            `json:"key,omitempty"`        // an expression; at most one run with a key is active
	IfActive   string            `json:"ifActive,omitempty"`   // with Key: skip (the default), queue or cancelPrevious
	Debounce   string            `json:"debounce,omitempty"`   // with Key, such as 30s
	DeliveryID string            `json:"deliveryId,omitempty"` // name of a header, or an expression
	Labels     map[string]string `json:"labels,omitempty"`     // of the runs
	MaxCredits int64             `json:"maxCredits,omitempty"`
	Paused     bool              `json:"paused,omitempty"`
}

// A Trigger starts runs of a recipe.
type Trigger struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	ReceiveURL  string            `json:"receiveUrl"` // path of the address to which deliveries are sent
	Recipe      string            `json:"recipe"`
	Signature   TriggerSignature  `json:"signature"`
	Previous    *TriggerPrevious  `json:"previousSecret,omitempty"` // after a rotation
	When        string            `json:"when,omitempty"`
	Parameters  json.RawMessage   `json:"parameters,omitempty"`
	Key         string            `json:"key,omitempty"`
	IfActive    string            `json:"ifActive,omitempty"`
	Debounce    string            `json:"debounce,omitempty"`
	DeliveryID  string            `json:"deliveryId,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	MaxCredits  int64             `json:"maxCredits,omitempty"`
	State       string            `json:"state"` // active or paused
	PausedAt    *time.Time        `json:"pausedAt,omitempty"`
	CreatedAt   time.Time         `json:"createdAt"`
	CreatedBy   string            `json:"createdBy,omitempty"` // id of the key
}

// A TriggerPrevious is the secret that a trigger had before.
type TriggerPrevious struct {
	Secret string    `json:"secret"` // its name
	Until  time.Time `json:"until"`  // until when what is signed with it is taken
}

// A NewTriggerSecret is the secret that a trigger gets.
type NewTriggerSecret struct {
	Secret    string `json:"secret"`              // name of another secret of the account
	KeepHours *int   `json:"keepHours,omitempty"` // how long the one before holds as well; nil = 24; 0 if somebody may have read it
}

// A TriggerDelivery is what became of a delivery.
type TriggerDelivery struct {
	Number        int       `json:"number"`
	Delivery      string    `json:"delivery"` // its id
	At            time.Time `json:"at"`
	Result        string    `json:"result"`                // started, queued, active, ignored, refused or delayed
	ExecutionID   string    `json:"executionId,omitempty"` // that was started, or is active
	RecipeVersion string    `json:"recipeVersion,omitempty"`
	Repeated      bool      `json:"repeated,omitempty"` // a delivery with its id has started the run before
	ErrorCode     string    `json:"errorCode,omitempty"`
	Reason        string    `json:"reason,omitempty"`
}

// A TriggerSample is a delivery that is not sent.
type TriggerSample struct {
	Body    json.RawMessage   `json:"body,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Query   map[string]string `json:"query,omitempty"`
}

// A TriggerTrial is what a delivery would do.
type TriggerTrial struct {
	Result     string          `json:"result"`   // started, ignored, refused or delayed
	Delivery   string          `json:"delivery"` // the id that it would have
	Key        string          `json:"key,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	ErrorCode  string          `json:"errorCode,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Secret     string          `json:"secret"` // usable, missing or unusable
	Paused     bool            `json:"paused,omitempty"`
}

func (t *Triggers) one(ctx context.Context, cl *call) (*Trigger, error) {
	out := new(Trigger)
	_, err := t.c.do(ctx, cl, out)
	return result(out, err)
}

// Create makes a trigger.
func (t *Triggers) Create(ctx context.Context, req NewTrigger) (*Trigger, error) {
	cl, err := at(http.MethodPost, "v1", "triggers").send(req)
	if err != nil {
		return nil, err
	}
	return t.one(ctx, cl)
}

// List returns the triggers of the account, by name.
func (t *Triggers) List(ctx context.Context) iter.Seq2[Trigger, error] {
	return list[Trigger](ctx, t.c, func() *call { return at(http.MethodGet, "v1", "triggers") })
}

// Get returns a trigger.
func (t *Triggers) Get(ctx context.Context, id string) (*Trigger, error) {
	return t.one(ctx, at(http.MethodGet, "v1", "triggers", id))
}

// Pause lets a trigger accept and ignore what it gets until Resume.
func (t *Triggers) Pause(ctx context.Context, id string) (*Trigger, error) {
	return t.one(ctx, at(http.MethodPost, "v1", "triggers", id, "pause"))
}

// Resume lets a paused trigger start runs again.
func (t *Triggers) Resume(ctx context.Context, id string) (*Trigger, error) {
	return t.one(ctx, at(http.MethodPost, "v1", "triggers", id, "resume"))
}

// Rotate gives a trigger another secret. What is signed with the one before is taken for a while.
func (t *Triggers) Rotate(ctx context.Context, id string, req NewTriggerSecret) (*Trigger, error) {
	cl, err := at(http.MethodPost, "v1", "triggers", id, "rotate").send(req)
	if err != nil {
		return nil, err
	}
	return t.one(ctx, cl)
}

// Delete deletes a trigger with its history. Its runs go on.
func (t *Triggers) Delete(ctx context.Context, id string) error {
	_, err := t.c.do(ctx, at(http.MethodDelete, "v1", "triggers", id), nil)
	return err
}

// History returns what became of the last deliveries of a trigger, the newest first.
func (t *Triggers) History(ctx context.Context, id string) iter.Seq2[TriggerDelivery, error] {
	return list[TriggerDelivery](ctx, t.c, func() *call { return at(http.MethodGet, "v1", "triggers", id, "history") })
}

// Test says what a delivery would do. It starts nothing.
func (t *Triggers) Test(ctx context.Context, id string, sample TriggerSample) (*TriggerTrial, error) {
	cl, err := at(http.MethodPost, "v1", "triggers", id, "test").send(sample)
	if err != nil {
		return nil, err
	}
	out := new(TriggerTrial)
	_, err = t.c.do(ctx, cl, out)
	return result(out, err)
}
