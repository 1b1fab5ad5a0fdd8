// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make, list and revoke the keys of an account",
		Long: "Make, list and revoke the keys with which programs use the server on behalf of an account. A key is shown once, when it is made; " +
			"what is stored is its hash. The account is that of the key in use, or on a data directory the one that --account names.",
		Example: `roux keys create ci --role operator --account acme
roux keys list --account acme
roux keys revoke key_01K3 --account acme`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.createKeyCommand(), a.listKeysCommand(), a.getKeyCommand(), a.rotateKeyCommand(), a.revokeKeyCommand())
	return cmd
}

// A keySpec is what the flags say of a new key.
type keySpec struct {
	role, expires, reset string
	scopes               []string
	limit                int64
	audit                bool
}

// request returns the request that makes a key, and refuses flags that contradict one another.
func (s *keySpec) request(a *app, cmd *cobra.Command, name string) (client.KeyRequest, error) {
	req := client.KeyRequest{Name: name, Role: s.role, Scopes: s.scopes}
	if s.role == "" && len(s.scopes) == 0 {
		return req, fault.New(fault.Usage, "a key needs --role %s, or --scope", strings.Join(roleWords(), "|"))
	}
	until, err := a.timeFlag("expires", s.expires)
	if err != nil {
		return req, err
	}
	if until != 0 {
		req.ExpiresAt = view.UTC(until)
	}
	limited := cmd.Flags().Changed("limit")
	if !limited && (cmd.Flags().Changed("reset") || s.audit) {
		return req, fault.New(fault.Usage, "--reset and --audit say how a spending limit works: give it with --limit CREDITS")
	}
	if limited {
		if s.limit < 1 || s.limit > ledger.MaxAmount {
			return req, fault.New(fault.Usage, "--limit %d: want a whole number of credits, from 1 to %d", s.limit, int64(ledger.MaxAmount))
		}
		req.Limit = &client.KeyLimit{Credits: s.limit, Reset: s.reset}
		if s.audit {
			req.Limit.Mode = "audit"
		}
	}
	return req, nil
}

func (a *app) createKeyCommand() *cobra.Command {
	s := keySpec{reset: string(ledger.Never)}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key, and print it once",
		Long: "Make a key, and print it. It is the only line on standard output, is not stored, and is not shown again. NAME says what it is for. " +
			"The role, from the one that only reads to the one that administers all accounts, is viewer, operator, developer, owner or admin; worker is for remote workers only; --scope gives single scopes instead of a role, or beside it. " +
			"A key over a server can pass on only what it may do itself.",
		Example: `roux keys create ci --role operator --account acme
export ROUX_KEY="$(roux keys create laptop --role developer -q)"
roux keys create batch --role operator --limit 500 --reset monthly --expires 90d`,
		Args: wants(1, 1, "NAME --role ROLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := s.request(a, cmd, args[0])
			if err != nil {
				return err
			}
			if err := a.shownOnce("key"); err != nil {
				return err
			}
			a.others = true
			var k *client.NewKey
			err = a.operating(cmd.Context(), true, func(ctx context.Context, c *client.Client) (err error) {
				if a.target == nil || a.accountGiven {
					req.Account = a.account
				}
				k, err = c.Keys.Create(ctx, req)
				return err
			})
			if err != nil {
				return err
			}
			a.printNewKey(k)
			return nil
		},
	}
	cmd.Flags().Var(choice{&s.role, roleWords()}, "role", "what the key may do: approver, worker, viewer, operator, developer, owner or admin")
	cmd.Flags().StringSliceVar(&s.scopes, "scope", nil, "a scope, such as runs:read, or work:QUEUE for a worker of one queue (repeatable)")
	cmd.Flags().StringVar(&s.expires, "expires", "", "when the key ends, such as 30d or 2027-01-31 (default never)")
	cmd.Flags().Int64Var(&s.limit, "limit", 0, "credits that may be spent with the key (default: no limit of its own)")
	cmd.Flags().Var(choice{&s.reset, resetWords()}, "reset", "when the limit begins anew: none, daily, weekly or monthly")
	cmd.Flags().BoolVar(&s.audit, "audit", false, "report what exceeds the limit, and refuse nothing")
	return cmd
}

// printNewKey shows a key that was made: the key alone on standard output, so that a shell can
// put it into a variable.
func (a *app) printNewKey(k *client.NewKey) {
	a.show(k, func() {
		a.text("%s\n", k.Token)
		a.say("key %s (%s) of account %s; it is not stored and not shown again: keep it", k.ID, view.OneLine(view.Join(", ", k.Name, k.Role)), k.Account)
	})
}

func (a *app) listKeysCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the keys of an account",
		Long:    "List the keys of an account, without the keys themselves: START has their first characters. Those that were revoked or have expired are listed for 30 days.",
		Example: "roux keys list\nroux keys list --account acme -o json",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []client.Key
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) (err error) {
				list, err = client.Collect(c.Keys.List(ctx), 0)
				return err
			})
			if err != nil {
				return err
			}
			a.show(orEmpty(list), func() {
				if len(list) == 0 {
					a.say("account %s has no keys; `%s` makes one", a.account, a.hint("keys create NAME --role ROLE", ""))
					return
				}
				rows := [][]string{{"ID", "NAME", "ROLE", "START", "CREATED", "LAST USED", "STATE"}}
				for i := range list {
					k := &list[i]
					rows = append(rows, []string{k.ID, view.OneLine(view.Cut(k.Name, 40)), roleOf(k), k.Start, a.when(k.CreatedAt.UnixMicro()), a.whenOr(k.LastUsedAt, "never"), a.stateOfKey(k)})
				}
				a.table(rows, 1)
			})
			return nil
		},
	}
}

