// SPDX-License-Identifier: Apache-2.0

package triggers

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/inbound"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/signature"
)

// An inboundServer has the operations of triggers.
type inboundServer struct {
	rest     *rest.Router
	triggers *inbound.Triggers
}

// RegisterInbound adds the operations of triggers to a router, and the address to which senders
// send.
func RegisterInbound(rt *rest.Router, t *inbound.Triggers) {
	h := &inboundServer{rt, t}
	read, start := rest.Needs(access.RunsRead), rest.Needs(access.RunsExecute)
	create := rest.Op("triggers-create", http.MethodPost, "/v1/triggers", "Make a trigger: an address to which webhooks are sent that start a recipe")
	create.DefaultStatus = http.StatusCreated
	rest.Handle(rt, create, start, h.create)
	rest.Handle(rt, rest.Op("triggers-list", http.MethodGet, "/v1/triggers", "List the triggers of the account, by name"), read, h.list)
	rest.Handle(rt, rest.Op("triggers-get", http.MethodGet, "/v1/triggers/{id}", "Get a trigger"), read, h.get)
	rest.Handle(rt, rest.Op("triggers-delete", http.MethodDelete, "/v1/triggers/{id}", "Delete a trigger with its history; its runs go on"), start, h.delete)
	rest.Handle(rt, rest.Op("triggers-pause", http.MethodPost, "/v1/triggers/{id}/pause", "Let a trigger accept and ignore what it gets until it is resumed"), start, h.pause)
	rest.Handle(rt, rest.Op("triggers-resume", http.MethodPost, "/v1/triggers/{id}/resume", "Let a paused trigger start runs again"), start, h.resume)
	h.registerChanges(start)
	rest.Handle(rt, rest.Op("triggers-history", http.MethodGet, "/v1/triggers/{id}/history", "List what became of the last 100 deliveries of a trigger, the newest first"), read, h.history)
	op := rest.Op("triggers-receive", http.MethodPost, "/v1/triggers/{id}/receive", "Take a delivery for a trigger")
	op.Description = "For senders, which sign what they send; see docs/triggers.md. It is answered when the run of the delivery is durable, or when it is in the history why there is none. Whatever is wrong with its signature, also if there is no such trigger, the answer is the same."
	op.DefaultStatus = http.StatusAccepted
	op.MaxBodyBytes = inbound.MaxBody + 1
	rest.Handle(rt, op, rest.Policy{
		Public: true, Once: rest.OnceNot, AnyQuery: true, Accepts: []string{"application/json", "application/x-www-form-urlencoded", "+json"},
	}, h.receive)
}

// A TriggerSignature says how the deliveries of a trigger are signed.
type TriggerSignature struct {
	Scheme   string `json:"scheme" enum:"standard,hmac,token" doc:"standard is Standard Webhooks; hmac is the HMAC-SHA256 of the body in a header; token is the secret itself in a header."`
	Header   string `json:"header,omitempty" maxLength:"100" doc:"Of hmac and token. Default of hmac: X-Hub-Signature-256 with the prefix sha256=, as GitHub signs." example:"X-Hub-Signature-256"`
	Prefix   string `json:"prefix,omitempty" maxLength:"100" doc:"What the value of the header begins with." example:"sha256="`
	Encoding string `json:"encoding,omitempty" enum:"hex,base64" doc:"Of hmac. Default hex."`
	Secret   string `json:"secret" maxLength:"64" doc:"The name of a secret of the account; its value is not kept here." example:"github-webhook"`
}

// A NewTrigger is what a request says of a trigger. Expressions read body, headers (by their
// names in lower case) and query.
type NewTrigger struct {
	Name        string            `json:"name" maxLength:"64" doc:"Unique in the account: letters, digits, '-', '_' and '.'." example:"on-push"`
	Description string            `json:"description,omitempty" maxLength:"1000"`
	Recipe      string            `json:"recipe" maxLength:"300" doc:"Name or id of a recipe, with @ and a version or a range. The version is found at each start." example:"build@1"`
	Signature   TriggerSignature  `json:"signature"`
	When        string            `json:"when,omitempty" maxLength:"16384" doc:"An expression; if it is false a delivery is accepted and starts nothing." example:"headers['x-github-event'] == 'push'"`
	Parameters  json.RawMessage   `json:"parameters,omitempty" doc:"The input of the recipe: a text is an expression that gives an object, an object has templates such as {{ body.ref }} in it. Default: the body, as the field body. The input may have 256 KiB."`
	Key         string            `json:"key,omitempty" maxLength:"16384" doc:"An expression that gives the key of a start: at most one run with a key is active in the account. null or an empty text is no key." example:"body.repository.full_name"`
	IfActive    string            `json:"ifActive,omitempty" enum:"skip,queue,cancelPrevious" doc:"With key, while a run with it is active; as in the start of a run. Default skip."`
	Debounce    string            `json:"debounce,omitempty" maxLength:"30" doc:"With key: start the run when no other delivery with the key has come for so long, up to 24h." example:"30s"`
	DeliveryID  string            `json:"deliveryId,omitempty" maxLength:"16384" doc:"The name of a header, or an expression: a delivery that comes again with its id starts nothing. Default: the header webhook-id, x-github-delivery or idempotency-key, or else a hash of the body." example:"body.id"`
	Labels      map[string]string `json:"labels,omitempty" doc:"Of the runs, which also have roux.trigger and roux.delivery; at most 18."`
	MaxCredits  int64             `json:"maxCredits,omitempty" minimum:"1" maximum:"9007199254740991" doc:"The most that each run may pay."`
	Paused      bool              `json:"paused,omitempty" doc:"Begin paused."`
}

