// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/store"
)

// The types of events. Those of runs have the names of the events of a run's stream where
// there is one.
const (
	RunQueued      = "run.queued" // the account has reached its limit of live runs
	RunStarted     = "run.started"
	RunStatus      = "run.status.changed"
	RunCompleted   = "run.completed"
	RunFailed      = "run.failed"
	RunCancelled   = "run.cancelled"
	RunTimedOut    = "run.timed_out"
	RunQuarantined = "run.quarantined"
	RunDeleted     = "run.deleted" // by a user
	RunRemoved     = "run.removed" // it is no longer kept
	CreditsEntry   = "credits.entry"
	CreditsLow     = "credits.low"         // fewer are available than a level of the account
	CreditsBudget  = "credits.over_budget" // a budget in audit mode is exceeded
	// Ping is sent by a test only.
	Ping = "webhook.ping"
)

// Types lists the types of events that a hook may ask for.
func Types() []string {
	return []string{
		RunQueued, RunStarted, RunStatus, RunCompleted, RunFailed, RunCancelled, RunTimedOut, RunQuarantined, RunDeleted, RunRemoved,
		CreditsEntry, CreditsLow, CreditsBudget,
	}
}

// An Event is a change of an account as hooks are told of it.
type Event struct {
	Type   string
	Change *store.Change
}

// EventOf returns the event that a change is.
func EventOf(c *store.Change) Event { return Event{typeOf(c), c} }

func typeOf(c *store.Change) string {
	switch {
	case c.Run == "" && c.Entry != 0:
		return CreditsEntry
	case c.Run == "" && c.Notice.Source == "account":
		return CreditsLow
	case c.Run == "":
		return CreditsBudget
	case c.Deleted:
		return RunRemoved
	case c.Hidden:
		return RunDeleted
	case c.Quarantined:
		return RunQuarantined
	}
	switch c.Status {
	case journal.RunCompleted.String():
		return RunCompleted
	case journal.RunFailed.String():
		return RunFailed
	case journal.RunCancelled.String():
		return RunCancelled
	case journal.RunExpired.String():
		return RunTimedOut
	case journal.RunQueued.String():
		return RunQueued
	case journal.RunPending.String(), journal.RunDispatching.String():
		return RunStarted
	}
	return RunStatus
}

// identity names the event within its account. The end of a run may be two changes, when
// it still owes something after it, and is one event.
func (e *Event) identity() string {
	c := e.Change
	switch e.Type {
	case RunCompleted, RunFailed, RunCancelled, RunTimedOut:
		return c.Run + " " + c.Status + " " + strconv.FormatInt(c.Ended, 10)
	}
	return strconv.FormatUint(c.N, 10)
}

// message is the id of the message that tells a hook of an event. It follows from both, so
// whoever finds the event again finds the same one.
func message(hook string, e *Event) string {
	sum := sha256.Sum256([]byte(hook + " " + e.identity()))
	return "msg_" + base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16])
}

// matches reports whether a hook is told of an event. labels returns those of the event's
// run, and is called only if the hook asks for some.
func (h *Hook) matches(e *Event, labels func() (map[string]string, error)) (bool, error) {
	c := e.Change
	if !h.Enabled || c.N <= h.After || !slices.ContainsFunc(h.Events, func(want string) bool { return covers(want, e.Type) }) {
		return false, nil
	}
	if c.Run == "" {
		return true, nil
	}
	if c.Root != "" && !h.Children || len(h.Recipes) > 0 && !slices.Contains(h.Recipes, c.Recipe) {
		return false, nil
	}
	if len(h.Labels) == 0 {
		return true, nil
	}
	have, err := labels()
	if err != nil {
		return false, err
	}
	for name, value := range h.Labels {
		if got, ok := have[name]; !ok || got != value {
			return false, nil
		}
	}
	return true, nil
}

// covers reports whether a type, or a beginning with "*", covers a type of event.
func covers(want, name string) bool {
	group, all := strings.CutSuffix(want, "*")
	return want == name || all && strings.HasPrefix(name, group)
}

// checkEvents refuses a type that no event has.
func checkEvents(events []string) error {
	if len(events) == 0 || len(events) > maxFilters {
		return fault.New(fault.RequestInvalid, "events: want 1 to %d types of events, such as \"run.completed\" or \"run.*\"", maxFilters)
	}
	for i, want := range events {
		if slices.ContainsFunc(Types(), func(name string) bool { return covers(want, name) }) {
			continue
		}
		if near := spell.Nearest(want, Types()); near != "" {
			return fault.New(fault.RequestInvalid, "events[%d]: there is no such type of event; did you mean %q?", i, near)
		}
		return fault.New(fault.RequestInvalid, "events[%d]: there is no such type of event: want one of %s, or a beginning with *", i, strings.Join(Types(), ", "))
	}
	return nil
}

// A payload is the body of a message.
type payload struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"` // RFC 3339
	Data      Data   `json:"data"`
}

// Data is what a message says of an event. A thin message has the first group of fields
// only.
type Data struct {
	WebhookID   string `json:"webhookId"`
	Number      uint64 `json:"number,omitempty"` // of the change in the feed of the account
	ExecutionID string `json:"executionId,omitempty"`
	RootID      string `json:"rootExecutionId,omitempty"` // of a child run
	Entry       uint64 `json:"entry,omitempty"`

	RecipeName  string `json:"recipeName,omitempty"`
	Status      string `json:"status,omitempty"`
	State       string `json:"state,omitempty"`
	ErrorCode   string `json:"errorCode,omitempty"`
	CompletedAt string `json:"completedAt,omitempty"`
	Kind        string `json:"kind,omitempty"`        // of an entry
	LimitSource string `json:"limitSource,omitempty"` // "account", "day" or "key:ID"
	Limit       *int64 `json:"limit,omitempty"`       // the level, or the budget
	Amount      *int64 `json:"amount,omitempty"`      // what is available, or what is used

	// Execution is the run as it is shown when the message is made, with its masks.
	Execution json.RawMessage `json:"execution,omitempty"`
	// ExecutionOmitted is set when the run is too large for a message.
	ExecutionOmitted bool `json:"executionOmitted,omitempty"`
}

// maxExecution is how many bytes of a run a message has.
const maxExecution = 256 << 10

// body returns the message that tells a hook of an event. execution is nil where none is
// shown.
func (h *Hook) body(e *Event, execution json.RawMessage) ([]byte, error) {
	c := e.Change
	d := Data{WebhookID: h.ID, Number: c.N, ExecutionID: c.Run, RootID: c.Root, Entry: c.Entry}
	if h.Payload == Full {
		switch {
		case c.Run != "":
			d.RecipeName, d.Status, d.State, d.ErrorCode = c.Recipe, statusOf(c.Status), c.Status, string(c.Code)
			if c.Ended != 0 {
				d.CompletedAt = journal.Time(c.Ended)
			}
		case c.Entry != 0:
			d.Kind = c.Kind.String()
		default:
			d.LimitSource, d.Limit, d.Amount = c.Notice.Source, &c.Notice.Limit, &c.Notice.Amount
		}
		if d.ExecutionOmitted = len(execution) > maxExecution; !d.ExecutionOmitted {
			d.Execution = execution
		}
	}
	return encode(payload{e.Type, journal.Time(c.At), d})
}

// statusOf is the status of a run in the five words of the recipe system.
func statusOf(state string) string {
	for s := journal.RunPending; s.Known(); s++ {
		if s.String() == state {
			return resource.ExecutionStatus(s)
		}
	}
	return state
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