// roleOf is the role of a key, or how many scopes it has without one.
func roleOf(k *client.Key) string {
	if k.Role != "" {
		return k.Role
	}
	return view.Count(len(k.Scopes), "scope")
}

// stateOfKey says whether a key admits requests, and until when.
func (a *app) stateOfKey(k *client.Key) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked " + a.when(k.RevokedAt.UnixMicro())
	case k.ExpiresAt == nil:
		return "valid"
	case !k.ExpiresAt.After(a.now()):
		return "expired " + a.when(k.ExpiresAt.UnixMicro())
	}
	return "valid until " + view.Stamp(k.ExpiresAt.UnixMicro())
}

// whenOr formats a time that may be missing.
func (a *app) whenOr(t *time.Time, none string) string {
	if t == nil {
		return none
	}
	return a.when(t.UnixMicro())
}

func (a *app) getKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get KEY",
		Short:   "Show a key: what it may do, and what was spent with it",
		Example: "roux keys get key_01K3 --account acme",
		Args:    wants(1, 1, "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var k *client.Key
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) (err error) {
				k, err = c.Keys.Get(ctx, args[0])
				return err
			})
			if err != nil {
				return err
			}
			a.show(k, func() { a.printKey(k) })
			return nil
		},
	}
}

func (a *app) printKey(k *client.Key) {
	rows := [][]string{
		{"key", k.ID}, {"name", view.OneLine(k.Name)}, {"account", k.Account}, {"start", k.Start}, {"state", a.stateOfKey(k)},
		{"created", a.exact(k.CreatedAt.UnixMicro())}, {"last used", a.whenOr(k.LastUsedAt, "never")},
	}
	if k.CreatedBy != "" {
		rows = append(rows, []string{"made by", k.CreatedBy})
	}
	if k.Role != "" {
		rows = append(rows, []string{"role", k.Role})
	}
	rows = append(rows, []string{"scopes", strings.Join(k.Scopes, ", ")})
	if l := k.Limit; l != nil {
		text := fmt.Sprintf("%d credits", l.Credits)
		if l.Reset != "" && l.Reset != string(ledger.Never) {
			text += ", " + l.Reset
		}
		if l.Mode == "audit" {
			text += ", reported only"
		}
		if u := k.Usage; u != nil {
			text += fmt.Sprintf("; %d used, %d left", u.Used, u.Left)
			if u.ResetAt != nil {
				text += ", anew at " + view.Stamp(u.ResetAt.UnixMicro())
			}
		}
		rows = append(rows, []string{"limit", text})
	}
	a.sheet(rows)
}

func (a *app) rotateKeyCommand() *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate KEY",
		Short: "Make a key that takes the place of another",
		Long: "Make a key with the scopes and the limit of another, and print it once, as create does. The earlier key ends at once, or after --overlap, " +
			"at most seven days, in which both work. What is spent with either counts against one limit.",
		Example: "roux keys rotate key_01K3 --overlap 24h\nexport ROUX_KEY=\"$(roux keys rotate key_01K3 -q)\"",
		Args:    wants(1, 1, "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if overlap < 0 || overlap > access.MaxOverlap {
				return fault.New(fault.Usage, "--overlap %s: want a duration up to %s", overlap, access.MaxOverlap)
			}
			if err := a.shownOnce("key"); err != nil {
				return err
			}
			var k *client.NewKey
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) (err error) {
				k, err = c.Keys.Rotate(ctx, args[0], overlap)
				return err
			})
			if err != nil {
				return err
			}
			a.printNewKey(k)
			return nil
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 0, "how long the earlier key goes on, such as 24h (default: it ends at once)")
	return cmd
}

func (a *app) revokeKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke KEY",
		Short:   "End a key, its requests and its streams at once",
		Example: "roux keys revoke key_01K3 --account acme",
		Args:    wants(1, 1, "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var k *client.Key
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) (err error) {
				k, err = c.Keys.Revoke(ctx, args[0])
				return err
			})
			if err != nil {
				return err
			}
			a.show(k, func() { a.text("%s (%s) is revoked\n", k.ID, view.OneLine(k.Name)) })
			return nil
		},
	}
}

func roleWords() (words []string) {
	for _, r := range access.Roles() {
		words = append(words, string(r))
	}
	return words
}

func scopeWords() (words []string) {
	for _, s := range access.Scopes() {
		words = append(words, string(s))
	}
	return words
}

func resetWords() []string {
	return []string{string(ledger.Never), string(ledger.Daily), string(ledger.Weekly), string(ledger.Monthly)}
}

// keyNames completes the keys that are valid.
func (a *app) keyNames(ctx context.Context, c *client.Client) []string {
	return wordsOf(c.Keys.List(ctx), func(k *client.Key) string {
		if k.RevokedAt != nil {
			return ""
		}
		return k.ID + "\t" + view.OneLine(view.Cut(k.Name, 40)) + ", " + roleOf(k)
	})
}

// wordsOf returns a word for each of the first entries of a list, without empty ones. A list that ends with an error
// offers what came before it.
func wordsOf[T any](list iter.Seq2[T, error], word func(*T) string) (words []string) {
	for v, err := range list {
		if err != nil || len(words) == offered {
			break
		}
		if w := word(&v); w != "" {
			words = append(words, w)
		}
	}
	return words
}

// completeOf completes the first argument with what words returns, and finds nothing rather
// than report an error: the command itself will report it.
func (a *app) completeOf(words func(context.Context, *client.Client) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (list []string, _ cobra.ShellCompDirective) {
		if len(args) == 0 {
			ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
			defer cancel()
			_ = a.operating(ctx, false, func(ctx context.Context, c *client.Client) error {
				list = words(ctx, c)
				return nil
			})
		}
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
