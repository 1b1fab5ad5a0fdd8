// SPDX-License-Identifier: Apache-2.0

// Package secrets finds the secrets of accounts, and keeps those that users store, sealed.
//
// It decides where a secret comes from: a variable of the environment, a file in a directory
// that the user names, or the [Vault] of the data directory, in this order. It also decides
// what may be a secret, and who may read the files that hold one.
//
// It never shows a value, never writes one that is not sealed, and never decides which step
// may use it.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/redact"
)

// The variables of the environment.
const (
	// Prefix begins the names of the variables that hold secrets.
	Prefix = "ROUX_SECRET_"
	// MasterKey holds the master key of the vault.
	MasterKey = "ROUX_MASTER_KEY"
	// MasterKeyFile names the file of the master key, if that is not in the data directory.
	MasterKeyFile = "ROUX_MASTER_KEY_FILE"
)

// Config says where secrets are.
type Config struct {
	// Getenv returns a variable of the environment. Default os.Getenv.
	Getenv func(string) string
	// EnvAccount is the account whose secrets may be in the environment; "" = none.
	EnvAccount string
	// Dir has a directory for each account, with a file for each secret. "" = none.
	Dir string
	// Data is the data directory; "" = no vault.
	Data string
}

// Secrets are the secrets of all accounts. They are safe for concurrent use.
type Secrets struct {
	cfg   Config
	vault *Vault
}

// New returns the secrets that are where cfg says. It reads nothing yet.
func New(cfg Config) *Secrets {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	s := &Secrets{cfg: cfg}
	if cfg.Data != "" {
		s.vault = &Vault{records: files{filepath.Join(cfg.Data, datadir.Secrets), cfg.Data}, key: masterKey{getenv: cfg.Getenv, data: cfg.Data}}
	}
	return s
}

// Vault returns the vault of the data directory; nil without one.
func (s *Secrets) Vault() *Vault { return s.vault }

// Variable returns the name of the variable that may hold a secret.
func Variable(name string) string {
	return Prefix + strings.ReplaceAll(strings.ToUpper(name), "-", "_")
}

// CheckName returns what is wrong with the name of a secret.
func CheckName(name string) error {
	if !jsonx.SecretName(name) {
		return fault.New(fault.Usage, "%q cannot be the name of a secret: want at most 64 letters, digits, underscores and dashes", short(name))
	}
	return nil
}

// short is a name that a message can show.
func short(name string) string {
	const most = 80
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// Secret returns the value of an account's secret. The error is fault.SecretNotFound if it
// is nowhere, and fault.SecretInvalid if it cannot be read or used where it is.
func (s *Secrets) Secret(ctx context.Context, account, name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	value, where, err := s.find(ctx, account, name)
	if err != nil {
		return "", err
	}
	if why := redact.Check(value); why != nil {
		return "", fault.New(fault.SecretInvalid, "the secret %q in %s cannot be used: %v", name, where, why)
	}
	return value, nil
}

func (s *Secrets) find(ctx context.Context, account, name string) (value, where string, err error) {
	if account == s.cfg.EnvAccount && account != "" {
		if v := s.cfg.Getenv(Variable(name)); v != "" {
			return v, Variable(name), nil
		}
	}
	if s.cfg.Dir != "" {
		path := filepath.Join(s.cfg.Dir, account, name)
		v, err := s.fromDir(account, name)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return v, path, invalid(err, name)
		}
	}
	if s.vault != nil {
		v, err := s.vault.Secret(ctx, account, name)
		if !errors.Is(err, fault.SecretNotFound) {
			return v, "the vault", err
		}
	}
	return "", "", s.notFound(account, name)
}

