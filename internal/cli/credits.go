// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) creditsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "credits",
		Short: "Show, grant and explain credits",
		Example: `roux credits grant 100 --account acme
roux credits balance --account acme
roux credits explain @last --account acme`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.balanceCommand(), a.grantCommand(), a.voidCommand(), a.adjustCommand(), a.ledgerCommand(), a.billCommand(), a.reconcileCommand())
	return cmd
}

// An accountView is an account in a list.
type accountView struct {
	Name      string `json:"name"`
	Metered   bool   `json:"metered"`
	Available int64  `json:"available"`
	Held      int64  `json:"held"`
	Spent     int64  `json:"spent"`
	Most      int64  `json:"maxCredits"` // that one run may pay
	store.Unended
	MaxLive int `json:"maxLiveRuns"` // 0 = no limit
}

func (a *app) accountsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "accounts",
		Short: "List the accounts and their credits",
		Long: "List the accounts and their credits: the account local, those of `accounts` in the configuration, and those that were granted " +
			"credits. LIMIT is the most that one run may pay. LIVE counts the runs that have not ended, with the limit if there is one; runs above it are QUEUED.",
		Example: "roux accounts\nroux accounts -o json",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.readingBooks(cmd.Context(), func(ctx context.Context, r remote.Reader) error {
				if s, ok := r.(*remote.Server); ok {
					return a.accountsOf(ctx, s)
				}
				names, err := a.accountNames(ctx, r)
				if err != nil {
					return err
				}
				list, all := make([]accountView, len(names)), a.rules()
				for i, name := range names {
					rules := ruleOf(all, name)
					list[i] = accountView{Name: name, Metered: !rules.Unmetered, Most: rules.MaxCredits, MaxLive: rules.LiveLimit()}
					if r == nil {
						continue
					}
					account, err := r.Account(ctx, name, math.MaxInt64)
					if err != nil {
						return err
					}
					if list[i].Unended, err = r.Unended(ctx, name); err != nil {
						return err
					}
					b := account.Balance(max(a.now().UnixMicro(), account.At()))
					list[i].Available, list[i].Held, list[i].Spent = b.Available, b.Held, b.Spent
				}
				a.show(list, func() { a.printAccounts(list) })
				return nil
			})
		},
	}
}

func (a *app) printAccounts(list []accountView) {
	rows := [][]string{{"ACCOUNT", "METERED", "AVAILABLE", "HELD", "SPENT", "LIMIT", "LIVE", "QUEUED"}}
	for _, v := range list {
		if !v.Metered {
			rows = append(rows, []string{v.Name, "no", "", "", "", "", v.liveText(), strconv.Itoa(v.Queued)})
			continue
		}
		rows = append(rows, []string{v.Name, "yes", whole(v.Available), whole(v.Held), whole(v.Spent), whole(v.Most), v.liveText(), strconv.Itoa(v.Queued)})
	}
	a.table(rows, 0)
}

