// SPDX-License-Identifier: Apache-2.0

// Package access decides who may do what in the service.
//
// It decides what a key looks like and how one is checked, which operations a role and a
// scope allow, and for how long a request or a stream that a key began may go on. A key
// belongs to one account, and everything done with it concerns that account alone; only
// keys with the scope [AccountsAdmin] manage other accounts. The package knows no HTTP and
// no runs.
//
// Tokens are shown once, when their key is made. The store has only their SHA-256: a token
// has 256 random bits, so a slow hash would add nothing (A21).
package access

import (
	"context"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/spell"
)

// A Scope is a group of operations that a key allows.
type Scope string

// The scopes. Reading never implies changing, and changing what is run (recipes:write) is
// not part of running it (A05).
const (
	RecipesRead   Scope = "recipes:read"
	RecipesWrite  Scope = "recipes:write"
	RunsRead      Scope = "runs:read"
	RunsExecute   Scope = "runs:execute" // start runs, call actions, estimate
	RunsControl   Scope = "runs:control" // cancel, pause, retry, signal, delete
	FilesRead     Scope = "files:read"
	FilesWrite    Scope = "files:write"
	CreditsRead   Scope = "credits:read"
	KeysWrite     Scope = "keys:write"    // also reads them
	WebhooksRead  Scope = "webhooks:read" // also what was sent to them
	WebhooksWrite Scope = "webhooks:write"
	SecretsRead   Scope = "secrets:read" // their names: nothing answers a value
	SecretsWrite  Scope = "secrets:write"
	AccountRead   Scope = "account:read"

	ApprovalsRead  Scope = "approvals:read"
	ApprovalsWrite Scope = "approvals:write" // answer what people are asked, and make links for others

	Work          Scope = "work"           // carry out the tasks of runs, as a remote worker; work:QUEUE and work:QUEUE/ACTION are parts of it
	AccountsAdmin Scope = "accounts:admin" // other accounts, their limits and grants
	ServerAdmin   Scope = "server:admin"   // the server itself: quarantine, backups, metrics
)

// A Role is a name for a set of scopes.
type Role string

// The roles of who only answers approvals and of a remote worker, those of an account, from the one
// that only reads to the one that manages keys, and the role of the operator of the server.
const (
	Approver  Role = "approver"
	Worker    Role = "worker"
	Viewer    Role = "viewer"
	Operator  Role = "operator"
	Developer Role = "developer"
	Owner     Role = "owner"
	Admin     Role = "admin"
)

var (
	viewer    = []Scope{RecipesRead, RunsRead, FilesRead, CreditsRead, AccountRead}
	operator  = append(slices.Clone(viewer), RunsExecute, RunsControl, FilesWrite, ApprovalsRead, ApprovalsWrite)
	developer = append(slices.Clone(operator), RecipesWrite, WebhooksRead, SecretsRead)
	owner     = append(slices.Clone(developer), KeysWrite, WebhooksWrite, SecretsWrite, Work)
	approver  = []Scope{ApprovalsRead, ApprovalsWrite, AccountRead}
	worker    = []Scope{Work, FilesRead, FilesWrite, AccountRead}
	admin     = append(slices.Clone(owner), AccountsAdmin, ServerAdmin)
)

// Roles returns the roles, the one with the fewest scopes first.
func Roles() []Role { return []Role{Approver, Worker, Viewer, Operator, Developer, Owner, Admin} }

// Scopes returns all scopes.
func Scopes() []Scope { return slices.Clone(admin) }

// Scopes returns what the role allows; nil for an unknown role.
func (r Role) Scopes() []Scope {
	switch r {
	case Approver:
		return approver
	case Worker:
		return worker
	case Viewer:
		return viewer
	case Operator:
		return operator
	case Developer:
		return developer
	case Owner:
		return owner
	case Admin:
		return admin
	}
	return nil
}

// A Principal is who makes a request.
type Principal struct {
	Account string
	Key     string // id of the key; "" = none was needed
	Name    string // of the key, for people
	Role    Role   // of the key; "" = it has scopes of its own, or none was needed
	Scopes  []Scope
	// Budget is the name under which the account's budgets have the spending limit of the
	// key; "" = it has none.
	Budget  string
	Expires int64 // UTC µs; 0 = never
	// Local is true for the user of the data directory, whose commands reach the process that
	// holds it through the socket.
	Local bool
}

// Allows reports whether the principal has a scope, or for [Work] a part of it; see [Principal.Tasks].
func (p *Principal) Allows(s Scope) bool {
	return slices.Contains(p.Scopes, s) || s == Work && slices.ContainsFunc(p.Scopes, isPartOfWork)
}

// Check refuses a principal that lacks a scope.
func (p *Principal) Check(s Scope) error {
	if p.Allows(s) {
		return nil
	}
	err := fault.New(fault.Forbidden, "the key lacks the scope %s", s)
	err.Remedy = "Use a key that has it; its roles are " + strings.Join(rolesWith(s), ", ") + "."
	return err
}

// Anyone returns the principal of a server that checks no keys. Such a server listens on
// loopback or on a socket of its user only.
func Anyone(account string) *Principal {
	return &Principal{Account: account, Name: "local user", Scopes: admin}
}

// User returns the principal of a request that comes over the socket of a data directory.
func User(account string) *Principal {
	p := Anyone(account)
	p.Local = true
	return p
}

func rolesWith(s Scope) (names []string) {
	for _, r := range Roles() {
		if slices.Contains(r.Scopes(), s) {
			names = append(names, string(r))
		}
	}
	return names
}

// resolve returns the scopes of a role and of a list of names. The holder of a key may give
// away no more than the key allows. Scopes of queues are in place of the one for all queues that the
// role has.
func resolve(by *Principal, role Role, names []Scope) ([]Scope, error) {
	scopes := role.Scopes()
	if role != "" && scopes == nil {
		return nil, unknown("role", string(role), texts(Roles()))
	}
	scopes = slices.Clone(scopes)
	if slices.ContainsFunc(names, isPartOfWork) {
		scopes = slices.DeleteFunc(scopes, func(s Scope) bool { return s == Work })
	}
	for _, s := range names {
		if !slices.Contains(admin, s) && !isPartOfWork(s) {
			return nil, unknown("scope", string(s), texts(admin))
		}
		if !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	if len(scopes) == 0 {
		return nil, fault.New(fault.InputInvalid, "a key needs a role or scopes: the roles are %s", strings.Join(texts(Roles()), ", "))
	}
	for _, s := range scopes {
		if !slices.ContainsFunc(by.Scopes, func(has Scope) bool { return has.includes(s) }) {
			return nil, fault.New(fault.Forbidden, "the key that makes this one lacks the scope %s, so it cannot pass it on", s)
		}
	}
	return scopes, nil
}

func unknown(what, name string, known []string) error {
	if near := spell.Nearest(name, known); near != "" {
		return fault.New(fault.InputInvalid, "there is no %s of that name; did you mean %q?", what, near)
	}
	return fault.New(fault.InputInvalid, "there is no %s of that name: want one of %s", what, strings.Join(known, ", "))
}

func texts[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

type contextKey struct{}

// With returns a context that carries a principal.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the principal of a request. A context without one has nobody who is allowed
// anything.
func From(ctx context.Context) *Principal {
	if p, ok := ctx.Value(contextKey{}).(*Principal); ok {
		return p
	}
	return &Principal{}
}
