// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/rest"
)

// A KeyResource is a key, without its token.
type KeyResource struct {
	ID        string     `json:"id"`
	Account   string     `json:"account"`
	Name      string     `json:"name"`
	Role      string     `json:"role,omitempty"`
	Scopes    []string   `json:"scopes"`
	Limit     *KeyLimit  `json:"limit,omitempty"`
	Usage     *KeyUsage  `json:"usage,omitempty" doc:"Of the limit; not in lists."`
	Start     string     `json:"start" doc:"First characters of the token, to recognise it by."`
	CreatedAt time.Time  `json:"createdAt"`
	CreatedBy string     `json:"createdBy,omitempty" doc:"Id of the key that made it."`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	RevokedAt *time.Time `json:"revokedAt,omitempty"`
	// LastUsedAt is stored once a minute.
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty" doc:"When the key last admitted a request; absent = never. After a crash of the server the last minute may be missing."`
}

// A KeyLimit is what may be spent with a key.
type KeyLimit struct {
	Credits int64  `json:"credits" minimum:"1" maximum:"9007199254740991"`
	Reset   string `json:"reset,omitempty" enum:"none,daily,weekly,monthly" default:"none"`
	Mode    string `json:"mode,omitempty" enum:"enforce,audit" default:"enforce" doc:"audit reports and refuses nothing."`
}

// A KeyUsage is how much of its limit was spent with a key, and with those that it has taken
// the place of.
type KeyUsage struct {
	Used    int64      `json:"used" doc:"Credits held and spent in this period."`
	Left    int64      `json:"left"`
	ResetAt *time.Time `json:"resetAt,omitempty" doc:"When the next period begins."`
}

// A NewKey is a key with its token, which is never shown again.
type NewKey struct {
	KeyResource
	Token string `json:"token" doc:"Keep it: it is not stored."`
}

func keyOf(k *access.Key) KeyResource {
	out := KeyResource{
		ID: k.ID, Account: k.Account, Name: k.Name, Role: string(k.Role), Start: k.Start, CreatedAt: rest.Stamp(k.Created), CreatedBy: k.By,
		ExpiresAt: rest.StampOr(k.Expires), RevokedAt: rest.StampOr(k.Revoked), LastUsedAt: rest.StampOr(k.Used), Scopes: []string{},
	}
	for _, s := range k.Scopes {
		out.Scopes = append(out.Scopes, string(s))
	}
	if l := k.Limit; l != nil {
		out.Limit = &KeyLimit{Credits: l.Credits, Reset: string(cmp.Or(l.Reset, ledger.Never)), Mode: "enforce"}
		if l.Audit {
			out.Limit.Mode = "audit"
		}
	}
	return out
}

func (s *Server) keyRoutes() {
	write := rest.Needs(access.KeysWrite)
	write.Once = rest.OnceNever
	create := rest.Op("keys-create", http.MethodPost, "/v1/keys", "Make a key")
	create.DefaultStatus = http.StatusCreated
	rest.Handle(s.rest, create, write, s.createKey)
	rest.Handle(s.rest, rest.Op("keys-list", http.MethodGet, "/v1/keys", "List the keys of the account"), write, s.listKeys)
	rest.Handle(s.rest, rest.Op("keys-get", http.MethodGet, "/v1/keys/{id}", "Get a key"), write, s.getKey)
	rest.Handle(s.rest, rest.Op("keys-rotate", http.MethodPost, "/v1/keys/{id}/rotate", "Make a key that takes the place of another, which goes on for a while"), write, s.rotateKey)
	rest.Handle(s.rest, rest.Op("keys-revoke", http.MethodDelete, "/v1/keys/{id}", "Revoke a key; what it has begun ends at once"), write, s.revokeKey)
	rest.Handle(s.rest, rest.Op("keys-whoami", http.MethodGet, "/v1/me", "Get who makes the request"), rest.Needs(access.AccountRead), s.whoami)
}

// checked fails where the server checks no keys.
func (s *Server) keys() (*access.Keys, error) {
	if s.cfg.Keys == nil {
		return nil, fault.New(fault.NotAvailable, "this server checks no keys: it serves its own user only")
	}
	return s.cfg.Keys, nil
}

type createKeyIn struct {
	Body struct {
		Account   string    `json:"account,omitempty" maxLength:"64" doc:"Another account than that of the request, for keys that administer accounts."`
		Name      string    `json:"name" minLength:"1" maxLength:"100" doc:"What it is for."`
		Role      string    `json:"role,omitempty" enum:"approver,worker,viewer,operator,developer,owner,admin"`
		Scopes    []string  `json:"scopes,omitempty" maxItems:"20" doc:"Instead of a role, or beside it."`
		ExpiresAt time.Time `json:"expiresAt,omitempty"`
		Limit     *KeyLimit `json:"limit,omitempty" doc:"What may be spent with the key."`
	}
}

