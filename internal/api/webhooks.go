// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/webhook"
)

// A WebhookResource is where events of the account are sent to.
type WebhookResource struct {
	ID             string            `json:"id"`
	URL            string            `json:"url"`
	Description    string            `json:"description,omitempty"`
	Events         []string          `json:"events"`
	Recipes        []string          `json:"recipes,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Children       bool              `json:"children"`
	Payload        string            `json:"payload" enum:"thin,full"`
	Enabled        bool              `json:"enabled"`
	DisabledReason string            `json:"disabledReason,omitempty"`
	DisabledAt     *time.Time        `json:"disabledAt,omitempty"`
	FailingSince   *time.Time        `json:"failingSince,omitempty" doc:"Since then no delivery has succeeded."`
	PublicKeys     []WebhookKey      `json:"publicKeys" doc:"Verify the signatures of the scheme v1a."`
	CreatedAt      time.Time         `json:"createdAt"`
	CreatedBy      string            `json:"createdBy,omitempty" doc:"Id of the key that made it."`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

// A WebhookKey is a public key of a webhook.
type WebhookKey struct {
	Key       string     `json:"key" example:"whpk_…"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty" doc:"When it signs no more, after a rotation."`
}

// A NewWebhook is a webhook with its secret, which is not shown again.
type NewWebhook struct {
	WebhookResource
	Secret string `json:"secret" doc:"Verifies the signatures of the scheme v1. Keep it: it is not shown again." example:"whsec_…"`
}

// A WebhookDelivery is a message to a webhook, and how its sending goes.
type WebhookDelivery struct {
	ID            string           `json:"id"`
	MessageID     string           `json:"messageId" doc:"The header webhook-id, the same in all attempts."`
	Type          string           `json:"type" doc:"Of the event."`
	State         string           `json:"state" enum:"waiting,sending,delivered,failed,quarantined"`
	Test          bool             `json:"test,omitempty"`
	ResentFrom    string           `json:"resentFrom,omitempty" doc:"Id of the delivery whose message was sent again."`
	Attempts      []WebhookAttempt `json:"attempts"`
	NextAttemptAt *time.Time       `json:"nextAttemptAt,omitempty"`
	CreatedAt     time.Time        `json:"createdAt"`
	CompletedAt   *time.Time       `json:"completedAt,omitempty"`
	Payload       json.RawMessage  `json:"payload,omitempty" doc:"What is sent; not in lists."`
}

// A WebhookAttempt is one request to a receiver.
type WebhookAttempt struct {
	Number     int       `json:"number"`
	At         time.Time `json:"at"`
	DurationMS int64     `json:"durationMs"`
	Status     int       `json:"status,omitempty" doc:"HTTP status of the answer; none without an answer."`
	ErrorCode  string    `json:"errorCode,omitempty"`
	Error      string    `json:"error,omitempty"`
}

func (s *Server) webhookRoutes() {
	read, write := rest.Needs(access.WebhooksRead), rest.Needs(access.WebhooksWrite)
	secret := write
	secret.Once = rest.OnceNever
	create := rest.Op("webhooks-create", http.MethodPost, "/v1/webhooks", "Make a webhook: a URL that is told of events of the account")
	create.DefaultStatus = http.StatusCreated
	rest.Handle(s.rest, create, secret, s.createWebhook)
	rest.Handle(s.rest, rest.Op("webhooks-list", http.MethodGet, "/v1/webhooks", "List the webhooks of the account"), read, s.listWebhooks)
	rest.Handle(s.rest, rest.Op("webhooks-get", http.MethodGet, "/v1/webhooks/{id}", "Get a webhook"), read, s.getWebhook)
	rest.Handle(s.rest, rest.Op("webhooks-update", http.MethodPatch, "/v1/webhooks/{id}", "Change fields of a webhook, enable or disable it"), write, s.updateWebhook)
	rest.Handle(s.rest, rest.Op("webhooks-delete", http.MethodDelete, "/v1/webhooks/{id}", "Delete a webhook; what waits is not sent"), write, s.deleteWebhook)
	rest.Handle(s.rest, rest.Op("webhooks-rotate", http.MethodPost, "/v1/webhooks/{id}/rotate", "Give a webhook new keys; those before sign beside them for a while"), secret, s.rotateWebhook)
	rest.Handle(s.rest, rest.Op("webhooks-public-keys", http.MethodGet, "/v1/webhooks/{id}/public-keys", "List the public keys of a webhook, the present one first"), read, s.webhookKeys)
	test := rest.Op("webhooks-test", http.MethodPost, "/v1/webhooks/{id}/test", "Send a message of the type webhook.ping, once")
	test.DefaultStatus = http.StatusAccepted
	rest.Handle(s.rest, test, write, s.testWebhook)
	rest.Handle(s.rest, rest.Op("webhooks-deliveries", http.MethodGet, "/v1/webhooks/{id}/deliveries", "List the deliveries of a webhook, the newest first"), read, s.listDeliveries)
	rest.Handle(s.rest, rest.Op("webhooks-delivery", http.MethodGet, "/v1/webhooks/{id}/deliveries/{delivery}", "Get a delivery with its payload"), read, s.getDelivery)
	resend := rest.Op("webhooks-resend", http.MethodPost, "/v1/webhooks/{id}/deliveries/{delivery}/resend", "Send the message of a delivery again, with its id")
	resend.DefaultStatus = http.StatusAccepted
	rest.Handle(s.rest, resend, write, s.resendDelivery)
}

