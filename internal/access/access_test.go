// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// A05: what each role allows. Except for the worker's, a role has everything that the one before it has; reading
// does not imply changing, and to run recipes does not imply to edit them.
func TestA05_RolesAndScopes(t *testing.T) {
	lacks := map[Role][]Scope{
		Worker:    {RecipesRead, RecipesWrite, RunsRead, RunsExecute, RunsControl, CreditsRead, KeysWrite, WebhooksRead, WebhooksWrite, SecretsRead, SecretsWrite, AccountsAdmin, ServerAdmin},
		Viewer:    {Work, RunsExecute, RunsControl, RecipesWrite, FilesWrite, KeysWrite, WebhooksRead, WebhooksWrite, SecretsRead, SecretsWrite, AccountsAdmin, ServerAdmin},
		Operator:  {Work, RecipesWrite, KeysWrite, WebhooksRead, WebhooksWrite, SecretsRead, SecretsWrite, AccountsAdmin, ServerAdmin},
		Developer: {Work, KeysWrite, WebhooksWrite, SecretsWrite, AccountsAdmin, ServerAdmin},
		Owner:     {AccountsAdmin, ServerAdmin},
		Admin:     nil,
	}
	if len(lacks) != len(Roles()) {
		t.Fatalf("the roles are %v", Roles())
	}
	var before []Scope
	for _, role := range Roles() {
		who := &Principal{Scopes: role.Scopes()}
		for _, s := range Scopes() {
			want := !slices.Contains(lacks[role], s)
			if who.Allows(s) != want {
				t.Errorf("%s: %s is allowed: %t", role, s, !want)
			}
			err := who.Check(s)
			if want != (err == nil) || err != nil && !errors.Is(err, fault.Forbidden) {
				t.Errorf("%s: check of %s: %v", role, s, err)
			}
		}
		for _, s := range before {
			if !who.Allows(s) {
				t.Errorf("%s lacks %s of a lesser role", role, s)
			}
		}
		if role != Worker { // it is apart from the others
			before = role.Scopes()
		}
	}
	if Role("root").Scopes() != nil {
		t.Error("an unknown role has scopes")
	}
	var problem *fault.Error
	if err := (&Principal{}).Check(RunsExecute); !errors.As(err, &problem) || !strings.Contains(problem.Remedy, "operator, developer, owner, admin") {
		t.Errorf("the remedy does not name the roles that have the scope: %+v", problem)
	}
}

// A key passes on no scope that it lacks, alone or in a role, and unknown names are
// refused.
func TestA05_NoScopeComesFromNothing(t *testing.T) {
	developer := &Principal{Scopes: Developer.Scopes()}
	for _, tt := range []struct {
		role   Role
		scopes []Scope
		want   int // scopes
		code   fault.Code
		says   string
	}{
		{Developer, nil, len(Developer.Scopes()), "", ""},
		{Viewer, []Scope{RunsExecute, RunsRead, RunsExecute}, len(Viewer.Scopes()) + 1, "", ""},
		{"", []Scope{RunsRead}, 1, "", ""},
		{Owner, nil, 0, fault.Forbidden, "keys:write"},
		{Viewer, []Scope{SecretsWrite}, 0, fault.Forbidden, "secrets:write"},
		{"", []Scope{ServerAdmin}, 0, fault.Forbidden, "server:admin"},
		{"", nil, 0, fault.InputInvalid, "role or scopes"},
		{"opperator", nil, 0, fault.InputInvalid, `"operator"`},
		{"", []Scope{"runs:reed"}, 0, fault.InputInvalid, `"runs:read"`},
		{"", []Scope{"*"}, 0, fault.InputInvalid, "want one of"},
	} {
		got, err := resolve(developer, tt.role, tt.scopes)
		if len(got) != tt.want || fault.CodeOf(err) != tt.code && err != nil || (err != nil) != (tt.code != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("role %q and scopes %v: %v, %v", tt.role, tt.scopes, got, err)
		}
	}
	if got := Viewer.Scopes(); len(got) != 5 {
		t.Errorf("a role has changed: %v", got)
	}
}

// A context that nobody was put into allows nothing.
func TestPrincipalOfARequest(t *testing.T) {
	nobody := From(context.Background())
	for _, s := range Scopes() {
		if nobody.Allows(s) {
			t.Errorf("nobody may %s", s)
		}
	}
	who := Anyone("acme")
	if got := From(With(t.Context(), who)); got != who || got.Account != "acme" || got.Key != "" || got.Check(ServerAdmin) != nil {
		t.Errorf("the principal is %+v", got)
	}
}
