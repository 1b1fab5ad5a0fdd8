// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
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
	cmd.AddCommand(a.addTriggerCommand(), a.listTriggersCommand(), a.getTriggerCommand(), a.testTriggerCommand(), a.triggerHistoryCommand(),
		a.changeTriggerCommand("pause", "Let a trigger accept and ignore what it gets until it is resumed", (*client.Triggers).Pause),
		a.changeTriggerCommand("resume", "Let a paused trigger start runs again", (*client.Triggers).Resume),
		a.deleteTriggerCommand())
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
			if req.Key == "" {
				req.IfActive = ""
			}
			var err error
			if req.Parameters, err = a.mapping(parameters); err != nil {
				return err
			}
			return a.onTrigger(cmd.Context(), func(ctx context.Context, c *client.Client) (*client.Trigger, error) {
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

// onTrigger shows the trigger that fn returns.
func (a *app) onTrigger(ctx context.Context, fn func(context.Context, *client.Client) (*client.Trigger, error)) error {
	var t *client.Trigger
	err := a.operating(ctx, false, func(ctx context.Context, c *client.Client) (err error) {
		t, err = fn(ctx, c)
		return err
	})
	if err != nil {
		return err
	}
	a.show(t, func() { a.printTrigger(t) })
	return nil
}

func (a *app) printTrigger(t *client.Trigger) {
	rows := [][]string{{"trigger", t.ID}, {"name", t.Name}}
	add := func(name, text string) {
		if text != "" {
			rows = append(rows, []string{name, view.OneLine(text)})
		}
	}
	state := t.State
	if t.PausedAt != nil {
		state += " since " + a.exact(t.PausedAt.UnixMicro())
	}
	add("state", state)
	add("description", t.Description)
	add("receives at", "POST "+t.ReceiveURL)
	add("recipe", t.Recipe)
	add("signed by", signatureText(&t.Signature))
	add("when", t.When)
	add("parameters", string(t.Parameters))
	add("key", t.Key)
	add("if active", t.IfActive)
	add("debounce", t.Debounce)
	add("delivery id", t.DeliveryID)
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		labels = append(labels, name+"="+t.Labels[name])
	}
	add("labels", strings.Join(labels, ", "))
	if t.MaxCredits > 0 {
		add("max credits", fmt.Sprint(t.MaxCredits))
	}
	add("created", a.exact(t.CreatedAt.UnixMicro()))
	a.sheet(rows)
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
			var list []client.Trigger
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) (err error) {
				list, err = client.Collect(c.Triggers.List(ctx), 0)
				return err
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

func (a *app) getTriggerCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get TRIGGER",
		Short:   "Show a trigger",
		Example: "roux triggers get on-push",
		Args:    wants(1, 1, "TRIGGER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onTrigger(cmd.Context(), func(ctx context.Context, c *client.Client) (*client.Trigger, error) {
				return c.Triggers.Get(ctx, args[0])
			})
		},
	}
}

func (a *app) changeTriggerCommand(verb, short string, fn func(*client.Triggers, context.Context, string) (*client.Trigger, error)) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " TRIGGER",
		Short:   short,
		Example: "roux triggers " + verb + " on-push",
		Args:    wants(1, 1, "TRIGGER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onTrigger(cmd.Context(), func(ctx context.Context, c *client.Client) (*client.Trigger, error) {
				return fn(c.Triggers, ctx, args[0])
			})
		},
	}
}

func (a *app) deleteTriggerCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rm TRIGGER",
		Short:   "Delete a trigger with its history; its runs go on",
		Example: "roux triggers rm on-push",
		Args:    wants(1, 1, "TRIGGER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) error { return c.Triggers.Delete(ctx, args[0]) })
			if err != nil {
				return err
			}
			a.show(map[string]string{"trigger": args[0], "done": "is deleted"}, func() { a.text("%s is deleted\n", view.OneLine(args[0])) })
			return nil
		},
	}
}
