// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/internal/rest"
)

// operations are the methods of the client by the operation of the server that they ask for.
var operations = map[string]func(context.Context, *client.Client) error{
	"server-health":   func(ctx context.Context, c *client.Client) error { return c.Healthy(ctx) },
	"server-ready":    func(ctx context.Context, c *client.Client) error { return c.Ready(ctx) },
	"server-asyncapi": func(ctx context.Context, c *client.Client) error { return last(c.AsyncAPI(ctx)) },
	"server-openapi":  func(ctx context.Context, c *client.Client) error { return last(c.OpenAPI(ctx)) },
	"keys-whoami":     func(ctx context.Context, c *client.Client) error { return last(c.Me(ctx)) },
	"keys-create": func(ctx context.Context, c *client.Client) error {
		return last(c.Keys.Create(ctx, client.KeyRequest{}))
	},
	"keys-list":   func(ctx context.Context, c *client.Client) error { return drain(c.Keys.List(ctx)) },
	"keys-get":    func(ctx context.Context, c *client.Client) error { return last(c.Keys.Get(ctx, "x")) },
	"keys-revoke": func(ctx context.Context, c *client.Client) error { return last(c.Keys.Revoke(ctx, "x")) },

	"accounts-balance": func(ctx context.Context, c *client.Client) error { return last(c.Accounts.Credits(ctx, "x", noTime)) },
	"accounts-grant": func(ctx context.Context, c *client.Client) error {
		return last(c.Accounts.Grant(ctx, "x", client.Grant{Amount: 1}))
	},
	"accounts-void":   func(ctx context.Context, c *client.Client) error { return last(c.Accounts.Void(ctx, "x", "y", "")) },
	"credits-balance": func(ctx context.Context, c *client.Client) error { return last(c.Credits.Get(ctx, noTime)) },
	"credits-entries": func(ctx context.Context, c *client.Client) error { return drain(c.Credits.Entries(ctx)) },
	"credits-state":   func(ctx context.Context, c *client.Client) error { return last(c.Credits.State(ctx, noTime)) },
	"accounts-adjust": func(ctx context.Context, c *client.Client) error {
		return last(c.Accounts.Adjust(ctx, "x", client.AdjustmentRequest{RunID: "y", Amount: 1}))
	},
	"cache-list":   func(ctx context.Context, c *client.Client) error { return drain(c.Cache.List(ctx)) },
	"cache-clear":  func(ctx context.Context, c *client.Client) error { return last(c.Cache.Clear(ctx, "x")) },
	"feed-changes": func(ctx context.Context, c *client.Client) error { return last(c.Changes(ctx, 1, 2)) },
	"server-plan":  func(ctx context.Context, c *client.Client) error { return last(c.Operator.Plan(ctx, "x")) },
	"server-load":  func(ctx context.Context, c *client.Client) error { return last(c.Operator.Load(ctx)) },
	"server-clean": func(ctx context.Context, c *client.Client) error { return last(c.Operator.Clean(ctx, true)) },
	"server-backup": func(ctx context.Context, c *client.Client) error {
		_, err := c.Operator.Backup(ctx, "/x", func(client.BackupProgress) {})
		return ignored(err)
	},
	"credits-lots": func(ctx context.Context, c *client.Client) error { return drain(c.Credits.Lots(ctx)) },
	"actions-list": func(ctx context.Context, c *client.Client) error { return drain(c.Actions.List(ctx)) },
	"actions-call": func(ctx context.Context, c *client.Client) error {
		return last(c.Actions.Call(ctx, "x", "1", client.ExecuteRequest{}))
	},
	"actions-get": func(ctx context.Context, c *client.Client) error { return last(c.Actions.Get(ctx, "x", "1")) },

	"files-list": func(ctx context.Context, c *client.Client) error { return drain(c.Files.List(ctx, client.FileQuery{})) },
	"files-upload": func(ctx context.Context, c *client.Client) error {
		_, err := c.Files.Upload(ctx, strings.NewReader("x"), client.UploadOptions{Name: "x", Hash: "y"})
		return ignored(err)
	},
	"files-get":    func(ctx context.Context, c *client.Client) error { return last(c.Files.Get(ctx, "x")) },
	"files-delete": func(ctx context.Context, c *client.Client) error { return c.Files.Delete(ctx, "x") },
	"files-content": func(ctx context.Context, c *client.Client) error {
		r, err := c.Files.Open(ctx, "x", &client.Range{})
		if err == nil {
			err = r.Close()
		}
		return ignored(err)
	},

	"recipes-dependencies": func(ctx context.Context, c *client.Client) error { return last(c.Recipes.Dependencies(ctx, "x")) },
	"lenses-list":          func(ctx context.Context, c *client.Client) error { return drain(c.Lenses.List(ctx)) },
	"lenses-get":           func(ctx context.Context, c *client.Client) error { return last(c.Lenses.Get(ctx, "x", "1")) },
	"lenses-versions":      func(ctx context.Context, c *client.Client) error { return drain(c.Lenses.Versions(ctx, "x")) },
	"lenses-put": func(ctx context.Context, c *client.Client) error {
		_, _, err := c.Lenses.Put(ctx, "x", client.NewLens{Template: "y", Revision: 1})
		return err
	},
	"lenses-current": func(ctx context.Context, c *client.Client) error {
		return last(c.Lenses.SetCurrent(ctx, "x", "1", 1))
	},
	"lenses-delete": func(ctx context.Context, c *client.Client) error { return c.Lenses.Delete(ctx, "x") },

	"recipes-create": func(ctx context.Context, c *client.Client) error {
		_, _, err := c.Recipes.Create(ctx, []byte("x"))
		return err
	},
	"recipes-replace": func(ctx context.Context, c *client.Client) error {
		_, _, err := c.Recipes.Replace(ctx, "x", []byte("x"), 1)
		return err
	},
	"recipes-list": func(ctx context.Context, c *client.Client) error {
		return drain(c.Recipes.List(ctx, client.RecipeQuery{Status: "draft", Category: "x", Text: "y"}))
	},
	"recipes-get":      func(ctx context.Context, c *client.Client) error { return last(c.Recipes.Get(ctx, "x")) },
	"recipes-versions": func(ctx context.Context, c *client.Client) error { return drain(c.Recipes.Versions(ctx, "x")) },
	"recipes-source":   func(ctx context.Context, c *client.Client) error { return last(c.Recipes.Source(ctx, "x")) },
	"recipes-diff":     func(ctx context.Context, c *client.Client) error { return last(c.Recipes.Diff(ctx, "x", "1")) },
	"recipes-deprecate": func(ctx context.Context, c *client.Client) error {
		if _, err := c.Recipes.Activate(ctx, "x"); err != nil {
			return err
		}
		return last(c.Recipes.Deprecate(ctx, "x", client.Deprecation{Note: "why"}))
	},
	"recipes-delete":   func(ctx context.Context, c *client.Client) error { return c.Recipes.Delete(ctx, "x") },
	"recipes-check":    func(ctx context.Context, c *client.Client) error { return last(c.Recipes.Check(ctx, []byte("x"))) },
	"recipes-validate": func(ctx context.Context, c *client.Client) error { return last(c.Recipes.Validate(ctx, "x")) },
	"executions-start": func(ctx context.Context, c *client.Client) error {
		return last(c.Recipes.Execute(ctx, "x", client.ExecuteRequest{}))
	},
	"executions-estimate": func(ctx context.Context, c *client.Client) error {
		return last(c.Recipes.Estimate(ctx, "x", client.ExecuteRequest{}))
	},

	"executions-list": func(ctx context.Context, c *client.Client) error {
		return drain(c.Runs.List(ctx, client.RunQuery{Status: "failed", Recipe: "x", Parent: "y", Text: "z", Labels: map[string]string{"a": "b"}, Deleted: true, PageSize: 3, Fields: []string{"id"}}))
	},
	"executions-get": func(ctx context.Context, c *client.Client) error {
		if _, err := c.Runs.Get(ctx, "x", true); err != nil {
			return err
		}
		return last(c.Runs.GetParts(ctx, "x", client.RunParts{Outputs: true, Steps: true, Ledger: true, Fields: []string{"id", "steps"}}))
	},
	"executions-delete": func(ctx context.Context, c *client.Client) error { return c.Runs.Delete(ctx, "x") },
	"executions-cancel": func(ctx context.Context, c *client.Client) error {
		return last(c.Runs.Cancel(ctx, "x", client.Reason{}))
	},
	"executions-pause": func(ctx context.Context, c *client.Client) error {
		return last(c.Runs.Pause(ctx, "x", client.Reason{}))
	},
	"executions-unpause": func(ctx context.Context, c *client.Client) error {
		return last(c.Runs.Unpause(ctx, "x", client.Reason{}))
	},
	"executions-handover": func(ctx context.Context, c *client.Client) error {
		return last(c.Runs.HandOver(ctx, client.Handover{}))
	},
	"executions-continue": func(ctx context.Context, c *client.Client) error { return last(c.Runs.Continue(ctx, "x")) },
	"executions-release": func(ctx context.Context, c *client.Client) error {
		return last(c.Runs.Release(ctx, "x", client.Reason{}))
	},
	"executions-retry": func(ctx context.Context, c *client.Client) error {
		if _, err := c.Runs.RetryPlan(ctx, "x", client.RetryRequest{}); err != nil {
			return err
		}
		return last(c.Runs.Retry(ctx, "x", client.RetryRequest{}))
	},
	"executions-signal": func(ctx context.Context, c *client.Client) error {
		return last(c.Runs.Signal(ctx, "x", client.Signal{Name: "y"}))
	},
	"executions-explain": func(ctx context.Context, c *client.Client) error { return last(c.Runs.Explain(ctx, "x", "y")) },
	"executions-ledger":  func(ctx context.Context, c *client.Client) error { return last(c.Runs.Ledger(ctx, "x")) },
	"executions-journal": func(ctx context.Context, c *client.Client) error {
		if _, err := c.Runs.Snapshot(ctx, "x"); err != nil {
			return err
		}
		return last(c.Runs.Journal(ctx, "x", 1, 2))
	},
	"executions-heads": func(ctx context.Context, c *client.Client) error {
		return last(c.Runs.Heads(ctx, client.HeadQuery{Prefix: "run_", Parent: "x", Root: "y", All: true, Status: "queued", Recipe: "z", CreatedAfter: time.Unix(1, 0), After: "run_1", Limit: 3}))
	},
	"executions-plan": func(ctx context.Context, c *client.Client) error { return last(c.Runs.Plan(ctx, "x")) },
	"executions-tags": func(ctx context.Context, c *client.Client) error { return drain(c.Runs.Tags(ctx, "x")) },
	"executions-events": func(ctx context.Context, c *client.Client) error {
		return drain(c.Runs.Events(ctx, "x", client.EventOptions{After: 1, Types: []string{"node.*"}, Every: true}))
	},
	"workflows-events": func(ctx context.Context, c *client.Client) error {
		return drain(c.Runs.FlowEvents(ctx, "x", client.EventOptions{}))
	},
	"workflows-create": func(ctx context.Context, c *client.Client) error { return last(c.Workflows.Create(ctx, []byte("x"))) },
	"workflows-trigger": func(ctx context.Context, c *client.Client) error {
		return last(c.Workflows.Trigger(ctx, "x", client.WorkflowTrigger{}))
	},
	"workflows-execute": func(ctx context.Context, c *client.Client) error {
		return last(c.Workflows.Execute(ctx, client.WorkflowExecution{WorkflowID: "x"}, ""))
	},
	"workflows-get":     func(ctx context.Context, c *client.Client) error { return last(c.Workflows.Get(ctx, "x")) },
	"workflows-results": func(ctx context.Context, c *client.Client) error { return last(c.Workflows.Results(ctx, "x")) },
	"workflows-stop":    func(ctx context.Context, c *client.Client) error { return last(c.Runs.Stop(ctx, "x", client.Reason{})) },
	"jobs-get":          func(ctx context.Context, c *client.Client) error { return last(c.Jobs.Get(ctx, "x", 1)) },
	"jobs-graph":        func(ctx context.Context, c *client.Client) error { return last(c.Jobs.Graph(ctx, "x", 1)) },
	"jobs-delete":       func(ctx context.Context, c *client.Client) error { return last(c.Jobs.Delete(ctx, "x")) },
	"jobs-events": func(ctx context.Context, c *client.Client) error {
		return drain(c.Jobs.Events(ctx, "x", client.EventOptions{}))
	},
	"approvals-list": func(ctx context.Context, c *client.Client) error { return drain(c.Approvals.List(ctx)) },
	"approvals-get":  func(ctx context.Context, c *client.Client) error { return last(c.Approvals.Get(ctx, "x")) },
	"approvals-answer": func(ctx context.Context, c *client.Client) error {
		return last(c.Approvals.Answer(ctx, "x", client.Decision{Decision: "approved"}))
	},
	"approvals-link": func(ctx context.Context, c *client.Client) error {
		return last(c.Approvals.Link(ctx, "x", client.NewApprovalLink{For: "y"}))
	},
	"triggers-create": func(ctx context.Context, c *client.Client) error {
		return last(c.Triggers.Create(ctx, client.NewTrigger{}))
	},
	"triggers-list": func(ctx context.Context, c *client.Client) error { return drain(c.Triggers.List(ctx)) },
	"triggers-get":  func(ctx context.Context, c *client.Client) error { return last(c.Triggers.Get(ctx, "x")) },
	"triggers-rotate": func(ctx context.Context, c *client.Client) error {
		return last(c.Triggers.Rotate(ctx, "x", client.NewTriggerSecret{Secret: "s"}))
	},
	"triggers-pause":   func(ctx context.Context, c *client.Client) error { return last(c.Triggers.Pause(ctx, "x")) },
	"triggers-resume":  func(ctx context.Context, c *client.Client) error { return last(c.Triggers.Resume(ctx, "x")) },
	"triggers-delete":  func(ctx context.Context, c *client.Client) error { return c.Triggers.Delete(ctx, "x") },
	"triggers-history": func(ctx context.Context, c *client.Client) error { return drain(c.Triggers.History(ctx, "x")) },
	"triggers-test": func(ctx context.Context, c *client.Client) error {
		return last(c.Triggers.Test(ctx, "x", client.TriggerSample{}))
	},
	"schedules-create": func(ctx context.Context, c *client.Client) error {
		return last(c.Schedules.Create(ctx, client.NewSchedule{}))
	},
	"providers-jobs-list": func(ctx context.Context, c *client.Client) error {
		return drain(c.ExternalJobs.List(ctx, client.JobQuery{Provider: "x", State: "waiting"}))
	},
	"providers-jobs-get":  func(ctx context.Context, c *client.Client) error { return last(c.ExternalJobs.Get(ctx, "x", "y")) },
	"providers-jobs-poll": func(ctx context.Context, c *client.Client) error { return last(c.ExternalJobs.Poll(ctx, "x", "y")) },
	"schedules-list":      func(ctx context.Context, c *client.Client) error { return drain(c.Schedules.List(ctx)) },
	"schedules-get":       func(ctx context.Context, c *client.Client) error { return last(c.Schedules.Get(ctx, "x")) },
	"schedules-pause":     func(ctx context.Context, c *client.Client) error { return last(c.Schedules.Pause(ctx, "x")) },
	"schedules-resume":    func(ctx context.Context, c *client.Client) error { return last(c.Schedules.Resume(ctx, "x")) },
	"schedules-delete":    func(ctx context.Context, c *client.Client) error { return c.Schedules.Delete(ctx, "x") },
	"schedules-run":       func(ctx context.Context, c *client.Client) error { return last(c.Schedules.Run(ctx, "x")) },
	"workers-lease": func(ctx context.Context, c *client.Client) error {
		_, err := c.Workers.Lease(ctx, client.LeaseRequest{Queue: "q"})
		return err
	},
	"workers-heartbeat": func(ctx context.Context, c *client.Client) error {
		_, err := c.Workers.Heartbeat(ctx, []string{"x"}, nil)
		return err
	},
	"workers-results": func(ctx context.Context, c *client.Client) error {
		_, err := c.Workers.Results(ctx, []client.WorkerResult{{Lease: "x"}})
		return err
	},
	"schedules-next":    func(ctx context.Context, c *client.Client) error { return drain(c.Schedules.Next(ctx, "x", 3)) },
	"schedules-history": func(ctx context.Context, c *client.Client) error { return drain(c.Schedules.History(ctx, "x")) },
	"webhooks-create": func(ctx context.Context, c *client.Client) error {
		return last(c.Webhooks.Create(ctx, client.WebhookChange{}))
	},
	"webhooks-rotate": func(ctx context.Context, c *client.Client) error {
		return last(c.Webhooks.Rotate(ctx, "x", client.Rotation{}))
	},
	"webhooks-list": func(ctx context.Context, c *client.Client) error { return drain(c.Webhooks.List(ctx)) },
	"webhooks-get":  func(ctx context.Context, c *client.Client) error { return last(c.Webhooks.Get(ctx, "x")) },
	"webhooks-update": func(ctx context.Context, c *client.Client) error {
		return last(c.Webhooks.Update(ctx, "x", client.WebhookChange{}, `"1"`))
	},
	"webhooks-delete":      func(ctx context.Context, c *client.Client) error { return c.Webhooks.Delete(ctx, "x", `"1"`) },
	"webhooks-public-keys": func(ctx context.Context, c *client.Client) error { return drain(c.Webhooks.PublicKeys(ctx, "x")) },
	"webhooks-deliveries":  func(ctx context.Context, c *client.Client) error { return drain(c.Webhooks.Deliveries(ctx, "x")) },
	"webhooks-delivery":    func(ctx context.Context, c *client.Client) error { return last(c.Webhooks.Delivery(ctx, "x", "y")) },
	"webhooks-resend":      func(ctx context.Context, c *client.Client) error { return last(c.Webhooks.Resend(ctx, "x", "y")) },
	"webhooks-test":        func(ctx context.Context, c *client.Client) error { return last(c.Webhooks.Test(ctx, "x")) },
	"accounts-list":        func(ctx context.Context, c *client.Client) error { return drain(c.Accounts.List(ctx)) },
	"accounts-get":         func(ctx context.Context, c *client.Client) error { return last(c.Accounts.Get(ctx, "x")) },
	"accounts-replace": func(ctx context.Context, c *client.Client) error {
		return last(c.Accounts.Replace(ctx, "x", client.AccountSettings{}, `"1"`))
	},
	"accounts-update": func(ctx context.Context, c *client.Client) error {
		return last(c.Accounts.Update(ctx, "x", client.AccountSettings{}, ""))
	},
	"account-get":    func(ctx context.Context, c *client.Client) error { return last(c.Account(ctx)) },
	"secrets-list":   func(ctx context.Context, c *client.Client) error { return drain(c.Secrets.List(ctx)) },
	"secrets-set":    func(ctx context.Context, c *client.Client) error { return last(c.Secrets.Set(ctx, "x", "y")) },
	"secrets-delete": func(ctx context.Context, c *client.Client) error { return c.Secrets.Delete(ctx, "x") },
	"keys-rotate":    func(ctx context.Context, c *client.Client) error { return last(c.Keys.Rotate(ctx, "x", time.Hour)) },
	"bulk-create": func(ctx context.Context, c *client.Client) error {
		if _, err := c.Bulks.Preview(ctx, client.BulkRequest{}); err != nil {
			return err
		}
		return last(c.Bulks.Create(ctx, client.BulkRequest{}))
	},
	"bulk-list":   func(ctx context.Context, c *client.Client) error { return drain(c.Bulks.List(ctx)) },
	"bulk-get":    func(ctx context.Context, c *client.Client) error { return last(c.Bulks.Get(ctx, "x")) },
	"bulk-items":  func(ctx context.Context, c *client.Client) error { return drain(c.Bulks.Items(ctx, "x")) },
	"bulk-cancel": func(ctx context.Context, c *client.Client) error { return last(c.Bulks.Cancel(ctx, "x")) },
	"feed-events": func(ctx context.Context, c *client.Client) error { return drain(c.Feed(ctx, 1)) },
}

