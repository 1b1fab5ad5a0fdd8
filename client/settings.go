// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// AccountSettings are what the operator sets for an account. What is nil is that of the
// configuration of the server, or in a change, stays as it is.
type AccountSettings struct {
	Description       *string    `json:"description,omitempty"`
	Disabled          *bool      `json:"disabled,omitempty"` // refuse every request; runs in progress go on
	DisabledReason    *string    `json:"disabledReason,omitempty"`
	Metered           *bool      `json:"metered,omitempty"`    // whether the account pays
	MaxCredits        *int64     `json:"maxCredits,omitempty"` // the most that one run may reserve and pay
	DayBudget         *DayBudget `json:"dayBudget,omitempty"`
	TimeZone          *string    `json:"timeZone,omitempty"`     // where its days begin
	LowBalance        []int64    `json:"lowBalance,omitempty"`   // levels that are reported
	LiveRunLimit      *int       `json:"liveRunLimit,omitempty"` // 0 = no limit
	RequestsPerSecond *float64   `json:"requestsPerSecond,omitempty"`
	RequestBurst      *int       `json:"requestBurst,omitempty"`
	StorageBytes      *int64     `json:"storageBytes,omitempty"` // 0 = no limit
	// Actions are names of actions, with * for any characters: nil = as above, empty = none.
	Actions       *[]string `json:"actions,omitempty"`
	RetainRuns    *string   `json:"retainRuns,omitempty"` // such as 30d, or forever
	RetainFiles   *string   `json:"retainFiles,omitempty"`
	RetainUploads *string   `json:"retainUploads,omitempty"`
}

// A DayBudget limits what an account spends in a day.
type DayBudget struct {
	Credits int64  `json:"credits"`
	Mode    string `json:"mode,omitempty"` // enforce (the default), or audit, which reports and refuses nothing
}

// AccountLimits are what applies to an account.
type AccountLimits struct {
	Disabled          bool       `json:"disabled"`
	Metered           bool       `json:"metered"`
	MaxCredits        int64      `json:"maxCredits"`
	DayBudget         *DayBudget `json:"dayBudget,omitempty"`
	TimeZone          string     `json:"timeZone"`
	LowBalance        []int64    `json:"lowBalance"`
	LiveRunLimit      int        `json:"liveRunLimit"`      // 0 = no limit
	RunLimit          int        `json:"runLimit"`          // of live and queued runs together; 0 = no limit
	RequestsPerSecond float64    `json:"requestsPerSecond"` // 0 = no limit
	RequestBurst      int        `json:"requestBurst"`
	StorageBytes      int64      `json:"storageBytes"` // 0 = no limit
	Actions           []string   `json:"actions"`      // patterns of names
	RetainRuns        string     `json:"retainRuns"`   // ISO 8601, or forever
	RetainFiles       string     `json:"retainFiles"`
	RetainUploads     string     `json:"retainUploads"`
}

// An AccountUsage is how much of its limits an account uses.
type AccountUsage struct {
	LiveRuns     int   `json:"liveRuns"`
	QueuedRuns   int   `json:"queuedRuns"`
	StorageBytes int64 `json:"storageBytes"`
}

// An Account is an account as the operator sees it.
type Account struct {
	Account   string          `json:"account"`
	Settings  AccountSettings `json:"settings"`
	Effective AccountLimits   `json:"effective"` // what applies: the settings, else the configuration
	CreatedAt *time.Time      `json:"createdAt,omitempty"`
	UpdatedAt *time.Time      `json:"updatedAt,omitempty"`
	// ETag is that of the account as it was read, for Replace and Update; "" in a list.
	ETag string `json:"-"`
}

// An OwnAccount is the account of the key.
type OwnAccount struct {
	Account string        `json:"account"`
	Limits  AccountLimits `json:"limits"`
	Usage   AccountUsage  `json:"usage"`
}

