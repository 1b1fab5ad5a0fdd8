// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/account"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/store"
)

// An AccountResource is an account as the operator sees it.
type AccountResource struct {
	Account   string           `json:"account"`
	Settings  account.Settings `json:"settings" doc:"What was set with PUT and PATCH; it comes before the configuration."`
	Effective AccountLimits    `json:"effective" doc:"What applies now."`
	CreatedAt *time.Time       `json:"createdAt,omitempty" doc:"When something was set first."`
	UpdatedAt *time.Time       `json:"updatedAt,omitempty"`
}

// An OwnAccount is an account as its own keys see it.
type OwnAccount struct {
	Account string        `json:"account"`
	Limits  AccountLimits `json:"limits"`
	Usage   AccountUsage  `json:"usage"`
}

// AccountLimits are what applies to an account.
type AccountLimits struct {
	Disabled          bool               `json:"disabled"`
	Metered           bool               `json:"metered" doc:"false = the account does not pay for its runs."`
	MaxCredits        int64              `json:"maxCredits" doc:"The most that one run may reserve and pay."`
	DayBudget         *account.DayBudget `json:"dayBudget,omitempty"`
	TimeZone          string             `json:"timeZone"`
	LowBalance        []int64            `json:"lowBalance"`
	LiveRunLimit      int                `json:"liveRunLimit" doc:"0 = no limit."`
	RunLimit          int                `json:"runLimit" doc:"Runs that may be live or queued together. 0 = no limit."`
	RequestsPerSecond float64            `json:"requestsPerSecond" doc:"0 = no limit."`
	RequestBurst      int                `json:"requestBurst"`
	StorageBytes      int64              `json:"storageBytes" doc:"0 = no limit."`
	Actions           []string           `json:"actions" doc:"Patterns of the names of the actions that recipes may call."`
	RetainRuns        string             `json:"retainRuns" example:"P7D"`
	RetainFiles       string             `json:"retainFiles" example:"P7D"`
	RetainUploads     string             `json:"retainUploads" example:"P1D"`
}

// An AccountUsage is how much of its quotas an account uses.
type AccountUsage struct {
	LiveRuns     int   `json:"liveRuns"`
	QueuedRuns   int   `json:"queuedRuns"`
	StorageBytes int64 `json:"storageBytes"`
}

func (s *Server) settingsRoutes() {
	admin := rest.Needs(access.AccountsAdmin)
	rest.Handle(s.rest, rest.Op("accounts-list", http.MethodGet, "/v1/accounts", "List accounts, by name"), admin, s.listAccounts)
	rest.Handle(s.rest, rest.Op("accounts-get", http.MethodGet, "/v1/accounts/{account}", "Get what applies to an account"), admin, s.getAccount)
	rest.Handle(s.rest, rest.Op("accounts-replace", http.MethodPut, "/v1/accounts/{account}", "Set what applies to an account; fields that are absent are those of the configuration"), admin, s.putAccount)
	rest.Handle(s.rest, rest.Op("accounts-update", http.MethodPatch, "/v1/accounts/{account}", "Set some of what applies to an account; fields that are absent stay"), admin, s.patchAccount)
	rest.Handle(s.rest, rest.Op("account-get", http.MethodGet, "/v1/account", "Get the limits of the account and how much of them it uses"), rest.Needs(access.AccountRead), s.ownAccount)
}

type accountFound struct {
	ETag string `header:"ETag"`
	Body AccountResource
}

// limitsOf returns what applies to an account.
func (s *Server) limitsOf(name string) AccountLimits {
	rules := s.cfg.Rules(name)
	kept := s.cfg.Accounts.Retention(name)
	r, _ := s.cfg.Accounts.Get(name)
	perSecond, burst := s.rest.Rate(name)
	out := AccountLimits{
		Disabled: s.cfg.Accounts.Admit(name) != nil, Metered: !rules.Unmetered, MaxCredits: cmp.Or(rules.MaxCredits, engine.DefaultMaxCredits), TimeZone: "UTC",
		LowBalance: rules.LowBalance, LiveRunLimit: account.LiveLimit(rules), RunLimit: account.RunLimit(rules),
		RequestsPerSecond: perSecond, RequestBurst: burst, StorageBytes: s.cfg.Accounts.Storage(name), Actions: r.Settings.Actions,
		RetainRuns: keptFor(kept.Runs), RetainFiles: keptFor(kept.Files), RetainUploads: keptFor(kept.Uploads),
	}
	if out.LowBalance == nil {
		out.LowBalance = []int64{}
	}
	if out.Actions == nil {
		out.Actions = []string{"*"}
	}
	if zone := rules.Budgets.Zone; zone != nil {
		out.TimeZone = zone.String()
	}
	if day := rules.Budgets.Day; day.Limit > 0 {
		out.DayBudget = &account.DayBudget{Credits: day.Limit, Mode: "enforce"}
		if day.Audit {
			out.DayBudget.Mode = "audit"
		}
	}
	return out
}

// keptFor is a time of retention as answers have it.
func keptFor(d time.Duration) string {
	if d < 0 {
		return "forever"
	}
	return isoDuration(d.Milliseconds())
}

