// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/account"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/rest"
)

// AccountCredits are the state of an account's credits at one time.
type AccountCredits struct {
	Account   string         `json:"account"`
	AsOf      time.Time      `json:"asOf"`
	Metered   bool           `json:"metered" doc:"false = the account does not pay for its runs."`
	Balance   int64          `json:"balance" doc:"Available and held."`
	Credits   ledger.Balance `json:"credits"`
	LiveRuns  int            `json:"liveRuns"`
	Queued    int            `json:"queuedRuns"`
	LiveLimit int            `json:"liveRunLimit,omitempty" doc:"0 = no limit."`
}

func (s *Server) accountRoutes() {
	read := rest.Needs(access.CreditsRead)
	rest.Handle(s.rest, rest.Op("credits-balance", http.MethodGet, "/v1/credits", "Get the balance of the account"), read, s.balance)
	rest.Handle(s.rest, rest.Op("credits-entries", http.MethodGet, "/v1/credits/entries", "List the entries of the account's credits, the oldest first"), read, s.entries)
	rest.Handle(s.rest, rest.Op("credits-lots", http.MethodGet, "/v1/credits/lots", "List the lots of the account's credits"), read, s.lots)
	rest.Handle(s.rest, rest.Op("credits-state", http.MethodGet, "/v1/credits/state", "Get the state of the account's credits as a store has it"), read, s.creditState)
	admin := rest.Needs(access.AccountsAdmin)
	rest.Handle(s.rest, rest.Op("accounts-balance", http.MethodGet, "/v1/accounts/{account}/credits", "Get the balance of an account"), admin, s.balanceOf)
	grant := rest.Needs(access.AccountsAdmin)
	grant.Once = rest.OnceItself
	o := rest.Op("accounts-grant", http.MethodPost, "/v1/accounts/{account}/grants", "Grant credits to an account, as a lot")
	o.DefaultStatus = http.StatusCreated
	rest.Handle(s.rest, o, grant, s.grant)
	rest.Handle(s.rest, rest.Op("accounts-void", http.MethodPost, "/v1/accounts/{account}/grants/{lot}/void", "Take back what is left of a grant"), admin, s.void)
	a := rest.Op("accounts-adjust", http.MethodPost, "/v1/accounts/{account}/adjustments", "Give back credits that a run has paid")
	a.DefaultStatus = http.StatusCreated
	rest.Handle(s.rest, a, grant, s.adjust)
}

// BalanceTime is the time of a balance.
type BalanceTime struct {
	At time.Time `query:"at" doc:"The balance as of this time, RFC 3339. Default: now."`
}

func (s *Server) balance(ctx context.Context, in *BalanceTime) (*struct{ Body AccountCredits }, error) {
	return s.balanceAt(ctx, rest.Account(ctx), in.At)
}

// An AccountPath names an account.
type AccountPath struct {
	Account string `path:"account" maxLength:"64" doc:"Name of an account."`
}

func (a *AccountPath) check() error {
	if err := access.CheckAccount(a.Account); err != nil {
		return fault.New(fault.RequestInvalid, "account: %v", err)
	}
	return nil
}

type balanceOfIn struct {
	AccountPath
	BalanceTime
}

func (s *Server) balanceOf(ctx context.Context, in *balanceOfIn) (*struct{ Body AccountCredits }, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	return s.balanceAt(ctx, in.Account, in.At)
}

func (s *Server) balanceAt(ctx context.Context, name string, at time.Time) (*struct{ Body AccountCredits }, error) {
	if at.IsZero() {
		at = s.cfg.Now()
	}
	a, err := s.cfg.Node.Store.Account(ctx, name, at.UnixMicro())
	if err != nil {
		return nil, err
	}
	n, err := s.cfg.Node.Store.Unended(ctx, name)
	if err != nil {
		return nil, err
	}
	rules := s.cfg.Rules(name)
	b := a.Balance(at.UnixMicro())
	return &struct{ Body AccountCredits }{AccountCredits{
		Account: name, AsOf: at.UTC(), Metered: !rules.Unmetered, Balance: b.Available + b.Held, Credits: b,
		LiveRuns: n.Live, Queued: n.Queued, LiveLimit: account.LiveLimit(rules),
	}}, nil
}

