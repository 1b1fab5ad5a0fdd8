// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// accountsOf lists the accounts of a server, or that of the key, if it administers no others.
func (a *app) accountsOf(ctx context.Context, s *remote.Server) error {
	list := []accountView{}
	add := func(name string, l *client.AccountLimits, c *client.AccountCredits) {
		list = append(list, accountView{
			Name: name, Metered: l.Metered, Most: l.MaxCredits, MaxLive: l.LiveRunLimit, Available: c.Credits.Available, Held: c.Credits.Held, Spent: c.Credits.Spent,
			Unended: store.Unended{Live: c.LiveRuns, Queued: c.QueuedRuns},
		})
	}
	all, err := client.Collect(s.Client.Accounts.List(ctx), 0)
	if fault.CodeOf(err) == fault.Forbidden {
		own, err := s.Client.Account(ctx)
		if err != nil {
			return err
		}
		c, err := s.Client.Credits.Get(ctx, time.Time{})
		if err != nil {
			return err
		}
		add(own.Account, &own.Limits, c)
		all = nil
	} else if err != nil {
		return err
	}
	for i := range all {
		c, err := s.Client.Accounts.Credits(ctx, all[i].Account, time.Time{})
		if err != nil {
			return err
		}
		add(all[i].Account, &all[i].Effective, c)
	}
	a.show(list, func() { a.printAccounts(list) })
	return nil
}

// balanceOf shows the credits of an account of a server. The lots of another account than that
// of the key are not shown.
func (a *app) balanceOf(ctx context.Context, s *remote.Server, at int64) error {
	var when time.Time
	if at != 0 {
		when = time.UnixMicro(at)
	}
	own := s.AccountName == s.Own
	c, err := s.Client.Credits.Get(ctx, when)
	if !own {
		c, err = s.Client.Accounts.Credits(ctx, s.AccountName, when)
	}
	if err != nil {
		return err
	}
	out := &balanceView{Account: c.Account, Metered: c.Metered, At: view.Stamp(c.AsOf.UnixMicro()), Lots: []lotView{}, Balance: ledger.Balance{
		Granted: c.Credits.Granted, Pending: c.Credits.Pending, Available: c.Credits.Available, Held: c.Credits.Held, Spent: c.Credits.Spent, Expired: c.Credits.Expired, Voided: c.Credits.Voided,
	}}
	if own && at == 0 { // a server has no lots of earlier times
		lots, err := s.Lots(ctx)
		if err != nil {
			return err
		}
		for _, l := range lots {
			out.Lots = append(out.Lots, a.lotView(l))
		}
	}
	a.show(out, func() { a.printBalance(out) })
	return nil
}
