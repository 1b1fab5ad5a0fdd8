// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// environment is the variables of a test.
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

func open(t *testing.T, env environment) (*Secrets, Config) {
	cfg := Config{Getenv: env.get, EnvAccount: "local", Dir: filepath.Join(t.TempDir(), "kept"), Data: filepath.Join(t.TempDir(), "data")}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "local"), 0o700); err != nil {
		t.Fatal(err)
	}
	return New(cfg), cfg
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, s *Secrets, account, name, value string) {
	t.Helper()
	if got, err := s.Secret(t.Context(), account, name); err != nil || got != value {
		t.Errorf("%s/%s: got %q, %v; want %q", account, name, got, err, value)
	}
}

func wantCode(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("got %v, want %s", err, code)
	}
}

// The environment comes before the directory, which comes before the vault; each account has
// its own, and the environment is of one account only.
func TestSources(t *testing.T) {
	env := environment{}
	s, cfg := open(t, env)
	for _, account := range []string{"local", "acme"} {
		if err := s.Vault().Set(t.Context(), account, "api-token", "vault of "+account); err != nil {
			t.Fatal(err)
		}
	}
	want(t, s, "local", "api-token", "vault of local")
	put(t, filepath.Join(cfg.Dir, "local", "api-token"), "from a file\r\n", 0o600)
	want(t, s, "local", "api-token", "from a file")
	env["ROUX_SECRET_API_TOKEN"] = "from a variable"
	want(t, s, "local", "api-token", "from a variable")
	want(t, s, "acme", "api-token", "vault of acme")
	list, err := s.List(t.Context(), "local")
	if err != nil || len(list) != 2 || list[0] != (Listed{Name: "api-token", From: "directory"}) || list[1].From != "vault" || time.Since(list[1].Set) > time.Hour {
		t.Errorf("%v, %v", list, err)
	}
	delete(env, "ROUX_SECRET_API_TOKEN")
	if err := os.Remove(filepath.Join(cfg.Dir, "local", "api-token")); err != nil {
		t.Fatal(err)
	}
	if err := s.Vault().Delete(t.Context(), "local", "api-token"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Secret(t.Context(), "local", "api-token")
	wantCode(t, err, fault.SecretNotFound)
	for _, way := range []string{"`roux secrets set api-token`", "ROUX_SECRET_API_TOKEN", filepath.Join(cfg.Dir, "local", "api-token")} {
		if !strings.Contains(fault.RemedyOf(err), way) {
			t.Errorf("the remedy %q does not name %s", fault.RemedyOf(err), way)
		}
	}
	wantCode(t, s.Vault().Delete(t.Context(), "local", "api-token"), fault.SecretNotFound)
}

// A file that others may read, that is too large, or that lies outside of the directory is
// not used.
func TestFilesThatAreNotUsed(t *testing.T) {
	s, cfg := open(t, environment{})
	path := filepath.Join(cfg.Dir, "local", "token")
	check := func(what string, code fault.Code) {
		t.Helper()
		v, err := s.Secret(t.Context(), "local", "token")
		if !errors.Is(err, code) || v != "" {
			t.Errorf("%s: %q, %v", what, v, err)
		}
		if err != nil && strings.Contains(err.Error(), "outside-value") {
			t.Errorf("%s: the error quotes the value: %v", what, err)
		}
	}
	put(t, path, "short", 0o600)
	check("a short value", fault.SecretInvalid)
	put(t, path, strings.Repeat("x", 9000), 0o600)
	check("a long value", fault.SecretInvalid)
	put(t, path, "\xff\xff\xff\xff\xff\xff\xff", 0o600)
	check("no text", fault.SecretInvalid)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	check("a directory", fault.SecretInvalid)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "..", "a/b", `a\b`, "x\x00", strings.Repeat("x", 65), "é"} {
		_, err := s.Secret(t.Context(), "local", name)
		wantCode(t, err, fault.Usage)
		wantCode(t, s.Vault().Set(t.Context(), "local", name, "long enough"), fault.Usage)
		wantCode(t, s.Vault().Delete(t.Context(), "local", name), fault.Usage)
	}
	wantCode(t, s.Vault().Set(t.Context(), "local", "token", "short"), fault.SecretInvalid)
	if runtime.GOOS == "windows" {
		return // has other modes and links
	}
	put(t, path, "outside-value", 0o640)
	check("a file that others may read", fault.SecretInvalid)
	put(t, path, "inside-value", 0o400)
	want(t, s, "local", "token", "inside-value")
	if err := os.Rename(path, filepath.Join(cfg.Dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../..data", path); err != nil {
		t.Fatal(err)
	}
	want(t, s, "local", "token", "inside-value")
	outside := filepath.Join(t.TempDir(), "outside")
	put(t, outside, "outside-value", 0o600)
	if err := errors.Join(os.Remove(path), os.Symlink(outside, path)); err != nil {
		t.Fatal(err)
	}
	check("a link out of the directory", fault.SecretInvalid)
	gone := New(Config{Getenv: environment{}.get, Dir: filepath.Join(cfg.Dir, "nowhere")})
	_, err := gone.Secret(t.Context(), "local", "token")
	wantCode(t, err, fault.SecretInvalid)
}

// What the vault writes does not contain the value, nobody else may read it, and a sealed
// value that is moved to another name or account does not open.
func TestVaultSeals(t *testing.T) {
	s, cfg := open(t, environment{})
	const value = "a value to be sealed"
	for _, name := range []string{"one", "two", "ONE"} {
		if err := s.Vault().Set(t.Context(), "local", name, value); err != nil {
			t.Fatal(err)
		}
	}
	var sealed [][]byte
	err := filepath.WalkDir(cfg.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		if d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(value)) || strings.HasSuffix(path, ".tmp") {
			t.Errorf("%s: %q", path, text)
		}
		sealed = append(sealed, text)
		return err
	})
	if err != nil || len(sealed) != 4 {
		t.Fatalf("%d files, %v; want three secrets and the key", len(sealed), err)
	}
	records := s.vault.records
	one, err := records.Get(t.Context(), "local", "one")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range [][2]string{{"local", "two"}, {"acme", "one"}} {
		if err := records.Put(t.Context(), at[0], at[1], one); err != nil {
			t.Fatal(err)
		}
		_, err := s.Secret(t.Context(), at[0], at[1])
		wantCode(t, err, fault.SecretInvalid)
	}
	for _, text := range [][]byte{nil, one[:len(one)-1], append([]byte{one[0] ^ 1}, one[1:]...), append(bytes.Clone(one), 0)} {
		if err := records.Put(t.Context(), "local", "two", text); err != nil {
			t.Fatal(err)
		}
		_, err := s.Secret(t.Context(), "local", "two")
		wantCode(t, err, fault.SecretInvalid)
	}
	want(t, s, "local", "one", value)
	if names, err := s.Vault().List(t.Context(), "local"); err != nil || !slices.Equal(names, []string{"ONE", "one", "two"}) {
		t.Errorf("%v, %v", names, err)
	}
}

