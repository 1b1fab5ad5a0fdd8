// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/approval"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) approvalsCommand() *cobra.Command {
	list := a.listApprovalsCommand()
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "Answer what runs ask people, and make links for others to answer",
		Long: "Answer what runs ask people (`wait: {approval: …}`), and make links for others to answer. Without a further word it lists what is open. " +
			"A request is named by its id, the beginning of it, or its run if that has one open request. The first answer counts.",
		Example: `roux approvals
roux approvals show apr_4G0M
roux approvals approve apr_4G0M --set budget=120 --comment 'as agreed'
roux approvals edit apr_4G0M --value @letter.json
roux approvals link apr_4G0M --for ana@example.com`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return group(cmd, args)
			}
			return list.RunE(cmd, args)
		},
	}
	cmd.AddCommand(list, a.showApprovalCommand(), a.answerCommand("approve", approval.Approved), a.answerCommand("reject", approval.Rejected), a.editCommand(), a.linkApprovalCommand())
	return cmd
}

func (a *app) listApprovalsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List what people are asked and have not answered, the oldest first",
		Example: "roux approvals list",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := fetch(cmd.Context(), a, func(ctx context.Context, c *client.Client) ([]client.Approval, error) {
				return client.Collect(c.Approvals.List(ctx), 0)
			})
			if err != nil {
				return err
			}
			a.show(orEmpty(list), func() {
				if len(list) == 0 {
					a.say("nobody is asked anything in account %s", a.account)
					return
				}
				rows := [][]string{{"ID", "ASKED", "UNTIL", "RUN", "STEP", "TITLE"}}
				for i := range list {
					r := &list[i]
					rows = append(rows, []string{r.ID, view.Stamp(r.RequestedAt.UnixMicro()), until(r.ExpiresAt), r.ExecutionID, r.Step, view.OneLine(r.Title)})
				}
				a.table(rows, 5)
			})
			return nil
		},
	}
}

// until shows a time; "-" if there is none.
func until(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return view.Stamp(t.UnixMicro())
}

// findApproval returns the request that a word names.
func findApproval(ctx context.Context, c *client.Client, word string) (*client.Approval, error) {
	if len(word) == approval.IDLength && strings.HasPrefix(word, approval.IDPrefix) {
		return c.Approvals.Get(ctx, word)
	}
	var found []string
	for r, err := range c.Approvals.List(ctx) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(r.ID, word) || r.ExecutionID == word {
			found = append(found, r.ID)
		}
	}
	switch {
	case word == "" || len(found) == 0:
		e := fault.New(fault.RecordNotFound, "no request that is open has the id or the run %q", view.OneLine(view.Cut(word, 60)))
		e.Remedy = "`roux approvals` lists those that are open; one that was answered is found by its whole id."
		return nil, e
	case len(found) > 1:
		return nil, fault.New(fault.Usage, "%q names several requests: %s", view.OneLine(view.Cut(word, 60)), view.Cut(strings.Join(found, ", "), 300))
	}
	return c.Approvals.Get(ctx, found[0])
}

func (a *app) showApprovalCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show APPROVAL",
		Short:   "Show a request with its form, and who has answered it",
		Example: "roux approvals show apr_4G0M",
		Args:    wants(1, 1, "APPROVAL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetchAndShow(cmd.Context(), a, a.printApproval, func(ctx context.Context, c *client.Client) (*client.Approval, error) {
				return findApproval(ctx, c, args[0])
			})
		},
	}
}

