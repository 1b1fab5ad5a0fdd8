// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// Each command says how it treats a server.
func TestEveryCommandTreatsAServer(t *testing.T) {
	root := (&app{getenv: func(string) string { return "" }}).command()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if serverUse(cmd) == "" {
			t.Errorf("%s: overServer does not say how it treats a server", cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
}

const asksServer = `name: asks
version: 1.0.0
inputSchema: {type: object, properties: {name: {type: string}, token: {type: string, writeOnly: true}}}
steps:
  - {id: hello, transform: {expression: "'Hello ' + input.name + input.token", outputBinding: greeting}}
  - {id: ask, wait: {signal: approved}, outputBinding: answer}
outputs: {greeting: greeting}
`

// Commands show over a server what they show in its data directory, in each form.
func TestCommandsOverAServer(t *testing.T) {
	dir, address := shortDir(t), freeAddress(t)
	key := strings.Repeat("operator-", 5)
	server := start(t, []string{"ROUX_ADMIN_KEY=" + key}, "serve", "--data", dir, "--listen", address, "-v")
	c, err := client.New(client.Config{URL: "http://" + address, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Recipes.Create(t.Context(), []byte(asksServer)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Lenses.Put(t.Context(), "greet", client.NewLens{Template: "Greet {{ name }}"}); err != nil {
		t.Fatal(err)
	}
	run, err := c.Recipes.Execute(t.Context(), "asks", client.ExecuteRequest{Parameters: map[string]any{"name": "Ana", "token": "hush-hush"}})
	if err != nil {
		t.Fatal(err)
	}
	here := []string{"ROUX_DATA=" + dir}
	there := []string{"ROUX_DATA=" + shortDir(t), "ROUX_SERVER=http://" + address, "ROUX_KEY=" + key}
	same := func(args ...string) {
		t.Helper()
		want, said, code := roux(t, here, args...)
		got, talk, end := roux(t, there, args...)
		if got != want || code != end || code != 0 {
			t.Errorf("roux %s: over the server, exit %d:\n%s%s\nin its directory, exit %d:\n%s%s", strings.Join(args, " "), end, got, talk, code, want, said)
		}
		if strings.Contains(got, "hush-hush") {
			t.Errorf("roux %s shows a value that is marked:\n%s", strings.Join(args, " "), got)
		}
	}
	all := func() {
		t.Helper()
		id := run.ID[:len(run.ID)-3]
		for _, args := range [][]string{
			{"runs", "list", "--time", "iso", "-o", "json"}, {"runs", "get", "@last", "--time", "iso", "-o", "json"}, {"events", id}, {"events", "@last", "-o", "jsonl"}, {"events", "@last", "--after", "2", "-o", "yaml"},
			{"explain", "@last"}, {"explain", "@last", "ask", "-o", "json"}, {"graph", "@last"}, {"logs", run.ID}, {"replay", "@last", "--at", "3", "-o", "json"},
			{"credits", "explain", "@last"}, {"credits", "ledger", "-o", "json"}, {"feed", "-o", "jsonl"}, {"feed", "--after", "1", "--limit", "2", "--time", "iso"}, {"files", "ls", "-o", "json"}, {"secrets", "list", "-o", "json"}, {"jobs", "list", "-o", "json"}, {"lenses", "list", "-o", "json"}, {"lenses", "show", "greet", "-o", "json"}, {"lenses", "versions", "greet", "-o", "yaml"}, {"cache", "-o", "json"}, {"files", "gc", "--dry-run", "-o", "json"}, {"runs", "list", "--children", run.ID, "-o", "json"},
		} {
			same(args...)
		}
	}
	all()
	if out, talk, code := roux(t, there, "runs", "signal", "@last", "approved", "--payload", `{"by": "ana"}`); code != 0 || !strings.Contains(out, `has the signal "approved"`) {
		t.Fatalf("exit %d: %s%s", code, out, talk)
	}
	if out, talk, code := roux(t, there, "events", "@last", "-f"); code != 0 || !strings.Contains(out, "run.completed") {
		t.Fatalf("exit %d: %s%s", code, out, talk)
	}
	all()
	same("trace", "@last", "-o", "json")
	same("trace", "@last", "--runs", "-o", "json")
	same("trace", "@last", "--folded", "own")
	for _, env := range [][]string{here, there} {
		top := object[topView](t, env, "top", "--once")
		if top.AtRest || top.Runs.Live != 0 || !top.Runs.Complete || top.Commits.Total == 0 || top.Version != thisBuild().Version {
			t.Errorf("roux top says %+v", top)
		}
	}
	for _, change := range []struct {
		code int
		args []string
	}{
		{0, []string{"runs", "retry", "@last", "--from", "ask"}}, {0, []string{"runs", "pause", "@last"}}, {0, []string{"runs", "unpause", "@last"}},
		{0, []string{"runs", "cancel", "@last", "--reason", "enough"}}, {fault.ExitConflict, []string{"runs", "pause", "@last"}},
	} {
		if out, talk, code := roux(t, there, change.args...); code != change.code {
			t.Errorf("roux %s: exit %d, want %d: %s%s", strings.Join(change.args, " "), code, change.code, out, talk)
		}
	}
	for code, args := range map[int][]string{
		fault.ExitUsage: {"resume"}, fault.ExitNotFound: {"runs", "get", "run_" + strings.Repeat("0", 26)}, fault.ExitForbidden: {"runs", "list", "--server", "http://" + address + "/"},
	} {
		env := there
		if code == fault.ExitForbidden {
			env = append(env, "ROUX_KEY=roux_other")
		}
		if out, talk, end := roux(t, env, args...); end != code {
			t.Errorf("roux %s: exit %d, want %d: %s%s", strings.Join(args, " "), end, code, out, talk)
		}
	}
	for _, args := range [][]string{{"jobs", "list"}, {"jobs", "poll", "farm/1"}, {"cache"}, {"cache", "clear"}} { // the server is asked, and not the directory
		if out, talk, code := roux(t, append(there, "ROUX_KEY=roux_other"), args...); code != fault.ExitForbidden {
			t.Errorf("roux %s: exit %d: %s%s", strings.Join(args, " "), code, out, talk)
		}
	}
	server.stop()
}