// An Entry is one movement of credits. Entries are never changed.
type Entry struct {
	Number uint64      `json:"number"`
	Key    string      `json:"key"`
	Kind   string      `json:"kind" enum:"grant,reserve,extend,settle,release,adjust,expire,void"`
	At     time.Time   `json:"at"`
	Amount int64       `json:"amount"`
	Lots   []LotAmount `json:"lots" doc:"The parts of the amount, by lot."`
	RunID  string      `json:"runId,omitempty"`
	Note   string      `json:"note,omitempty"`
	// The rest says more of a reservation and of a grant.
	ReservationID string     `json:"reservationId,omitempty"`
	Source        string     `json:"source,omitempty" doc:"Of a grant: paid or promotional."`
	Priority      int32      `json:"priority,omitempty" doc:"Of a grant."`
	EffectiveAt   *time.Time `json:"effectiveAt,omitempty" doc:"Of a grant."`
	ExpiresAt     *time.Time `json:"expiresAt,omitempty" doc:"Of a grant."`
}

// A LotAmount is an amount of one lot.
type LotAmount struct {
	Lot    string `json:"lot"`
	Amount int64  `json:"amount"`
}

type entriesIn struct {
	rest.Paging
	After uint64 `query:"after" maximum:"9007199254740991" doc:"Only entries after this number."`
}