func (a *app) printApproval(r *client.Approval) {
	d := details{{"approval", r.ID}, {"title", view.OneLine(r.Title)}, {"state", r.State}}
	if w := r.Answer; w != nil {
		who := w.By
		if w.Link {
			who += ", by a link"
		}
		d.add("answered", who+", "+a.exact(w.At.UnixMicro()))
		d.add("comment", w.Comment)
		if string(w.Values) != "{}" {
			d.add("values", string(w.Values))
		}
	}
	if r.Pending {
		d.add("run goes on", "when a process carries it on: "+a.hint("resume", r.ExecutionID))
	}
	d.add("text", r.Text)
	d.add("value", string(r.Value))
	d.add("run", r.ExecutionID)
	d.add("step", r.Step)
	d.add("asked", a.exact(r.RequestedAt.UnixMicro()))
	if r.State == "open" {
		if r.ExpiresAt != nil {
			d.add("until", view.Stamp(r.ExpiresAt.UnixMicro()))
		}
		if f := r.Default; f != nil {
			d.add("then", view.Join(": ", f.Decision, f.Comment))
		}
		if r.RemindAt != nil {
			d.add("reminder", view.Stamp(r.RemindAt.UnixMicro()))
		}
		d.add("approvers", strings.Join(r.Approvers, ", "))
		d.add("form", string(r.Form))
		if r.MayAnswer {
			d.add("answer with", a.hint("approvals approve", r.ID+formFlags(r.Form)))
			if slices.Contains(r.Decisions, string(approval.Edited)) {
				d.add("or change it", a.hint("approvals edit", r.ID+" --value @file"))
			}
		}
	}
	a.sheet(d)
}

// formFlags are the flags by which the required fields of a form are filled in.
func formFlags(form json.RawMessage) (flags string) {
	var s struct {
		Required []string `json:"required"`
	}
	_ = json.Unmarshal(form, &s) // a form without required fields needs no flag
	for _, name := range s.Required {
		flags += " --set " + name + "=…"
	}
	return flags
}

func (a *app) answerCommand(verb string, decision approval.Decision) *cobra.Command {
	var set []string
	var comment string
	cmd := &cobra.Command{
		Use:     verb + " APPROVAL",
		Short:   strings.ToUpper(verb[:1]) + verb[1:] + " what a run asks; the first answer counts",
		Example: "roux approvals " + verb + " apr_4G0M --comment 'as agreed'",
		Args:    wants(1, 1, "APPROVAL [--set name=value]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetchAndShow(cmd.Context(), a, a.printApproval, func(ctx context.Context, c *client.Client) (*client.Approval, error) {
				r, err := findApproval(ctx, c, args[0])
				if err != nil {
					return nil, err
				}
				values, err := formValues(set, r.Form)
				if err != nil {
					return nil, err
				}
				d := client.Decision{Decision: string(decision), Comment: comment}
				if len(values) > 0 {
					d.Values = values
				}
				return c.Approvals.Answer(ctx, r.ID, d)
			})
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil, "field of the form, name=value (repeatable)")
	cmd.Flags().StringVar(&comment, "comment", "", "why, for the run and for others")
	return cmd
}

func (a *app) editCommand() *cobra.Command {
	var text, comment string
	cmd := &cobra.Command{
		Use:   "edit APPROVAL --value VALUE",
		Short: "Let another value pass in place of the one that was flagged; the first answer counts",
		Long: "Let another value pass in place of the one that was flagged: the output of the step is what --value says, and nothing is called again for it. " +
			"Only a request of the kind review that holds an output can be answered so (`moderation: {phase: output, review: …}`). " +
			"The step fails if the value does not fit the schema of the action's output. `roux approvals show APPROVAL -o json` has what was flagged, under `value`.",
		Example: `roux approvals edit apr_4G0M --value '{"text": "Dear all"}' --comment 'names nobody'
roux approvals edit apr_4G0M --value @letter.json
roux approvals show apr_4G0M -o json | jq '.value | .text |= sub("Ann"; "all")' | roux approvals edit apr_4G0M --value @-`,
		Args: wants(1, 1, "APPROVAL --value VALUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := a.jsonFlag("value", text)
			switch {
			case err != nil:
				return err
			case value == nil:
				return fault.New(fault.Usage, "edit needs --value: JSON, @file, or @- for standard input")
			}
			return fetchAndShow(cmd.Context(), a, a.printApproval, func(ctx context.Context, c *client.Client) (*client.Approval, error) {
				r, err := findApproval(ctx, c, args[0])
				if err != nil {
					return nil, err
				}
				if !slices.Contains(r.Decisions, string(approval.Edited)) {
					return nil, fault.New(fault.InputInvalid, "%q cannot be edited, only %s", view.OneLine(r.Title), strings.Join(r.Decisions, " or "))
				}
				return c.Approvals.Answer(ctx, r.ID, client.Decision{Decision: string(approval.Edited), Comment: comment, Value: value})
			})
		},
	}
	cmd.Flags().StringVar(&text, "value", "", "what counts: JSON, @file, or @- for standard input")
	cmd.Flags().StringVar(&comment, "comment", "", "why, for the run and for others")
	return cmd
}

