// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of Roux.
//
// It decides how commands, flags and inputs are read, what a person and what a
// program sees of a run, which exit code ends a command, and how commands of
// one user reach the process that holds a data directory. Data goes to standard
// output, talk to standard error.
//
// It never decides what a run does: everything it shows is a fold of the run's
// journal, and everything it changes goes through the engine.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"charm.land/fang/v2"
	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/egress"
)

// Main runs one command and returns its exit code.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return execute(ctx, args, stdin, stdout, stderr, nil)
}

// execute is Main with more actions than those that come with Roux.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, more []action.Action) int {
	allow, badEnv := egress.ParseAllow(os.Getenv("ROUX_EGRESS_ALLOW"))
	actions := append(builtin.Actions(builtin.Config{Egress: egress.New(egress.Config{Allow: allow})}), more...)
	a := &app{
		stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.Getenv, now: time.Now,
		actions: catalogue(actions), badEnv: badEnv,
	}
	// Help and errors of usage are written before flags are read.
	a.screen = newScreen(stderr, slices.Contains(args, "--no-color"), a.getenv)
	root := a.command()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := fang.Execute(ctx, root, fang.WithoutVersion(), fang.WithoutManpage(),
		fang.WithErrorHandler(func(io.Writer, fang.Styles, error) {}))
	var end exit
	if errors.As(err, &end) {
		return int(end)
	}
	a.report(err)
	return fault.ExitCode(err)
}

// app is what every command shares: the world it was started in and the
// global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	screen         *screen
	getenv         func(string) string
	now            func() time.Time
	actions        *compile.Catalogue

	data   string
	output string
	quiet  bool

	badEnv error // what is wrong with the environment; nothing runs
	shown  bool  // the diagnostics of the error were shown
}

// catalogue is what recipes may call.
func catalogue(list []action.Action) *compile.Catalogue {
	decls := make([]*action.Action, len(list))
	for i := range list {
		decls[i] = &list[i]
	}
	return compile.NewCatalogue(decls...)
}

// exit ends a command with a code after everything was said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// account is whose runs the command line handles. Accounts come with the service.
const account = "local"

// The forms of output.
const (
	asTable = "table"
	asJSON  = "json"
	asLines = "jsonl"
)

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "roux",
		Short: "Roux runs recipes: durable workflows over files, models and services.",
		Example: `roux run examples/document-digest.yaml --file examples/report.pdf
roux runs get @last
roux resume`,
		Args: cobra.ArbitraryArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains([]string{asTable, asJSON, asLines}, a.output) {
				got := a.output
				a.output = asTable
				return fault.New(fault.Usage, "-o %s: want table, json or jsonl", got)
			}
			return a.badEnv
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.data, "data", "", "data directory (default ROUX_DATA, else ./.roux where it exists, else the user's data directory)")
	flags.StringVarP(&a.output, "output", "o", asTable, "form of the result: table, json or jsonl")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "say nothing but the result and errors")
	flags.Bool("no-color", false, "no colours (also NO_COLOR)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fault.Wrap(fault.Usage, err, "%v: `%s --help` lists the flags", err, cmd.CommandPath())
	})
	root.AddCommand(a.runCommand(), a.resumeCommand(), a.validateCommand(), a.runsCommand(),
		a.eventsCommand(), a.replayCommand(), a.explainCommand(), a.versionCommand())
	return root
}

// unknownCommand names what the user may have meant.
func unknownCommand(cmd *cobra.Command, name string) error {
	msg := fmt.Sprintf("%s: there is no command %q", cmd.CommandPath(), oneLine(cut(name, 60)))
	if near := nearest(name, names(cmd)); near != "" {
		return fault.New(fault.Usage, "%s; did you mean `%s %s`?", msg, cmd.CommandPath(), near)
	}
	return fault.New(fault.Usage, "%s; there are: %s", msg, strings.Join(names(cmd), ", "))
}

func names(cmd *cobra.Command) (names []string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// nearest finds the one name that a typing mistake or two away from what was
// written, or that begins with it.
func nearest(got string, names []string) string {
	best, at := "", 3
	for _, n := range names {
		d := distance(got, n)
		if len(got) >= 2 && strings.HasPrefix(n, got) {
			d = min(d, 1)
		}
		if d < at && d < max(len(n), 2) {
			best, at = n, d
		}
	}
	return best
}

// distance is how many typing mistakes (one letter more, less or other, two
// swapped) lie between a and b.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// wants says how many arguments a command takes, in a sentence that shows how.
func wants(low, high int, usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= low && (high < 0 || len(args) <= high) {
			return nil
		}
		if len(args) < low {
			return fault.New(fault.Usage, "%s needs more: `%s %s`", cmd.CommandPath(), cmd.CommandPath(), usage)
		}
		return fault.New(fault.Usage, "%s does not take %q: `%s %s`", cmd.CommandPath(), oneLine(args[high]), cmd.CommandPath(), usage)
	}
}

// say is talk: it goes to standard error unless --quiet.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		a.screen.print(fmt.Sprintf(format, args...) + "\n")
	}
}
