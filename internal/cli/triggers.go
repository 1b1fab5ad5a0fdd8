// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/inbound"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/signature"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) triggersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "triggers",
		Short: "Start recipes when outside systems send webhooks",
		Long: "Start recipes when outside systems send webhooks. Each trigger has an address, and a secret with which senders sign; `roux serve` takes what they send. The recipe is a " +
			"registered one (`roux apply`), and its version is found at each start. A trigger is named by its name or its id.",
		Example: `roux triggers add on-push build --scheme hmac --secret github-webhook
roux triggers test on-push --body '{"ref": "main"}'
roux triggers history on-push`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.addTriggerCommand(), a.listTriggersCommand(), a.testTriggerCommand(), a.triggerHistoryCommand(),
		a.triggerCommand("get", "Show a trigger", (*client.Triggers).Get),
		a.rotateTriggerCommand(),
		a.triggerCommand("pause", "Let a trigger accept and ignore what it gets until it is resumed", (*client.Triggers).Pause),
		a.triggerCommand("resume", "Let a paused trigger start runs again", (*client.Triggers).Resume),
		a.deleteCommand("rm", "trigger", "roux triggers rm on-push", func(ctx context.Context, c *client.Client, name string) error {
			return c.Triggers.Delete(ctx, name)
		}))
	return cmd
}

func schemeWords() []string { return []string{signature.Standard, signature.HMAC, signature.Token} }

func encodingWords() []string { return []string{signature.Hex, signature.Base64} }

func ifActiveWords() (words []string) {
	for _, o := range scheduler.IfActive {
		words = append(words, string(o))
	}
	return words
}

func (a *app) addTriggerCommand() *cobra.Command {
	var req client.NewTrigger
	var parameters string
	cmd := &cobra.Command{
		Use:   "add NAME RECIPE",
		Short: "Make a trigger, and print the address to which webhooks are sent",
		Long: "Make a trigger: a webhook that is signed with the secret of the account that --secret names starts RECIPE, which may have @ and a version or a range. The scheme standard is " +
			"Standard Webhooks; hmac is the HMAC-SHA256 of the body in a header, by default as GitHub sends it; token is the secret itself in the header --header. " +
			"Expressions read body, headers (by their names in lower case) and query.",
		Example: `roux triggers add on-push build --scheme hmac --secret github-webhook --when "headers['x-github-event'] == 'push'"
roux triggers add paid invoice@1 --scheme standard --secret shop --parameters '{"order": "{{ body.data.id }}"}'
roux triggers add merged deploy --scheme token --header X-Gitlab-Token --secret gitlab --key body.project.path_with_namespace --if-active queue`,
		Args: wants(2, 2, "NAME RECIPE --scheme SCHEME --secret NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name, req.Recipe = args[0], args[1]
			if req.Signature.Scheme == "" || req.Signature.Secret == "" {
				return fault.New(fault.Usage, "a trigger needs --scheme and --secret, such as --scheme hmac --secret github-webhook; `roux secrets set` keeps the secret")
			}
			if req.Key == "" && !cmd.Flags().Changed("if-active") {
				req.IfActive = "" // the default is of triggers with a key
			}
			var err error
			if req.Parameters, err = a.mapping(parameters); err != nil {
				return err
			}
			return fetchAndShow(cmd.Context(), a, a.printTrigger, func(ctx context.Context, c *client.Client) (*client.Trigger, error) {
				return c.Triggers.Create(ctx, req)
			})
		},
	}
	f := cmd.Flags()
	f.Var(choice{&req.Signature.Scheme, schemeWords()}, "scheme", "how deliveries are signed")
	f.StringVar(&req.Signature.Secret, "secret", "", "name of the secret of the account that they are signed with")
	f.StringVar(&req.Signature.Header, "header", "", "header with the signature or the token (default of hmac X-Hub-Signature-256, with the prefix sha256=)")
	f.StringVar(&req.Signature.Prefix, "prefix", "", "what the value of the header begins with")
	f.Var(choice{&req.Signature.Encoding, encodingWords()}, "encoding", "of an HMAC (default hex)")
	f.StringVar(&req.When, "when", "", "expression; a delivery for which it is false starts nothing")
	f.StringVar(&parameters, "parameters", "", "input of the recipe: an object with templates, such as '{\"ref\": \"{{ body.ref }}\"}', @file with one, or an expression (default the body, as field body)")
	f.StringVar(&req.Key, "key", "", "expression for the key of a start: at most one run with a key is active")
	req.IfActive = ifActiveWords()[0]
	f.Var(choice{&req.IfActive, ifActiveWords()}, "if-active", "with --key: what becomes of a delivery while a run with its key is active")
	f.StringVar(&req.Debounce, "debounce", "", "with --key: start the run when no other delivery with the key has come for so long, such as 30s")
	f.StringVar(&req.DeliveryID, "delivery-id", "", "header, or expression, for the id of a delivery: one that comes again starts nothing (default usual headers, or a hash of the body)")
	f.StringToStringVar(&req.Labels, "label", nil, "label of the runs, name=value (repeatable)")
	f.Int64Var(&req.MaxCredits, "max-credits", 0, "the most credits that each run pays")
	f.StringVar(&req.Description, "description", "", "what it is for")
	f.BoolVar(&req.Paused, "paused", false, "begin paused")
	return cmd
}

