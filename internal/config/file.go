// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/yamlx"
)

const (
	// ProjectFile is the name of a project's file of configuration. It is looked
	// for in the working directory and in those above it.
	ProjectFile = "roux.yaml"
	// maxFile bounds a file of configuration.
	maxFile = 64 << 10
)

// A file is a file of configuration that was read.
type file struct {
	kind   string // project or user
	dir    string // the directory of the file
	path   string // as messages show it
	values map[string]fileValue
}

type fileValue struct {
	text string
	line int32
}

// Read reads the project's roux.yaml and the user's config.yaml, where they
// exist. It reports files that it does not read through say. After an error the
// other file is still in use.
func (c *Config) Read(say func(format string, args ...any)) error {
	c.files = nil
	var errs []error
	if path := findProject(); path != "" {
		errs = append(errs, c.readFile("project", path, say))
	}
	if dir, err := userConfigDir(runtime.GOOS, c.env); err == nil {
		errs = append(errs, c.readFile("user", filepath.Join(dir, "config.yaml"), say))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// findProject looks for roux.yaml in the working directory and those above it.
func findProject() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		path := filepath.Join(dir, ProjectFile)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// userConfigDir returns the directory of the user's configuration of Roux.
func userConfigDir(goos string, getenv func(string) string) (string, error) {
	if d := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "roux"), nil
	}
	if goos == "windows" {
		if d := getenv("AppData"); d != "" {
			return filepath.Join(d, "roux"), nil
		}
		return "", fault.New(fault.Usage, "AppData is not set")
	}
	h := getenv("HOME")
	if h == "" {
		return "", fault.New(fault.Usage, "HOME is not set")
	}
	if goos == "darwin" {
		return filepath.Join(h, "Library", "Application Support", "roux"), nil
	}
	return filepath.Join(h, ".config", "roux"), nil
}

// readFile reads one file. A missing file has no settings.
func (c *Config) readFile(kind, path string, say func(format string, args ...any)) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// A file above the working directory may belong to anybody, and another user
	// must not decide where our runs go. Opening a FIFO could block.
	if err == nil {
		if why := datadir.Foreign(info); why != nil {
			say("%s %v: it is not read", userfile.Relative(path), why)
			return nil
		}
		if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(null, info) {
			return nil
		}
		if !info.Mode().IsRegular() {
			return fault.New(fault.ConfigInvalid, "%s is %s and no file of configuration", userfile.Relative(path), userfile.Kind(info.Mode()))
		}
	}
	f, _, err := userfile.OpenRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err = f.Stat()
	if err == nil {
		err = datadir.Foreign(info) // it may have been replaced since os.Stat
	}
	if err != nil {
		say("%s %v: it is not read", userfile.Relative(path), err)
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return userfile.OpenError(path, fault.Usage, err)
	case len(text) > maxFile:
		return fault.New(fault.ConfigInvalid, "%s is larger than 64KiB: this is no file of configuration", userfile.Relative(path))
	}
	r := file{kind: kind, dir: filepath.Dir(path), path: userfile.Relative(path), values: map[string]fileValue{}}
	if diags := r.parse(text); len(diags) > 0 {
		return fault.Invalid(fault.ConfigInvalid, diags)
	}
	c.files = append(c.files, r)
	return nil
}

// parse reads the settings from text.
func (f *file) parse(text []byte) []fault.Diagnostic {
	if strings.TrimSpace(withoutComments(text)) == "" {
		return nil
	}
	root, problems := yamlx.Parse(text, jsonx.Limits{Bytes: maxFile})
	var diags []fault.Diagnostic
	for _, p := range problems {
		diags = append(diags, f.diagnostic(p.Pos, p.Rule, p.Msg, p.Hint))
	}
	if len(diags) > 0 {
		return diags
	}
	return f.walk(root, "")
}

