// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/roux-engine/roux/fault"
)

// A Sealer seals values that others store, with the master key of the vault. It is safe for
// concurrent use.
type Sealer struct{ key masterKey }

// NewSealer returns a sealer with the master key of a data directory, or with that of the
// environment. A nil getenv is os.Getenv. It reads nothing yet.
func NewSealer(data string, getenv func(string) string) *Sealer {
	if getenv == nil {
		getenv = os.Getenv
	}
	return &Sealer{masterKey{getenv: getenv, data: data}}
}

// Seal encrypts a value and binds it to an account, a kind and an id: with others it cannot
// be opened. The first value makes a master key, unless one is given.
func (s *Sealer) Seal(ctx context.Context, account, kind, id string, value []byte) ([]byte, error) {
	k, err := s.key.loadOrCreate(ctx)
	if err != nil {
		return nil, err
	}
	sealed, err := k.aead.Encrypt(value, recordBinding(account, kind, id))
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, err, "the %s of %s cannot be sealed: %v", kind, id, err)
	}
	return sealed, nil
}

// Open returns a value that was sealed. fault.SecretInvalid means that it was sealed with
// another key, for something else, or was changed, or that there is no key.
func (s *Sealer) Open(account, kind, id string, sealed []byte) ([]byte, error) {
	k, err := s.key.load()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(fault.SecretInvalid, err, "the %s of %s cannot be opened: the master key is missing", kind, id)
	}
	if err != nil {
		return nil, err
	}
	value, err := k.aead.Decrypt(sealed, recordBinding(account, kind, id))
	if err != nil {
		return nil, fault.Wrap(fault.SecretInvalid, err, "the %s of %s cannot be opened: it was sealed with another master key than that of %s, or was changed", kind, id, k.from)
	}
	return value, nil
}

// recordBinding is what a value of a record is bound to. It begins unlike that of a secret
// of the vault.
func recordBinding(account, kind, id string) []byte {
	return []byte("roux record\x00" + account + "\x00" + kind + "\x00" + id)
}
