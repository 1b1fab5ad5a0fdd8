// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// A masterKey finds the master key: a keyset of Tink in its JSON form, in a variable of the
// environment, in a file that a variable names, or in the data directory, where it is made
// when it is first needed. Whoever has the key and the vault has the secrets, so a backup of
// one should not lie beside a backup of the other.
type masterKey struct {
	getenv func(string) string
	data   string
}

// keys are a master key that was read. Values are sealed with the primary key of the keyset;
// each of its keys opens what was sealed with it.
type keys struct {
	handle *keyset.Handle
	aead   tink.AEAD
	from   string // for messages
}

const (
	// maxKeyset bounds the text of a keyset.
	maxKeyset = 64 << 10
	// making is the name of a key that is being made. Only one process makes it at a time.
	making = datadir.MasterKey + ".tmp"
	// stale is the age after which the process that was making a key is taken for dead.
	stale = 10 * time.Second
)

// path returns where the key is, if it is in a file; given means that the user has named it.
func (m masterKey) path() (path string, given bool) {
	if named := m.getenv(MasterKeyFile); named != "" {
		return named, true
	}
	return filepath.Join(m.data, datadir.MasterKey), false
}

// load reads the master key. The error is fs.ErrNotExist when the data directory has none.
func (m masterKey) load() (*keys, error) {
	if text := m.getenv(MasterKey); text != "" {
		return parse([]byte(text), MasterKey)
	}
	path, given := m.path()
	var f *os.File
	var err error
	if given {
		if f, err = openNamed(path); err != nil {
			return nil, fault.New(fault.ConfigInvalid, "the master key that %s names cannot be read: %v; without the variable, `roux secrets set` makes one in the data directory", MasterKeyFile, err)
		}
	} else {
		f, err = datadir.Open(path, os.O_RDONLY)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := private(f, path, maxKeyset)
	if err != nil {
		return nil, err
	}
	return parse(text, path)
}

// openNamed opens the file that the user has named. Opening a FIFO would wait for its other
// end.
func openNamed(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

func parse(text []byte, from string) (*keys, error) {
	h, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
	if err == nil {
		var primitive tink.AEAD
		if primitive, err = aead.New(h); err == nil {
			return &keys{h, primitive, from}, nil
		}
	}
	// The error may quote the text.
	return nil, fault.New(fault.ConfigInvalid, "the master key in %s cannot be used: want a keyset of Tink for AEAD, in JSON, as `roux secrets set` makes it", from)
}

// loadOrCreate is load, and makes a key in the data directory if there is none.
func (m masterKey) loadOrCreate(ctx context.Context) (*keys, error) {
	k, err := m.load()
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := ensure(m.data); err != nil {
		return nil, err
	}
	err = m.exclusive(ctx, func(root *os.Root) error {
		if _, err := root.Lstat(datadir.MasterKey); err == nil {
			return nil // another process was faster
		}
		h, err := keyset.NewHandle(aead.XChaCha20Poly1305KeyTemplate())
		if err != nil {
			return err
		}
		return m.write(root, h)
	})
	if err != nil {
		return nil, err
	}
	return m.load()
}

// rotate adds a key to the keyset and makes it the primary one.
func (m masterKey) rotate(ctx context.Context) (*keys, error) {
	if m.getenv(MasterKey) != "" {
		return nil, fault.New(fault.Usage, "the master key is in the variable %s, which Roux cannot change: rotate it where it is kept, for example with Tink's tinkey, and keep the earlier keys in the keyset", MasterKey)
	}
	if path, given := m.path(); given {
		return nil, fault.New(fault.Usage, "the master key is in %s, which %s names and Roux does not change: rotate it where it is kept, for example with Tink's tinkey, and keep the earlier keys in the keyset", path, MasterKeyFile)
	}
	err := m.exclusive(ctx, func(root *os.Root) error {
		k, err := m.load()
		if err != nil {
			return err
		}
		manager := keyset.NewManagerFromHandle(k.handle)
		id, err := manager.Add(aead.XChaCha20Poly1305KeyTemplate())
		if err == nil {
			err = manager.SetPrimary(id)
		}
		if err != nil {
			return err
		}
		h, err := manager.Handle()
		if err != nil {
			return err
		}
		return m.write(root, h)
	})
	if errors.Is(err, fs.ErrNotExist) { // the key, or the data directory
		return nil, fault.New(fault.SecretNotFound, "there is no master key in %s yet; `roux secrets set NAME` makes one", m.data)
	}
	if err != nil {
		return nil, err
	}
	return m.load()
}

// write stores a keyset in the data directory.
func (m masterKey) write(root *os.Root, h *keyset.Handle) error {
	var text, line bytes.Buffer
	if err := insecurecleartextkeyset.Write(h, keyset.NewJSONWriter(&text)); err != nil {
		return err
	}
	// One line, so that it fits into a variable.
	if err := json.Compact(&line, text.Bytes()); err != nil {
		return err
	}
	line.WriteByte('\n')
	if err := replace(root, datadir.MasterKey, line.Bytes()); err != nil {
		return err
	}
	return datadir.Sync(m.data)
}

// exclusive calls fn while no other process makes or changes the master key.
func (m masterKey) exclusive(ctx context.Context, fn func(*os.Root) error) error {
	root, err := os.OpenRoot(m.data)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for {
		f, err := root.OpenFile(making, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			defer func() { _ = root.Remove(making) }()
			return errors.Join(f.Close(), fn(root))
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if info, err := root.Lstat(making); err == nil && time.Since(info.ModTime()) > stale {
			_ = root.Remove(making)
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