func (s *Server) webhookOf(ctx context.Context, h *webhook.Hook) (WebhookResource, error) {
	since, err := s.cfg.Hooks.FailingSince(ctx, rest.Account(ctx), h.ID)
	return WebhookResource{
		ID: h.ID, URL: h.URL, Description: h.Description, Events: h.Events, Recipes: h.Recipes, Labels: h.Labels, Children: h.Children, Payload: h.Payload,
		Enabled: h.Enabled, DisabledReason: h.Reason, DisabledAt: rest.StampOr(h.Disabled), FailingSince: rest.StampOr(since), PublicKeys: webhookKeysOf(h),
		CreatedAt: rest.Stamp(h.Created), CreatedBy: h.By, UpdatedAt: rest.Stamp(h.Updated),
	}, err
}

func webhookKeysOf(h *webhook.Hook) []WebhookKey {
	list := make([]WebhookKey, len(h.PublicKeys))
	for i, k := range h.PublicKeys {
		list[i] = WebhookKey{k.Key, rest.StampOr(k.Until)}
	}
	return list
}

func deliveryOf(d *webhook.Delivery, whole bool) WebhookDelivery {
	out := WebhookDelivery{
		ID: d.ID, MessageID: d.Message, Type: d.Event, State: d.State, Test: d.Test, ResentFrom: d.Resent, Attempts: []WebhookAttempt{},
		NextAttemptAt: rest.StampOr(d.Next), CreatedAt: rest.Stamp(d.Created), CompletedAt: rest.StampOr(d.Ended),
	}
	if whole {
		out.Payload = d.Payload
	}
	for _, a := range d.Attempts {
		out.Attempts = append(out.Attempts, WebhookAttempt{
			Number: a.Number, At: rest.Stamp(a.At), DurationMS: a.Micros / 1000, Status: a.Status, ErrorCode: string(a.Code), Error: a.Reason,
		})
	}
	return out
}

// A webhookText is what a request says of a webhook; what is absent changes nothing.
type webhookText struct {
	URL         *string           `json:"url,omitempty" maxLength:"8192" doc:"http or https, without user and password. Only public addresses are reached, unless the operator opens others." example:"https://example.com/hooks/roux"`
	Description *string           `json:"description,omitempty" maxLength:"1000"`
	Events      []string          `json:"events,omitempty" maxItems:"100" doc:"Types of events, or beginnings with *." example:"[\"run.completed\",\"run.failed\",\"credits.*\"]"`
	Recipes     []string          `json:"recipes,omitempty" maxItems:"100" doc:"Only runs of recipes with these names; an empty list is all."`
	Labels      map[string]string `json:"labels,omitempty" doc:"Only runs with these labels."`
	Children    *bool             `json:"children,omitempty" doc:"Also child runs."`
	Payload     *string           `json:"payload,omitempty" enum:"thin,full" doc:"thin has ids only; full has the change and the run, masked as everywhere. Default thin."`
	Enabled     *bool             `json:"enabled,omitempty" doc:"A webhook that is enabled again is told of what happens from then on."`
}

func (t *webhookText) spec() *webhook.Spec {
	return &webhook.Spec{
		URL: t.URL, Description: t.Description, Events: t.Events, Recipes: t.Recipes, Labels: t.Labels, Children: t.Children, Payload: t.Payload, Enabled: t.Enabled,
	}
}

type webhookCreated struct {
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Body     NewWebhook
}

func (s *Server) webhookCreated(ctx context.Context, c *webhook.Created) (*webhookCreated, error) {
	r, err := s.webhookOf(ctx, c.Hook)
	return &webhookCreated{Location: "/v1/webhooks/" + c.ID, ETag: rest.ETag(c.Revision), Body: NewWebhook{r, c.Secret}}, err
}

func (s *Server) createWebhook(ctx context.Context, in *struct{ Body webhookText }) (*webhookCreated, error) {
	c, err := s.cfg.Hooks.Create(ctx, rest.Account(ctx), access.From(ctx).Key, in.Body.spec())
	if err != nil {
		return nil, err
	}
	return s.webhookCreated(ctx, c)
}

func (s *Server) listWebhooks(ctx context.Context, _ *struct{}) (*rest.Listed[WebhookResource], error) {
	list, err := s.cfg.Hooks.List(ctx, rest.Account(ctx))
	if err != nil {
		return nil, err
	}
	data := make([]WebhookResource, len(list))
	for i, h := range list {
		if data[i], err = s.webhookOf(ctx, h); err != nil {
			return nil, err
		}
	}
	return rest.PageOf(ctx, s.rest, "", "", data), nil
}

