// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/signature"
	"github.com/roux-engine/roux/internal/store"
)

// github is how GitHub signs.
var github = signature.Scheme{Name: signature.HMAC, Header: "X-Hub-Signature-256", Prefix: "sha256="}

// nobody is the trigger that a message for none is checked with, so that it costs what others
// do. No account has that name, so it has no secret.
var nobody = &Trigger{account: "-", Spec: Spec{Secret: "none", Signature: github}}

// retryAfterMS is when a sender repeats what could not be started.
const retryAfterMS = 5_000

// Receive takes a message for the trigger with an id. When it returns an outcome, that is
// durable; an error asks the sender to send the message again, unless it is fault.Unauthorized:
// there is no such trigger, or the message is not signed with its secret.
func (t *Triggers) Receive(ctx context.Context, id string, m *Message) (*Outcome, error) {
	tr, secret, err := t.authenticate(ctx, id, m)
	if err != nil {
		return nil, err
	}
	st := t.state(tr.ID)
	if err := st.take(t.cfg.Now()); err != nil {
		return nil, err
	}
	delivery := signature.Hash(m.Body)
	o, err := t.decide(ctx, tr, st, m, secret, &delivery)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil:
	case transient(err):
		o = &Outcome{Result: Delayed, Code: fault.CodeOf(err), Reason: "the sender was asked to send it again: " + fault.Message(err)}
		t.cfg.Logger.WarnContext(ctx, "a delivery starts no run now", "account", tr.account, "trigger", tr.ID, "error", err)
	default:
		o = &Outcome{Result: Refused, Code: fault.CodeOf(err), Reason: fault.Message(err)}
		t.cfg.Logger.InfoContext(ctx, "a delivery starts no run", "account", tr.account, "trigger", tr.ID, "code", o.Code)
	}
	noted := t.note(ctx, tr, st, delivery, o)
	if noted != nil {
		t.cfg.Logger.WarnContext(ctx, "what became of a delivery is not in the history of its trigger", "account", tr.account, "trigger", tr.ID, "error", noted)
	}
	switch {
	case o.Result == Delayed:
		return nil, sendAgain(o.Code)
	case noted != nil && o.Result != Started && o.Result != Queued: // of those the run or its request is durable
		return nil, sendAgain(fault.CodeOf(noted))
	}
	return o, nil
}

// Refused returns how many messages were refused since the start because of their signature.
func (t *Triggers) Refused() int64 { return t.refused.Load() }

// sendAgain is the error that asks a sender to send a message again. It does not say why: that
// is for the account.
func sendAgain(code fault.Code) error {
	e := fault.New(fault.ServiceUnavailable, "the delivery cannot be taken now: send it again later")
	if row, _ := fault.Lookup(code); row.HTTP == http.StatusTooManyRequests {
		e.Code = fault.QuotaExceeded
	}
	e.RetryAfterMS = retryAfterMS
	return e
}

// transient reports whether a delivery that failed may succeed when it is repeated although
// nobody changes anything.
func transient(err error) bool {
	row, known := fault.Lookup(fault.CodeOf(err))
	return !known || row.Retryable
}

// authenticate finds the trigger of a message, and checks who sent that. It takes the same steps
// whatever is wrong, also if the trigger has no secret before its own.
func (t *Triggers) authenticate(ctx context.Context, id string, m *Message) (tr *Trigger, secret string, err error) {
	tr, err = t.addressed(ctx, id)
	if err != nil {
		return nil, "", err
	}
	now := t.cfg.Now()
	secret, wrong := t.verify(ctx, tr, tr.account, tr.Secret, m, now)
	if wrong != nil {
		account, before := nobody.account, nobody.Secret
		holds := tr.Previous != nil && now.UnixMicro() < tr.Previous.Until
		if holds {
			account, before = tr.account, tr.Previous.Secret
		}
		if value, err := t.verify(ctx, tr, account, before, m, now); err == nil && holds {
			secret, wrong = value, nil
		}
	}
	if wrong == nil && tr != nobody {
		return tr, secret, nil
	}
	t.cfg.Logger.DebugContext(ctx, "a delivery is refused because its signature is not valid", "account", tr.account, "trigger", tr.ID, "reason", wrong)
	t.refused.Add(1)
	refused := fault.New(fault.Unauthorized, "there is no such trigger, or the message is not signed with its secret, or it is too old")
	refused.Remedy = "Sign what is sent as the trigger says, with its secret, or ask its owner: `POST /v1/triggers/ID/test` says whether that is set."
	return nil, "", refused
}

