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

// A05: what each role allows. Except for the approver's and the worker's, a role has everything that the one before
// it has; reading does not imply changing, and to run recipes does not imply to edit them.
func TestA05_RolesAndScopes(t *testing.T) {
	lacks := map[Role][]Scope{
		Approver:  {RecipesRead, RecipesWrite, RunsRead, RunsExecute, RunsControl, FilesRead, FilesWrite, CreditsRead, KeysWrite, WebhooksRead, WebhooksWrite, SecretsRead, SecretsWrite, Work, AccountsAdmin, ServerAdmin},
		Worker:    {ApprovalsRead, ApprovalsWrite, RecipesRead, RecipesWrite, RunsRead, RunsExecute, RunsControl, CreditsRead, KeysWrite, WebhooksRead, WebhooksWrite, SecretsRead, SecretsWrite, AccountsAdmin, ServerAdmin},
		Viewer:    {ApprovalsRead, ApprovalsWrite, Work, RunsExecute, RunsControl, RecipesWrite, FilesWrite, KeysWrite, WebhooksRead, WebhooksWrite, SecretsRead, SecretsWrite, AccountsAdmin, ServerAdmin},
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
		if role != Worker && role != Approver { // they are apart from the others
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

// A28: a worker's key may be for queues and actions of queues only, and whoever has it cannot make one
// that is for more.
func TestA28_ScopesOfQueues(t *testing.T) {
	owner := &Principal{Scopes: Owner.Scopes()}
	scopes, err := resolve(owner, Worker, []Scope{"work:gpu/transcribe", "work:demo"})
	if want := []Scope{FilesRead, FilesWrite, AccountRead, "work:gpu/transcribe", "work:demo"}; err != nil || !slices.Equal(scopes, want) {
		t.Fatalf("%q, %v", scopes, err)
	}
	who := &Principal{Scopes: scopes}
	if !who.Allows(Work) || who.Allows(RunsRead) {
		t.Error("it is a key of a worker, and of nothing else")
	}
	for _, tt := range []struct{ queue, asked, want string }{
		{"demo", "", ""}, {"demo", "a b@1.0.0", "a b@1.0.0"}, {"gpu", "", "transcribe"}, {"gpu", "transcribe@2.0.0 other", "transcribe@2.0.0"},
		{"gpu", "other", "-"}, {"gp", "", "-"}, {"gpu2", "", "-"}, {"other", "", "-"}, {"gpu/transcribe", "", "-"}, {"", "", "-"},
	} {
		got, err := who.Tasks(tt.queue, strings.Fields(tt.asked))
		if tt.want == "-" {
			if !errors.Is(err, fault.Forbidden) {
				t.Errorf("%q of %s: %q, %v", tt.asked, tt.queue, got, err)
			}
		} else if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%q of %s: %q, %v, want %q", tt.asked, tt.queue, got, err, tt.want)
		}
	}
	if got, err := owner.Tasks("any", nil); err != nil || got != nil {
		t.Errorf("the scope for all queues: %q, %v", got, err)
	}
	for _, s := range []Scope{Work, "work:gpu", "work:gpu/other", "work:other"} {
		if _, err := resolve(who, "", []Scope{s}); !errors.Is(err, fault.Forbidden) {
			t.Errorf("it can pass on %s: %v", s, err)
		}
	}
	for _, s := range []Scope{"work:demo", "work:demo/x", "work:gpu/transcribe"} {
		if _, err := resolve(who, "", []Scope{s}); err != nil {
			t.Errorf("it cannot pass on %s: %v", s, err)
		}
	}
	for _, s := range []Scope{"work:", "work:GPU", "work:gpu/", "work:gpu/a/b", "work:gpu/*", "work/gpu"} {
		if _, err := resolve(owner, "", []Scope{s}); !errors.Is(err, fault.InputInvalid) {
			t.Errorf("%s is accepted: %v", s, err)
		}
	}
}