// liveText is how many runs are live, and how many may be.
func (v *accountView) liveText() string {
	if v.MaxLive == 0 {
		return strconv.Itoa(v.Live)
	}
	return fmt.Sprintf("%d of %d", v.Live, v.MaxLive)
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// A balanceView is an account's credits at a time.
type balanceView struct {
	Account string `json:"account"`
	Metered bool   `json:"metered"`
	At      string `json:"at"`
	ledger.Balance
	Lots []lotView `json:"lots"`
}

// A lotView is a lot as commands show it.
type lotView struct {
	ID        string        `json:"id"`
	Account   string        `json:"account"`
	Source    ledger.Source `json:"source"`
	Priority  int32         `json:"priority"`
	Created   string        `json:"createdAt"`
	Effective string        `json:"effectiveAt"`
	Expires   string        `json:"expiresAt,omitempty"`
	Voided    string        `json:"voidedAt,omitempty"`
	Granted   int64         `json:"granted"`
	Free      int64         `json:"free"`
	Held      int64         `json:"held"`
	Spent     int64         `json:"spent"`
}

func (a *app) lotView(l ledger.Lot) lotView {
	v := lotView{ID: l.ID, Account: a.account, Source: l.Terms.Source, Priority: l.Terms.Priority, Created: view.Stamp(l.Created),
		Effective: view.Stamp(l.Terms.Effective), Granted: l.Granted, Free: l.Free, Held: l.Held, Spent: l.Spent}
	if l.Terms.Expires != 0 {
		v.Expires = view.Stamp(l.Terms.Expires)
	}
	if l.VoidedAt != 0 {
		v.Voided = view.Stamp(l.VoidedAt)
	}
	return v
}

func (a *app) balanceCommand() *cobra.Command {
	var text string
	cmd := &cobra.Command{
		Use:   "balance",
		Short: "Show the credits of an account, now or at a time",
		Long: "Show the credits of an account and its lots, now or as they were recorded at a time. What was granted is pending before its lot takes " +
			"effect, available, held by runs that have not ended, spent, expired with its lot, or voided.",
		Example: "roux credits balance --account acme\nroux credits balance --account acme --at 2026-11-01",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.timeFlag("at", text)
			if err != nil {
				return err
			}
			a.others = true
			return a.readingBooks(cmd.Context(), func(ctx context.Context, r remote.Reader) error {
				if s, ok := r.(*remote.Server); ok {
					return a.balanceOf(ctx, s, at)
				}
				if err := a.mustExist(ctx, r); err != nil {
					return err
				}
				account := ledger.NewAccount()
				if r != nil {
					if account, err = r.Account(ctx, a.account, orLatest(at)); err != nil {
						return err
					}
				}
				if at == 0 {
					at = max(a.now().UnixMicro(), account.At())
				}
				out := &balanceView{Account: a.account, Metered: !ruleOf(a.rules(), a.account).Unmetered, At: view.Stamp(at), Balance: account.Balance(at), Lots: []lotView{}}
				for _, l := range account.Lots() {
					out.Lots = append(out.Lots, a.lotView(l))
				}
				a.show(out, func() { a.printBalance(out) })
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&text, "at", "", "as of this time (default now)")
	return cmd
}

// orLatest is a time, or one after all entries.
func orLatest(at int64) int64 {
	if at == 0 {
		return math.MaxInt64
	}
	return at
}

func (a *app) printBalance(b *balanceView) {
	if !b.Metered && len(b.Lots) == 0 {
		a.text("%s is unmetered: its runs cost nothing\n", b.Account)
		return
	}
	a.text("%s at %s\n", b.Account, b.At)
	rows := [][]string{}
	for _, r := range []struct {
		what string
		n    int64
	}{{"available", b.Available}, {"held", b.Held}, {"pending", b.Pending}, {"spent", b.Spent}, {"expired", b.Expired}, {"voided", b.Voided}, {"granted", b.Granted}} {
		if r.n != 0 || r.what == "available" || r.what == "granted" {
			rows = append(rows, []string{"  " + r.what, whole(r.n)})
		}
	}
	a.table(rows)
	if len(b.Lots) == 0 {
		return
	}
	rows = [][]string{{"LOT", "SOURCE", "GRANTED", "FREE", "HELD", "SPENT", "UNTIL"}}
	for _, l := range b.Lots {
		until := l.Expires
		if l.Voided != "" {
			until = "voided " + l.Voided
		}
		rows = append(rows, []string{view.OneLine(l.ID), string(l.Source), whole(l.Granted), whole(l.Free), whole(l.Held), whole(l.Spent), until})
	}
	a.table(rows, 0)
}

func (a *app) grantCommand() *cobra.Command {
	var key, effective, expires string
	source := string(ledger.Paid)
	var priority int32
	cmd := &cobra.Command{
		Use:   "grant AMOUNT",
		Short: "Grant credits to an account",
		Long: "Grant credits to an account, as a lot. Lots are used in the order of their priority, their end and their grant. A grant with a --key " +
			"that was used before changes nothing, so that it can be repeated after a failure. Runs that wait for credits go on.",
		Example: "roux credits grant 100 --account acme\nroux credits grant 50 --account acme --key welcome --source promotional --expires 30d",
		Args:    wants(1, 1, "AMOUNT --account NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			amount, err := wholeCredits(args[0])
			if err != nil {
				return err
			}
			if err := a.mustPay(); err != nil {
				return err
			}
			terms := ledger.Terms{Source: ledger.Source(source), Priority: priority}
			if terms.Effective, err = a.timeFlag("effective", effective); err != nil {
				return err
			}
			if terms.Expires, err = a.timeFlag("expires", expires); err != nil {
				return err
			}
			if key == "" {
				key = newKey("lot")
			}
			return a.moving(cmd.Context(), true, func(ctx context.Context, c remote.Credits) (any, string, error) {
				l, err := c.Grant(ctx, key, amount, terms)
				return a.lotView(l), fmt.Sprintf("%s granted %s as lot %s", a.account, ledger.Credits(l.Granted), l.ID), err
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "name of the grant and its lot (default: a new one, which is printed)")
	cmd.Flags().Var(choice{&source, []string{string(ledger.Paid), string(ledger.Promotional)}}, "source", "where the credits come from: paid or promotional")
	cmd.Flags().Int32Var(&priority, "priority", 0, "lots with a lower priority are used first")
	cmd.Flags().StringVar(&effective, "effective", "", "when the lot takes effect (default now)")
	cmd.Flags().StringVar(&expires, "expires", "", "when the lot ends, such as 30d or 2027-01-31 (default never)")
	return cmd
}

// wholeCredits reads an amount of credits.
func wholeCredits(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > ledger.MaxAmount {
		return 0, fault.New(fault.Usage, "%s: want a whole number of credits, from 1 to %d", view.OneLine(view.Cut(text, 40)), int64(ledger.MaxAmount))
	}
	return n, nil
}

// newKey returns a key that was not used before.
func newKey(kind string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return fmt.Sprintf("%s_%x", kind, b)
}

func (a *app) voidCommand() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:     "void LOT",
		Short:   "End a lot: what is free of it can no longer be used",
		Long:    "End a lot: what is free of it can no longer be used. Runs that hold credits of it keep them until they end; what they return is voided too.",
		Example: "roux credits void welcome --account acme --note 'granted twice'",
		Args:    wants(1, 1, "LOT --account NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.mustPay(); err != nil {
				return err
			}
			if err := a.checkAccount(cmd.Context()); err != nil {
				return err
			}
			return a.moving(cmd.Context(), false, func(ctx context.Context, c remote.Credits) (any, string, error) {
				l, err := c.VoidLot(ctx, args[0], note)
				text := fmt.Sprintf("%s: lot %s is voided with %d credits; %d were spent", a.account, l.ID, l.Voided, l.Spent)
				if l.Held > 0 {
					text += fmt.Sprintf(" and %d are held by runs", l.Held)
				}
				return a.lotView(l), text, err
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why, for the ledger")
	return cmd
}

// mustPay refuses to move credits of an account that has none.
func (a *app) mustPay() error {
	if a.target == nil && ruleOf(a.rules(), a.account).Unmetered {
		return fault.New(fault.Usage, "account %s is unmetered: its runs cost nothing and it has no credits; --account names one that pays, `roux accounts` lists them", a.account)
	}
	return nil
}

// moving moves credits and shows what came of it, to programs and to people. If nothing
// carries on the account's runs, it says which command does.
func (a *app) moving(ctx context.Context, grants bool, change func(ctx context.Context, c remote.Credits) (shown any, text string, err error)) error {
	var shown any
	var text string
	var open int
	a.others = true
	err := a.serving(ctx, grants, func(ctx context.Context, s remote.Service) (err error) {
		if shown, text, err = change(ctx, s); err != nil {
			return err
		}
		if h, ok := s.(*host); ok && grants {
			runs, err := a.unended(ctx, h)
			open = len(runs)
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.show(shown, func() { a.text("%s\n", view.OneLine(text)) })
	if open > 0 {
		a.say("%s not ended: `%s` goes on with what waits", view.Count(open, "run")+has(open), a.hint("resume", ""))
	}
	return nil
}

func has(n int) string {
	if n == 1 {
		return " has"
	}
	return " have"
}

// maxDays bounds a time that is given in days from now.
const maxDays = 36_525

// timeFlag reads the time of a flag, UTC µs: RFC 3339, a date after 1970-01-01, or a
// duration from now; 0 = it was not given.
func (a *app) timeFlag(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil && t.UnixMicro() > 0 {
			return t.UnixMicro(), nil
		}
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 32); err == nil && n <= maxDays {
			return a.now().AddDate(0, 0, int(n)).UnixMicro(), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil {
		return a.now().Add(d).UnixMicro(), nil
	}
	return 0, fault.New(fault.Usage, "--%s %s: want a time such as 2027-01-31, after 1970, or 2027-01-31T12:00:00Z or, from now, 12h or 30d, 36525d at most", flag, view.OneLine(view.Cut(text, 40)))
}