func (s *Server) entries(ctx context.Context, in *entriesIn) (*rest.Listed[Entry], error) {
	list := "entries " + rest.Account(ctx)
	after, err := s.rest.PlaceNumber(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	after = max(after, in.After)
	found, err := s.cfg.Node.Store.Entries(ctx, rest.Account(ctx), after, in.Limit)
	if err != nil {
		return nil, err
	}
	data := entriesOf(found)
	for i := range data {
		data[i].Number = after + uint64(i) + 1
	}
	next := ""
	if len(found) == in.Limit {
		next = number(after + uint64(len(found)))
	}
	return rest.PageOf(ctx, s.rest, list, next, data), nil
}

// entriesOf describes entries without their numbers.
func entriesOf(found []*ledger.Entry) []Entry {
	data := make([]Entry, len(found))
	for i, e := range found {
		data[i] = Entry{Key: e.Key, Kind: e.Kind.String(), At: rest.Stamp(e.At), Amount: e.Amount(), RunID: e.Run, Note: e.Note, Lots: []LotAmount{}}
		for _, p := range e.Parts {
			data[i].Lots = append(data[i].Lots, LotAmount{p.Lot, p.Amount})
		}
		data[i].ReservationID = e.Hold
		if t := e.Terms; t != nil {
			data[i].Source, data[i].EffectiveAt, data[i].ExpiresAt = string(t.Source), rest.StampOr(t.Effective), rest.StampOr(t.Expires)
			data[i].Priority = t.Priority
		}
	}
	return data
}

// A Lot is a grant and what has become of it.
type Lot struct {
	Key         string     `json:"key"`
	Amount      int64      `json:"amount"`
	Kind        string     `json:"kind" enum:"paid,promotional"`
	Priority    int32      `json:"priority" doc:"Lots with a lower one are used first."`
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

func lotOf(l *ledger.Lot) Lot {
	return Lot{
		Key: l.ID, Amount: l.Granted, Kind: string(l.Terms.Source), Priority: l.Terms.Priority, EffectiveAt: rest.Stamp(l.Terms.Effective),
		ExpiresAt: rest.StampOr(l.Terms.Expires), CreatedAt: rest.Stamp(l.Created), Free: l.Free, Held: l.Held, Spent: l.Spent, Expired: l.Expired, Voided: l.Voided, VoidedAt: rest.StampOr(l.VoidedAt),
	}
}

func (s *Server) lots(ctx context.Context, in *rest.Paging) (*rest.Listed[Lot], error) {
	list := "lots " + rest.Account(ctx)
	after, err := s.rest.PlaceNumber(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	a, err := s.cfg.Node.Store.Account(ctx, rest.Account(ctx), s.cfg.Now().UnixMicro())
	if err != nil {
		return nil, err
	}
	all := a.Lots()
	all = all[min(uint64(len(all)), after):]
	next := ""
	if len(all) > in.Limit {
		all, next = all[:in.Limit], number(after+uint64(in.Limit))
	}
	data := make([]Lot, len(all))
	for i := range all {
		data[i] = lotOf(&all[i])
	}
	return rest.PageOf(ctx, s.rest, list, next, data), nil
}

type grantIn struct {
	AccountPath
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Names the lot if the body does not."`
	Body           struct {
		Key         string    `json:"key,omitempty" maxLength:"200" doc:"Names the lot; a repeated grant with the same key changes nothing."`
		Amount      int64     `json:"amount" minimum:"1" maximum:"9007199254740991"`
		Kind        string    `json:"kind,omitempty" enum:"paid,promotional" default:"paid"`
		Priority    int32     `json:"priority,omitempty" doc:"Lots with a lower one are used first."`
		EffectiveAt time.Time `json:"effectiveAt,omitempty"`
		ExpiresAt   time.Time `json:"expiresAt,omitempty"`
	}
}

func (s *Server) grant(ctx context.Context, in *grantIn) (*struct{ Body Lot }, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	key := cmp.Or(in.Body.Key, in.IdempotencyKey)
	if key == "" {
		return nil, fault.New(fault.RequestInvalid, "a grant needs a key in the body, or an Idempotency-Key: a repeated request would grant twice")
	}
	terms := ledger.Terms{Source: ledger.Source(cmp.Or(in.Body.Kind, string(ledger.Paid))), Priority: in.Body.Priority}
	if !in.Body.EffectiveAt.IsZero() {
		terms.Effective = in.Body.EffectiveAt.UnixMicro()
	}
	if !in.Body.ExpiresAt.IsZero() {
		terms.Expires = in.Body.ExpiresAt.UnixMicro()
	}
	lot, err := s.cfg.Node.Engine.Grant(ctx, engine.GrantRequest{Account: in.Account, Key: key, Amount: in.Body.Amount, Terms: terms})
	return &struct{ Body Lot }{lotOf(&lot)}, err
}

type voidIn struct {
	AccountPath
	Lot  string `path:"lot" maxLength:"200" doc:"Key of the grant."`
	Body *struct {
		Note string `json:"note,omitempty" maxLength:"500"`
	}
}

func (s *Server) void(ctx context.Context, in *voidIn) (*struct{ Body Lot }, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	note := ""
	if in.Body != nil {
		note = in.Body.Note
	}
	lot, err := s.cfg.Node.Engine.VoidLot(ctx, in.Account, in.Lot, note)
	return &struct{ Body Lot }{lotOf(&lot)}, err
}

// A CreditState is the state of an account's credits as a store has it.
type CreditState struct {
	Account string `json:"account"`
	State   []byte `json:"state" doc:"In the encoding of the store."`
}

func (s *Server) creditState(ctx context.Context, in *BalanceTime) (*struct{ Body CreditState }, error) {
	at := int64(math.MaxInt64)
	if !in.At.IsZero() {
		at = in.At.UnixMicro()
	}
	a, err := s.cfg.Node.Store.Account(ctx, rest.Account(ctx), at)
	if err != nil {
		return nil, err
	}
	return &struct{ Body CreditState }{CreditState{Account: rest.Account(ctx), State: a.AppendState(nil)}}, nil
}

type adjustIn struct {
	AccountPath
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Names the adjustment if the body does not."`
	Body           struct {
		RunID  string `json:"runId" minLength:"1" maxLength:"64" doc:"A root run, which has paid."`
		Key    string `json:"key,omitempty" maxLength:"200" doc:"Names the adjustment; a repeated one with the same key changes nothing."`
		Amount int64  `json:"amount" minimum:"1" maximum:"9007199254740991"`
		Note   string `json:"note,omitempty" maxLength:"500"`
	}
}

// An Adjustment is what was given back.
type Adjustment struct {
	Entries []Entry `json:"entries" doc:"Without their numbers."`
}

func (s *Server) adjust(ctx context.Context, in *adjustIn) (*struct{ Body Adjustment }, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	key := cmp.Or(in.Body.Key, in.IdempotencyKey)
	if key == "" {
		return nil, fault.New(fault.RequestInvalid, "an adjustment needs a key in the body, or an Idempotency-Key: a repeated request would give back twice")
	}
	entries, err := s.cfg.Node.Engine.Adjust(ctx, in.Account, in.Body.RunID, key, in.Body.Amount, in.Body.Note)
	return &struct{ Body Adjustment }{Adjustment{entriesOf(entries)}}, err
}