// A WebhookPath names a webhook.
type WebhookPath struct {
	ID string `path:"id" maxLength:"64" doc:"Id of a webhook."`
}

type webhookFound struct {
	ETag string `header:"ETag"`
	Body WebhookResource
}

func (s *Server) webhookFound(ctx context.Context, h *webhook.Hook, err error) (*webhookFound, error) {
	if err != nil {
		return nil, err
	}
	r, err := s.webhookOf(ctx, h)
	return &webhookFound{ETag: rest.ETag(h.Revision), Body: r}, err
}

func (s *Server) getWebhook(ctx context.Context, in *WebhookPath) (*webhookFound, error) {
	h, err := s.cfg.Hooks.Get(ctx, rest.Account(ctx), in.ID)
	return s.webhookFound(ctx, h, err)
}

// A WebhookMatch guards a change.
type WebhookMatch struct {
	IfMatch string `header:"If-Match" maxLength:"100" doc:"ETag of the webhook as it was read."`
}

type webhookUpdateIn struct {
	WebhookPath
	WebhookMatch
	Body webhookText
}

func (s *Server) updateWebhook(ctx context.Context, in *webhookUpdateIn) (*webhookFound, error) {
	revision, err := rest.Revision(in.IfMatch, store.AnyRevision)
	if err != nil {
		return nil, err
	}
	h, err := s.cfg.Hooks.Update(ctx, rest.Account(ctx), in.ID, revision, in.Body.spec())
	return s.webhookFound(ctx, h, err)
}

type webhookDeleteIn struct {
	WebhookPath
	WebhookMatch
}

func (s *Server) deleteWebhook(ctx context.Context, in *webhookDeleteIn) (*struct{}, error) {
	revision, err := rest.Revision(in.IfMatch, store.AnyRevision)
	if err != nil {
		return nil, err
	}
	return nil, s.cfg.Hooks.Delete(ctx, rest.Account(ctx), in.ID, revision)
}

type webhookRotateIn struct {
	WebhookPath
	Body *struct {
		KeepHours *int `json:"keepHours,omitempty" minimum:"0" maximum:"720" doc:"How long the keys before sign beside the new ones. Default 24; 0 for keys that somebody may have read."`
	}
}

func (s *Server) rotateWebhook(ctx context.Context, in *webhookRotateIn) (*webhookCreated, error) {
	keep := webhook.DefaultKeep
	if in.Body != nil && in.Body.KeepHours != nil {
		keep = time.Duration(*in.Body.KeepHours) * time.Hour
	}
	c, err := s.cfg.Hooks.Rotate(ctx, rest.Account(ctx), in.ID, keep)
	if err != nil {
		return nil, err
	}
	return s.webhookCreated(ctx, c)
}

func (s *Server) webhookKeys(ctx context.Context, in *WebhookPath) (*rest.Listed[WebhookKey], error) {
	h, err := s.cfg.Hooks.Get(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return rest.PageOf(ctx, s.rest, "", "", webhookKeysOf(h)), nil
}

type deliveriesIn struct {
	WebhookPath
	rest.Paging
}

func (s *Server) listDeliveries(ctx context.Context, in *deliveriesIn) (*rest.Listed[WebhookDelivery], error) {
	list := "deliveries " + rest.Account(ctx) + " " + in.ID
	place, err := s.rest.Place(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	all, next, err := s.cfg.Hooks.Deliveries(ctx, rest.Account(ctx), in.ID, place, in.Limit)
	if err != nil {
		return nil, err
	}
	data := make([]WebhookDelivery, len(all))
	for i, d := range all {
		data[i] = deliveryOf(d, false)
	}
	return rest.PageOf(ctx, s.rest, list, next, data), nil
}

type deliveryIn struct {
	WebhookPath
	Delivery string `path:"delivery" maxLength:"64" doc:"Id of a delivery, which is a run."`
}

type deliveryFound struct{ Body WebhookDelivery }

func found(d *webhook.Delivery, err error) (*deliveryFound, error) {
	if err != nil {
		if fault.CodeOf(err) == fault.RunNotFound {
			err = fault.New(fault.RecordNotFound, "the webhook has no such delivery")
		}
		return nil, err
	}
	return &deliveryFound{deliveryOf(d, true)}, nil
}

func (s *Server) getDelivery(ctx context.Context, in *deliveryIn) (*deliveryFound, error) {
	return found(s.cfg.Hooks.Delivery(ctx, rest.Account(ctx), in.ID, in.Delivery))
}

func (s *Server) resendDelivery(ctx context.Context, in *deliveryIn) (*deliveryFound, error) {
	return found(s.cfg.Hooks.Resend(ctx, rest.Account(ctx), in.ID, in.Delivery))
}

func (s *Server) testWebhook(ctx context.Context, in *WebhookPath) (*deliveryFound, error) {
	return found(s.cfg.Hooks.Test(ctx, rest.Account(ctx), in.ID))
}