// Account returns the limits of the account, and how much of them it uses.
func (c *Client) Account(ctx context.Context) (*OwnAccount, error) {
	out := new(OwnAccount)
	_, err := c.do(ctx, at(http.MethodGet, "v1", "account"), out)
	return result(out, err)
}

// List returns the accounts, by name.
func (a *Accounts) List(ctx context.Context) iter.Seq2[Account, error] {
	return list[Account](ctx, a.c, func() *call { return at(http.MethodGet, "v1", "accounts") })
}

// Get returns an account.
func (a *Accounts) Get(ctx context.Context, account string) (*Account, error) {
	return a.account(ctx, at(http.MethodGet, "v1", "accounts", account))
}

// Replace sets all that is set for an account. With an etag of Get, only if it has not changed
// since.
func (a *Accounts) Replace(ctx context.Context, account string, s AccountSettings, etag string) (*Account, error) {
	return a.change(ctx, http.MethodPut, account, s, etag)
}

// Update sets some of what is set for an account; the rest stays. With an etag of Get, only if
// it has not changed since.
func (a *Accounts) Update(ctx context.Context, account string, s AccountSettings, etag string) (*Account, error) {
	return a.change(ctx, http.MethodPatch, account, s, etag)
}

func (a *Accounts) change(ctx context.Context, method, account string, s AccountSettings, etag string) (*Account, error) {
	cl, err := at(method, "v1", "accounts", account).set("If-Match", etag).send(s)
	if err != nil {
		return nil, err
	}
	cl.once = true // an answer that was lost may have changed the ETag
	return a.account(ctx, cl)
}

func (a *Accounts) account(ctx context.Context, cl *call) (*Account, error) {
	out := new(Account)
	res, err := a.c.do(ctx, cl, out)
	if err != nil {
		return nil, err
	}
	out.ETag = res.header.Get("ETag")
	return out, nil
}

// Secrets are those that the account keeps on the server. Nothing returns their values.
type Secrets struct{ c *Client }

// A Secret is what is known of a secret.
type Secret struct {
	Name      string     `json:"name"`
	From      string     `json:"from"` // vault, or directory: a file of the operator
	UpdatedAt *time.Time `json:"updatedAt,omitempty"`
}

// List returns the secrets.
func (s *Secrets) List(ctx context.Context) iter.Seq2[Secret, error] {
	return list[Secret](ctx, s.c, func() *call { return at(http.MethodGet, "v1", "secrets") })
}

// Set keeps a secret, in place of an earlier one of that name.
func (s *Secrets) Set(ctx context.Context, name, value string) (*Secret, error) {
	cl, err := at(http.MethodPut, "v1", "secrets", name).send(map[string]string{"value": value})
	if err != nil {
		return nil, err
	}
	out := new(Secret)
	_, err = s.c.do(ctx, cl, out)
	return result(out, err)
}

// Delete deletes a secret.
func (s *Secrets) Delete(ctx context.Context, name string) error {
	_, err := s.c.do(ctx, at(http.MethodDelete, "v1", "secrets", name), nil)
	return err
}

// A KeyUsage is how much of its limit was spent with a key, and with those whose place it took.
type KeyUsage struct {
	Used    int64      `json:"used"` // held and spent, in this period
	Left    int64      `json:"left"`
	ResetAt *time.Time `json:"resetAt,omitempty"` // when the next period begins
}

// Rotate makes a key that takes the place of another, which goes on for the overlap, rounded
// to seconds. It is sent again only when it cannot have arrived.
func (k *Keys) Rotate(ctx context.Context, id string, overlap time.Duration) (*NewKey, error) {
	cl, err := at(http.MethodPost, "v1", "keys", id, "rotate").send(map[string]int64{"overlapSeconds": int64(overlap.Round(time.Second) / time.Second)})
	if err != nil {
		return nil, err
	}
	cl.once = true
	out := new(NewKey)
	_, err = k.c.do(ctx, cl, out)
	return result(out, err)
}
