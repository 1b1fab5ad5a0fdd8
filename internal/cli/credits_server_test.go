// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// The commands that show and move credits work over a server, with a key that may; one that may
// not is told so, and changes nothing.
func TestCreditsOverAServer(t *testing.T) {
	dir, address := shortDir(t), freeAddress(t)
	admin := strings.Repeat("operator-", 5)
	server := start(t, []string{"ROUX_ADMIN_KEY=" + admin, `ROUX_PRICES={"word-count":"4"}`}, "serve", "--data", dir, "--listen", address)
	c, err := client.New(client.Config{URL: "http://" + address, Key: admin})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{"admin": admin}
	for _, role := range []string{"viewer", "developer"} {
		k, err := c.Keys.Create(t.Context(), client.KeyRequest{Account: "acme", Name: role, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		keys[role] = k.Token
	}
	var run string
	for _, step := range []struct {
		key  string
		code int
		want string // in what is shown
		args string
	}{
		{"admin", 0, "100", "grant 100 --key first --account acme"},
		{"admin", 0, "100", "grant 100 --key first --account acme"}, // the same grant
		{"developer", fault.ExitForbidden, "FORBIDDEN", "grant 100 --key mine"},
		{"developer", 0, "available  96", "balance"}, // after the run
		{"viewer", 0, "available  96", "balance"},
		{"developer", fault.ExitForbidden, "FORBIDDEN", "adjust RUN 3 --key complaint"},
		{"viewer", fault.ExitForbidden, "FORBIDDEN", "adjust RUN 3 --key complaint"},
		{"viewer", 0, "available  96", "balance"},
		{"admin", 0, "acme has back 3 credits of run RUN", "adjust RUN 3 --account acme --key complaint"},
		{"admin", 0, "acme has back 3 credits of run RUN", "adjust RUN 3 --account acme --key complaint"}, // the same adjustment
		{"admin", fault.ExitConflict, "IDEMPOTENCY_MISMATCH", "adjust RUN 2 --account acme --key complaint"},
		{"viewer", 0, "available  99", "balance"},
		{"viewer", 0, "adjust   3", "ledger"},
		{"viewer", 0, "given back  3", "explain RUN"},
		{"developer", fault.ExitForbidden, "FORBIDDEN", "void first"},
		{"admin", 0, "99", "void first --account acme"},
		{"viewer", 0, "available  0", "balance"},
		{"admin", fault.ExitUsage, "--server", "reconcile --account acme"},
	} {
		if strings.HasPrefix(step.args, "balance") && run == "" {
			run = countedRun(t, address, keys["developer"])
		}
		args := strings.Fields(strings.ReplaceAll(step.args, "RUN", run))
		env := []string{"ROUX_DATA=" + shortDir(t), "ROUX_KEY=" + keys[step.key]}
		out, talk, code := roux(t, env, append([]string{"credits", "--server", "http://" + address}, args...)...)
		if want := strings.ReplaceAll(step.want, "RUN", run); code != step.code || !strings.Contains(out+talk, want) {
			t.Errorf("%s: roux credits %s: exit %d, want %d and %q\n%s%s", step.key, step.args, code, step.code, want, out, talk)
		}
	}
	server.stop()
	if out, talk, code := roux(t, []string{"ROUX_DATA=" + dir}, "credits", "reconcile", "--all"); code != 0 {
		t.Errorf("reconcile: exit %d\n%s%s", code, out, talk)
	}
}

// countedRun has a server run a recipe that costs 4 credits, and returns the id of the run.
func countedRun(t *testing.T, address, key string) string {
	t.Helper()
	c, err := client.New(client.Config{URL: "http://" + address, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	recipe := "name: counts\nversion: 1.0.0\nsteps:\n  - {id: count, action: {name: word-count, parameters: {text: two words}}}\n"
	if _, _, err := c.Recipes.Create(t.Context(), []byte(recipe)); err != nil {
		t.Fatal(err)
	}
	run, err := c.Recipes.Execute(t.Context(), "counts", client.ExecuteRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if out, talk, code := roux(t, []string{"ROUX_DATA=" + shortDir(t), "ROUX_KEY=" + key}, "events", run.ID, "--server", "http://"+address, "-f"); code != 0 || !strings.Contains(out, "run.completed") {
		t.Fatalf("exit %d: %s%s", code, out, talk)
	}
	return run.ID
}
