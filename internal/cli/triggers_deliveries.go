// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) testTriggerCommand() *cobra.Command {
	var body string
	var sample client.TriggerSample
	cmd := &cobra.Command{
		Use:   "test TRIGGER",
		Short: "Say what a delivery would do, and start nothing",
		Long: "Say what a delivery would do, and start nothing: whether its run would start, with which input and key, and whether the secret of the trigger is there. " +
			"The delivery needs no signature.",
		Example: `roux triggers test on-push --body '{"ref": "main"}' --header X-GitHub-Event=push
roux triggers test on-push --body @delivery.json`,
		Args: wants(1, 1, "TRIGGER"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if sample.Body, err = a.jsonFlag("body", body); err != nil {
				return err
			}
			return fetchAndShow(cmd.Context(), a, a.printTrial, func(ctx context.Context, c *client.Client) (*client.TriggerTrial, error) {
				return c.Triggers.Test(ctx, args[0], sample)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&body, "body", "", "the body as JSON, or @file with it (default null)")
	f.StringToStringVar(&sample.Headers, "header", nil, "a header, name=value (repeatable)")
	f.StringToStringVar(&sample.Query, "query", nil, "a parameter of the address, name=value (repeatable)")
	return cmd
}

func (a *app) printTrial(t *client.TriggerTrial) {
	d := details{{"result", t.Result}}
	d.add("reason", view.Join(": ", t.ErrorCode, t.Reason))
	d.add("delivery", t.Delivery)
	d.add("parameters", string(t.Parameters))
	d.add("key", t.Key)
	d.add("secret", t.Secret)
	if t.Paused {
		d.add("paused", "deliveries are ignored until `roux triggers resume`")
	}
	a.sheet(d)
}

func (a *app) triggerHistoryCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "history TRIGGER",
		Short:   "List what became of the last 100 deliveries of a trigger, the newest first",
		Example: "roux triggers history on-push --limit 10",
		Args:    wants(1, 1, "TRIGGER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 100 {
				return fault.New(fault.Usage, "--limit %d: want 1 to 100", limit)
			}
			list, err := fetch(cmd.Context(), a, func(ctx context.Context, c *client.Client) ([]client.TriggerDelivery, error) {
				return client.Collect(c.Triggers.History(ctx, args[0]), limit)
			})
			if err != nil {
				return err
			}
			a.show(orEmpty(list), func() {
				if len(list) == 0 {
					a.say("%s has got no delivery that is signed with its secret yet", view.OneLine(args[0]))
					return
				}
				rows := [][]string{{"AT", "DELIVERY", "RESULT", "RUN", "REASON"}}
				for i := range list {
					rows = append(rows, a.deliveryRow(&list[i]))
				}
				a.table(rows, 4, 1)
			})
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "at most this many")
	return cmd
}

func (a *app) deliveryRow(d *client.TriggerDelivery) []string {
	result, run := d.Result, d.ExecutionID
	if d.Repeated {
		result += " before"
	}
	if run == "" {
		run = "-"
	}
	return []string{a.when(d.At.UnixMicro()), view.OneLine(view.Cut(d.Delivery, 40)), result, run, view.OneLine(view.Join(": ", d.ErrorCode, d.Reason))}
}

// triggerNames completes the triggers of the account.
func (a *app) triggerNames(ctx context.Context, c *client.Client) []string {
	return wordsOf(c.Triggers.List(ctx), func(t *client.Trigger) string {
		return fmt.Sprintf("%s\t%s", t.Name, view.OneLine(view.Cut(t.Recipe, 60)))
	})
}
