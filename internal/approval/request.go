// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/store"
)

// The kinds of records, those of requests with the account of the run.
const (
	// recordRequest is how a request stands. It has a name while it is not answered.
	recordRequest = "approval"
	// recordContent is what a request shows; it goes when the request has ended.
	recordContent = "approval-content"
	// recordLink is a link by which a request can be answered.
	recordLink = "approval-link"
)

// IDPrefix is how the ids of requests begin.
const IDPrefix = "apr_"

// IDLength is how many bytes an id has.
const IDLength = len(IDPrefix) + 26

// The ends of a request.
const (
	endAnswered = "answered"
	endTimedOut = "timed_out" // without a default
	endGone     = "cancelled" // its step no longer waits
)

// state is how a request stands, as it is stored.
type state struct {
	Run       string     `json:"run"`
	Step      string     `json:"step"` // as in action.Task
	Attempt   int        `json:"attempt"`
	Kind      string     `json:"kind"`
	Title     string     `json:"title"`
	Held      bool       `json:"held,omitempty"`
	Decisions []Decision `json:"decisions"`
	Approvers []string   `json:"approvers,omitempty"`
	Asked     int64      `json:"asked"`         // UTC µs
	Due       int64      `json:"due,omitempty"` // 0 = none
	Remind    int64      `json:"remind,omitempty"`
	Reminded  int64      `json:"reminded,omitempty"` // how many intervals people have been reminded of
	Answer    *Answer    `json:"answer,omitempty"`
	End       string     `json:"end,omitempty"` // "" = open
	EndedAt   int64      `json:"endedAt,omitempty"`
}

// content is what a request shows, as it is stored.
type content struct {
	Text    string          `json:"text,omitempty"`
	Form    json.RawMessage `json:"form,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"`
	Default *Answer         `json:"default,omitempty"`
	Options json.RawMessage `json:"options,omitempty"`
}

// Submit asks people: it stores a request, and returns the job that an action returns as its
// result. The step then waits for the answer. A request that is submitted again by a later attempt
// with the same effect key takes the place of the earlier one.
func (m *Manager) Submit(ctx context.Context, t *action.Task, r *Request) (*action.Job, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	now := m.now()
	st := state{
		Run: t.Run, Step: t.Step, Attempt: t.Attempt, Kind: r.Kind, Title: r.Title, Held: r.Held, Decisions: r.Decisions, Approvers: r.Approvers,
		Asked: now, Remind: r.Remind.Microseconds(),
	}
	last := now + MaxTimeout.Microseconds()
	if r.Timeout > 0 {
		st.Due = now + r.Timeout.Microseconds()
		last = st.Due
	}
	last += grace.Microseconds()
	id := requestID(t.Account, t.EffectKey, r.Kind)
	text := content{Text: r.Text, Form: r.Form, Value: r.Value, Default: r.Default, Options: r.Options}
	changes := []store.RecordChange{
		change(recordContent, t.Account, id, store.AnyRevision, last, &text),
		change(recordRequest, t.Account, id, store.AnyRevision, last, &st),
	}
	changes[1].Name = nameOf(now, id)
	if _, err := m.cfg.Put(ctx, changes...); err != nil {
		return nil, err
	}
	handle, err := json.Marshal(journal.Asked{Kind: r.Kind, Due: st.Due, Remind: st.Remind})
	return &action.Job{Provider: jobs.People, ID: id, Handle: handle, TTL: time.Duration(last-now) * time.Microsecond}, err
}

// requestID is the same for attempts with one effect key.
func requestID(account, effect, kind string) string {
	sum := sha256.Sum256([]byte(account + "\n" + effect + "\n" + kind))
	return IDPrefix + base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16])
}

func change(kind, account, id string, revision uint64, until int64, data any) store.RecordChange {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("approval: a record that cannot be encoded: %v", err)) // all parts were checked to be JSON
	}
	return store.RecordChange{Record: store.Record{
		RecordKey: store.RecordKey{Account: account, Kind: kind, ID: id}, Revision: revision, Until: until, Data: raw,
	}}
}

// check checks a request and fills in its defaults.
func (r *Request) check() error {
	most := MaxValue
	if r.Held {
		most = MaxHeld
	}
	if len(r.Decisions) == 0 {
		r.Decisions = []Decision{Approved, Rejected}
	}
	switch {
	case strings.TrimSpace(r.Title) == "" || utf8.RuneCountInString(r.Title) > MaxTitle || strings.ContainsAny(r.Title, "\r\n"):
		return invalid("title: want a line of 1 to %d characters", MaxTitle)
	case len(r.Text) > MaxText:
		return invalid("text: it has %d bytes: want at most %d", len(r.Text), MaxText)
	case len(r.Value) > most:
		return invalid("value: it has %d bytes: want at most %d; show what is larger as a file", len(r.Value), most)
	case r.Timeout < 0 || r.Timeout > MaxTimeout:
		return invalid("timeout: want at most %s", days(MaxTimeout))
	case r.Remind != 0 && (r.Remind < MinRemind || r.Remind > MaxTimeout):
		return invalid("remind: want %s to %s", MinRemind, days(MaxTimeout))
	case r.Default != nil && r.Timeout == 0:
		return invalid("default: it applies at the time-out, so it needs a timeout")
	}
	if err := checkApprovers(r.Approvers); err != nil {
		return err
	}
	if err := checkForm(r.Form); err != nil {
		return err
	}
	if r.Default == nil {
		return nil
	}
	a, err := checkAnswer(r.Default, r.Decisions, r.Form)
	if err != nil {
		return fault.New(fault.InputInvalid, "default: %s", fault.Message(err))
	}
	r.Default = a
	return nil
}

