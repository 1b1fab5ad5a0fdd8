// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/lease"
)

// What remote workers and senders of webhooks send and is refused is counted, by reason: what is taken
// is not.
func TestRefusedIsCounted(t *testing.T) {
	p := newPlace(t)
	object := json.RawMessage(`{"type": "object"}`)
	if err := p.actions.AddWorkers(map[string]lease.Spec{"double": {Input: object, Output: object, Accounts: []string{"acme"}}}); err != nil {
		t.Fatal(err)
	}
	s, url := p.must(nil)
	key := func(account string, role access.Role) string {
		status, out := ask(t, "POST", url+"/v1/keys", s.FirstKey, `{"account": "`+account+`", "name": "a key", "role": "`+string(role)+`"}`)
		if status != 201 {
			t.Fatal(status, out)
		}
		return out["token"].(string)
	}
	owner, mine, theirs := key("acme", access.Owner), key("acme", access.Worker), key("rival", access.Worker)
	if status, out := ask(t, "POST", url+"/v1/recipes", owner, `{"name": "r", "version": "1.0.0", "steps": [{"id": "d", "action": {"name": "double"}}]}`); status != 201 {
		t.Fatal(status, out)
	}
	if status, out := ask(t, "POST", url+"/v1/recipes/r/execute", owner, `{}`); status != 202 {
		t.Fatal(status, out)
	}
	token := ""
	for token == "" {
		status, out := ask(t, "POST", url+"/v1/workers/lease", mine, `{"queue": "default", "waitMs": 20000}`)
		if status != 200 {
			t.Fatal(status, out)
		}
		for _, task := range out["tasks"].([]any) {
			token = task.(map[string]any)["lease"].(string)
		}
	}
	want := map[string]int64{"no_lease": 0, "ended_lease": 0, "other_account": 0, "malformed": 0, "too_large": 0}
	id, _, _ := strings.Cut(token, ".")
	result := func(lease string) string { return `{"results": [{"lease": "` + lease + `", "output": {}}]}` }
	for _, test := range []struct{ name, key, body, reason string }{
		{"no token", mine, result("none"), "no_lease"},
		{"a token with another proof", mine, result(token + "x"), "no_lease"},
		{"a token of another lease", mine, result(id + ".zzz." + strings.Repeat("A", 22)), "no_lease"},
		{"a task of another account", theirs, result(token), "other_account"},
		{"no JSON", mine, `{"results": [`, "malformed"},
		{"another schema", mine, `{"results": [{"lease": 1, "output": {}}]}`, "malformed"},
		{"neither output nor error", mine, `{"results": [{"lease": "` + token + `"}]}`, "malformed"},
		{"33 MiB", mine, strings.Repeat(" ", 33<<20), "too_large"},
		{"a result", mine, result(token), ""},
		{"the same result again", mine, result(token), "ended_lease"},
		{"another key", "roux_wrong", result(token), ""},
	} {
		ask(t, "POST", url+"/v1/workers/results", test.key, test.body)
		if test.reason != "" {
			want[test.reason]++
		}
		got := map[string]int64{}
		s.Node.Workers.Refused(func(r lease.Refusal, n int64) { got[r.String()] = n })
		if !maps.Equal(got, want) {
			t.Errorf("after %s: %v, want %v", test.name, got, want)
		}
	}
	for _, path := range []string{"/v1/providers/acme/webhook", "/v1/triggers/trig_01K3ABCDEFGHJKMNPQRSTVWXYZ/receive"} {
		if status, out := ask(t, "POST", url+path, "", `{}`); status != 401 {
			t.Errorf("%s: %d %v", path, status, out)
		}
	}
	if jobs, triggers := s.Node.Jobs.Refused(), s.Triggers.Refused(); jobs != 1 || triggers != 1 {
		t.Errorf("%d webhooks of services and %d for triggers are counted, want 1 and 1", jobs, triggers)
	}
	p.close(s)
}
