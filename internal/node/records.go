// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"time"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/account"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/terms"
	"github.com/roux-engine/roux/internal/webhook"
)

// readRecords reads what the records of the directory say about keys and accounts, before
// there is an engine that asks for it. Nothing is written before there is one.
func (n *Node) readRecords(ctx context.Context) (err error) {
	cfg, now := &n.Config, time.Now
	ids := journal.NewIDs(rand.Reader, now)
	n.Keys, err = access.OpenKeys(ctx, access.Config{
		Store: n, Now: now, NewID: func() (string, error) { return ids.ID("key_") }, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	n.Accounts, err = account.Open(ctx, account.Config{
		Store: n, Actions: cfg.Actions.Catalogue, Permits: cfg.Actions.permits(), Configured: cfg.rules, Retention: cfg.Retention, Logger: cfg.Logger,
		Named: append(slices.Collect(maps.Keys(cfg.Accounts)), cmp.Or(cfg.Account, engine.LocalAccount)),
	})
	if err != nil {
		return err
	}
	n.Hooks, err = webhook.New(webhook.Config{
		Records: n, Sealer: cmp.Or(cfg.Sealer, secrets.NewSealer(cfg.Dir, nil)), NewID: func() (string, error) { return ids.ID(webhook.IDPrefix) },
		Send: cfg.Actions.Send, Now: now, Logger: cfg.Logger,
	})
	return err
}

// rules returns what the configuration says of an account.
func (cfg *Config) rules(account string) engine.AccountRules {
	if rules, ok := cfg.Accounts[account]; ok {
		return rules
	}
	return terms.Default(account)
}

// Rules returns what applies to the runs of an account: what the configuration says, changed
// by what is set for it, and the spending limits of its keys. The runs of webhooks cost
// nothing.
func (n *Node) Rules(account string) engine.AccountRules {
	if webhook.Internal(account) {
		return engine.AccountRules{Unmetered: true}
	}
	rules := n.Accounts.Rules(account, n.Config.rules(account))
	rules.Budgets = n.Keys.Budgets(account, rules.Budgets)
	return rules
}

// Record returns a record; see store.Records.
func (n *Node) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	return n.Store.Record(ctx, key)
}

// RecordNamed returns a record by its name.
func (n *Node) RecordNamed(ctx context.Context, account, kind, name string) (store.Record, error) {
	return n.Store.RecordNamed(ctx, account, kind, name)
}

// Records returns the records that a query selects.
func (n *Node) Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error) {
	return n.Store.Records(ctx, q)
}

// PutRecords changes records as the owner of the store.
func (n *Node) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	return n.Engine.PutRecords(ctx, changes...)
}