// The master key comes from the environment, from the file it names, or from the data
// directory; another key opens nothing, and no error quotes one.
func TestMasterKey(t *testing.T) {
	env := environment{}
	s, cfg := open(t, env)
	if err := s.Vault().Set(t.Context(), "local", "token", "a sealed value"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cfg.Data, datadir.MasterKey)
	key, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "key")
	if err := os.Rename(path, elsewhere); err != nil {
		t.Fatal(err)
	}
	_, err = s.Secret(t.Context(), "local", "token")
	wantCode(t, err, fault.SecretInvalid)
	env[MasterKey] = string(key)
	want(t, s, "local", "token", "a sealed value")
	_, err = s.Vault().Rotate(t.Context())
	wantCode(t, err, fault.Usage)
	delete(env, MasterKey)
	env[MasterKeyFile] = elsewhere
	want(t, s, "local", "token", "a sealed value")
	_, err = s.Vault().Rotate(t.Context())
	wantCode(t, err, fault.Usage)
	env[MasterKeyFile] = elsewhere + "-not"
	_, err = s.Secret(t.Context(), "local", "token")
	wantCode(t, err, fault.ConfigInvalid)
	wantCode(t, s.Vault().Set(t.Context(), "local", "token", "another value"), fault.ConfigInvalid)
	delete(env, MasterKeyFile)
	if err := s.Vault().Set(t.Context(), "local", "other", "with a new key"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Secret(t.Context(), "local", "token")
	wantCode(t, err, fault.SecretInvalid)
	for _, bad := range []string{"{}", "nonsense", `{"primaryKeyId":1,"key":[]}`, string(key[:len(key)/2])} {
		env[MasterKey] = bad
		_, err := s.Secret(t.Context(), "local", "token")
		wantCode(t, err, fault.ConfigInvalid)
		if err != nil && strings.Contains(err.Error(), bad) {
			t.Errorf("the error quotes the key: %v", err)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	delete(env, MasterKey)
	env[MasterKeyFile] = elsewhere
	if err := os.Chmod(elsewhere, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = s.Secret(t.Context(), "local", "token")
	wantCode(t, err, fault.SecretInvalid)
}

// After a rotation every secret is sealed with the new key, and what the earlier key sealed
// still opens.
func TestRotate(t *testing.T) {
	s, cfg := open(t, environment{})
	_, err := s.Vault().Rotate(t.Context())
	wantCode(t, err, fault.SecretNotFound) // there is no data directory
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = s.Vault().Rotate(t.Context())
	wantCode(t, err, fault.SecretNotFound) // there is no key
	for _, account := range []string{"local", "acme"} {
		if err := s.Vault().Set(t.Context(), account, "token", "value of "+account); err != nil {
			t.Fatal(err)
		}
	}
	before, err := s.vault.records.Get(t.Context(), "local", "token")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Vault().Rotate(t.Context()); n != 2 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	after, err := s.vault.records.Get(t.Context(), "local", "token")
	if err != nil || bytes.Equal(before[:5], after[:5]) {
		t.Errorf("%x, then %x: want another key id, %v", before[:5], after[:5], err)
	}
	want(t, s, "local", "token", "value of local")
	want(t, s, "acme", "token", "value of acme")
	if err := s.vault.records.Put(t.Context(), "local", "token", before); err != nil {
		t.Fatal(err)
	}
	want(t, s, "local", "token", "value of local")
	if err := s.vault.records.Put(t.Context(), "acme", "token", before); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Vault().Rotate(t.Context()); !errors.Is(err, fault.SecretInvalid) || !strings.Contains(err.Error(), "account acme") {
		t.Errorf("a value that cannot be opened: %v; want the account in the error", err)
	}
	if left, err := filepath.Glob(filepath.Join(cfg.Data, "*.tmp")); err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Processes that set their first secrets at once agree on one master key.
func TestFirstSecretsAtOnce(t *testing.T) {
	_, cfg := open(t, environment{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if err := New(cfg).Vault().Set(context.Background(), "local", fmt.Sprint("token", i), fmt.Sprint("value ", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 8 {
		want(t, New(cfg), "local", fmt.Sprint("token", i), fmt.Sprint("value ", i))
	}
}

// A vault that another user made, or that is a link, is not used.
func TestHostileVault(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("making links needs a privilege on Windows")
	}
	s, cfg := open(t, environment{})
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(cfg.Data, datadir.Secrets)); err != nil {
		t.Fatal(err)
	}
	if err := s.Vault().Set(t.Context(), "local", "token", "a value to be kept"); err == nil {
		t.Error("a vault behind a link is used")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.Remove(filepath.Join(cfg.Data, datadir.Secrets)); err != nil {
		t.Fatal(err)
	}
	if err := s.Vault().Set(t.Context(), "local", "token", "a value to be kept"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.vault.records.(files).account("local"), "746f6b656e")
	if err := errors.Join(os.Rename(path, path+"2"), os.Symlink(path+"2", path)); err != nil {
		t.Fatal(err)
	}
	_, err := s.Secret(t.Context(), "local", "token")
	wantCode(t, err, fault.SecretInvalid)
}

// A rotation puts back no value that is changed or deleted meanwhile.
func TestRotateBesideChanges(t *testing.T) {
	s := New(Config{Data: t.TempDir(), Getenv: func(string) string { return "" }})
	v := s.Vault()
	for i := range 20 {
		if err := v.Set(t.Context(), "acme", fmt.Sprint("changed-", i), "earlier value"); err != nil {
			t.Fatal(err)
		}
		if err := v.Set(t.Context(), "acme", fmt.Sprint("deleted-", i), "earlier value"); err != nil {
			t.Fatal(err)
		}
	}
	late := &lateRecords{Records: v.records}
	late.then = func(name string) {
		done := make(chan struct{})
		late.changes.Go(func() {
			defer close(done)
			var err error
			if strings.HasPrefix(name, "changed-") {
				err = v.Set(t.Context(), "acme", name, "later value")
			} else {
				err = v.Delete(t.Context(), "acme", name)
			}
			if err != nil {
				t.Error(err)
			}
		})
		select {
		case <-done: // nothing keeps it back
		case <-time.After(20 * time.Millisecond):
		}
	}
	slow := &Vault{records: late, key: v.key}
	if _, err := slow.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	late.changes.Wait()
	for i := range 20 {
		want(t, s, "acme", fmt.Sprint("changed-", i), "later value")
		_, err := s.Secret(t.Context(), "acme", fmt.Sprint("deleted-", i))
		wantCode(t, err, fault.SecretNotFound)
	}
}

// lateRecords tell what was read before they return it.
type lateRecords struct {
	Records
	then    func(name string)
	changes sync.WaitGroup
}

func (l *lateRecords) Get(ctx context.Context, account, name string) ([]byte, error) {
	sealed, err := l.Records.Get(ctx, account, name)
	l.then(name)
	return sealed, err
}