// notFound is the error for a secret that is nowhere. It says how to set it.
func (s *Secrets) notFound(account, name string) error {
	f := fault.New(fault.SecretNotFound, "the secret %q is not set", name)
	ways := []string{fmt.Sprintf("`roux secrets set %s`", name)}
	if account != s.cfg.EnvAccount {
		f.Msg += fmt.Sprintf(" for the account %s", account)
		ways[0] = fmt.Sprintf("`roux secrets set %s --account %s`", name, account)
	} else {
		ways = append(ways, "the variable "+Variable(name))
	}
	if s.cfg.Dir != "" {
		ways = append(ways, "the file "+filepath.Join(s.cfg.Dir, account, name))
	}
	f.Remedy = "Set it with " + strings.Join(ways, ", or with ") + "; `roux runs retry RUN` then continues a run that failed."
	f.Msg += "; set it with " + strings.Join(ways, ", or with ")
	return f
}

// invalid is the error for a secret that cannot be read.
func invalid(err error, name string) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return fault.Wrap(fault.SecretInvalid, err, "the secret %q cannot be read: %v", name, err)
}

// openDir opens the directory that the user has named.
func (s *Secrets) openDir() (*os.Root, error) {
	root, err := os.OpenRoot(s.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.SecretInvalid, "the directory %s of `secrets.dir` does not exist: create it, or correct the setting", s.cfg.Dir)
	}
	return root, err
}

// fromDir reads a secret from the file of its name. Links may lead to another place within
// the directory, as those of mounted volumes do, and not out of it.
func (s *Secrets) fromDir(account, name string) (string, error) {
	root, err := s.openDir()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	path := account + string(filepath.Separator) + name
	// Opening a FIFO would wait for its other end.
	if info, err := root.Stat(path); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", fault.New(fault.SecretInvalid, "%s is not a regular file", filepath.Join(s.cfg.Dir, path))
	}
	f, err := root.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := private(f, filepath.Join(s.cfg.Dir, path), redact.MaxLen+2)
	if err != nil {
		return "", err
	}
	return Trim(string(text)), nil
}

// private reads a file that nobody but this user may read.
func private(f *os.File, path string, most int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch why := datadir.Foreign(info); {
	case why != nil:
		return nil, fault.New(fault.SecretInvalid, "%s %v and is not read: only its owner may hold a secret", path, why)
	case !info.Mode().IsRegular():
		return nil, fault.New(fault.SecretInvalid, "%s is not a regular file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, fault.New(fault.SecretInvalid, "%s may be read by other users (mode %04o) and is not read: `chmod 600 %s`", path, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fault.New(fault.SecretInvalid, "%s has more than %d bytes", path, most)
	}
	return text, err
}

// Trim removes the end of the line that editors and commands leave behind a value.
func Trim(text string) string {
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
}

// A Listed is a secret of an account, without its value.
type Listed struct {
	Name string `json:"name"`
	// From is where it is: "vault" or "directory". A variable of the environment counts
	// before both, and a directory before the vault.
	From string `json:"from"`
	// Set is when the value was stored in the vault.
	Set time.Time `json:"-"`
}

// List returns the secrets of an account that are in files, sorted by name.
func (s *Secrets) List(ctx context.Context, account string) ([]Listed, error) {
	var all []Listed
	if s.vault != nil {
		names, err := s.vault.List(ctx, account)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			set, err := s.vault.records.Written(ctx, account, name)
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted meanwhile
			}
			if err != nil {
				return nil, err
			}
			all = append(all, Listed{name, "vault", set})
		}
	}
	if s.cfg.Dir != "" {
		root, err := s.openDir()
		if err != nil {
			return nil, err
		}
		defer func() { _ = root.Close() }()
		entries, err := fs.ReadDir(root.FS(), account)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if jsonx.SecretName(e.Name()) && !e.IsDir() {
				all = append(all, Listed{Name: e.Name(), From: "directory"})
			}
		}
	}
	heap.Sort(all, func(a, b Listed) int { return strings.Compare(a.Name+"\x00"+a.From, b.Name+"\x00"+b.From) })
	return all, nil
}
