// SPDX-License-Identifier: Apache-2.0

// Package inbound keeps triggers: addresses to which outside systems send webhooks that start
// runs.
//
// It decides which triggers an account may have, whether a delivery comes from the sender that
// a trigger knows, what input its run gets, and what becomes of a delivery that comes again: a
// run is started under an idempotency key of the trigger and the id of the delivery, and found
// by its labels later, so each delivery starts at most one. How a message is signed is decided
// by package signature, which version of a recipe runs by package starts, and what a key of
// starts means by package scheduler.
//
// It stores no body and no secret: a trigger names a secret of its account, and the value is
// taken out of all that a mapping sees. Nothing is acknowledged that is not durable.
package inbound

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/signature"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// The bounds of triggers.
const (
	MaxTriggers = 100 // of an account
	// KeptDeliveries is how many entries the history of a trigger has.
	KeptDeliveries = 100
	// MaxBody bounds the body of a delivery, in bytes.
	MaxBody = 1 << 20
	// MaxMapping bounds the template of the parameters, in bytes.
	MaxMapping = 64 << 10
	// PerSecond is how many deliveries a trigger takes in a second, on average.
	PerSecond = 50
	// Burst is how many it takes at once.
	Burst = 100

	// DefaultKeep and MaxKeep are how long the secret before holds beside a new one.
	DefaultKeep = 24 * time.Hour
	MaxKeep     = 720 * time.Hour

	maxDescription = 1_000
	maxKey         = 255 // bytes of a key of starts
	maxShown       = 255 // bytes of the id of a delivery in the history
)

// IDPrefix begins the ids of triggers.
const IDPrefix = "trig_"

// The labels of runs that triggers start.
const (
	LabelTrigger  = "roux.trigger"  // name of the trigger
	LabelDelivery = "roux.delivery" // a hash of the trigger and the id of the delivery
	ownLabels     = 2
)

// A Spec is what a user says of a trigger.
type Spec struct {
	Name        string           `json:"name"` // unique in the account
	Description string           `json:"description,omitempty"`
	Recipe      string           `json:"recipe"` // name or id, with @ and a range; resolved at each start
	Signature   signature.Scheme `json:"signature"`
	Secret      string           `json:"secret"`         // name of the secret that senders sign with
	When        string           `json:"when,omitempty"` // an expression; if it is false a delivery starts nothing
	// Parameters is the input of the recipe: a text is an expression, and an object has
	// templates in it. Default: the body, under that name.
	Parameters json.RawMessage  `json:"parameters,omitempty"`
	Key        string           `json:"key,omitempty"` // an expression, see scheduler.KeyedRequest
	IfActive   schedule.Overlap `json:"ifActive,omitempty"`
	Debounce   time.Duration    `json:"debounce,omitempty"`
	// DeliveryID is the name of a header or an expression. What has an id that came before
	// starts nothing. Default: usual headers, or a hash of the body.
	DeliveryID string            `json:"deliveryId,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	MaxCredits int64             `json:"maxCredits,omitempty"`
	Paused     bool              `json:"-"`                // begin paused
	By         string            `json:"by,omitempty"`     // id of the key that makes it
	Budget     string            `json:"budget,omitempty"` // as in starts.Request
}

// A Trigger starts runs of a recipe. Times are UTC µs, 0 = none.
type Trigger struct {
	ID string `json:"id"`
	Spec
	PausedAt int64     `json:"paused,omitempty"`
	Created  int64     `json:"created"`
	Previous *Previous `json:"previous,omitempty"`

	account  string
	revision uint64
}

// Previous is the secret that a trigger had before, with which senders may sign for a while.
type Previous struct {
	Secret string `json:"secret"` // its name
	Until  int64  `json:"until"`  // UTC µs
}

// A Result is what has become of a delivery.
type Result string

// The results.
const (
	Started Result = "started"
	Queued  Result = "queued"  // its run starts when that of its key has ended
	Active  Result = "active"  // a run with its key is active, so none starts
	Ignored Result = "ignored" // the trigger is paused, or when was false
	Refused Result = "refused" // its run cannot start, and a repetition would not change that
	Delayed Result = "delayed" // its run cannot start now, and the sender was told to repeat it
)

// An Outcome is what has become of a delivery, and why.
type Outcome struct {
	Result   Result     `json:"result"`
	Run      string     `json:"run,omitempty"` // that was started, or is active
	Version  string     `json:"version,omitempty"`
	Repeated bool       `json:"repeated,omitempty"` // an earlier delivery with its id has started the run
	Code     fault.Code `json:"code,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// An Entry is one of the history of a trigger.
type Entry struct {
	Number   int    `json:"number"` // from 1
	Delivery string `json:"delivery"`
	At       int64  `json:"at"` // UTC µs
	Outcome
}

// The kinds of records. A trigger and its history are records of their account; whose a trigger
// is must be found for a sender who says no account.
const (
	kindTrigger = "trigger"
	kindAccount = "trigger.account"
	kindEntry   = "trigger.delivery"
)

// owner says whose a trigger is.
type owner struct {
	Account string `json:"account"`
}

func triggerKey(account, id string) store.RecordKey {
	return store.RecordKey{Account: account, Kind: kindTrigger, ID: id}
}

func ownerKey(id string) store.RecordKey { return store.RecordKey{Kind: kindAccount, ID: id} }

func entryKey(account, id string, n int) store.RecordKey {
	return store.RecordKey{Account: account, Kind: kindEntry, ID: fmt.Sprintf("%s.%010d", id, n)}
}

// request is what a run of the trigger is started with.
func (t *Trigger) request(parameters json.RawMessage) starts.Request {
	return starts.Request{Recipe: t.Recipe, Parameters: parameters, Labels: t.Labels, MaxCredits: t.MaxCredits, Budget: t.Budget}
}