// verify checks whether a message is signed with a secret, and returns its value.
func (t *Triggers) verify(ctx context.Context, tr *Trigger, account, name string, m *Message, now time.Time) (secret string, err error) {
	secret, err = t.cfg.Secrets.Secret(ctx, account, name)
	if err != nil {
		secret = ""
		if fault.CodeOf(err) != fault.SecretNotFound && account != nobody.account && ctx.Err() == nil { // its history has nothing of it
			t.cfg.Logger.WarnContext(ctx, "the secret of a trigger cannot be read, so deliveries that are signed with it are refused", "account", account, "trigger", tr.ID, "secret", name, "error", err)
		}
	}
	if wrong := tr.Signature.Verify(m.Header, m.Body, secret, now); wrong != nil || err != nil {
		return "", cmp.Or(err, wrong)
	}
	return secret, nil
}

// addressed returns the trigger with an id, or nobody.
func (t *Triggers) addressed(ctx context.Context, id string) (*Trigger, error) {
	account := nobody.account
	rec, err := t.cfg.Records.Record(ctx, ownerKey(id))
	if err == nil {
		o, err := store.DecodeRecord[owner](&rec)
		if err != nil {
			return nil, err
		}
		account = o.Account
	} else if fault.CodeOf(err) != fault.RecordNotFound {
		return nil, err
	}
	rec, err = t.cfg.Records.Record(ctx, triggerKey(account, id))
	if fault.CodeOf(err) == fault.RecordNotFound {
		return nobody, nil
	}
	if err != nil {
		return nil, err
	}
	return decode(&rec)
}

// decide does with a message what its trigger says. delivery is the hash of its body, and becomes
// its id if it has one.
func (t *Triggers) decide(ctx context.Context, tr *Trigger, st *state, m *Message, secret string, delivery *string) (*Outcome, error) {
	c, err := st.compiled(tr)
	if err != nil {
		return nil, err
	}
	vars, err := m.variables(&tr.Signature, secret)
	if err != nil {
		return nil, err
	}
	if *delivery, err = c.idOf(vars, *delivery); err != nil {
		return nil, err
	}
	if tr.PausedAt != 0 {
		return &Outcome{Result: Ignored, Reason: "the trigger is paused"}, nil
	}
	p, err := c.plan(vars)
	if err != nil {
		return nil, err
	}
	if !p.wanted {
		return &Outcome{Result: Ignored, Reason: "when is false"}, nil
	}
	return t.start(ctx, tr, p, *delivery)
}

// A plan is what a mapping makes of a message.
type plan struct {
	wanted     bool
	key        string
	parameters json.RawMessage
}

func (m *mapping) plan(vars expr.Vars) (p plan, err error) {
	if p.wanted, err = m.wanted(vars); err != nil || !p.wanted {
		return p, err
	}
	if p.key, err = m.keyOf(vars); err != nil {
		return p, err
	}
	p.parameters, err = m.inputOf(vars)
	return p, err
}

// nameOf names a delivery in labels and keys.
func nameOf(tr *Trigger, delivery string) string {
	sum := sha256.Sum256([]byte(tr.ID + "\x00" + delivery))
	return hex.EncodeToString(sum[:])
}

// start starts the run of a delivery, unless it has one.
func (t *Triggers) start(ctx context.Context, tr *Trigger, p plan, delivery string) (*Outcome, error) {
	name := nameOf(tr, delivery)
	if o, err := t.find(ctx, tr, name); o != nil || err != nil {
		return o, err
	}
	var o *Outcome
	var err error
	for range 2 { // the recipe may just be replaced
		if o, err = t.startOnce(ctx, tr, p, name); fault.CodeOf(err) != fault.Conflict {
			break
		}
	}
	if fault.CodeOf(err) == fault.IdempotencyMismatch { // it came twice at once, and the trigger or the recipe was changed in between
		if o, err := t.find(ctx, tr, name); o != nil || err != nil {
			return o, err
		}
	}
	return o, err
}