func invalid(format string, args ...any) error { return fault.New(fault.InputInvalid, format, args...) }

func days(d time.Duration) string { return fmt.Sprintf("%d days", d/(24*time.Hour)) }

// rolePrefix begins an approver that is every key with a role.
const rolePrefix = "role:"

// checkApprovers refuses what is no name of a key and no role.
func checkApprovers(list []string) error {
	if len(list) > MaxApprovers {
		return invalid("approvers: %d: want at most %d", len(list), MaxApprovers)
	}
	for _, name := range list {
		if name == "" || len(name) > 100 || strings.TrimSpace(name) != name {
			return invalid("approvers: %.40q: want the name of a key, or role:NAME", name)
		}
		if role, ok := strings.CutPrefix(name, rolePrefix); ok && access.Role(role).Scopes() == nil {
			return invalid("approvers: there is no role %.40q", role)
		}
	}
	return nil
}

// checkForm refuses what is no JSON Schema of an object.
func checkForm(form json.RawMessage) error {
	if len(form) == 0 {
		return nil
	}
	if len(form) > MaxForm {
		return invalid("form: it has %d bytes: want at most %d", len(form), MaxForm)
	}
	if _, err := jsonschema.Compile(form); err != nil {
		return invalid("form: this is not a JSON Schema: %s", fault.Message(err))
	}
	var s struct {
		Type any `json:"type"`
	}
	if err := json.Unmarshal(form, &s); err != nil || s.Type != nil && s.Type != "object" {
		return invalid("form: want the JSON Schema of an object, such as {\"properties\": {\"pages\": {\"type\": \"integer\"}}}")
	}
	return nil
}

// checkAnswer checks what an answer says, and returns it with the defaults of the form.
func checkAnswer(a *Answer, possible []Decision, form json.RawMessage) (*Answer, error) {
	out := *a
	switch {
	case !slices.Contains(possible, a.Decision):
		return nil, invalid("decision %.30q: want one of %s", a.Decision, words(possible))
	case len(a.Comment) > MaxComment:
		return nil, invalid("comment: it has %d bytes: want at most %d", len(a.Comment), MaxComment)
	case len(a.Values) > MaxValues:
		return nil, invalid("values: they have %d bytes: want at most %d", len(a.Values), MaxValues)
	case a.Decision == Edited && len(a.Value) == 0:
		return nil, invalid("value: edited needs the value that counts")
	case a.Decision != Edited && len(a.Value) > 0:
		return nil, invalid("value: only edited has one")
	case len(a.Value) > MaxHeld:
		return nil, invalid("value: it has %d bytes: want at most %d", len(a.Value), MaxHeld)
	}
	values := map[string]any{}
	if raw := bytes.TrimSpace(a.Values); len(raw) > 0 && !bytes.Equal(raw, []byte("null")) {
		v, err := jsonx.Decode(raw, jsonx.Limits{})
		if err != nil {
			return nil, invalid("values: %v", err)
		}
		object, ok := v.(map[string]any)
		if !ok {
			return nil, invalid("values: want an object")
		}
		values = object
	}
	if len(form) == 0 {
		if len(values) > 0 {
			return nil, invalid("values: this request asks for none")
		}
		out.Values = json.RawMessage("{}")
		return &out, nil
	}
	if a.Decision != Rejected || len(values) > 0 { // who rejects need not fill in the form
		if err := fits(form, values); err != nil {
			return nil, err
		}
	}
	raw, err := jsonx.Canonical(values)
	out.Values = raw
	return &out, err
}

// fits fills the defaults of a form in, and checks values against it.
func fits(form json.RawMessage, values map[string]any) error {
	var s struct {
		Properties map[string]struct {
			Default json.RawMessage `json:"default"`
		} `json:"properties"`
	}
	if json.Unmarshal(form, &s) == nil {
		for name, p := range s.Properties {
			if _, given := values[name]; given || len(p.Default) == 0 {
				continue
			}
			if v, err := jsonx.Decode(p.Default, jsonx.Limits{}); err == nil {
				values[name] = v
			}
		}
	}
	schema, err := jsonschema.Compile(form)
	if err != nil {
		return err
	}
	bad := schema.Validate(values)
	if len(bad) == 0 {
		return nil
	}
	err = invalid("values%s: %s", bad[0].Pointer, bad[0].Msg)
	if f := new(fault.Error); errors.As(err, &f) {
		f.Remedy = "Give values that fit the form of the request; `roux approvals show ID` and `GET /v1/approvals/ID` show it."
	}
	return err
}

func words(list []Decision) string {
	out := make([]string, len(list))
	for i, d := range list {
		out[i] = string(d)
	}
	return strings.Join(out, ", ")
}

// nameOf is the name of the record of an open request: those of an account are listed by time.
func nameOf(asked int64, id string) string { return fmt.Sprintf("%020d-%s", asked, id) }
