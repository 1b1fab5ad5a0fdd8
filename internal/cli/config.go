// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/yamlx"
)

const (
	// projectFile is looked for in the working directory and those above it.
	projectFile = "roux.yaml"
	// maxConfig bounds a file of configuration.
	maxConfig = 64 << 10
)

// A configFile is a file of configuration that was read.
type configFile struct {
	kind   string // project or user
	dir    string // in which the file lies
	path   string
	values map[string]configValue
}

type configValue struct {
	text string
	line int32
}

// readConfigs reads the project's roux.yaml and the user's config.yaml, where
// they exist.
func (a *app) readConfigs() error {
	a.configs = nil
	var errs []error
	if path := findProject(); path != "" {
		errs = append(errs, a.readConfig("project", path))
	}
	if dir, err := userConfigDir(runtime.GOOS, a.getenv); err == nil {
		errs = append(errs, a.readConfig("user", filepath.Join(dir, "config.yaml")))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// findProject looks upward from the working directory for roux.yaml.
func findProject() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		path := filepath.Join(dir, projectFile)
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

// userConfigDir is where the system keeps a user's configuration of Roux.
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

// readConfig reads one file; one that is not there says nothing.
func (a *app) readConfig(kind, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// A file above the working directory may be anybody's: what another user
	// wrote must not say where our runs go. A FIFO would keep us waiting.
	if err == nil {
		if why := datadir.Foreign(info); why != nil {
			a.say("%s %v: it is not read", showPath(path), why)
			return nil
		}
		if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(null, info) {
			return nil
		}
		if !info.Mode().IsRegular() {
			return fault.New(fault.ConfigInvalid, "%s is %s and no file of configuration", showPath(path), kindOf(info.Mode()))
		}
	}
	f, _, err := openRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if why := ownedByUs(f); why != nil { // it was replaced meanwhile
		a.say("%s %v: it is not read", showPath(path), why)
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	switch {
	case err != nil:
		return fileError(path, fault.Usage, err)
	case len(text) > maxConfig:
		return fault.New(fault.ConfigInvalid, "%s is larger than 64KiB: this is no file of configuration", showPath(path))
	}
	c := configFile{kind: kind, dir: filepath.Dir(path), path: showPath(path), values: map[string]configValue{}}
	if diags := c.parse(text, filepath.Dir(path)); len(diags) > 0 {
		return fault.Invalid(fault.ConfigInvalid, diags)
	}
	a.configs = append(a.configs, c)
	return nil
}

// showPath is a path as a person at this place would write it.
func showPath(path string) string {
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, path); err == nil && !strings.HasPrefix(rel, filepath.Join("..", "..", "..")) {
			return rel
		}
	}
	return path
}

// parse reads the text; dir is where its relative paths begin.
func (c *configFile) parse(text []byte, dir string) []fault.Diagnostic {
	if strings.TrimSpace(stripComments(text)) == "" {
		return nil
	}
	root, problems := yamlx.Parse(text, jsonx.Limits{Bytes: maxConfig})
	var diags []fault.Diagnostic
	for _, p := range problems {
		diags = append(diags, c.diagnostic(p.Pos, p.Rule, p.Msg, p.Hint))
	}
	if len(diags) > 0 {
		return diags
	}
	return c.walk(root, "", dir)
}

// stripComments leaves what is not a comment line: a file of only comments
// is no YAML document, and says nothing.
func stripComments(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func (c *configFile) walk(n *jsonx.Node, prefix, dir string) (diags []fault.Diagnostic) {
	if n.Kind != jsonx.Object {
		what := "the file"
		if prefix != "" {
			what = strings.TrimSuffix(prefix, ".")
		}
		return append(diags, c.diagnostic(n.Pos, "type", fmt.Sprintf("%s is %s; want settings, one `name: value` a line", what, n.Kind), ""))
	}
	for _, child := range n.Children {
		key := prefix + child.Key
		switch s := settingOf(key); {
		case s != nil && s.personal && c.kind == "project":
			diags = append(diags, c.diagnostic(child.KeyPos, "personal", key+" opens something that the project's files must not open",
				"set "+s.env+", or write it into the user's config.yaml"))
		case s != nil:
			text, err := s.text(child, dir)
			if err != nil {
				diags = append(diags, c.diagnostic(child.Pos, "value", fmt.Sprintf("%s: %v", key, err), ""))
				continue
			}
			c.values[key] = configValue{text, child.KeyPos.Line}
		case isGroup(key):
			diags = append(diags, c.walk(child, key+".", dir)...)
		default:
			hint := "`roux config list` shows all settings"
			if near := nearest(key, settingKeys()); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			diags = append(diags, c.diagnostic(child.KeyPos, "unknown-field", fmt.Sprintf("there is no setting %q", view.OneLine(view.Cut(key, 60))), hint))
		}
	}
	return diags
}

// isGroup says that settings lie below this name.
func isGroup(key string) bool {
	for _, s := range settings {
		if strings.HasPrefix(s.key, key+".") {
			return true
		}
	}
	return false
}

// text is the value of a setting as a flag or a variable would write it.
func (s *setting) text(n *jsonx.Node, dir string) (string, error) {
	var text string
	switch {
	case n.Kind == jsonx.Array && s.list:
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
		return "", fmt.Errorf("found %s, want %s", n.Kind, s.want)
	}
	if text == "" {
		return "", fmt.Errorf("found nothing, want %s", s.want)
	}
	if s.path && !filepath.IsAbs(text) {
		text = filepath.Join(dir, text)
	}
	return text, s.valid(text)
}

func (c *configFile) diagnostic(pos jsonx.Pos, rule, msg, hint string) fault.Diagnostic {
	return fault.Diagnostic{
		Code: fault.ConfigInvalid, Rule: rule, Msg: msg, Hint: hint,
		Pos: fault.Pos{File: c.path, Line: int(pos.Line), Col: int(pos.Col), Len: int(pos.Len)},
	}
}

// lenient commands work although the configuration does not hold together.
func lenient(cmd *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		if cmd.Annotations["config"] == "lenient" {
			return true
		}
	}
	return false
}
