// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/view"
)

// A setting is one row of the table from which help, docs/config.md, the names
// of variables and the schema of roux.yaml come. Precedence: flag, variable,
// project roux.yaml, the user's config.yaml, default.
type setting struct {
	key  string // in roux.yaml; a point leads into a mapping
	env  string
	flag string // without dashes; "" = none
	def  string // as text; what is worked out stands in brackets
	what string
	want string // the values it takes, for messages and the schema
	// check says what is wrong with a value; nil takes any text. Values that a
	// flag takes are checked by the flag.
	check func(text string) error
	enum  []string
	list  bool // a list in roux.yaml, text with commas elsewhere
	path  bool // relative to the file that says it
	// personal settings are not taken from a project's roux.yaml: who clones a
	// project has not agreed to what it opens.
	personal bool
	// ofData settings say what becomes of what a data directory holds. A project's
	// roux.yaml says it of one in the project only: another holds the runs of other
	// projects, too.
	ofData bool
}

const ofProjects = "; a project's `roux.yaml` says it of a data directory in the project only"

// settings is the table, in the order in which it is listed.
var settings = []setting{
	{
		key: "data", env: "ROUX_DATA", flag: "data", def: "(./.roux where it exists, else the user's data directory)",
		what: "data directory: where runs and files are kept; a project's `roux.yaml` may name one below its own directory only", want: "a directory", path: true,
	},
	{
		key: "output", env: "ROUX_OUTPUT", flag: "output", def: asTable,
		what: "form of results", want: "table, json, jsonl, yaml, name or template={{ … }}",
	},
	{
		key: "color", env: "ROUX_COLOR", def: "auto", what: "colours on a terminal; NO_COLOR, TERM=dumb, CI=1 and --no-color say never",
		want: "auto or never", enum: []string{"auto", "never"},
	},
	{
		key: "time", env: "ROUX_TIME", flag: "time", def: timeRelative, what: "how times are shown to people",
		want: "relative or iso", enum: []string{timeRelative, timeISO},
	},
	{
		key: "timeout", env: "ROUX_TIMEOUT", flag: "timeout", def: "0s", what: "how long a command waits, for a run from its start on, before it ends with exit code 8; 0s = as long as it takes",
		want: "a duration such as 30s",
	},
	{
		key: "max-source", env: "ROUX_MAX_SOURCE", flag: "max-source", def: "1MiB", what: "largest recipe that is read, up to 16MiB",
		want: "a size such as 4MiB", check: func(text string) error { return new(byteSize).Set(text) },
	},
	{
		key: "concurrency", env: "ROUX_CONCURRENCY", def: "1024", what: "how many attempts may be under way at once",
		want: "a number from 1 to 1000000", check: func(text string) error {
			if n, err := strconv.Atoi(text); err != nil || n < 1 || n > 1_000_000 {
				return fmt.Errorf("want a number from 1 to 1000000")
			}
			return nil
		},
	},
	{
		key: "retain.runs", env: "ROUX_RETAIN_RUNS", def: "7d", what: "how long a run is kept after it has ended" + ofProjects,
		want: "a duration of at least 1h, such as 7d, or forever", check: checkRetention, ofData: true,
	},
	{
		key: "retain.files", env: "ROUX_RETAIN_FILES", def: "7d", what: "how long a file is kept after the last run that names it has ended" + ofProjects,
		want: "a duration of at least 1h, such as 7d, or forever", check: checkRetention, ofData: true,
	},
	{
		key: "retain.uploads", env: "ROUX_RETAIN_UPLOADS", def: "24h", what: "how long a file that no run names is kept after its last use" + ofProjects,
		want: "a duration of at least 1h, such as 7d, or forever", check: checkRetention, ofData: true,
	},
	{
		key: "egress.allow", env: egress.Variable, def: "(public addresses only)",
		what: "address ranges that `http` may reach beside public addresses, such as 127.0.0.1/32", want: "ranges such as 127.0.0.1/32,10.0.0.0/8",
		list: true, personal: true, check: func(text string) error { _, err := egress.ParseAllow(text); return err },
	},
}

// A found is a value of a setting and where it comes from.
type found struct {
	Value  string `json:"value"`
	Origin string `json:"origin"` // flag, env, project, user or default
	Where  string `json:"where"`  // --data, ROUX_DATA, roux.yaml:3
}

// lookup lists all values of a setting, what counts first; the default is last.
// cmd may be nil.
func (a *app) lookup(s *setting, cmd *cobra.Command) (values []found) {
	if cmd != nil && s.flag != "" {
		if f := cmd.Flags().Lookup(s.flag); f != nil && f.Changed {
			values = append(values, found{f.Value.String(), "flag", "--" + s.flag})
		}
	}
	if s.key == "color" && cmd != nil {
		if f := cmd.Flags().Lookup("no-color"); f != nil && f.Changed {
			values = append(values, found{"never", "flag", "--no-color"})
		}
	}
	if v := a.environ(s.env); v != "" {
		values = append(values, found{v, "env", s.env})
	}
	if s.key == "color" && a.environ("NO_COLOR") != "" {
		values = append(values, found{"never", "env", "NO_COLOR"})
	}
	for _, file := range a.configs {
		if v, ok := file.values[s.key]; ok && a.mayDecide(&file, s) {
			values = append(values, found{v.text, file.kind, fmt.Sprintf("%s:%d", file.path, v.line)})
		}
	}
	return append(values, found{s.def, "default", ""})
}

// mayDecide says whether a file of configuration may set what it names.
func (a *app) mayDecide(file *configFile, s *setting) bool {
	if !s.ofData || file.kind != "project" {
		return true
	}
	dir, err := a.dataDir()
	return err == nil && within(file.dir, dir)
}