func (s *Server) accountResource(r account.Record) AccountResource {
	return AccountResource{Account: r.Name, Settings: r.Settings, Effective: s.limitsOf(r.Name), CreatedAt: rest.StampOr(r.Created), UpdatedAt: rest.StampOr(r.Updated)}
}

// accountNames returns all accounts, sorted: those of the configuration, those for which
// something is set, and those that have runs or were ever granted credits.
func (s *Server) accountNames(ctx context.Context) ([]string, error) {
	names := s.cfg.Accounts.Names()
	for _, more := range []func(context.Context) ([]string, error){s.cfg.Node.Store.MeteredAccounts, s.cfg.Node.Store.Accounts} {
		list, err := more(ctx)
		if err != nil {
			return nil, err
		}
		names = append(names, list...)
	}
	// Accounts of the service itself have names that no account of a user can have.
	names = slices.DeleteFunc(names, func(name string) bool { return access.CheckAccount(name) != nil })
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (s *Server) listAccounts(ctx context.Context, in *rest.Paging) (*rest.Listed[AccountResource], error) {
	after, err := s.rest.Place("accounts", in.Cursor)
	if err != nil {
		return nil, err
	}
	names, err := s.accountNames(ctx)
	if err != nil {
		return nil, err
	}
	i, found := slices.BinarySearch(names, after)
	if found {
		i++
	}
	names = names[i:]
	next := ""
	if len(names) > in.Limit {
		names = names[:in.Limit]
		next = names[in.Limit-1]
	}
	data := make([]AccountResource, len(names))
	for i, name := range names {
		r, _ := s.cfg.Accounts.Get(name)
		data[i] = s.accountResource(r)
	}
	return rest.PageOf(ctx, s.rest, "accounts", next, data), nil
}

func (s *Server) getAccount(ctx context.Context, in *AccountPath) (*accountFound, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	r, ok := s.cfg.Accounts.Get(in.Account)
	if !ok {
		names, err := s.accountNames(ctx)
		if err != nil {
			return nil, err
		}
		if _, found := slices.BinarySearch(names, in.Account); !found {
			err := fault.New(fault.AccountNotFound, "there is no account of that name")
			err.Remedy = "`GET /v1/accounts` lists the accounts; PUT makes one."
			return nil, err
		}
	}
	return &accountFound{ETag: rest.ETag(r.Revision), Body: s.accountResource(r)}, nil
}

type settingsIn struct {
	AccountPath
	IfMatch string `header:"If-Match" maxLength:"100" doc:"ETag of the account as it was read."`
	Body    account.Settings
}

func (s *Server) putAccount(ctx context.Context, in *settingsIn) (*accountFound, error) {
	return s.changeAccount(ctx, in, func(account.Settings) (account.Settings, error) { return in.Body, nil })
}

func (s *Server) patchAccount(ctx context.Context, in *settingsIn) (*accountFound, error) {
	return s.changeAccount(ctx, in, func(had account.Settings) (account.Settings, error) {
		merged := map[string]json.RawMessage{}
		for _, part := range []account.Settings{had, in.Body} {
			data, err := json.Marshal(part)
			if err == nil {
				err = json.Unmarshal(data, &merged) // it adds to what is there
			}
			if err != nil {
				return had, err
			}
		}
		data, err := json.Marshal(merged)
		if err != nil {
			return had, err
		}
		var out account.Settings
		return out, json.Unmarshal(data, &out)
	})
}

func (s *Server) changeAccount(ctx context.Context, in *settingsIn, change func(account.Settings) (account.Settings, error)) (*accountFound, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	revision, err := rest.Revision(in.IfMatch, store.AnyRevision)
	if err != nil {
		return nil, err
	}
	r, err := s.cfg.Accounts.Change(ctx, in.Account, revision, func(had account.Settings) (account.Settings, error) {
		now, err := change(had)
		if err == nil && s.cfg.Accounts.Metered(in.Account, now) != s.cfg.Accounts.Metered(in.Account, had) {
			err = s.checkNoRuns(ctx, in.Account)
		}
		return now, err
	})
	if err != nil {
		return nil, err
	}
	return &accountFound{ETag: rest.ETag(r.Revision), Body: s.accountResource(r)}, nil
}

// checkNoRuns refuses a change of who pays while runs go on: what they hold is settled by the
// rules with which they began.
func (s *Server) checkNoRuns(ctx context.Context, name string) error {
	n, err := s.cfg.Node.Store.Unended(ctx, name)
	if err != nil || n.Live+n.Queued == 0 {
		return err
	}
	e := fault.New(fault.Conflict, "account %s has %d runs that have not ended, so metered cannot be changed", name, n.Live+n.Queued)
	e.Remedy = "Disable the account, wait for the end of its runs or cancel them, and change it then."
	return e
}

func (s *Server) ownAccount(ctx context.Context, _ *struct{}) (*struct{ Body OwnAccount }, error) {
	name := rest.Account(ctx)
	n, err := s.cfg.Node.Store.Unended(ctx, name)
	if err != nil {
		return nil, err
	}
	bytes, err := s.cfg.Node.Files.Usage(ctx, name)
	if err != nil {
		return nil, err
	}
	out := OwnAccount{Account: name, Limits: s.limitsOf(name), Usage: AccountUsage{LiveRuns: n.Live, QueuedRuns: n.Queued, StorageBytes: bytes}}
	return &struct{ Body OwnAccount }{out}, nil
}
