// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"
)

// Webhooks are the webhooks of the account: URLs that the server sends events to.
type Webhooks struct{ c *Client }

// A Webhook is where events of the account are sent to.
type Webhook struct {
	ID             string            `json:"id"`
	URL            string            `json:"url"`
	Description    string            `json:"description,omitempty"`
	Events         []string          `json:"events"` // types, or beginnings with *
	Recipes        []string          `json:"recipes,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Children       bool              `json:"children"`
	Payload        string            `json:"payload"` // thin or full
	Enabled        bool              `json:"enabled"`
	DisabledReason string            `json:"disabledReason,omitempty"`
	DisabledAt     *time.Time        `json:"disabledAt,omitempty"`
	FailingSince   *time.Time        `json:"failingSince,omitempty"`
	PublicKeys     []WebhookKey      `json:"publicKeys"` // the present one first
	CreatedAt      time.Time         `json:"createdAt"`
	CreatedBy      string            `json:"createdBy,omitempty"` // id of the key that made it
	UpdatedAt      time.Time         `json:"updatedAt"`
	// ETag is that of the webhook as it was read, for Update and Delete; "" in a list.
	ETag string `json:"-"`
}

// A WebhookKey is a public key of a webhook, for signatures of the scheme v1a.
type WebhookKey struct {
	Key       string     `json:"key"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"` // when it signs no more, after a rotation
}

// A NewWebhook is a webhook with its secret, which is not shown again.
type NewWebhook struct {
	Webhook
	Secret string `json:"secret"`
}

