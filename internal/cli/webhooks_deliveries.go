// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) deliveriesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deliveries",
		Short: "See what became of messages, and send them again",
		Example: `roux webhooks deliveries list hook_01K3
roux webhooks deliveries get hook_01K3 run_01K3
roux webhooks deliveries resend hook_01K3 run_01K3`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.listDeliveriesCommand(), a.getDeliveryCommand(), a.resendCommand())
	return cmd
}

func (a *app) testWebhookCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "test WEBHOOK",
		Short: "Send a message of the type webhook.ping, once",
		Long: "Send a message of the type webhook.ping, once, also to a webhook that is disabled. It is sent by the server: " +
			"`roux webhooks deliveries get` tells what the receiver has answered.",
		Example: "roux webhooks test hook_01K3",
		Args:    wants(1, 1, "WEBHOOK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onDelivery(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) (*client.Delivery, error) {
				return c.Webhooks.Test(ctx, args[0])
			})
		},
	}
}

func (a *app) listDeliveriesCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "list WEBHOOK",
		Short:   "List the messages to a webhook, newest first",
		Long:    "List the messages to a webhook, newest first. They are kept as long as runs are.",
		Example: "roux webhooks deliveries list hook_01K3 --limit 10",
		Args:    wants(1, 1, "WEBHOOK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > maxFeed {
				return fault.New(fault.Usage, "--limit %d: want 1 to %d", limit, maxFeed)
			}
			var list []client.Delivery
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) (err error) {
				list, err = client.Collect(c.Webhooks.Deliveries(ctx, args[0]), limit)
				return err
			})
			if err != nil {
				return err
			}
			a.show(orEmpty(list), func() {
				if len(list) == 0 {
					a.say("nothing was sent to it yet; `%s` sends a message", a.hint("webhooks test", args[0]))
					return
				}
				rows := [][]string{{"ID", "TYPE", "STATE", "TRIES", "CREATED", ""}}
				for i := range list {
					d := &list[i]
					rows = append(rows, []string{d.ID, d.Type, d.State, fmt.Sprint(len(d.Attempts)), a.when(d.CreatedAt.UnixMicro()), lastAttempt(d)})
				}
				a.table(rows, 5)
			})
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this many")
	return cmd
}

// lastAttempt says what the receiver has answered last.
func lastAttempt(d *client.Delivery) string {
	if len(d.Attempts) == 0 {
		return ""
	}
	return attemptText(&d.Attempts[len(d.Attempts)-1])
}

func attemptText(t *client.DeliveryAttempt) string {
	switch {
	case t.Error != "":
		return view.OneLine(view.Cut(t.Error, 120))
	case t.Status != 0:
		return fmt.Sprintf("HTTP %d", t.Status)
	}
	return t.ErrorCode
}

func (a *app) getDeliveryCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get WEBHOOK DELIVERY",
		Short:   "Show a message, its attempts and what is sent",
		Example: "roux webhooks deliveries get hook_01K3 run_01K3",
		Args:    wants(2, 2, "WEBHOOK DELIVERY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onDelivery(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) (*client.Delivery, error) {
				return c.Webhooks.Delivery(ctx, args[0], args[1])
			})
		},
	}
}

func (a *app) resendCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "resend WEBHOOK DELIVERY",
		Short:   "Send a message again, with its id",
		Example: "roux webhooks deliveries resend hook_01K3 run_01K3",
		Args:    wants(2, 2, "WEBHOOK DELIVERY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onDelivery(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) (*client.Delivery, error) {
				return c.Webhooks.Resend(ctx, args[0], args[1])
			})
		},
	}
}

// onDelivery shows the delivery that fn returns.
func (a *app) onDelivery(ctx context.Context, hook string, fn func(context.Context, *client.Client) (*client.Delivery, error)) error {
	var d *client.Delivery
	err := a.operating(ctx, false, func(ctx context.Context, c *client.Client) (err error) {
		d, err = fn(ctx, c)
		return err
	})
	if err != nil {
		return err
	}
	a.show(d, func() { a.printDelivery(hook, d) })
	return nil
}

func (a *app) printDelivery(hook string, d *client.Delivery) {
	rows := [][]string{{"delivery", d.ID}, {"message", d.MessageID}, {"type", d.Type}, {"state", d.State}, {"created", a.exact(d.CreatedAt.UnixMicro())}}
	if d.ResentFrom != "" {
		rows = append(rows, []string{"sent first as", d.ResentFrom})
	}
	for i := range d.Attempts {
		t := &d.Attempts[i]
		rows = append(rows, []string{fmt.Sprintf("attempt %d", t.Number), fmt.Sprintf("%s, %d ms: %s", view.Stamp(t.At.UnixMicro()), t.DurationMS, attemptText(t))})
	}
	if d.NextAttemptAt != nil {
		rows = append(rows, []string{"next attempt", view.Stamp(d.NextAttemptAt.UnixMicro())})
	}
	if len(d.Payload) > 0 {
		payload, err := jsonx.CanonicalRaw(d.Payload)
		if err != nil {
			payload = d.Payload
		}
		rows = append(rows, []string{"payload", view.OneLine(string(payload))})
	}
	a.sheet(rows)
	if d.CompletedAt == nil {
		a.say("not delivered yet: `roux serve` sends it; `%s` tells", a.hint("webhooks deliveries get", view.OneLine(hook)+" "+d.ID))
	}
}
