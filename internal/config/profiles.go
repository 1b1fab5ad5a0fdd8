// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/userfile"
)

// NoProfile is the name that stands for no profile: the data directory.
const NoProfile = "none"

// profilesFile is the file of the profiles, in the user's directory of configuration.
const profilesFile = "profiles.json"

// A Profile is a server and the key for it.
type Profile struct {
	URL string `json:"server"`
	Key string `json:"key,omitempty"` // "" = the server checks no keys
}

// Profiles are those of a user.
type Profiles struct {
	Use      string             `json:"use,omitempty"` // the one that is used where nothing names another one
	Profiles map[string]Profile `json:"profiles"`
}

// checkServer reports what is wrong with the address of a server.
func checkServer(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("want a URL such as https://roux.example.com or http://127.0.0.1:7420, without a name, a password and a query")
	}
	return nil
}

// CheckServer reports what is wrong with the address of a server.
func CheckServer(text string) error {
	if err := checkServer(text); err != nil {
		return fault.New(fault.Usage, "the address of a server: %v", err)
	}
	return nil
}

// maxProfileName bounds the name of a profile.
const maxProfileName = 64

// CheckProfile reports what is wrong with the name of a profile.
func CheckProfile(name string) error {
	ok := name != "" && len(name) <= maxProfileName
	for _, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c))
	}
	if !ok {
		return fmt.Errorf("want a name of at most %d letters, digits, '.', '_' and '-'", maxProfileName)
	}
	return nil
}

// profilesPath returns where the profiles of the user are.
func (c *Config) profilesPath() (string, error) {
	dir, err := userConfigDir(runtime.GOOS, c.env)
	if err != nil {
		return "", fault.Wrap(fault.Usage, err, "profiles are kept in the directory of the user's configuration: %v", err)
	}
	return filepath.Join(dir, profilesFile), nil
}

// Profiles returns the profiles of the user. A file that others can read is refused, because
// it has keys.
func (c *Config) Profiles() (*Profiles, error) {
	none := &Profiles{Profiles: map[string]Profile{}}
	path, err := c.profilesPath()
	if err != nil {
		return none, nil //nolint:nilerr // without a place for them there are none
	}
	text, err := readPrivate(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	p := &Profiles{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fault.Wrap(fault.ConfigInvalid, err, "%s is damaged: remove it, and keep its profiles anew with `roux profiles set`", userfile.Relative(path))
	}
	if p.Profiles == nil {
		p.Profiles = none.Profiles
	}
	for name, v := range p.Profiles {
		if err := errors.Join(CheckProfile(name), checkServer(v.URL)); err != nil {
			return nil, fault.Wrap(fault.ConfigInvalid, err, "%s: a profile is damaged: %v", userfile.Relative(path), err)
		}
	}
	return p, nil
}

// SaveProfiles keeps the profiles of the user.
func (c *Config) SaveProfiles(p *Profiles) error {
	path, err := c.profilesPath()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fault.Wrap(fault.InternalError, err, "the profiles cannot be written as JSON: %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return userfile.WriteError(path, err)
	}
	root, base, err := userfile.OpenParent(path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	d, err := userfile.NewAtomic(root, base, path, 0o600, true)
	if err != nil {
		return err
	}
	defer d.Discard()
	if _, err := d.Write(append(text, '\n')); err != nil {
		return err
	}
	return d.Place()
}

// maxKey bounds a key in a file.
const maxKey = 4 << 10

// ReadKey reads a key from a file, which nobody else may read.
func ReadKey(path string) (string, error) {
	text, err := readPrivate(path, maxKey)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.FileNotFound, "the file %s, which has the key for the server, does not exist", userfile.Relative(path))
	}
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fault.New(fault.ConfigInvalid, "%s is empty: it should have the key for the server", userfile.Relative(path))
	}
	return key, nil
}