func (t *Triggers) startOnce(ctx context.Context, tr *Trigger, p plan, name string) (*Outcome, error) {
	req, idempotency := tr.request(p.parameters), "trigger/"+tr.ID+"/"+name
	if mutation.Trigger {
		idempotency = ""
	}
	labels := map[string]string{LabelTrigger: tr.Name, LabelDelivery: name}
	if p.key == "" {
		run, err := t.cfg.Starter.Start(ctx, tr.account, &req, idempotency, labels)
		if err != nil {
			return nil, err
		}
		return &Outcome{Result: Started, Run: run.ID, Version: run.Version, Repeated: run.Existing}, nil
	}
	all := map[string]string{}
	maps.Copy(all, req.Labels)
	maps.Copy(all, labels) // last, because find relies on them
	req.Labels = all
	k, err := t.cfg.Keyed.Execute(ctx, tr.account, &scheduler.KeyedRequest{Key: p.key, IfActive: tr.IfActive, Debounce: tr.Debounce, Start: req, Idempotency: idempotency})
	if err != nil {
		return nil, err
	}
	o := &Outcome{Result: Started, Run: k.Run, Repeated: k.Existing}
	switch k.Result {
	case scheduler.Queued:
		o.Result, o.Run = Queued, "" // Run is the one that it waits for
	case scheduler.Skipped:
		o.Result, o.Reason = Active, "a run with its key is active"
	}
	return o, nil
}

// find finds the run that an earlier delivery of that name has started, however long that is
// ago, and whatever the trigger and the recipe were then.
func (t *Triggers) find(ctx context.Context, tr *Trigger, name string) (*Outcome, error) {
	heads, err := t.cfg.Runs.List(ctx, store.Query{Account: tr.account, Labels: map[string]string{LabelDelivery: name}, Limit: 1})
	if err != nil || len(heads) == 0 {
		return nil, err
	}
	return &Outcome{Result: Started, Run: heads[0].Run, Version: heads[0].Version, Repeated: true}, nil
}

// A Trial is what would become of a message.
type Trial struct {
	Outcome
	Delivery   string
	Key        string
	Parameters json.RawMessage
	Paused     bool
	// SecretErr says why no message can be verified; nil = the secret is there.
	SecretErr error
}

// Try says what Receive would do with a message if it were signed and came for the first time. It
// starts nothing.
func (t *Triggers) Try(ctx context.Context, account, ref string, m *Message) (*Trial, error) {
	tr, err := t.Get(ctx, account, ref)
	if err != nil {
		return nil, err
	}
	trial := &Trial{Delivery: signature.Hash(m.Body), Paused: tr.PausedAt != 0}
	secret, err := t.usable(ctx, tr, tr.Secret)
	trial.SecretErr = err
	if err := t.try(ctx, tr, m, secret, trial); err != nil {
		trial.Result, trial.Code, trial.Reason = Refused, fault.CodeOf(err), fault.Message(err)
		if transient(err) {
			trial.Result = Delayed
		}
	}
	return trial, ctx.Err()
}

func (t *Triggers) try(ctx context.Context, tr *Trigger, m *Message, secret string, trial *Trial) error {
	c, err := compileMapping(&tr.Spec)
	if err != nil {
		return err
	}
	vars, err := m.variables(&tr.Signature, secret)
	if err != nil {
		return err
	}
	if trial.Delivery, err = c.idOf(vars, trial.Delivery); err != nil {
		return err
	}
	p, err := c.plan(vars)
	if err != nil {
		return err
	}
	if !p.wanted {
		trial.Result, trial.Reason = Ignored, "when is false"
		return nil
	}
	trial.Result, trial.Key, trial.Parameters = Started, p.key, p.parameters
	req := tr.request(p.parameters)
	return t.cfg.Starter.Check(ctx, tr.account, &req)
}
