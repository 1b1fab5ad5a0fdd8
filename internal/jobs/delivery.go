// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/store"
)

const (
	// keptOpen is how long a delivery waits for the id of its job, or for its service.
	keptOpen = 2 * day
	// keptDone is how long a delivery is kept after it was acted upon, and with it its id, so
	// that a repetition is recognized.
	keptDone = 7 * day
	// keptEnded is how long it is remembered which run a job belonged to, so that a late
	// delivery is found to be late.
	keptEnded = 2 * day
)

// MaxDelivery bounds the body of a webhook, in bytes.
const MaxDelivery = 1 << 20

// A Delivery is a webhook as it came (X132).
type Delivery struct {
	Provider string `json:"provider"`
	Job      string `json:"job"`
	ID       string `json:"id"`
	Received int64  `json:"received"` // UTC µs
	Body     []byte `json:"body"`
	// Outcome is what became of it: "" while it waits, "recorded", "late" or "nothing".
	Outcome string `json:"outcome,omitempty"`
	Size    int    `json:"-"` // bytes of the body, when it is left out
}

// Expired reports whether a delivery that was acted upon, with this record, had waited for its job in vain.
func (d *Delivery) Expired(r *store.Record) bool { return r.Until-keptDone >= d.Received+keptOpen }

// Deliver takes a webhook that has come for a provider. It returns when the webhook is stored,
// and acts upon it later; one that is repeated changes nothing. fault.Unauthorized: its
// signature does not fit, or there is no such provider.
func (k *Keeper) Deliver(ctx context.Context, provider string, header http.Header, body []byte) error {
	svc := k.cfg.Service(provider)
	if svc == nil {
		svc = nobody{}
	}
	var got action.Webhook
	err := k.call(ctx, provider, func(context.Context) (err error) {
		got, err = svc.Receive(header, body)
		return err
	})
	if err != nil || got.Job == "" {
		k.refused.Add(1)
		return fault.Wrap(fault.Unauthorized, err, "the webhook is not signed by a provider that is configured here")
	}
	d := Delivery{Provider: provider, Job: got.Job, ID: got.ID, Received: k.now(), Body: body}
	id := deliveries(provider, got.Job) + short(got.ID)
	_, err = k.cfg.Records.Record(ctx, store.RecordKey{Kind: KindDelivery, ID: id})
	if !errors.Is(err, fault.RecordNotFound) {
		return err // it was acted upon, or that cannot be found out
	}
	data, err := json.Marshal(&d)
	if err != nil {
		return err
	}
	_, err = k.cfg.Put(ctx, store.RecordChange{Record: store.Record{RecordKey: store.RecordKey{Kind: KindOpen, ID: id}, Until: d.Received + keptOpen, Data: data}})
	if errors.Is(err, fault.Conflict) {
		return nil // it waits
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.received.push(d.Received, id, 0)
	k.mu.Unlock()
	k.nudge()
	return nil
}

// Refused returns how many webhooks were refused since the start.
func (k *Keeper) Refused() int64 { return k.refused.Load() }

// act acts upon a delivery, if its job is known.
func (k *Keeper) act(ctx context.Context, e entry) {
	k.unpark(e.name)
	r, err := k.cfg.Records.Record(ctx, store.RecordKey{Kind: KindOpen, ID: e.name})
	if errors.Is(err, fault.RecordNotFound) {
		return
	}
	if err != nil {
		k.cfg.Logger.Warn("a webhook cannot be read; trying again", "delivery", e.name, "err", err)
		k.again(&k.received, e)
		return
	}
	var d Delivery
	if err = json.Unmarshal(r.Data, &d); err == nil {
		d.Outcome, err = k.outcome(ctx, &d)
	}
	if k.now() < r.Until {
		if err != nil {
			k.cfg.Logger.Info("a webhook could not be acted upon; trying again", "provider", d.Provider, "job", d.Job, "err", err)
			k.again(&k.received, e)
			return
		}
		if d.Outcome == "" && !mutation.EarlyDelivery {
			k.park(ctx, e, &d, r.Until)
			return
		}
	}
	d.Outcome = cmp.Or(d.Outcome, "nothing")
	if err := k.done(ctx, &r, &d); err != nil && !errors.Is(err, fault.Conflict) {
		k.again(&k.received, e)
	}
}

// outcome acts upon a delivery; "" = its job is not known.
func (k *Keeper) outcome(ctx context.Context, d *Delivery) (string, error) {
	name := d.Provider + "/" + d.Job
	j, waits, err := k.job(ctx, KindJob, name)
	if err != nil {
		return "", err
	}
	if !waits {
		known := false
		if j, known, err = k.job(ctx, KindEnded, name); err != nil || !known {
			return "", err
		}
	}
	svc := k.cfg.Service(d.Provider)
	if svc == nil {
		return "", fault.New(fault.ProviderNotConfigured, "provider %q is not configured", d.Provider)
	}
	var st action.JobState
	err = k.call(ctx, d.Provider, func(ctx context.Context) (err error) {
		st, err = svc.Read(ctx, j.Public(), d.Body)
		return err
	})
	if err != nil {
		return "", err
	}
	if st.Result == nil {
		if waits && st.Preview != nil {
			k.preview(ctx, &j, journal.FromWebhook, st.Preview)
		}
		return "nothing", nil
	}
	err = k.settle(ctx, &j, journal.FromWebhook, st.Result)
	switch {
	case errors.Is(err, fault.RunNotFound), err == nil && !waits: // the run was deleted, or the job has ended
		return "late", nil
	case err != nil:
		return "", err
	}
	return "recorded", nil
}

// park keeps a delivery until its job is known, or until nobody waits for that any more. It
// looks again whether the job has become known meanwhile.
func (k *Keeper) park(ctx context.Context, e entry, d *Delivery, until int64) {
	at := deliveries(d.Provider, d.Job)
	k.mu.Lock()
	k.parked[at] = append(k.parked[at], e.name)
	k.received.push(until, e.name, 0)
	k.mu.Unlock()
	if _, ok, err := k.job(ctx, KindJob, d.Provider+"/"+d.Job); ok || err != nil {
		k.again(&k.received, e)
	}
}

// unpark forgets that a delivery waits for its job.
func (k *Keeper) unpark(name string) {
	at := name[:strings.LastIndexByte(name, '/')+1]
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.parked[at] = slices.DeleteFunc(k.parked[at], func(id string) bool { return id == name }); len(k.parked[at]) == 0 {
		delete(k.parked, at)
	}
}

// done keeps a delivery as one that was acted upon.
func (k *Keeper) done(ctx context.Context, r *store.Record, d *Delivery) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	_, err = k.cfg.Put(ctx,
		store.RecordChange{Delete: true, Record: store.Record{RecordKey: r.RecordKey, Revision: r.Revision}},
		store.RecordChange{Record: store.Record{RecordKey: store.RecordKey{Kind: KindDelivery, ID: r.ID}, Revision: store.AnyRevision, Until: k.now() + keptDone, Data: data}})
	return err
}

// Check reports why a step that waits for the task of a remote worker cannot wait for a job that the
// worker names: its provider is not configured, or it is a job of another step. The error is a
// *fault.Error of the step, unless it could not be found out.
func (k *Keeper) Check(ctx context.Context, task *Job, job *action.Job) error {
	if Within(job.Provider) || k.cfg.Service(job.Provider) == nil {
		return fault.New(fault.ProviderNotConfigured, "the provider %.64q of the job that a worker has submitted is not configured", job.Provider)
	}
	name := job.Provider + "/" + job.ID
	for _, kind := range []string{KindJob, KindEnded} {
		j, known, err := k.job(ctx, kind, name)
		if err != nil {
			return fmt.Errorf("read whose job %.100q is: %s", name, fault.Message(err)) // the store may be well a moment later
		}
		if known && (j.Key() != task.Key() || j.Ref() != task.Ref()) {
			return fault.New(fault.ProviderError, "the job %.100q of %s that a worker has submitted is one of another step", job.ID, job.Provider)
		}
	}
	return nil
}

// nobody is the service of a provider that is not configured.
type nobody struct{ action.Service }

func (nobody) Receive(http.Header, []byte) (action.Webhook, error) {
	return action.Webhook{}, errors.New("no such provider")
}