// withoutComments removes lines that are comments. A file of comments alone is
// not a YAML document, and has no settings.
func withoutComments(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// walk reads the settings below a node whose keys begin with prefix.
func (f *file) walk(n *jsonx.Node, prefix string) (diags []fault.Diagnostic) {
	if n.Kind != jsonx.Object {
		what := "the file"
		if prefix != "" {
			what = strings.TrimSuffix(prefix, ".")
		}
		return append(diags, f.diagnostic(n.Pos, "type", fmt.Sprintf("%s is %s; want settings, one `name: value` a line", what, n.Kind), ""))
	}
	for _, child := range n.Children {
		key := prefix + child.Key
		switch s := Find(key); {
		case s != nil && s.Personal && f.kind == "project":
			diags = append(diags, f.diagnostic(child.KeyPos, "personal", key+" opens something that the project's files must not open",
				"set "+s.Env+", or write it into the user's config.yaml"))
		case s != nil && s.Secret:
			diags = append(diags, f.diagnostic(child.KeyPos, "secret", key+" is not read from a file of settings", "set "+s.Env+", or keep it with `roux profiles set`"))
		case s != nil:
			text, err := s.text(child, f.dir)
			if err == nil && s.inProject && f.kind == "project" {
				err = checkDirsOf(f.dir, text)
			}
			if err != nil {
				diags = append(diags, f.diagnostic(child.Pos, "value", fmt.Sprintf("%s: %v", key, err), ""))
				continue
			}
			f.values[key] = fileValue{text, child.KeyPos.Line}
		case isGroup(key):
			diags = append(diags, f.walk(child, key+".")...)
		default:
			hint := "`roux config list` shows all settings"
			if near := spell.Nearest(key, Keys()); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			diags = append(diags, f.diagnostic(child.KeyPos, "unknown-field", fmt.Sprintf("there is no setting %q", view.OneLine(view.Cut(key, 60))), hint))
		}
	}
	return diags
}

// isGroup reports whether there are settings below this key.
func isGroup(key string) bool {
	for i := range table {
		if strings.HasPrefix(table[i].Key, key+".") {
			return true
		}
	}
	return false
}

// text returns the value of a setting as a flag or a variable would have it.
func (s *Setting) text(n *jsonx.Node, dir string) (string, error) {
	var text string
	switch {
	case s.Table && n.Kind == jsonx.Object:
		raw, err := json.Marshal(n.Value())
		if err != nil {
			return "", err
		}
		text = string(raw)
	case s.Table:
		return "", fmt.Errorf("found %s, want %s", n.Kind, s.Want)
	case n.Kind == jsonx.Array && s.List:
		parts := make([]string, len(n.Children))
		for i, c := range n.Children {
			if c.Kind != jsonx.String || strings.Contains(c.Text, ",") {
				return "", fmt.Errorf("want a list of texts without commas")
			}
			parts[i] = c.Text
		}
		text = strings.Join(parts, ",")
	case n.Kind == jsonx.String:
		text = n.Text
	case n.Kind == jsonx.Int:
		text = strconv.FormatInt(n.Int, 10)
	case n.Kind == jsonx.Bool:
		text = strconv.FormatBool(n.Bool)
	default:
		return "", fmt.Errorf("found %s, want %s", n.Kind, s.Want)
	}
	if text == "" {
		return "", fmt.Errorf("found nothing, want %s", s.Want)
	}
	if s.path {
		parts := []string{text}
		if s.List {
			parts = strings.Split(text, ",")
		}
		for i, part := range parts {
			if part = strings.TrimSpace(part); part != "" && !filepath.IsAbs(part) && !strings.Contains(part, "://") {
				parts[i] = filepath.Join(dir, part)
			}
		}
		text = strings.Join(parts, ",")
	}
	return text, s.Valid(text)
}

func (f *file) diagnostic(pos jsonx.Pos, rule, msg, hint string) fault.Diagnostic {
	return fault.Diagnostic{
		Code: fault.ConfigInvalid, Rule: rule, Msg: msg, Hint: hint,
		Pos: fault.Pos{File: f.path, Line: int(pos.Line), Col: int(pos.Col), Len: int(pos.Len)},
	}
}
