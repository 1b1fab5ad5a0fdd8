// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/view"
)

// An entryView is an entry of a ledger as `credits ledger` shows it.
type entryView struct {
	Number uint64        `json:"number"`
	Key    string        `json:"key"`
	Kind   string        `json:"kind"`
	At     string        `json:"at"`
	Amount int64         `json:"amount"`
	From   string        `json:"from"`
	To     string        `json:"to"`
	Lots   []ledger.Part `json:"lots"`
	Run    string        `json:"run,omitempty"`
	Hold   string        `json:"reservationId,omitempty"`
	Source string        `json:"source,omitempty"`      // of a grant
	Starts string        `json:"effectiveAt,omitempty"` // of a grant
	Ends   string        `json:"expiresAt,omitempty"`   // of a grant
	Note   string        `json:"note,omitempty"`
}

func viewOfEntry(n uint64, e *ledger.Entry) entryView {
	from, to := e.Kind.Postings()
	v := entryView{Number: n, Key: e.Key, Kind: e.Kind.String(), At: view.Stamp(e.At), Amount: e.Amount(), From: from.String(), To: to.String(),
		Lots: e.Parts, Run: e.Run, Hold: e.Hold, Note: e.Note}
	if t := e.Terms; t != nil {
		v.Source, v.Starts = string(t.Source), view.Stamp(t.Effective)
		if t.Expires != 0 {
			v.Ends = view.Stamp(t.Expires)
		}
	}
	return v
}

func (a *app) ledgerCommand() *cobra.Command {
	var after uint64
	limit := 100
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "List the entries of an account, oldest first",
		Long: "List the entries of an account, oldest first. An entry moves credits of lots from one state to another: grant (issued → free), reserve and " +
			"extend (free → held), settle (held → spent), release (held → free), adjust (spent → free), expire and void. Entries are never changed.",
		Example: "roux credits ledger --account acme\nroux credits ledger --account acme --after 100 -o jsonl",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxEntries {
				return fault.New(fault.Usage, "--limit %d: want 1 to %d", limit, maxEntries)
			}
			return a.readingBooks(cmd.Context(), func(ctx context.Context, r remote.Reader) error {
				if err := a.mustExist(ctx, r); err != nil {
					return err
				}
				list := []entryView{}
				if r != nil {
					entries, err := r.Entries(ctx, a.account, after, limit)
					if err != nil {
						return err
					}
					for i, e := range entries {
						list = append(list, viewOfEntry(after+uint64(i)+1, e))
					}
				}
				a.show(list, func() { a.printEntries(list, after, limit) })
				return nil
			})
		},
	}
	cmd.Flags().Uint64Var(&after, "after", 0, "only entries after this number")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this many")
	return cmd
}

// maxEntries is the largest --limit of `credits ledger`.
const maxEntries = 10_000

func (a *app) printEntries(list []entryView, after uint64, limit int) {
	switch {
	case len(list) == 0 && (after > 0 || a.mustPay() != nil):
		a.say("no entries here")
		return
	case len(list) == 0:
		a.say("no entries here: `%s` makes one", a.hint("credits grant 100", ""))
		return
	}
	rows := [][]string{{"NO", "AT", "KIND", "AMOUNT", "LOTS", "RUN", ""}}
	for i := range list {
		e := &list[i]
		rows = append(rows, []string{fmt.Sprint(e.Number), e.At, e.Kind, whole(e.Amount), lotsText(e.Lots), e.Run, view.OneLine(e.Note)})
	}
	a.table(rows, 4, ^0)
	if len(list) == limit {
		a.say("there may be more: --after %d goes on", list[len(list)-1].Number)
	}
}

// lotsText describes parts of lots, such as "30 of welcome, 20 of lot_1".
func lotsText(parts []ledger.Part) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = fmt.Sprintf("%d of %s", p.Amount, view.OneLine(p.Lot))
	}
	return strings.Join(texts, ", ")
}
