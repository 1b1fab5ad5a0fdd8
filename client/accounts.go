// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"

	"github.com/roux-engine/roux/action"
)

// Actions are what the recipes of the account may call.
type Actions struct{ c *Client }

// An Action is a version of an action.
type Action struct {
	Name           string          `json:"name"`
	Version        string          `json:"version"`
	Aliases        []string        `json:"aliases,omitempty"`
	Description    string          `json:"description"`
	InputSchema    json.RawMessage `json:"inputSchema,omitempty"` // JSON Schema
	OutputSchema   json.RawMessage `json:"outputSchema,omitempty"`
	RecipeMetadata action.Metadata `json:"recipeMetadata"`
	Price          string          `json:"price"` // credits for a completed call, up to six decimals
	Provider       string          `json:"provider,omitempty"`
	Limits         []string        `json:"limits,omitempty"`
	Faults         []string        `json:"faults,omitempty"` // codes that it fails with, besides those that any action has
}

// List returns the actions.
func (a *Actions) List(ctx context.Context) iter.Seq2[Action, error] {
	return list[Action](ctx, a.c, func() *call { return at(http.MethodGet, "v1", "actions") })
}

// Get returns an action by its name or an alias, in a version or a range; "" = the newest.
func (a *Actions) Get(ctx context.Context, name, version string) (*Action, error) {
	out := new(Action)
	_, err := a.c.do(ctx, at(http.MethodGet, "v1", "actions", name).with("version", version), out)
	return result(out, err)
}

// Call calls an action outside a recipe, as a run of one step, and waits up to a minute for its
// end: the output is the field output of the outputs of the run. The parameters are the input
// of the action; version is as in Get.
func (a *Actions) Call(ctx context.Context, name, version string, req ExecuteRequest) (*Started, error) {
	cl := at(http.MethodPost, "v1", "actions", name, "call").with("version", version)
	return a.c.execute(ctx, cl, "action:"+name+"@"+version, req)
}

// Credits are those of the account.
type Credits struct{ c *Client }

// An AccountCredits is the state of an account's credits at one time.
type AccountCredits struct {
	Account      string    `json:"account"`
	AsOf         time.Time `json:"asOf"`
	Metered      bool      `json:"metered"` // false = the account does not pay for its runs
	Balance      int64     `json:"balance"` // available and held
	Credits      Balance   `json:"credits"`
	LiveRuns     int       `json:"liveRuns"`
	QueuedRuns   int       `json:"queuedRuns"`
	LiveRunLimit int       `json:"liveRunLimit,omitempty"` // 0 = no limit
}

// A Balance is what became of the credits that were granted: the sum of the others.
type Balance struct {
	Granted   int64 `json:"granted"`
	Pending   int64 `json:"pending"` // not effective yet
	Available int64 `json:"available"`
	Held      int64 `json:"held"` // for runs
	Spent     int64 `json:"spent"`
	Expired   int64 `json:"expired"`
	Voided    int64 `json:"voided"`
}

// Get returns the credits as of a time; the zero time = now.
func (c *Credits) Get(ctx context.Context, asOf time.Time) (*AccountCredits, error) {
	out := new(AccountCredits)
	_, err := c.c.do(ctx, at(http.MethodGet, "v1", "credits").with("at", stamp(asOf)), out)
	return result(out, err)
}

// An Entry is one movement of credits. Entries are never changed.
type Entry struct {
	Number uint64      `json:"number"`
	Key    string      `json:"key"`
	Kind   string      `json:"kind"` // grant, reserve, extend, settle, release, adjust, expire or void
	At     time.Time   `json:"at"`
	Amount int64       `json:"amount"`
	Lots   []LotAmount `json:"lots"` // the parts of the amount
	RunID  string      `json:"runId,omitempty"`
	Note   string      `json:"note,omitempty"`

	ReservationID string     `json:"reservationId,omitempty"`
	Source        string     `json:"source,omitempty"`      // of a grant: paid or promotional
	Priority      int32      `json:"priority,omitempty"`    // of a grant
	EffectiveAt   *time.Time `json:"effectiveAt,omitempty"` // of a grant
	ExpiresAt     *time.Time `json:"expiresAt,omitempty"`   // of a grant
}

// A LotAmount is an amount of one lot.
type LotAmount struct {
	Lot    string `json:"lot"`
	Amount int64  `json:"amount"`
}

