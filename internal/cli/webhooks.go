// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/webhook"
)

func (a *app) webhooksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Send events of an account to URLs, and see what became of them",
		Long: "Send events of an account to URLs, and see what became of each message. `roux serve` sends them. In a data directory " +
			"that no process holds, `roux webhooks test` and `roux webhooks deliveries resend` only begin a delivery, and `roux serve` goes on with it. `roux listen` receives events on this machine without a webhook.",
		Example: `roux webhooks create https://example.com/roux --events 'run.*'
roux webhooks test hook_01K3
roux webhooks deliveries list hook_01K3`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.createWebhookCommand(), a.listWebhooksCommand(), a.getWebhookCommand(), a.updateWebhookCommand(), a.rotateWebhookCommand(),
		a.testWebhookCommand(), a.deleteWebhookCommand(), a.deliveriesCommand())
	return cmd
}

// A hookSpec is what the flags say of a webhook.
type hookSpec struct {
	url, description, payload string
	events, recipes           []string
	labels                    map[string]string
	children                  bool
}

func (s *hookSpec) flags(cmd *cobra.Command) {
	s.payload = webhook.Thin
	cmd.Flags().StringSliceVar(&s.events, "events", nil, "types of events, or beginnings with *, such as run.failed,credits.* (repeatable)")
	cmd.Flags().StringSliceVar(&s.recipes, "recipe", nil, "only runs of this recipe (repeatable)")
	cmd.Flags().StringToStringVar(&s.labels, "label", nil, "only runs with this label, name=value (repeatable)")
	cmd.Flags().BoolVar(&s.children, "children", false, "also child runs")
	cmd.Flags().Var(choice{&s.payload, payloadWords()}, "payload", "what a message has: thin = ids, full = also the change and the run")
	cmd.Flags().StringVar(&s.description, "description", "", "what it is for")
}

func payloadWords() []string { return []string{webhook.Thin, webhook.Full} }

// change returns what the flags that were given change.
func (s *hookSpec) change(cmd *cobra.Command) (c client.WebhookChange) {
	given := cmd.Flags().Changed
	if given("url") {
		c.URL = &s.url
	}
	if given("description") {
		c.Description = &s.description
	}
	if given("payload") {
		c.Payload = &s.payload
	}
	if given("children") {
		c.Children = &s.children
	}
	c.Events, c.Recipes, c.Labels = s.events, s.recipes, s.labels
	return c
}

func (a *app) createWebhookCommand() *cobra.Command {
	var s hookSpec
	cmd := &cobra.Command{
		Use:   "create URL",
		Short: "Make a webhook, and print its secret once",
		Long: "Make a webhook: the server sends the events to URL, signed as Standard Webhooks says, at least once each. The secret that verifies " +
			"the signatures is printed once. The types are " + strings.Join(webhook.Types(), ", ") + ".",
		Example: `roux webhooks create https://example.com/roux --events 'run.*'
roux webhooks create https://example.com/roux --events run.failed,run.timed_out --recipe nightly --payload full`,
		Args: wants(1, 1, "URL --events TYPES"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(s.events) == 0 {
				return fault.New(fault.Usage, "a webhook needs --events, such as --events 'run.*'; `roux webhooks create --help` lists the types")
			}
			if err := a.shownOnce("secret"); err != nil {
				return err
			}
			req := s.change(cmd)
			req.URL = &args[0]
			var w *client.NewWebhook
			err := a.operating(cmd.Context(), true, func(ctx context.Context, c *client.Client) (err error) {
				w, err = c.Webhooks.Create(ctx, req)
				return err
			})
			if err != nil {
				return err
			}
			a.printNewWebhook(w)
			return nil
		},
	}
	s.flags(cmd)
	return cmd
}

// printNewWebhook shows the secret of a webhook, which nothing shows again.
func (a *app) printNewWebhook(w *client.NewWebhook) {
	a.show(w, func() {
		a.table([][]string{{"webhook", w.ID}, {"secret", w.Secret}})
		a.say("the secret verifies the signatures of %s and is not shown again: keep it", view.OneLine(w.URL))
	})
}

func (a *app) listWebhooksCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the webhooks of an account",
		Example: "roux webhooks list",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []client.Webhook
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) (err error) {
				list, err = client.Collect(c.Webhooks.List(ctx), 0)
				return err
			})
			if err != nil {
				return err
			}
			a.show(orEmpty(list), func() {
				if len(list) == 0 {
					a.say("account %s has no webhooks; `%s` makes one", a.account, a.hint("webhooks create URL --events 'run.*'", ""))
					return
				}
				rows := [][]string{{"ID", "STATE", "EVENTS", "URL"}}
				for i := range list {
					w := &list[i]
					rows = append(rows, []string{w.ID, stateOfHook(w), view.OneLine(strings.Join(w.Events, ", ")), view.OneLine(w.URL)})
				}
				a.table(rows, 3, 2)
			})
			return nil
		},
	}
}

// stateOfHook says in a word whether events are sent, and arrive.
func stateOfHook(w *client.Webhook) string {
	switch {
	case !w.Enabled:
		return "disabled"
	case w.FailingSince != nil:
		return "failing"
	}
	return "enabled"
}

func (a *app) getWebhookCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get WEBHOOK",
		Short:   "Show a webhook",
		Example: "roux webhooks get hook_01K3",
		Args:    wants(1, 1, "WEBHOOK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onWebhook(cmd.Context(), func(ctx context.Context, c *client.Client) (*client.Webhook, error) {
				return c.Webhooks.Get(ctx, args[0])
			})
		},
	}
}

