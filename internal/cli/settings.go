// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/telemetry"
	"github.com/roux-engine/roux/internal/view"
)

// prepare reads the configuration and sets the flags that were not given. It runs
// before every command.
func (a *app) prepare(cmd *cobra.Command) error {
	if mutation.Removable {
		a.screen.Print("warning: " + thisBuild().broken() + "\n") // also with --quiet
	}
	configErr := a.config.Read(a.say)
	if configErr != nil && !lenient(cmd) {
		return configErr
	}
	a.configErr = configErr
	given := givenFlags(cmd)
	for i := range config.All() {
		s := &config.All()[i]
		v := a.config.Lookup(s, given)[0]
		if v.Origin == "default" {
			continue
		}
		err := s.Valid(v.Value)
		global := cmd.Root().PersistentFlags().Lookup(s.Flag)
		// A flag of that name that a command defines itself is something else.
		if f := cmd.Flags().Lookup(s.Flag); s.Flag != "" && f != nil && (global == nil || f == global) && v.Origin != "flag" && err == nil {
			if s.Key != "data" { // hints repeat --data only when the user gave it
				err = f.Value.Set(v.Value)
			}
		}
		if err != nil {
			return fault.Wrap(fault.ConfigInvalid, err, "%s: %s %q: %v; `roux config explain %s` says where values come from",
				v.Where, s.Key, view.OneLine(view.Cut(v.Value, 60)), err, s.Key)
		}
	}
	a.getenv = a.config.Getenv
	if a.recipes == "" {
		a.recipes = a.config.RecipesDir()
	}
	if err := a.checkForm(strings.Fields(cmd.Annotations["forms"])); err != nil {
		return err
	}
	if v := a.config.Lookup(config.Find("color"), given)[0]; v.Value == "never" {
		a.screen.NoColour()
	}
	allow, err := egress.ParseAllow(settingOr(a.config.Get("egress.allow"), ""))
	if err != nil {
		return err // cannot happen: it was checked above
	}
	commands, err := a.config.Commands()
	if err != nil && !lenient(cmd) {
		return err
	}
	providers, err := a.config.Providers()
	workers, wrong := a.config.Workers()
	set, invalid := a.config.Limits()
	a.limits = set
	if err = errors.Join(err, wrong, invalid); err == nil {
		err = a.useActions(allow, a.config.Prices(), commands, providers, workers)
		moderators, wrong := a.config.Moderation()
		err = errors.Join(err, wrong, a.built.AddModerators(moderators, a.getenv))
	}
	if err != nil && !lenient(cmd) {
		return err
	}
	a.log = newLog(a.screen, a.verbose)
	if format := a.config.Get("log.format").Value; format != telemetry.LogOff {
		level := slog.LevelInfo
		if a.verbose {
			level = slog.LevelDebug
		}
		a.log = telemetry.NewLogger(logWriter{a.screen}, format, level, nil)
	}
	for _, message := range a.config.Ignored() {
		a.say("%s", message)
	}
	for _, path := range a.config.Files() {
		a.log.Debug("configuration read", "file", path)
	}
	if err := a.aim(cmd); err != nil {
		return err
	}
	return a.deadline(cmd)
}

// settingOr returns a value, or def where it is the default.
func settingOr(v config.Value, def string) string {
	if v.Origin == "default" {
		return def
	}
	return v.Value
}

// givenFlags returns the values of the flags that the user gave to a command.
func givenFlags(cmd *cobra.Command) config.Flags {
	return func(name string) (string, bool) {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return f.Value.String(), true
		}
		return "", false
	}
}

// lenient reports whether a command works with an invalid configuration.
func lenient(cmd *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		if cmd.Annotations["config"] == "lenient" {
			return true
		}
	}
	return false
}

// The values of --time.
const (
	timeRelative = "relative"
	timeISO      = "iso"
)

// A choice is a flag whose value is one of a few words.
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

// Set implements pflag.Value.
func (c choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("want %s", strings.Join(c.words, " or "))
	}
	*c.value = text
	return nil
}

// Type implements pflag.Value; help shows it.
func (c choice) Type() string { return strings.Join(c.words, "|") }

// when formats a time as --time says.
func (a *app) when(micros int64) string {
	if a.times == timeISO {
		return view.Stamp(micros)
	}
	return ago(a.now(), micros)
}

// exact formats a time in full, for a place that has room.
func (a *app) exact(micros int64) string {
	if a.times == timeISO {
		return view.Stamp(micros)
	}
	return view.Stamp(micros) + " (" + ago(a.now(), micros) + ")"
}

// deadline applies --timeout to the context of a command.
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

// following returns the context of a command that follows runs. For it --timeout
// counts from the start of the run, so that it never interrupts the start.
func (a *app) following(ctx context.Context) context.Context {
	if a.unhurried != nil {
		return a.unhurried
	}
	return ctx
}

// errWaited is the cause of a context that --timeout has ended.
var errWaited = errors.New("--timeout is over")

// waited reports whether --timeout has ended the context.
func waited(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errWaited) }