// A TriggerPrevious is the secret that a trigger had before.
type TriggerPrevious struct {
	Secret string    `json:"secret" doc:"Its name."`
	Until  time.Time `json:"until" doc:"Until when what is signed with it is taken."`
}

// A TriggerResource is an address to which deliveries are sent that start runs of a recipe.
type TriggerResource struct {
	ID          string            `json:"id" example:"trig_01K3ABCDEFGHJKMNPQRSTVWXYZ"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	ReceiveURL  string            `json:"receiveUrl" doc:"Path of the address to which deliveries are sent." example:"/v1/triggers/trig_01K3ABCDEFGHJKMNPQRSTVWXYZ/receive"`
	Recipe      string            `json:"recipe"`
	Signature   TriggerSignature  `json:"signature"`
	Previous    *TriggerPrevious  `json:"previousSecret,omitempty" doc:"After a rotation."`
	When        string            `json:"when,omitempty"`
	Parameters  json.RawMessage   `json:"parameters,omitempty"`
	Key         string            `json:"key,omitempty"`
	IfActive    string            `json:"ifActive,omitempty" enum:"skip,queue,cancelPrevious"`
	Debounce    string            `json:"debounce,omitempty"`
	DeliveryID  string            `json:"deliveryId,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	MaxCredits  int64             `json:"maxCredits,omitempty"`
	State       string            `json:"state" enum:"active,paused"`
	PausedAt    *time.Time        `json:"pausedAt,omitempty"`
	CreatedAt   time.Time         `json:"createdAt"`
	CreatedBy   string            `json:"createdBy,omitempty" doc:"Id of the key that made it."`
}

// A TriggerDelivery is what became of a delivery.
type TriggerDelivery struct {
	Number    int       `json:"number"`
	Delivery  string    `json:"delivery" doc:"Its id, of which long ones are cut."`
	At        time.Time `json:"at"`
	Result    string    `json:"result" enum:"started,queued,active,ignored,refused,delayed" doc:"delayed = the sender was asked to send it again."`
	Run       string    `json:"executionId,omitempty" doc:"That was started, or is active."`
	Version   string    `json:"recipeVersion,omitempty"`
	Repeated  bool      `json:"repeated,omitempty" doc:"A delivery with its id has started the run before."`
	ErrorCode string    `json:"errorCode,omitempty"`
	Reason    string    `json:"reason,omitempty"`
}

// A TriggerReceived is what a sender is told.
type TriggerReceived struct {
	Outcome   string `json:"outcome" enum:"started,queued,active,ignored,refused"`
	Run       string `json:"executionId,omitempty"`
	Repeated  bool   `json:"repeated,omitempty" doc:"A delivery with its id has started the run before."`
	ErrorCode string `json:"errorCode,omitempty" doc:"Why it is refused. The history of the trigger says more."`
}

func triggerOf(t *inbound.Trigger) TriggerResource {
	out := TriggerResource{
		ID: t.ID, Name: t.Name, Description: t.Description, ReceiveURL: "/v1/triggers/" + t.ID + "/receive", Recipe: t.Recipe,
		Signature: TriggerSignature{Scheme: t.Signature.Name, Header: t.Signature.Header, Prefix: t.Signature.Prefix, Encoding: t.Signature.Encoding, Secret: t.Secret},
		When:      t.When, Parameters: t.Parameters, Key: t.Key, IfActive: string(t.IfActive), Debounce: durationText(t.Debounce), DeliveryID: t.DeliveryID,
		Labels: t.Labels, MaxCredits: t.MaxCredits, State: "active", PausedAt: rest.StampOr(t.PausedAt), CreatedAt: rest.Stamp(t.Created), CreatedBy: t.By,
	}
	if t.PausedAt != 0 {
		out.State = "paused"
	}
	if p := t.Previous; p != nil {
		out.Previous = &TriggerPrevious{p.Secret, rest.Stamp(p.Until)}
	}
	return out
}