// onWebhook shows the webhook that fn returns.
func (a *app) onWebhook(ctx context.Context, fn func(context.Context, *client.Client) (*client.Webhook, error)) error {
	var w *client.Webhook
	err := a.operating(ctx, false, func(ctx context.Context, c *client.Client) (err error) {
		w, err = fn(ctx, c)
		return err
	})
	if err != nil {
		return err
	}
	a.show(w, func() { a.printWebhook(w) })
	return nil
}

func (a *app) printWebhook(w *client.Webhook) {
	rows := [][]string{{"webhook", w.ID}, {"url", view.OneLine(w.URL)}}
	add := func(name, text string) {
		if text != "" {
			rows = append(rows, []string{name, view.OneLine(text)})
		}
	}
	state := stateOfHook(w)
	switch {
	case !w.Enabled:
		state += ": " + w.DisabledReason
	case w.FailingSince != nil:
		state += " since " + a.exact(w.FailingSince.UnixMicro())
	}
	add("state", state)
	add("description", w.Description)
	add("events", strings.Join(w.Events, ", "))
	add("recipes", strings.Join(w.Recipes, ", "))
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(w.Labels)) {
		labels = append(labels, name+"="+w.Labels[name])
	}
	add("labels", strings.Join(labels, ", "))
	if w.Children {
		add("children", "also child runs")
	}
	add("payload", w.Payload)
	for i, k := range w.PublicKeys {
		text := k.Key
		if k.ExpiresAt != nil {
			text += ", until " + view.Stamp(k.ExpiresAt.UnixMicro())
		}
		add([]string{"public key", ""}[min(i, 1)], text)
	}
	add("created", a.exact(w.CreatedAt.UnixMicro()))
	a.sheet(rows)
}

func (a *app) updateWebhookCommand() *cobra.Command {
	var s hookSpec
	var enable, disable bool
	cmd := &cobra.Command{
		Use:   "update WEBHOOK",
		Short: "Change a webhook, enable or disable it",
		Long: "Change what the flags say of a webhook; the rest stays. A change that somebody else makes at the same time is refused and not overwritten. " +
			"While a webhook is disabled nothing is sent, and what happens meanwhile is not sent later.",
		Example: `roux webhooks update hook_01K3 --events run.failed,run.timed_out
roux webhooks update hook_01K3 --disable`,
		Args: wants(1, 1, "WEBHOOK --events TYPES"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := s.change(cmd)
			switch {
			case enable && disable:
				return fault.New(fault.Usage, "--enable and --disable: want one")
			case enable || disable:
				req.Enabled = &enable
			}
			if reflect.DeepEqual(req, client.WebhookChange{}) {
				return fault.New(fault.Usage, "no flag says what to change: `roux webhooks update --help` lists them")
			}
			return a.onWebhook(cmd.Context(), func(ctx context.Context, c *client.Client) (*client.Webhook, error) {
				before, err := c.Webhooks.Get(ctx, args[0])
				if err != nil {
					return nil, err
				}
				return c.Webhooks.Update(ctx, args[0], req, before.ETag)
			})
		},
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&s.url, "url", "", "where events are sent to")
	cmd.Flags().BoolVar(&enable, "enable", false, "send events again")
	cmd.Flags().BoolVar(&disable, "disable", false, "send nothing until it is enabled")
	return cmd
}

func (a *app) rotateWebhookCommand() *cobra.Command {
	var keep int
	cmd := &cobra.Command{
		Use:   "rotate WEBHOOK",
		Short: "Give a webhook new keys, and print the new secret once",
		Long: "Give a webhook new keys, and print the new secret once. For --keep-hours, messages have the signatures of both keys, so a receiver that has " +
			"either one verifies them. Use 0 for a key that somebody may have read.",
		Example: "roux webhooks rotate hook_01K3 --keep-hours 48",
		Args:    wants(1, 1, "WEBHOOK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keep < 0 || keep > 720 {
				return fault.New(fault.Usage, "--keep-hours %d: want 0 to 720", keep)
			}
			if err := a.shownOnce("secret"); err != nil {
				return err
			}
			var w *client.NewWebhook
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) (err error) {
				w, err = c.Webhooks.Rotate(ctx, args[0], client.Rotation{KeepHours: &keep})
				return err
			})
			if err != nil {
				return err
			}
			a.printNewWebhook(w)
			return nil
		},
	}
	cmd.Flags().IntVar(&keep, "keep-hours", int(webhook.DefaultKeep.Hours()), "how long the keys before sign beside the new ones")
	return cmd
}

func (a *app) deleteWebhookCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "delete WEBHOOK",
		Short:   "Delete a webhook; what waits is not sent",
		Example: "roux webhooks delete hook_01K3",
		Args:    wants(1, 1, "WEBHOOK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) error {
				return c.Webhooks.Delete(ctx, args[0], "")
			})
			if err != nil {
				return err
			}
			a.show(map[string]string{"id": args[0], "done": "is deleted"}, func() { a.text("%s is deleted\n", view.OneLine(args[0])) })
			return nil
		},
	}
}

// hookNames completes the webhooks of the account.
func (a *app) hookNames(ctx context.Context, c *client.Client) []string {
	return wordsOf(c.Webhooks.List(ctx), func(w *client.Webhook) string { return fmt.Sprintf("%s\t%s", w.ID, view.OneLine(view.Cut(w.URL, 60))) })
}

// eventWords returns what --events takes.
func eventWords() []string { return append([]string{"*", "run.*", "credits.*"}, webhook.Types()...) }