// without are operations that need no method.
var without = map[string]string{
	"triggers-receive":          "for senders, which sign what they send",
	"providers-webhook":         "for services, which sign what they send",
	"server-errors":             "a page for people",
	"server-docs":               "a page for people",
	"approvals-open":            "a page for people",
	"approvals-decide":          "what that page sends",
	"executions-estimate-query": "Estimate asks with POST, which takes every input",
	"socket-events":             "for pages in browsers; Events and Feed follow with less",
}

func last[T any](_ T, err error) error { return err }

func drain[T any](seq iter.Seq2[T, error]) error {
	for _, err := range seq {
		if err != nil {
			return err
		}
	}
	return nil
}

// ignored drops an error of the answer, which the recorder cannot give.
func ignored(error) error { return nil }

// A document is what the tests need of the OpenAPI document.
type document struct {
	Paths map[string]map[string]struct {
		ID         string `json:"operationId"`
		Parameters []struct {
			Name string `json:"name"`
			In   string `json:"in"`
		} `json:"parameters"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"schemas"`
	} `json:"components"`
}

func golden(t *testing.T) *document {
	t.Helper()
	data, err := os.ReadFile("../internal/api/testdata/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	d := new(document)
	if err := json.Unmarshal(data, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Every operation of the server has a method, which asks for that operation with parameters
// that it has: a new operation fails this test until the client has it.
func TestEveryOperationHasAMethod(t *testing.T) {
	var seen []*http.Request
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r)
		if strings.Contains(r.Header.Get("Accept"), "event-stream") {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer web.Close()
	c := open(t, client.Config{URL: web.URL})
	known := map[string]bool{}
	for path, methods := range golden(t).Paths {
		pattern := regexp.MustCompile("^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + "$")
		for method, o := range methods {
			known[o.ID] = true
			ask := operations[o.ID]
			switch {
			case ask == nil && without[o.ID] == "":
				t.Errorf("%s %s: the client has no method for the operation %s", method, path, o.ID)
			case ask == nil:
			case without[o.ID] != "":
				t.Errorf("%s has a method", o.ID)
			default:
				seen = nil
				ctx, cancel := context.WithCancel(t.Context())
				if err := ask(ctx, c); err != nil {
					t.Errorf("%s: %v", o.ID, err)
				}
				cancel()
				if len(seen) == 0 {
					t.Errorf("%s: no request", o.ID)
				}
				for _, r := range seen {
					if !strings.EqualFold(r.Method, method) || !pattern.MatchString(r.URL.Path) {
						t.Errorf("%s: the method asks for %s %s, want %s %s", o.ID, r.Method, r.URL.Path, method, path)
					}
					for name := range r.URL.Query() {
						if prefix, _, ok := strings.Cut(name, "."); ok {
							name = prefix + ".{key}"
						}
						if !slices.ContainsFunc(o.Parameters, func(p struct {
							Name string `json:"name"`
							In   string `json:"in"`
						}) bool {
							return p.In == "query" && p.Name == name
						}) {
							t.Errorf("%s has no parameter %s", o.ID, name)
						}
					}
				}
			}
		}
	}
	for id := range maps.Keys(operations) {
		if !known[id] {
			t.Errorf("the server has no operation %s", id)
		}
	}
}

// schemas are the types of the client by the schema that they read or write.
var schemas = map[string]any{
	"Accepted": client.Started{}, "AccountCredits": client.AccountCredits{}, "ActionResource": client.Action{}, "Balance": client.Balance{}, "Budget": client.EstimateDetail{},
	"CreateKeyInBody": client.KeyRequest{}, "Credits": client.RunCredits{}, "Edge": client.Edge{}, "Entry": client.Entry{}, "Error": client.RunError{}, "Estimate": client.Estimate{},
	"ExecuteRequest": client.ExecuteRequest{}, "Execution": client.Run{}, "ExecutionPart": client.Run{}, "ExecutionSummaryPart": client.RunSummary{}, "StepState": client.StepState{}, "ExecutionSummary": client.RunSummary{}, "FileResource": client.File{}, "GrantInBody": client.Grant{},
	"Graph": client.Graph{}, "Input": client.RunInput{}, "Job": client.Job{}, "KeyLimit": client.KeyLimit{}, "KeyResource": client.Key{}, "Limits": client.RunLimits{}, "Lot": client.Lot{},
	"LotAmount": client.LotAmount{}, "Me": client.Principal{}, "NewKey": client.NewKey{}, "Node": client.Node{}, "Operation": client.Operation{}, "Progress": client.Progress{},
	"Problem": client.Problem{}, "ProblemError": client.ProblemError{}, "Quarantine": client.Quarantine{}, "ReasonInBody": client.Reason{}, "RecipeDiff": client.RecipeDiff{},
	"RecipeSummary": client.Recipe{}, "RetryRequest": client.RetryRequest{}, "SignalInBody": client.Signal{}, "StepMetadata": client.StepMetadata{}, "StepOutcome": client.StepOutcome{},
	"StepOutcomes": client.StepOutcomes{}, "StepResult": client.StepResult{}, "Tag": client.Tag{}, "Validation": client.Validation{}, "WaitingFor": client.WaitingFor{},
	"Adjusted": client.Adjustment{}, "Bill": client.Bill{}, "Charge": client.Charge{}, "Dependency": client.Dependency{}, "ExecutionExplanation": client.Explanation{},
	"Extension": client.Extension{}, "RetryPlan": client.RetryPlan{}, "RunJournal": client.RunJournal{}, "RunHead": client.RunHead{}, "AdjustInBody": client.AdjustmentRequest{}, "Removed": client.Removed{}, "StoredChange": client.StoredChange{}, "Changes": client.Changes{}, "Fact": client.Fact{}, "GenerationBill": client.GenerationBill{}, "Part": client.LotAmount{}, "Standing": client.BudgetUse{}, "StepExplanation": client.StepExplanation{},
	"BulkFilter": client.BulkFilter{}, "BulkGroup": client.BulkGroup{}, "BulkItem": client.BulkItem{}, "BulkRequest": client.BulkRequest{}, "BulkResource": client.Bulk{},
	"NewWebhook": client.NewWebhook{}, "WebhookAttempt": client.DeliveryAttempt{}, "WebhookDelivery": client.Delivery{}, "WebhookKey": client.WebhookKey{},
	"NewTrigger": client.NewTrigger{}, "TriggerResource": client.Trigger{}, "TriggerSignature": client.TriggerSignature{}, "TriggerDelivery": client.TriggerDelivery{},
	"TriggerPrevious": client.TriggerPrevious{}, "NewTriggerSecret": client.NewTriggerSecret{}, "TriggerSample": client.TriggerSample{}, "TriggerTrial": client.TriggerTrial{},
	"ActionUsage": client.CachedAction{}, "Cleared": struct {
		Removed int `json:"removed"`
	}{},
	"ExternalJob": client.ExternalJob{}, "JobPoll": client.JobPoll{}, "JobDelivery": client.JobDelivery{},
	"ApprovalResource": client.Approval{}, "ApprovalAnswer": client.ApprovalAnswer{}, "ApprovalDefault": client.ApprovalDefault{}, "ApprovalLink": client.ApprovalLink{}, "NewApprovalAnswer": client.Decision{}, "NewApprovalLink": client.NewApprovalLink{},
	"NewSchedule": client.NewSchedule{}, "ScheduleResource": client.Schedule{}, "ScheduleFiring": client.ScheduleFiring{}, "ScheduleTime": client.ScheduleTime{},
	"RecipeDependencies": client.RecipeDependencies{}, "RecipeUse": client.RecipeUse{}, "RecipeUser": client.RecipeUser{},
	"LensResource": client.Lens{}, "LensContracts": client.LensContracts{}, "NewLens": client.NewLens{},
	"LeaseRequest": client.LeaseRequest{}, "WorkerTask": client.WorkerTask{}, "WorkerReport": client.WorkerReport{}, "WorkerResult": client.WorkerResult{}, "WorkerFailure": client.WorkerFailure{}, "WorkerJob": client.WorkerJob{},
	"WorkerOutcome": client.WorkerOutcome{},
	"Workflow":      client.Workflow{}, "WorkflowNode": client.WorkflowNode{}, "WorkflowTrigger": client.WorkflowTrigger{}, "WorkflowTriggered": client.WorkflowTriggered{}, "WorkflowExecution": client.WorkflowExecution{}, "WorkflowExecuted": client.WorkflowExecuted{}, "WorkflowResults": client.WorkflowResults{},
	"Settings": client.AccountSettings{}, "AccountLimits": client.AccountLimits{}, "AccountUsage": client.AccountUsage{}, "AccountResource": client.Account{}, "OwnAccount": client.OwnAccount{},
	"DayBudget": client.DayBudget{}, "SecretResource": client.Secret{}, "KeyUsage": client.KeyUsage{}, "WebhookResource": client.Webhook{}, "WebhookRotateInBody": client.Rotation{}, "WebhookText": client.WebhookChange{},
	"ServerLoad": client.ServerLoad{}, "RunLoad": client.RunLoad{}, "AccountLoad": client.AccountLoad{}, "AttemptLoad": client.AttemptLoad{}, "LimitLoad": client.LimitLoad{}, "CommitLoad": client.CommitLoad{},
	"Waiting": client.Waiting{}, "WaitedStep": client.WaitedStep{}, "QueueLoad": client.QueueLoad{}, "MemoryLoad": client.MemoryLoad{}, "StoreLoad": client.StoreLoad{}, "RecentFailure": client.RecentFailure{},
}

// unread are fields that the client leaves out on purpose.
var unread = map[string]string{
	"Problem.instance":     "the path that the client has asked for",
	"Problem.legacyCode":   "the name that Code had in the source",
	"Problem.retryAfter":   "the client reads the header Retry-After, which proxies send, too",
	"Problem.type":         "a page that explains Code",
	"RetryRequest.dryRun":  "the method RetryPlan sets it",
	"BulkRequest.dryRun":   "the method Preview sets it",
	"ExecuteRequest.async": "the field Wait sends the header Prefer, which says how long",
}

// aside are schemas that are no types of the client.
var aside = regexp.MustCompile(`^(Page.*|Health|Metadata|TypeDefinition|BranchCondition|DurationRange|DeprecateInBody|VoidInBody|RotateKeyInBody|SetSecretInBody|RunHeads|CreditState|Adjustment|BackupInBody|WorkerTasks|WorkerHeartbeat|EndedLeases|WorkerResults|WorkerOutcomes|TriggerReceived|CurrentLens)$`)

// Every field of the server's answers and requests is one of the client's types.
func TestEveryFieldIsKnown(t *testing.T) {
	for name, schema := range golden(t).Components.Schemas {
		v, ok := schemas[name]
		if !ok {
			if !aside.MatchString(name) {
				t.Errorf("no type of the client has the schema %s", name)
			}
			continue
		}
		mine := fields(reflect.TypeOf(v))
		for field := range schema.Properties {
			if !slices.Contains(mine, field) && unread[name+"."+field] == "" {
				t.Errorf("%T has no field %s of the schema %s", v, field, name)
			}
		}
		for _, field := range mine {
			if _, ok := schema.Properties[field]; !ok {
				t.Errorf("%T has a field %s, which the schema %s has not", v, field, name)
			}
		}
	}
}

// A problem document is read with all that it says to a program.
func TestEveryFieldOfAProblem(t *testing.T) {
	mine := fields(reflect.TypeFor[client.Problem]())
	for _, field := range fields(reflect.TypeFor[rest.Problem]()) {
		switch field {
		case "type", "instance", "legacyCode", "retryAfter": // for people; known; for clients of the source; read from the header
		default:
			if !slices.Contains(mine, field) {
				t.Errorf("a Problem has no field %s", field)
			}
		}
	}
}

func fields(t reflect.Type) (list []string) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			list = append(list, name)
		}
	}
	return list
}
