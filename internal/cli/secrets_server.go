// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/secrets"
)

// setSecret keeps a secret, on the server or in the vault of the data directory.
func (a *app) setSecret(ctx context.Context, name, value string) error {
	if c, err := a.remote(ctx); err != nil {
		return err
	} else if c != nil {
		_, err := c.Secrets.Set(ctx, name, value)
		return err
	}
	v, dir, err := a.vault(ctx)
	if err != nil {
		return err
	}
	return datadir.Error(dir, v.Set(ctx, a.account, name, value))
}

// deleteSecret deletes a secret.
func (a *app) deleteSecret(ctx context.Context, name string) error {
	if c, err := a.remote(ctx); err != nil {
		return err
	} else if c != nil {
		return c.Secrets.Delete(ctx, name)
	}
	v, dir, err := a.vault(ctx)
	if err != nil {
		return err
	}
	return datadir.Error(dir, v.Delete(ctx, a.account, name))
}

// listSecrets returns the names of the secrets that are kept.
func (a *app) listSecrets(ctx context.Context) (list []secrets.Listed, err error) {
	if c, err := a.remote(ctx); err != nil {
		return nil, err
	} else if c != nil {
		found, err := client.Collect(c.Secrets.List(ctx), 0)
		for _, s := range found {
			list = append(list, secrets.Listed{Name: s.Name, From: s.From})
		}
		return list, err
	}
	if err := a.checkAccount(ctx); err != nil {
		return nil, err
	}
	dir, err := a.config.DataDir()
	if err != nil {
		return nil, err
	}
	list, err = a.secretsIn(dir).List(ctx, a.account)
	return list, datadir.Error(dir, err)
}
