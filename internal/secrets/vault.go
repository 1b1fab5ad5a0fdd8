// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/redact"
)

// Records keep sealed values, by account and name. Implementations are safe for concurrent
// use, also by several processes.
type Records interface {
	// Put stores a value durably, in place of an earlier one. A reader sees the earlier or
	// the new one.
	Put(ctx context.Context, account, name string, sealed []byte) error
	// Get returns a value, or fs.ErrNotExist.
	Get(ctx context.Context, account, name string) ([]byte, error)
	// Names returns the names of an account's values, sorted.
	Names(ctx context.Context, account string) ([]string, error)
	// Delete removes a value, or returns fs.ErrNotExist.
	Delete(ctx context.Context, account, name string) error
	// Written returns when a value was stored, or fs.ErrNotExist.
	Written(ctx context.Context, account, name string) (time.Time, error)
	// Accounts returns the accounts that have values, sorted.
	Accounts(ctx context.Context) ([]string, error)
}

// A Vault keeps secrets sealed: encrypted with the master key, and bound to their account
// and name, so that a sealed value cannot be passed off as another one.
type Vault struct {
	records Records
	key     masterKey
}

// Set stores a secret. The first one makes a master key, unless one is given.
func (v *Vault) Set(ctx context.Context, account, name, value string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if why := redact.Check(value); why != nil {
		return fault.New(fault.SecretInvalid, "the value of the secret %q cannot be used: %v", name, why)
	}
	k, err := v.key.loadOrCreate(ctx)
	if err != nil {
		return err
	}
	if err := ensure(v.key.data); err != nil {
		return err
	}
	// A rotation that has read the earlier value must not put it back.
	return v.key.exclusive(ctx, func(*os.Root) error { return v.seal(ctx, k, account, name, value) })
}

func (v *Vault) seal(ctx context.Context, k *keys, account, name, value string) error {
	sealed, err := k.aead.Encrypt([]byte(value), binding(account, name))
	if err != nil {
		return fault.Wrap(fault.InternalError, err, "the secret %q cannot be sealed: %v", name, err)
	}
	return v.records.Put(ctx, account, name, sealed)
}

// Secret returns the value of a secret, or fault.SecretNotFound.
func (v *Vault) Secret(ctx context.Context, account, name string) (string, error) {
	sealed, err := v.records.Get(ctx, account, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.SecretNotFound, "the secret %q is not in the vault", name)
	}
	if err != nil {
		return "", invalid(err, name)
	}
	k, err := v.key.load()
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.Wrap(fault.SecretInvalid, err, "the secret %q cannot be opened: the master key is missing; put it back, or set the secret again", name)
	}
	if err != nil {
		return "", err
	}
	return v.open(k, account, name, sealed)
}

func (v *Vault) open(k *keys, account, name string, sealed []byte) (string, error) {
	value, err := k.aead.Decrypt(sealed, binding(account, name))
	if err != nil {
		return "", fault.Wrap(fault.SecretInvalid, err,
			"the secret %q cannot be opened: it was sealed with another master key than that of %s, or its file was changed; set it again", name, k.from)
	}
	return string(value), nil
}

// List returns the names of an account's secrets, sorted.
func (v *Vault) List(ctx context.Context, account string) ([]string, error) {
	return v.records.Names(ctx, account)
}

// Delete removes a secret, or returns fault.SecretNotFound.
func (v *Vault) Delete(ctx context.Context, account, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	err := v.key.exclusive(ctx, func(*os.Root) error { return v.records.Delete(ctx, account, name) })
	if errors.Is(err, fs.ErrNotExist) {
		f := fault.New(fault.SecretNotFound, "the secret %q is not in the vault", name)
		f.Remedy = "`roux secrets list` shows those that are."
		return f
	}
	return err
}

// Rotate makes a new master key and seals every secret with it. It returns how many. The
// earlier keys stay in the keyset: a process that has just read it may seal with one of
// them. A process that is interrupted leaves secrets that can all be opened.
func (v *Vault) Rotate(ctx context.Context) (int, error) {
	k, err := v.key.rotate(ctx)
	if err != nil {
		return 0, err
	}
	accounts, err := v.records.Accounts(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, account := range accounts {
		names, err := v.records.Names(ctx, account)
		if err != nil {
			return n, err
		}
		for _, name := range names {
			err := v.key.exclusive(ctx, func(*os.Root) error { return v.reseal(ctx, k, account, name) })
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted meanwhile
			}
			if err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// reseal seals a value with the primary key. Nobody may change it meanwhile.
func (v *Vault) reseal(ctx context.Context, k *keys, account, name string) error {
	sealed, err := v.records.Get(ctx, account, name)
	if err != nil {
		return err
	}
	value, err := v.open(k, account, name, sealed)
	if err != nil {
		return fault.Wrap(fault.SecretInvalid, err, "account %s: %s", account, fault.Message(err))
	}
	return v.seal(ctx, k, account, name, value)
}

// binding is what a sealed value is bound to. No account or name contains a zero byte.
func binding(account, name string) []byte {
	return []byte("roux secret\x00" + account + "\x00" + name)
}