// readPrivate reads a small file that only this user may read and write.
func readPrivate(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fault.New(fault.ConfigInvalid, "%s is %s and no file with a key", userfile.Relative(path), userfile.Kind(info.Mode()))
	case datadir.Foreign(info) != nil:
		return nil, fault.New(fault.ConfigInvalid, "%s %v: it is not read", userfile.Relative(path), datadir.Foreign(info))
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, fault.New(fault.ConfigInvalid, "%s has a key, and others may read it: `chmod 600 %s`, and replace the key if somebody may have", userfile.Relative(path), userfile.Relative(path))
	}
	f, _, err := userfile.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, userfile.OpenError(path, fault.Usage, err)
	case int64(len(text)) > limit:
		return nil, fault.New(fault.ConfigInvalid, "%s is larger than %d bytes", userfile.Relative(path), limit)
	}
	return text, nil
}

// A Target is the server that commands use.
type Target struct {
	URL     Value // Value "" = the data directory
	Key     string
	KeyFrom Value  // its Value is masked
	Profile string // "" = none
}

// Masked stands for a key wherever one would be shown.
const Masked = "[masked]"

// Target returns the server that commands use: that of a flag, else of a variable, else of the
// user's config.yaml, else of the profile in use. Of a server and a profile in one place the
// server counts. --data without one of these flags names the data directory. A key of the
// environment goes only to a server that no profile has named: a profile has its own.
func (c *Config) Target(flags Flags) (*Target, error) {
	server, profile := c.Lookup(Find("server"), flags)[0], c.Lookup(Find("profile"), flags)[0]
	rank := func(v Value) int {
		for i, origin := range []string{"default", "user", "env", "flag"} {
			if v.Origin == origin {
				return i
			}
		}
		return 0
	}
	if *c.dataFlag != "" {
		for _, v := range []Value{server, profile} {
			if v.Origin == "flag" && v.Value != NoProfile {
				return nil, fault.New(fault.Usage, "--data names a data directory, and %s a server: want one", v.Where)
			}
		}
		return &Target{}, nil
	}
	all, err := c.Profiles()
	if err != nil {
		return nil, err
	}
	t := &Target{}
	if rank(server) > 0 && rank(server) >= rank(profile) {
		t.URL = server
	} else {
		name := profile.Value
		if rank(profile) == 0 {
			name, profile = all.Use, Value{Origin: "profile in use", Where: "roux profiles use"}
		}
		if name == "" || name == NoProfile {
			return t, nil
		}
		p, ok := all.Profiles[name]
		if !ok {
			return nil, fault.New(fault.ConfigInvalid, "%s: there is no profile %s: `roux profiles list` shows those that there are, `roux profiles set %s --server URL` makes it", profile.Where, name, name)
		}
		t.Profile, t.URL = name, Value{p.URL, "profile", name}
		t.Key, t.KeyFrom = p.Key, Value{"", "profile", name}
	}
	if err := checkServer(t.URL.Value); err != nil {
		return nil, fault.New(fault.ConfigInvalid, "%s: server: %v", t.URL.Where, err)
	}
	return t, c.chooseKey(t, all, flags)
}

// chooseKey sets the key for the server of a target.
func (c *Config) chooseKey(t *Target, all *Profiles, flags Flags) error {
	file, key := c.Lookup(Find("key-file"), flags)[0], c.Lookup(Find("key"), nil)[0]
	var err error
	switch {
	case file.Origin == "flag":
		t.Key, err = ReadKey(file.Value)
		t.KeyFrom = file
	case t.Profile != "":
	case key.Origin == "env":
		t.Key, t.KeyFrom = strings.TrimSpace(key.Value), key
	case file.Origin != "default":
		t.Key, err = ReadKey(file.Value)
		t.KeyFrom = file
	default:
		for name, p := range all.Profiles { // the key that was kept for this address
			if p.URL == t.URL.Value && p.Key != "" && (t.Key == "" || name < t.KeyFrom.Where) {
				t.Key, t.KeyFrom = p.Key, Value{"", "profile", name}
			}
		}
	}
	if t.Key != "" {
		t.KeyFrom.Value = Masked
	}
	return err
}