// formValues reads the values of --set as the form of a request has them.
func formValues(set []string, form json.RawMessage) (map[string]any, error) {
	for _, arg := range set {
		if name, _, ok := strings.Cut(arg, "="); !ok || name == "" || strings.HasPrefix(arg, "@") {
			return nil, fault.New(fault.Usage, "--set %s: want name=value", view.OneLine(arg))
		}
	}
	values, err := inputs(set, form, nil)
	if err != nil {
		return nil, fault.New(fault.InputInvalid, "--set%s", strings.TrimPrefix(fault.Message(err), "--input"))
	}
	return values, nil
}

func (a *app) linkApprovalCommand() *cobra.Command {
	var req client.NewApprovalLink
	cmd := &cobra.Command{
		Use:   "link APPROVAL --for NAME",
		Short: "Make a link by which one person without a key answers a request, once",
		Long: "Make a link by which one person without a key answers a request, once. It opens a page of `roux serve`, is valid as long as the request, at most a week unless --expires-in " +
			"says otherwise, and is shown once. Whoever has the link can answer, in the name that --for gives: send it to that person alone.",
		Example: "roux approvals link apr_4G0M --for ana@example.com --expires-in 24h",
		Args:    wants(1, 1, "APPROVAL --for NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.For == "" {
				return fault.New(fault.Usage, "a link needs --for NAME, in whose name it answers")
			}
			if err := a.shownOnce("link"); err != nil {
				return err
			}
			return fetchAndShow(cmd.Context(), a, a.printLink, func(ctx context.Context, c *client.Client) (*client.ApprovalLink, error) {
				r, err := findApproval(ctx, c, args[0])
				if err != nil {
					return nil, err
				}
				l, err := c.Approvals.Link(ctx, r.ID, req)
				if err == nil && l.URL == "" && a.target != nil {
					l.URL = strings.TrimSuffix(a.target.URL.Value, "/") + l.Path
				}
				return l, err
			})
		},
	}
	cmd.Flags().StringVar(&req.For, "for", "", "in whose name the link answers")
	cmd.Flags().StringVar(&req.ExpiresIn, "expires-in", "", "how long it is valid, up to 720h (default 168h)")
	return cmd
}

func (a *app) printLink(l *client.ApprovalLink) {
	d := details{{"for", l.For}, {"until", view.Stamp(l.ExpiresAt.UnixMicro())}}
	if l.URL != "" {
		d.add("link", l.URL)
	} else {
		d.add("path of the link", l.Path)
	}
	a.sheet(d)
	if l.URL == "" {
		a.say("put the address of the server before the path; the setting public-url says it")
	}
}

// approvalNames completes the requests of the account that are open.
func (a *app) approvalNames(ctx context.Context, c *client.Client) []string {
	return wordsOf(c.Approvals.List(ctx), func(r *client.Approval) string {
		return fmt.Sprintf("%s\t%s", r.ID, view.OneLine(view.Cut(r.Title, 60)))
	})
}