// A WebhookChange is what a request says of a webhook. What is nil changes nothing; a new
// webhook needs URL and Events.
type WebhookChange struct {
	URL         *string           `json:"url,omitempty"`
	Description *string           `json:"description,omitempty"`
	Events      []string          `json:"events,omitempty"`
	Recipes     []string          `json:"recipes,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Children    *bool             `json:"children,omitempty"`
	Payload     *string           `json:"payload,omitempty"` // thin (the default) or full
	Enabled     *bool             `json:"enabled,omitempty"`
}

// A Rotation says how long the keys of a webhook sign beside new ones.
type Rotation struct {
	KeepHours *int `json:"keepHours,omitempty"` // nil = 24; 0 for keys that somebody may have read
}

// A Delivery is a message to a webhook, and how its sending goes.
type Delivery struct {
	ID            string            `json:"id"`
	MessageID     string            `json:"messageId"` // the header webhook-id, the same in all attempts
	Type          string            `json:"type"`      // of the event
	State         string            `json:"state"`     // waiting, sending, delivered, failed or quarantined
	Test          bool              `json:"test,omitempty"`
	ResentFrom    string            `json:"resentFrom,omitempty"` // id of the delivery whose message was sent again
	Attempts      []DeliveryAttempt `json:"attempts"`
	NextAttemptAt *time.Time        `json:"nextAttemptAt,omitempty"`
	CreatedAt     time.Time         `json:"createdAt"`
	CompletedAt   *time.Time        `json:"completedAt,omitempty"`
	Payload       json.RawMessage   `json:"payload,omitempty"` // what is sent; not in a list
}

// A DeliveryAttempt is one request to a receiver.
type DeliveryAttempt struct {
	Number     int       `json:"number"`
	At         time.Time `json:"at"`
	DurationMS int64     `json:"durationMs"`
	Status     int       `json:"status,omitempty"` // 0 = there was no answer
	ErrorCode  string    `json:"errorCode,omitempty"`
	Error      string    `json:"error,omitempty"`
}

// withSecret makes a request whose answer has a secret. It is sent again only when it cannot
// have arrived, because the secret would be another one.
func (w *Webhooks) withSecret(ctx context.Context, cl *call, body any) (*NewWebhook, error) {
	cl, err := cl.send(body)
	if err != nil {
		return nil, err
	}
	cl.once = true
	out := new(NewWebhook)
	a, err := w.c.do(ctx, cl, out)
	if err != nil {
		return nil, err
	}
	out.ETag = a.header.Get("ETag")
	return out, nil
}

// Create makes a webhook.
func (w *Webhooks) Create(ctx context.Context, req WebhookChange) (*NewWebhook, error) {
	return w.withSecret(ctx, at(http.MethodPost, "v1", "webhooks"), req)
}

// Rotate gives a webhook new keys. Those before sign beside them for a while.
func (w *Webhooks) Rotate(ctx context.Context, id string, req Rotation) (*NewWebhook, error) {
	return w.withSecret(ctx, at(http.MethodPost, "v1", "webhooks", id, "rotate"), req)
}

// List returns the webhooks.
func (w *Webhooks) List(ctx context.Context) iter.Seq2[Webhook, error] {
	return list[Webhook](ctx, w.c, func() *call { return at(http.MethodGet, "v1", "webhooks") })
}

func (w *Webhooks) one(ctx context.Context, cl *call) (*Webhook, error) {
	out := new(Webhook)
	a, err := w.c.do(ctx, cl, out)
	if err != nil {
		return nil, err
	}
	out.ETag = a.header.Get("ETag")
	return out, nil
}

// Get returns a webhook.
func (w *Webhooks) Get(ctx context.Context, id string) (*Webhook, error) {
	return w.one(ctx, at(http.MethodGet, "v1", "webhooks", id))
}

// Update changes fields of a webhook, enables or disables it. If it has changed since it had
// the ETag, the error is fault.PreconditionFailed; an empty one changes it in any case.
func (w *Webhooks) Update(ctx context.Context, id string, req WebhookChange, etag string) (*Webhook, error) {
	cl, err := at(http.MethodPatch, "v1", "webhooks", id).set("If-Match", etag).send(req)
	if err != nil {
		return nil, err
	}
	cl.once = true // an answer that was lost may have changed the ETag
	return w.one(ctx, cl)
}

// Delete deletes a webhook; what waits is not sent. etag is as in Update.
func (w *Webhooks) Delete(ctx context.Context, id, etag string) error {
	_, err := w.c.do(ctx, at(http.MethodDelete, "v1", "webhooks", id).set("If-Match", etag), nil)
	return err
}

// PublicKeys returns the public keys of a webhook, the present one first.
func (w *Webhooks) PublicKeys(ctx context.Context, id string) iter.Seq2[WebhookKey, error] {
	return list[WebhookKey](ctx, w.c, func() *call { return at(http.MethodGet, "v1", "webhooks", id, "public-keys") })
}

// Deliveries returns the deliveries of a webhook, the newest first.
func (w *Webhooks) Deliveries(ctx context.Context, id string) iter.Seq2[Delivery, error] {
	return list[Delivery](ctx, w.c, func() *call { return at(http.MethodGet, "v1", "webhooks", id, "deliveries") })
}

func (w *Webhooks) delivery(ctx context.Context, cl *call) (*Delivery, error) {
	out := new(Delivery)
	_, err := w.c.do(ctx, cl, out)
	return result(out, err)
}

// Delivery returns a delivery with its payload.
func (w *Webhooks) Delivery(ctx context.Context, id, delivery string) (*Delivery, error) {
	return w.delivery(ctx, at(http.MethodGet, "v1", "webhooks", id, "deliveries", delivery))
}

// Resend sends the message of a delivery again, with its id.
func (w *Webhooks) Resend(ctx context.Context, id, delivery string) (*Delivery, error) {
	return w.delivery(ctx, at(http.MethodPost, "v1", "webhooks", id, "deliveries", delivery, "resend"))
}

// Test sends a message of the type webhook.ping, once.
func (w *Webhooks) Test(ctx context.Context, id string) (*Delivery, error) {
	return w.delivery(ctx, at(http.MethodPost, "v1", "webhooks", id, "test"))
}