// mapping reads --parameters: an object with templates, or an expression; nil = it is not given.
func (a *app) mapping(text string) (any, error) {
	tree, err := a.jsonFlag("parameters", text)
	switch {
	case text == "":
		return nil, nil
	case err == nil && len(tree) > 0 && tree[0] == '{':
		return tree, nil
	case !strings.HasPrefix(text, "@"):
		return text, nil
	case err == nil:
		err = fault.New(fault.Usage, "--parameters %s: want a file with an object, such as {\"ref\": \"{{ body.ref }}\"}", text)
	}
	return nil, err
}

func (a *app) printTrigger(t *client.Trigger) {
	d := details{{"trigger", t.ID}, {"name", t.Name}}
	d.add("state", a.stateSince(t.State, t.PausedAt))
	d.add("description", t.Description)
	d.add("receives at", "POST "+t.ReceiveURL)
	d.add("recipe", t.Recipe)
	d.add("signed by", signatureText(&t.Signature))
	if p := t.Previous; p != nil && p.Until.After(a.now()) {
		d.add("and by", "the secret "+p.Secret+", until "+view.Stamp(p.Until.UnixMicro()))
	}
	d.add("when", t.When)
	d.add("parameters", string(t.Parameters))
	d.add("key", t.Key)
	d.add("if active", t.IfActive)
	d.add("debounce", t.Debounce)
	d.add("delivery id", t.DeliveryID)
	d.add("labels", labelsText(t.Labels))
	if t.MaxCredits > 0 {
		d.add("max credits", fmt.Sprint(t.MaxCredits))
	}
	d.add("created", a.exact(t.CreatedAt.UnixMicro()))
	a.sheet(d)
}

func (a *app) rotateTriggerCommand() *cobra.Command {
	var secret string
	var keep int
	cmd := &cobra.Command{
		Use:   "rotate TRIGGER --secret NAME",
		Short: "Give a trigger another secret, at the same address",
		Long: "Give a trigger another secret, at the same address. Set it under a name of its own first. For --keep-hours, what is signed with the secret before is taken as well, so that " +
			"the sender can change over; then delete that one. Use 0 for a secret that somebody may have read.",
		Example: `pass show github-webhook-2 | roux secrets set github-webhook-2
roux triggers rotate on-push --secret github-webhook-2 --keep-hours 48`,
		Args: wants(1, 1, "TRIGGER --secret NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case secret == "":
				return fault.New(fault.Usage, "rotate needs --secret NAME; `roux secrets set` keeps the value")
			case keep < 0 || keep > int(inbound.MaxKeep.Hours()):
				return fault.New(fault.Usage, "--keep-hours %d: want 0 to %d", keep, int(inbound.MaxKeep.Hours()))
			}
			return fetchAndShow(cmd.Context(), a, a.printTrigger, func(ctx context.Context, c *client.Client) (*client.Trigger, error) {
				return c.Triggers.Rotate(ctx, args[0], client.NewTriggerSecret{Secret: secret, KeepHours: &keep})
			})
		},
	}
	cmd.Flags().StringVar(&secret, "secret", "", "name of the secret of the account that senders sign with from now on")
	cmd.Flags().IntVar(&keep, "keep-hours", int(inbound.DefaultKeep.Hours()), "how long what is signed with the secret before is taken")
	return cmd
}

// signatureText says how deliveries are signed.
func signatureText(s *client.TriggerSignature) string {
	text := s.Scheme + " with the secret " + s.Secret
	if s.Header != "" {
		text += ", in " + s.Header
	}
	if s.Prefix != "" {
		text += " behind " + s.Prefix
	}
	if s.Encoding != "" {
		text += ", " + s.Encoding
	}
	return text
}

func (a *app) listTriggersCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the triggers of an account",
		Example: "roux triggers list",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := fetch(cmd.Context(), a, func(ctx context.Context, c *client.Client) ([]client.Trigger, error) {
				return client.Collect(c.Triggers.List(ctx), 0)
			})
			if err != nil {
				return err
			}
			a.show(orEmpty(list), func() {
				if len(list) == 0 {
					a.say("account %s has no triggers; `%s` makes one", a.account, a.hint("triggers add NAME RECIPE --scheme hmac --secret SECRET", ""))
					return
				}
				rows := [][]string{{"NAME", "STATE", "SCHEME", "RECIPE", "RECEIVES AT"}}
				for i := range list {
					t := &list[i]
					rows = append(rows, []string{t.Name, t.State, t.Signature.Scheme, view.OneLine(t.Recipe), t.ReceiveURL})
				}
				a.table(rows, 3)
			})
			return nil
		},
	}
}

// triggerCommand returns a command that shows a trigger after fn has got or changed it.
func (a *app) triggerCommand(verb, short string, fn func(*client.Triggers, context.Context, string) (*client.Trigger, error)) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " TRIGGER",
		Short:   short,
		Example: "roux triggers " + verb + " on-push",
		Args:    wants(1, 1, "TRIGGER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetchAndShow(cmd.Context(), a, a.printTrigger, func(ctx context.Context, c *client.Client) (*client.Trigger, error) {
				return fn(c.Triggers, ctx, args[0])
			})
		},
	}
}