// Entries returns the movements of the credits, the oldest first.
func (c *Credits) Entries(ctx context.Context) iter.Seq2[Entry, error] { return c.EntriesAfter(ctx, 0) }

// EntriesAfter returns the movements after a number, the oldest first.
func (c *Credits) EntriesAfter(ctx context.Context, n uint64) iter.Seq2[Entry, error] {
	return list[Entry](ctx, c.c, func() *call {
		return at(http.MethodGet, "v1", "credits", "entries").with("after", number(n)).with("limit", "500")
	})
}

// State returns the state of the credits as of a time as it is stored, which the command roux
// reads; the zero time = now.
func (c *Credits) State(ctx context.Context, asOf time.Time) ([]byte, error) {
	var out struct {
		State []byte `json:"state"`
	}
	_, err := c.c.do(ctx, at(http.MethodGet, "v1", "credits", "state").with("at", stamp(asOf)), &out)
	return out.State, err
}

// A Lot is what is left of a grant.
type Lot struct {
	Key         string     `json:"key"`
	Amount      int64      `json:"amount"`
	Kind        string     `json:"kind"` // paid or promotional
	Priority    int32      `json:"priority"`
	EffectiveAt time.Time  `json:"effectiveAt"`
	ExpiresAt   *time.Time `json:"expiresAt,omitempty"`
	CreatedAt   time.Time  `json:"createdAt"`
	Free        int64      `json:"free"`
	Held        int64      `json:"held"`
	Spent       int64      `json:"spent"`
	Expired     int64      `json:"expired"`
	Voided      int64      `json:"voided"`
	VoidedAt    *time.Time `json:"voidedAt,omitempty"`
}

// Lots returns the grants of the account.
func (c *Credits) Lots(ctx context.Context) iter.Seq2[Lot, error] {
	return list[Lot](ctx, c.c, func() *call { return at(http.MethodGet, "v1", "credits", "lots") })
}

// Accounts are other accounts than that of the key, which must administer them.
type Accounts struct{ c *Client }

// Credits returns the credits of an account as of a time; the zero time = now.
func (a *Accounts) Credits(ctx context.Context, account string, asOf time.Time) (*AccountCredits, error) {
	out := new(AccountCredits)
	_, err := a.c.do(ctx, at(http.MethodGet, "v1", "accounts", account, "credits").with("at", stamp(asOf)), out)
	return result(out, err)
}

// A Grant gives an account credits. Fields left zero take the default that their comment names.
type Grant struct {
	// Key names the lot: a second grant with the same key changes nothing. Default: a random
	// one for each call.
	Key         string    `json:"key,omitempty"`
	Amount      int64     `json:"amount"`
	Kind        string    `json:"kind,omitempty"`       // paid (the default) or promotional
	Priority    int32     `json:"priority,omitempty"`   // lots with a lower one are used first
	EffectiveAt time.Time `json:"effectiveAt,omitzero"` // default: now
	ExpiresAt   time.Time `json:"expiresAt,omitzero"`   // default: never
}

// Grant gives an account credits, as a lot.
func (a *Accounts) Grant(ctx context.Context, account string, g Grant) (*Lot, error) {
	cl, err := at(http.MethodPost, "v1", "accounts", account, "grants").send(g)
	if err != nil {
		return nil, err
	}
	out := new(Lot)
	_, err = a.c.do(ctx, cl, out)
	return result(out, err)
}

// Void takes back what is left of a grant.
func (a *Accounts) Void(ctx context.Context, account, lot, note string) (*Lot, error) {
	cl, err := at(http.MethodPost, "v1", "accounts", account, "grants", lot, "void").send(map[string]string{"note": note})
	if err != nil {
		return nil, err
	}
	out := new(Lot)
	_, err = a.c.do(ctx, cl, out)
	return result(out, err)
}

// An AdjustmentRequest gives back credits that a run has paid.
type AdjustmentRequest struct {
	RunID string `json:"runId"` // a root run
	// Key names the adjustment: a second one with the same key changes nothing. Default: a
	// random one for each call.
	Key    string `json:"key,omitempty"`
	Amount int64  `json:"amount"`
	Note   string `json:"note,omitempty"`
}

// Adjust gives back credits that a run of an account has paid, to the lots that paid them. The
// entries have no numbers.
func (a *Accounts) Adjust(ctx context.Context, account string, what AdjustmentRequest) ([]Entry, error) {
	cl, err := at(http.MethodPost, "v1", "accounts", account, "adjustments").send(what)
	if err != nil {
		return nil, err
	}
	var out struct {
		Entries []Entry `json:"entries"`
	}
	_, err = a.c.do(ctx, cl, &out)
	return out.Entries, err
}