// within says whether dir lies in home, links followed.
func within(home, dir string) bool {
	if at, err := filepath.EvalSymlinks(home); err == nil {
		home = at
	}
	if at, err := filepath.EvalSymlinks(dir); err == nil {
		dir = at
	}
	rel, err := filepath.Rel(home, dir)
	return err == nil && filepath.IsLocal(rel)
}

// sayIgnored names what a project's file may not set here.
func (a *app) sayIgnored() {
	for i := range a.configs {
		file := &a.configs[i]
		for j := range settings {
			s := &settings[j]
			if v, ok := file.values[s.key]; ok && !a.mayDecide(file, s) {
				a.say("%s:%d: %s is not used: the data directory is not the project's own, and may hold runs of others; set %s, or write it into your config.yaml",
					file.path, v.line, s.key, s.env)
			}
		}
	}
}

// valid checks one value against its row.
func (s *setting) valid(text string) error {
	switch {
	case s.enum != nil && !slices.Contains(s.enum, text):
		return fmt.Errorf("want %s", s.want)
	case s.check != nil:
		return s.check(text)
	}
	return nil
}

// prepare reads the configuration and makes it the values of the flags that
// were not given. It runs before every command.
func (a *app) prepare(cmd *cobra.Command) error {
	a.environ = a.getenv
	if mutation.Removable {
		a.screen.print("warning: " + thisBuild().broken() + "\n") // also with --quiet
	}
	configErr := a.readConfigs()
	if configErr != nil && !lenient(cmd) {
		return configErr
	}
	a.configErr = configErr
	for i := range settings {
		s := &settings[i]
		v := a.lookup(s, cmd)[0]
		if v.Origin == "default" {
			continue
		}
		err := s.valid(v.Value)
		global := cmd.Root().PersistentFlags().Lookup(s.flag)
		// A command that has a flag of its own by that name means something else.
		if f := cmd.Flags().Lookup(s.flag); s.flag != "" && f != nil && (global == nil || f == global) && v.Origin != "flag" && err == nil {
			if s.key != "data" { // its origin matters to the hints that repeat it
				err = f.Value.Set(v.Value)
			}
		}
		if err != nil {
			return fault.Wrap(fault.ConfigInvalid, err, "%s: %s %q: %v; `roux config explain %s` says where values come from",
				v.Where, s.key, view.OneLine(view.Cut(v.Value, 60)), err, s.key)
		}
	}
	a.getenv = a.configured
	if err := a.checkForm(strings.Fields(cmd.Annotations["forms"])); err != nil {
		return err
	}
	if v := a.lookup(settingOf("color"), cmd)[0]; v.Value == "never" {
		a.screen.colour = false
	}
	if v := a.lookup(settingOf("egress.allow"), nil)[0]; v.Origin != "default" {
		allow, err := egress.ParseAllow(v.Value)
		if err != nil {
			return err // refused above
		}
		a.useActions(allow)
	}
	a.log = newLog(a.screen, a.verbose)
	a.sayIgnored()
	for _, file := range a.configs {
		a.log.Debug("configuration read", "file", file.path)
	}
	return a.deadline(cmd)
}

// configured is the environment with the files of configuration behind it: what
// a variable would say, a file may say.
func (a *app) configured(name string) string {
	if v := a.environ(name); v != "" {
		return v
	}
	for i := range settings {
		if settings[i].env == name {
			if v := a.lookup(&settings[i], nil)[0]; v.Origin != "default" {
				return v.Value
			}
		}
	}
	return ""
}

// number is a setting that is a number.
func (a *app) number(key string) int {
	n, err := strconv.Atoi(a.lookup(settingOf(key), nil)[0].Value)
	if err != nil {
		return 0 // prepare has refused it
	}
	return n
}

// settingOf finds a row; nil = there is none.
func settingOf(key string) *setting {
	for i := range settings {
		if settings[i].key == key {
			return &settings[i]
		}
	}
	return nil
}

func settingKeys() (keys []string) {
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	return keys
}

// The ways to show times.
const (
	timeRelative = "relative"
	timeISO      = "iso"
)

// A choice is a flag that takes one of a few words.
type choice struct {
	value *string
	words []string
}

func (c choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

// Set reads a flag's value.
func (c choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("want %s", strings.Join(c.words, " or "))
	}
	*c.value = text
	return nil
}

// Type names the value in help.
func (c choice) Type() string { return strings.Join(c.words, "|") }

// when is a moment as --time asks for it.
func (a *app) when(micros int64) string {
	if a.times == timeISO {
		return view.Stamp(micros)
	}
	return ago(a.now(), micros)
}

// exact is a moment with its exact time, for a place that has room.
func (a *app) exact(micros int64) string {
	if a.times == timeISO {
		return view.Stamp(micros)
	}
	return view.Stamp(micros) + " (" + ago(a.now(), micros) + ")"
}

// deadline makes --timeout the end of the command's context.
func (a *app) deadline(cmd *cobra.Command) error {
	switch {
	case a.timeout < 0:
		return fault.New(fault.Usage, "--timeout %s: want a duration such as 30s", a.timeout)
	case a.timeout > 0:
		a.unhurried = cmd.Context()
		ctx, cancel := context.WithTimeoutCause(cmd.Context(), a.timeout, errWaited)
		a.release = cancel
		cmd.SetContext(ctx)
		a.ctx = ctx
	}
	return nil
}

// following is the context of a command that follows runs: for those --timeout
// begins when the run has begun, so that it never ends a start half way.
func (a *app) following(ctx context.Context) context.Context {
	if a.unhurried != nil {
		return a.unhurried
	}
	return ctx
}

// errWaited is the cause of a context that --timeout ended.
var errWaited = errors.New("--timeout is over")

// waited says that --timeout ended the context.
func waited(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errWaited) }
