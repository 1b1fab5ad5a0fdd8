// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// LocalDir is the data directory of a project. It is used where it exists.
const LocalDir = ".roux"

const dataVariable = "ROUX_DATA"

// DataDir returns the data directory: --data, else ROUX_DATA, else the one that
// a file of configuration names, else ./.roux where it exists, else the user's.
// It refuses one that may have come with a project and leads out of it.
func (c *Config) DataDir() (string, error) {
	dir, err := dataDir(*c.dataFlag, c.Getenv)
	if err != nil || *c.dataFlag != "" || c.env(dataVariable) != "" {
		return dir, err
	}
	for i := range c.files {
		f := &c.files[i]
		if _, ok := f.values["data"]; ok {
			if f.kind == "project" {
				err = checkInProject(f.dir, dir)
			}
			break // the first one counts
		}
	}
	return dir, err
}

// ProjectDir is the directory of the project: that of its file of configuration, else the
// working directory.
func (c *Config) ProjectDir() string {
	for i := range c.files {
		if c.files[i].kind == "project" {
			return userfile.Relative(c.files[i].dir)
		}
	}
	return "."
}

// recipesDir is the directory of registered recipes where nothing names another one.
const recipesDir = "recipes"

// RecipesDir returns the directory of registered recipes, without regard to flags: the one
// that a variable or a file of configuration names, else ./recipes where it exists, else
// "".
func (c *Config) RecipesDir() string {
	if v := c.Get("recipes"); v.Origin != "default" {
		return v.Value
	}
	if info, err := os.Stat(recipesDir); err == nil && info.IsDir() {
		return recipesDir
	}
	return ""
}

// ByDefault reports whether nothing names the data directory.
func (c *Config) ByDefault() bool { return *c.dataFlag == "" && c.Getenv(dataVariable) == "" }

func dataDir(flag string, getenv func(string) string) (string, error) {
	dir := flag
	if dir == "" {
		dir = getenv(dataVariable)
	}
	if dir == "" {
		if info, err := os.Lstat(LocalDir); err == nil && (info.IsDir() || info.Mode()&fs.ModeSymlink != 0) {
			if err := checkLocal(LocalDir); err != nil {
				return "", err
			}
			dir = LocalDir
		}
	}
	if dir == "" {
		var err error
		if dir, err = userDataDir(runtime.GOOS, getenv); err != nil {
			return "", err
		}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fault.Wrap(fault.Usage, err, "data directory %q: %v", dir, err)
	}
	if _, err := os.Stat(abs); errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENAMETOOLONG) {
		return "", fault.Wrap(fault.Usage, err, "data directory %s: there can be no directory of this name: %v", view.Cut(abs, 200), errors.Unwrap(err))
	}
	return abs, nil
}

// userDataDir returns the directory that the system has for an application's
// data of this user.
func userDataDir(goos string, getenv func(string) string) (string, error) {
	home := func(parts ...string) (string, error) {
		h := getenv("HOME")
		if h == "" {
			return "", fault.New(fault.Usage, "no place for data: HOME is not set; name a directory with --data DIR or ROUX_DATA")
		}
		return filepath.Join(append([]string{h}, parts...)...), nil
	}
	switch goos {
	case "windows":
		if d := getenv("LocalAppData"); d != "" {
			return filepath.Join(d, "roux"), nil
		}
		return "", fault.New(fault.Usage, "no place for data: LocalAppData is not set; name a directory with --data DIR or ROUX_DATA")
	case "darwin":
		return home("Library", "Application Support", "roux")
	}
	if d := getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "roux"), nil
	}
	return home(".local", "share", "roux")
}

// checkLocal refuses a data directory that this user cannot have made, because
// it may have come with a project. Through a link in it, a lock or a store would
// be written to any file of this user.
func checkLocal(dir string) error {
	if err := checkOwn(dir); err != nil {
		return err
	}
	return datadir.Check(dir)
}

// checkOwn refuses what is not a directory of this user. A missing one is fine.
func checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = datadir.Refuse(info, fs.ModeDir)
	}
	if err != nil {
		return fault.New(fault.Usage, "%s %v and is not used: it may have come with this project; name a data directory with --data DIR or ROUX_DATA", dir, err)
	}
	return nil
}

// checkInProject is checkLocal for a directory that the project in home names:
// it must lie in the project, with no link on the way to it.
func checkInProject(home, dir string) error {
	rel, err := filepath.Rel(home, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return fault.New(fault.Usage, "%s is outside the project whose %s names it, and is not used: a project keeps its data below its own directory; "+
			"to use this one, say so yourself with --data DIR, ROUX_DATA or your config.yaml", dir, ProjectFile)
	}
	at := home
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		at = filepath.Join(at, part)
		if err := checkOwn(at); err != nil {
			return err
		}
	}
	return datadir.Check(dir)
}