// Keys are those of the account.
type Keys struct{ c *Client }

// A Key is what is known of a key.
type Key struct {
	ID        string     `json:"id"`
	Account   string     `json:"account"`
	Name      string     `json:"name"`
	Role      string     `json:"role,omitempty"`
	Scopes    []string   `json:"scopes"`
	Limit     *KeyLimit  `json:"limit,omitempty"` // what may be spent with it
	Usage     *KeyUsage  `json:"usage,omitempty"` // how much of it was; not in a list
	Start     string     `json:"start"`           // first characters of the token, to recognise it by
	CreatedAt time.Time  `json:"createdAt"`
	CreatedBy string     `json:"createdBy,omitempty"` // id of the key that made it
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	RevokedAt *time.Time `json:"revokedAt,omitempty"`
	// LastUsedAt is when the key last admitted a request; nil = never. After a crash of the
	// server the last minute may be missing.
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty"`
}

// A KeyLimit is what may be spent with a key.
type KeyLimit struct {
	Credits int64  `json:"credits"`
	Reset   string `json:"reset,omitempty"` // none (the default), daily, weekly or monthly
	Mode    string `json:"mode,omitempty"`  // enforce (the default), or audit, which reports and refuses nothing
}

// A NewKey is a key with its token, which is not stored and never shown again.
type NewKey struct {
	Key
	Token string `json:"token"`
}

// A KeyRequest describes a key that is made.
type KeyRequest struct {
	Account   string    `json:"account,omitempty"`  // another one than that of the request; default: that one
	Name      string    `json:"name"`               // what it is for
	Role      string    `json:"role,omitempty"`     // approver, worker, viewer, operator, developer, owner or admin
	Scopes    []string  `json:"scopes,omitempty"`   // instead of a role, or beside it
	ExpiresAt time.Time `json:"expiresAt,omitzero"` // default: never
	Limit     *KeyLimit `json:"limit,omitempty"`
}

// Create makes a key. It is sent again only when it cannot have arrived, because the server
// would make another key.
func (k *Keys) Create(ctx context.Context, req KeyRequest) (*NewKey, error) {
	cl, err := at(http.MethodPost, "v1", "keys").send(req)
	if err != nil {
		return nil, err
	}
	cl.once = true
	out := new(NewKey)
	_, err = k.c.do(ctx, cl, out)
	return result(out, err)
}

// List returns the keys, revoked ones too.
func (k *Keys) List(ctx context.Context) iter.Seq2[Key, error] {
	return list[Key](ctx, k.c, func() *call { return at(http.MethodGet, "v1", "keys") })
}

// Get returns a key.
func (k *Keys) Get(ctx context.Context, id string) (*Key, error) {
	out := new(Key)
	_, err := k.c.do(ctx, at(http.MethodGet, "v1", "keys", id), out)
	return result(out, err)
}

// Revoke revokes a key, and ends what it has begun.
func (k *Keys) Revoke(ctx context.Context, id string) (*Key, error) {
	out := new(Key)
	_, err := k.c.do(ctx, at(http.MethodDelete, "v1", "keys", id), out)
	return result(out, err)
}

// A Principal is who makes the requests of a client.
type Principal struct {
	Account string   `json:"account"`
	Key     string   `json:"key,omitempty"` // its id
	Name    string   `json:"name"`
	Scopes  []string `json:"scopes"`
}

// Me returns who makes the requests of this client.
func (c *Client) Me(ctx context.Context) (*Principal, error) {
	out := new(Principal)
	_, err := c.do(ctx, at(http.MethodGet, "v1", "me"), out)
	return result(out, err)
}

// Healthy returns nil if the server runs.
func (c *Client) Healthy(ctx context.Context) error {
	_, err := c.do(ctx, at(http.MethodGet, "healthz"), nil)
	return err
}

// Ready returns nil if the server takes requests.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.do(ctx, at(http.MethodGet, "readyz"), nil)
	return err
}

// AsyncAPI returns the document that describes the streams of the server.
func (c *Client) AsyncAPI(ctx context.Context) (json.RawMessage, error) {
	a, err := c.do(ctx, at(http.MethodGet, "asyncapi.json"), nil)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}

// OpenAPI returns the document that describes the operations of the server.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	a, err := c.do(ctx, at(http.MethodGet, "openapi.json"), nil)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}