// A TriggerPath names a trigger.
type TriggerPath struct {
	ID string `path:"id" maxLength:"64" doc:"Id or name of a trigger."`
}

type triggerFound struct{ Body TriggerResource }

type triggerCreated struct {
	Location string `header:"Location"`
	Body     TriggerResource
}

func (h *inboundServer) create(ctx context.Context, in *struct{ Body NewTrigger }) (*triggerCreated, error) {
	b := &in.Body
	debounce, err := rest.Duration("debounce", b.Debounce)
	if err != nil {
		return nil, err
	}
	if err := rest.CheckLabels(b.Labels); err != nil {
		return nil, err
	}
	who := access.From(ctx)
	t, err := h.triggers.Create(ctx, who.Account, &inbound.Spec{
		Name: b.Name, Description: b.Description, Recipe: b.Recipe, Secret: b.Signature.Secret,
		Signature: signature.Scheme{Name: b.Signature.Scheme, Header: b.Signature.Header, Prefix: b.Signature.Prefix, Encoding: b.Signature.Encoding},
		When:      b.When, Parameters: b.Parameters, Key: b.Key, IfActive: schedule.Overlap(b.IfActive), Debounce: debounce, DeliveryID: b.DeliveryID,
		Labels: b.Labels, MaxCredits: b.MaxCredits, Paused: b.Paused, By: who.Key, Budget: who.Budget,
	})
	if err != nil {
		return nil, err
	}
	return &triggerCreated{"/v1/triggers/" + t.ID, triggerOf(t)}, nil
}

func oneTrigger(t *inbound.Trigger, err error) (*triggerFound, error) {
	if err != nil {
		return nil, err
	}
	return &triggerFound{triggerOf(t)}, nil
}

func (h *inboundServer) get(ctx context.Context, in *TriggerPath) (*triggerFound, error) {
	return oneTrigger(h.triggers.Get(ctx, rest.Account(ctx), in.ID))
}

func (h *inboundServer) pause(ctx context.Context, in *TriggerPath) (*triggerFound, error) {
	return oneTrigger(h.triggers.Pause(ctx, rest.Account(ctx), in.ID))
}

func (h *inboundServer) resume(ctx context.Context, in *TriggerPath) (*triggerFound, error) {
	return oneTrigger(h.triggers.Resume(ctx, rest.Account(ctx), in.ID))
}

func (h *inboundServer) delete(ctx context.Context, in *TriggerPath) (*struct{}, error) {
	return nil, h.triggers.Delete(ctx, rest.Account(ctx), in.ID)
}

func (h *inboundServer) list(ctx context.Context, in *rest.Paging) (*rest.Listed[TriggerResource], error) {
	list := "triggers " + rest.Account(ctx)
	place, err := h.rest.Place(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	all, next, err := h.triggers.List(ctx, rest.Account(ctx), place, in.Limit)
	if err != nil {
		return nil, err
	}
	data := make([]TriggerResource, len(all))
	for i, t := range all {
		data[i] = triggerOf(t)
	}
	return rest.PageOf(ctx, h.rest, list, next, data), nil
}

type triggerHistoryIn struct {
	TriggerPath
	rest.Paging
}

func (h *inboundServer) history(ctx context.Context, in *triggerHistoryIn) (*rest.Listed[TriggerDelivery], error) {
	list := "trigger history " + rest.Account(ctx) + " " + in.ID
	before, err := h.rest.PlaceNumber(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	all, next, err := h.triggers.History(ctx, rest.Account(ctx), in.ID, int(before), in.Limit)
	if err != nil {
		return nil, err
	}
	place := ""
	if next > 0 {
		place = strconv.Itoa(next)
	}
	data := make([]TriggerDelivery, len(all))
	for i, e := range all {
		data[i] = TriggerDelivery{
			Number: e.Number, Delivery: e.Delivery, At: rest.Stamp(e.At), Result: string(e.Result), Run: e.Run, Version: e.Version,
			Repeated: e.Repeated, ErrorCode: string(e.Code), Reason: e.Reason,
		}
	}
	return rest.PageOf(ctx, h.rest, list, place, data), nil
}

type triggerMessage struct {
	ID      string `path:"id" maxLength:"64" doc:"Id of a trigger."`
	RawBody []byte `contentType:"application/json,application/x-www-form-urlencoded"`
}

func (h *inboundServer) receive(ctx context.Context, in *triggerMessage) (*struct{ Body TriggerReceived }, error) {
	r := rest.From(ctx).HTTP
	o, err := h.triggers.Receive(ctx, in.ID, &inbound.Message{Header: r.Header, Query: r.URL.RawQuery, Body: in.RawBody})
	if err != nil {
		return nil, err
	}
	return &struct{ Body TriggerReceived }{TriggerReceived{Outcome: string(o.Result), Run: o.Run, Repeated: o.Repeated, ErrorCode: string(o.Code)}}, nil
}
