// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// The states of a delivery.
const (
	Waiting   = "waiting" // for its first attempt, or for the next one
	Sending   = "sending"
	Delivered = "delivered"
	Failed    = "failed" // it is not tried again
	// Quarantined is a delivery that the engine has set aside, because the process died again
	// and again while it was carried out. Its message can be sent again.
	Quarantined = "quarantined"
)

// A Delivery is a message to a hook, and how its sending goes: a view of the run that
// sends it. Times are UTC µs, 0 = none.
type Delivery struct {
	ID       string // of the run
	Message  string // the header webhook-id
	Event    string // type of the event
	State    string
	Test     bool
	Resent   string // id of the delivery whose message was sent again
	Attempts []Attempt
	// Next is when the next attempt is made.
	Next    int64
	Created int64
	Ended   int64
	Payload json.RawMessage // as it is sent
}

// An Attempt is one request to a receiver.
type Attempt struct {
	Number int
	At     int64
	// Status is the HTTP status of the answer; 0 = there was none, or it is not there yet.
	Status int
	Code   fault.Code // why it has failed
	Reason string
	Micros int64 // how long it took
}

// Deliveries lists the deliveries of a hook, the newest first. place is where a page begins,
// and next where the following one does; "" = it was the last.
func (h *Hooks) Deliveries(ctx context.Context, account, hook, place string, limit int) (list []*Delivery, next string, err error) {
	if _, err := h.Get(ctx, account, hook); err != nil {
		return nil, "", err
	}
	heads, err := h.host.Store.List(ctx, store.Query{Account: Account(account, hook), After: place, Limit: limit + 1})
	if err != nil {
		return nil, "", err
	}
	if len(heads) > limit {
		heads, next = heads[:limit], heads[limit-1].Run
	}
	for i := range heads {
		d, err := h.delivery(ctx, &heads[i])
		if err != nil {
			return nil, "", err
		}
		list = append(list, d)
	}
	return list, next, nil
}

// Delivery returns a delivery of a hook, or fault.RunNotFound.
func (h *Hooks) Delivery(ctx context.Context, account, hook, id string) (*Delivery, error) {
	if _, err := h.Get(ctx, account, hook); err != nil {
		return nil, err
	}
	head, err := h.host.Store.Head(ctx, store.Key{Account: Account(account, hook), Run: id})
	if err != nil {
		if fault.CodeOf(err) == fault.RunNotFound {
			err = fault.New(fault.RunNotFound, "the webhook has no such delivery")
		}
		return nil, err
	}
	return h.delivery(ctx, &head)
}

// delivery reads a delivery from its run, which has few events: an attempt has three. One
// that is damaged has only its id and its state.
func (h *Hooks) delivery(ctx context.Context, head *store.Head) (*Delivery, error) {
	d := &Delivery{ID: head.Run, State: Waiting, Created: head.Created}
	var all view.Attempts
	err := store.EachEvent(ctx, h.host.Store, head.Key, 0, all.Apply)
	if fault.CodeOf(err) == fault.StoreCorrupt || head.Damage != "" {
		d.State = Failed
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	d.read(&all)
	if head.Quarantine != "" && d.Ended == 0 {
		d.State, d.Next = Quarantined, 0
	}
	return d, nil
}

// read fills a delivery from what its run says.
func (d *Delivery) read(all *view.Attempts) {
	if all.Start != nil {
		input := all.Start.Parameters
		d.Message, _ = input["message"].(string)
		d.Event, _ = input["event"].(string)
		d.Test, _ = input["test"].(bool)
		d.Resent, _ = input["resent"].(string)
		if body, ok := input["payload"].(string); ok && json.Valid([]byte(body)) {
			d.Payload = json.RawMessage(body)
		}
	}
	for i := range all.List {
		a := &all.List[i]
		shown := Attempt{Number: i + 1, At: a.At, Micros: a.Micros, Code: a.Code, Reason: a.Message, Status: answeredStatus(a.Message)}
		var out sent
		if a.Output != nil && json.Unmarshal(a.Output, &out) == nil {
			shown.Status = out.Status
		}
		if a.Lost {
			shown.Code, shown.Reason = fault.Interrupted, "the server stopped before the answer was recorded"
		}
		d.Attempts = append(d.Attempts, shown)
	}
	d.Next, d.Ended = all.Next, all.Ended
	switch {
	case all.Ended != 0 && all.Status == journal.RunCompleted:
		d.State = Delivered
	case all.Ended != 0:
		d.State = Failed
	case all.Open:
		d.State = Sending
	}
}

// Resend sends the message of a delivery once more, with its id, as a delivery of its own.
func (h *Hooks) Resend(ctx context.Context, account, hook, id string) (*Delivery, error) {
	to, err := h.Get(ctx, account, hook)
	if err != nil {
		return nil, err
	}
	old, err := h.Delivery(ctx, account, hook, id)
	if err != nil {
		return nil, err
	}
	if !to.Enabled {
		return nil, disabled(to)
	}
	if old.Payload == nil {
		return nil, fault.New(fault.Conflict, "the message of that delivery cannot be read")
	}
	return h.startOne(ctx, account, &delivery{hook: to, event: old.Event, message: old.Message, body: old.Payload, test: old.Test, resent: id})
}

func disabled(h *Hook) error {
	err := fault.New(fault.Conflict, "the webhook is disabled: %s", h.Reason)
	err.Remedy = "Enable it first: PATCH it with {\"enabled\": true}."
	return err
}

// Test sends a message of the type webhook.ping, once, also to a hook that is disabled.
func (h *Hooks) Test(ctx context.Context, account, hook string) (*Delivery, error) {
	to, err := h.Get(ctx, account, hook)
	if err != nil {
		return nil, err
	}
	id, err := h.cfg.NewID()
	if err != nil {
		return nil, err
	}
	body, err := encode(payload{Ping, journal.Time(h.now()), Data{WebhookID: hook}})
	if err != nil {
		return nil, err
	}
	return h.startOne(ctx, account, &delivery{hook: to, event: Ping, message: "msg_" + id[len(IDPrefix):], body: body, test: true})
}

func (h *Hooks) startOne(ctx context.Context, account string, d *delivery) (*Delivery, error) {
	select {
	case <-h.attached:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	run, err := h.start(ctx, account, d, "")
	if err != nil {
		return nil, err
	}
	return h.Delivery(ctx, account, d.hook.ID, run)
}
