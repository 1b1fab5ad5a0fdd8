// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// paidCopy pays 2 credits, reserves 10 unless less is allowed, and copies its first file.
const paidCopy = `name: paid
version: 1.0.0
inputSchema: {type: object, required: [n], properties: {n: {type: integer}}}
creditEstimation: {strategy: fixed, fixedCredits: 8, maxCredits: 10}
steps:
  - {id: pay, action: {name: effect, parameters: {n: '{{ input.n }}'}}}
  - {id: copy, action: {name: copy-file, parameters: {file: '{{ fileHashes[0] }}', name: copied.txt}}}
outputs: {n: input.n, file: steps.copy.output.file}
`

// paidRun is what the tests read of the result of a run of paidCopy.
type paidRun struct {
	ID, Status string
	Outputs    struct{ N int }
	Credits    struct{ Reserved, Used int }
	Saved      []struct{ Path string }
}

// copied fails the test unless a run of paidCopy has had what it was started with.
func (r *paidRun) copied(t *testing.T, n, reserved int, into string) {
	t.Helper()
	if r.Status != "completed" || r.Outputs.N != n || r.Credits.Reserved != reserved || r.Credits.Used != 2 {
		t.Errorf("the run is %+v; want n %d and %d credits reserved", r, n, reserved)
	}
	if text, err := os.ReadFile(filepath.Join(into, "copied.txt")); err != nil || string(text) != "xa report" {
		t.Errorf("the file that was saved: %q, %v", text, err)
	}
}

// A run over a server has the input, the files and the limit of the command, ends with its exit
// code, and is that of the account of the key.
func TestRunOverAServer(t *testing.T) {
	dir, address := shortDir(t), freeAddress(t)
	recipe, report, into := write(t, "paid.yaml", paidCopy), write(t, "report.txt", "a report"), t.TempDir()
	key := strings.Repeat("operator-", 5)
	server := start(t, []string{"ROUX_ADMIN_KEY=" + key, "EFFECTS=" + filepath.Join(t.TempDir(), "effects")}, "serve", "--data", dir, "--listen", address)
	c, err := client.New(client.Config{URL: "http://" + address, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	operator := []string{"ROUX_DATA=" + shortDir(t), "ROUX_SERVER=http://" + address, "ROUX_KEY=" + key}
	does := func(env []string, want int, part string, args ...string) {
		t.Helper()
		if out, talk, code := roux(t, env, args...); code != want || !strings.Contains(out+talk, part) {
			t.Errorf("roux %s: exit %d, want %d and %q: %s%s", strings.Join(args, " "), code, want, part, out, talk)
		}
	}
	token, talk, code := roux(t, operator, "keys", "create", "ci", "--role", "owner", "--account", "acme", "-q")
	if code != fault.ExitOK {
		t.Fatal(talk)
	}
	acme := []string{operator[0], operator[1], "ROUX_KEY=" + strings.TrimSpace(token)}
	if keys := object[[]struct{ Account, Name string }](t, acme, "keys", "list"); len(keys) != 1 || keys[0].Account != "acme" || keys[0].Name != "ci" {
		t.Errorf("the keys of acme are %+v", keys)
	}

	args := []string{"run", recipe, "--input", "n=3", "--file", report}
	does(acme, fault.ExitCredits, "missing", append(args, "--dry-run")...)
	does(acme, fault.ExitCredits, "INSUFFICIENT_CREDITS", args...)
	does(operator, fault.ExitOK, "acme", "credits", "grant", "100", "--account", "acme")
	does(acme, fault.ExitOK, "nothing was run", append(args, "--dry-run")...)
	if e := object[struct{ CreditsReserved, BalanceAfter int }](t, acme, "estimate", "paid@1.0.0", "--input", "n=3", "--file", report); e.CreditsReserved != 10 || e.BalanceAfter != 90 {
		t.Errorf("the estimate is %+v", e)
	}
	does(acme, fault.ExitOK, "no runs here yet", "runs", "list")
	r := object[paidRun](t, acme, append(args, "--max-credits", "7", "--save", into)...)
	r.copied(t, 3, 7, into)
	does(acme, fault.ExitUsage, "n", "run", "paid", "--file", report)
	does(acme, fault.ExitFailed, "failed", "run", "paid", "--input", "n=1") // it has no file

	// A version that has run never changes; nothing beside it is registered either.
	more := t.TempDir()
	for name, text := range map[string]string{"paid.yaml": strings.Replace(paidCopy, "copied.txt", "other.txt", 1), "also.yaml": strings.Replace(plainRecipe, "name: plain", "name: also\nversion: 1.0.0", 1)} {
		if err := os.WriteFile(filepath.Join(more, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	does(acme, fault.ExitConflict, "has run with another text", "apply", more)
	does(acme, fault.ExitNotFound, "no recipe of that name", "recipes", "get", "also")
	does(acme, fault.ExitConflict, "has run with another text", "run", filepath.Join(more, "paid.yaml"), "--input", "n=1")
	if feed := object[[]struct{ ID int }](t, acme, "feed", "--after", "1", "--limit", "1"); len(feed) != 1 || feed[0].ID != 2 {
		t.Errorf("the feed has %+v", feed)
	}
	server.stop()
}