func (s *Server) createKey(ctx context.Context, in *createKeyIn) (*struct{ Body NewKey }, error) {
	keys, err := s.keys()
	if err != nil {
		return nil, err
	}
	who := access.From(ctx)
	spec := access.Spec{Account: cmp.Or(in.Body.Account, who.Account), Name: in.Body.Name, Role: access.Role(in.Body.Role)}
	if spec.Account != who.Account {
		if err := who.Check(access.AccountsAdmin); err != nil {
			return nil, err
		}
	}
	if err := access.CheckAccount(spec.Account); err != nil {
		return nil, fault.New(fault.RequestInvalid, "account: %v", err)
	}
	for _, name := range in.Body.Scopes {
		spec.Scopes = append(spec.Scopes, access.Scope(name))
	}
	if !in.Body.ExpiresAt.IsZero() {
		spec.Expires = in.Body.ExpiresAt.UnixMicro()
	}
	if l := in.Body.Limit; l != nil {
		spec.Limit = &access.Limit{Credits: l.Credits, Reset: ledger.Reset(cmp.Or(l.Reset, string(ledger.Never))), Audit: l.Mode == "audit"}
	}
	k, token, err := keys.Create(ctx, who, spec)
	if err != nil {
		return nil, err
	}
	return &struct{ Body NewKey }{NewKey{keyOf(k), token}}, s.limitsChanged(ctx, k)
}

func (s *Server) listKeys(ctx context.Context, _ *struct{}) (*rest.Listed[KeyResource], error) {
	keys, err := s.keys()
	if err != nil {
		return nil, err
	}
	list, err := keys.List(ctx, rest.Account(ctx))
	if err != nil {
		return nil, err
	}
	data := make([]KeyResource, len(list))
	for i, k := range list {
		data[i] = keyOf(k)
	}
	return rest.PageOf(ctx, s.rest, "", "", data), nil
}

type keyIn struct {
	ID string `path:"id" maxLength:"64" doc:"Id of a key."`
}

func (s *Server) getKey(ctx context.Context, in *keyIn) (*struct{ Body KeyResource }, error) {
	keys, err := s.keys()
	if err != nil {
		return nil, err
	}
	k, err := keys.Get(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	out := keyOf(k)
	out.Usage, err = s.usageOf(ctx, k)
	return &struct{ Body KeyResource }{out}, err
}

// usageOf returns how much of its limit was spent with a key; nil if it has none, or admits
// nobody any more.
func (s *Server) usageOf(ctx context.Context, k *access.Key) (*KeyUsage, error) {
	now := s.cfg.Now().UnixMicro()
	if k.Limit == nil || !k.Live(now) {
		return nil, nil
	}
	a, err := s.cfg.Node.Store.Account(ctx, k.Account, now)
	if err != nil {
		return nil, err
	}
	for _, b := range s.cfg.Rules(k.Account).Budgets.Standings(a, k.BudgetName(), now) {
		if b.Source == "key:"+k.BudgetName() {
			return &KeyUsage{Used: b.Used, Left: max(0, b.Limit-b.Used), ResetAt: rest.StampOr(b.Until)}, nil
		}
	}
	return nil, nil
}

type rotateKeyIn struct {
	ID   string `path:"id" maxLength:"64" doc:"Id of a key."`
	Body *struct {
		OverlapSeconds int `json:"overlapSeconds,omitempty" minimum:"0" maximum:"604800" doc:"How long the earlier key goes on. Default: it ends at once."`
	}
}

func (s *Server) rotateKey(ctx context.Context, in *rotateKeyIn) (*struct{ Body NewKey }, error) {
	keys, err := s.keys()
	if err != nil {
		return nil, err
	}
	overlap := time.Duration(0)
	if in.Body != nil {
		overlap = time.Duration(in.Body.OverlapSeconds) * time.Second
	}
	ctx = context.WithoutCancel(ctx) // a key may rotate itself
	k, token, err := keys.Rotate(ctx, access.From(ctx), rest.Account(ctx), in.ID, overlap)
	if err != nil {
		return nil, err
	}
	return &struct{ Body NewKey }{NewKey{keyOf(k), token}}, s.limitsChanged(ctx, k)
}

// limitsChanged makes the engine count what is spent with a key that has a limit.
func (s *Server) limitsChanged(ctx context.Context, k *access.Key) error {
	if k.Limit == nil {
		return nil
	}
	return s.cfg.Node.Engine.RulesChanged(ctx)
}

func (s *Server) revokeKey(ctx context.Context, in *keyIn) (*struct{ Body KeyResource }, error) {
	keys, err := s.keys()
	if err != nil {
		return nil, err
	}
	k, err := keys.Revoke(context.WithoutCancel(ctx), rest.Account(ctx), in.ID) // a key may revoke itself
	if err != nil {
		return nil, err
	}
	return &struct{ Body KeyResource }{keyOf(k)}, nil
}

// A Me is who makes a request.
type Me struct {
	Account string   `json:"account"`
	Key     string   `json:"key,omitempty"`
	Name    string   `json:"name"`
	Scopes  []string `json:"scopes"`
}

func (s *Server) whoami(ctx context.Context, _ *struct{}) (*struct{ Body Me }, error) {
	p := access.From(ctx)
	out := Me{Account: p.Account, Key: p.Key, Name: p.Name, Scopes: []string{}}
	for _, scope := range p.Scopes {
		out.Scopes = append(out.Scopes, string(scope))
	}
	return &struct{ Body Me }{out}, nil
}
