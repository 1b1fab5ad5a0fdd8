// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Account is the account whose runs, files and credits commands handle unless the
// setting `account` names another one. It does not pay unless the table `accounts` says
// so.
const Account = "local"

// A Value is one value of a setting and its origin.
type Value struct {
	Value  string `json:"value"`
	Origin string `json:"origin"` // flag, env, project, user or default
	Where  string `json:"where"`  // --data, ROUX_DATA, roux.yaml:3
}

// Flags returns the value of a flag; ok is false when the user did not give it.
type Flags func(name string) (value string, ok bool)

// A Config holds the sources of settings: the environment, the files of configuration
// and the flag --data. Other flags are passed to Lookup.
type Config struct {
	env      func(string) string
	dataFlag *string
	files    []file
}

// New returns a Config without files. env reads a variable of the environment.
// dataFlag points to the value of --data, which may be set later.
func New(env func(string) string, dataFlag *string) *Config {
	return &Config{env: env, dataFlag: dataFlag}
}

// Files returns the paths of the files of configuration that were read.
func (c *Config) Files() (paths []string) {
	for i := range c.files {
		paths = append(paths, c.files[i].path)
	}
	return paths
}

// Lookup returns all values of a setting. The first one counts: a flag, else a
// variable, else the project's roux.yaml, else the user's config.yaml, else the
// default, which is always the last. flags may be nil.
func (c *Config) Lookup(s *Setting, flags Flags) (values []Value) {
	if flags != nil && s.Flag != "" {
		if v, ok := flags(s.Flag); ok {
			values = append(values, Value{v, "flag", "--" + s.Flag})
		}
	}
	if s.Key == "color" && flags != nil {
		if _, ok := flags("no-color"); ok {
			values = append(values, Value{"never", "flag", "--no-color"})
		}
	}
	if v := c.env(s.Env); v != "" {
		values = append(values, Value{v, "env", s.Env})
	}
	if s.Key == "color" && c.env("NO_COLOR") != "" {
		values = append(values, Value{"never", "env", "NO_COLOR"})
	}
	for i := range c.files {
		f := &c.files[i]
		if v, ok := f.values[s.Key]; ok && c.maySet(f, s) {
			values = append(values, Value{v.text, f.kind, fmt.Sprintf("%s:%d", f.path, v.line)})
		}
	}
	return append(values, Value{s.Default, "default", ""})
}

// Get returns the value of a setting, flags left out.
func (c *Config) Get(key string) Value { return c.Lookup(Find(key), nil)[0] }

// Number returns the value of a setting that is a number.
func (c *Config) Number(key string) int {
	n, err := strconv.Atoi(c.Get(key).Value)
	if err != nil {
		return 0 // such a value was refused before
	}
	return n
}

// Getenv returns a variable of the environment, else the value that a file of
// configuration has for it.
func (c *Config) Getenv(name string) string {
	if v := c.env(name); v != "" {
		return v
	}
	for i := range table {
		if table[i].Env == name {
			if v := c.Lookup(&table[i], nil)[0]; v.Origin != "default" {
				return v.Value
			}
		}
	}
	return ""
}

// maySet reports whether the file f may set s: a project's file sets an ofData setting
// only for a data directory inside the project.
func (c *Config) maySet(f *file, s *Setting) bool {
	if !s.ofData || f.kind != "project" {
		return true
	}
	dir, err := c.DataDir()
	return err == nil && within(f.dir, dir)
}

// within reports whether dir, which need not exist, lies in home. It follows links.
func within(home, dir string) bool {
	rel, err := filepath.Rel(resolved(home), resolved(dir))
	return err == nil && filepath.IsLocal(rel)
}

// resolved returns a path without links, as far as there is something at it.
func resolved(path string) string {
	if at, err := filepath.EvalSymlinks(path); err == nil {
		return at
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(resolved(dir), filepath.Base(path))
	}
	return path
}

// Ignored returns a message for each value of a project's file that is not used
// because the data directory is not the project's own.
func (c *Config) Ignored() (messages []string) {
	for i := range c.files {
		f := &c.files[i]
		for j := range table {
			s := &table[j]
			if v, ok := f.values[s.Key]; ok && !c.maySet(f, s) {
				messages = append(messages, fmt.Sprintf("%s:%d: %s is not used: the data directory is not the project's own, and may hold runs of others; set %s, or write it into your config.yaml",
					f.path, v.line, s.Key, s.Env))
			}
		}
	}
	return messages
}
