// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of Roux.
//
// It decides how commands, flags and inputs are read, how results are shown to
// people and to programs, and which exit code a command ends with. Results go to
// standard output, messages to standard error.
//
// It never decides what a run does: everything it shows is a fold of the run's
// journal, and everything it changes goes through the engine.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	operator "github.com/roux-engine/roux/internal/command"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/limits"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/telemetry"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// Main runs one command and returns its exit code. exporter makes what sends traces to a
// collector; nil = this build sends none.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, exporter telemetry.NewExporter) int {
	return execute(ctx, args, stdin, stdout, stderr, nil, exporter)
}

// execute is Main with the actions in more in addition to those that come with Roux.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, more []action.Action, exporter ...telemetry.NewExporter) int {
	a := &app{
		stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.Getenv, now: time.Now,
		more: more, log: newLog(nil, false), release: func() {},
	}
	a.config = config.New(os.Getenv, &a.data)
	if len(exporter) > 0 {
		a.exporter = exporter[0]
	}
	_ = a.useActions(nil, nil, nil, nil, nil) // without settings none can be wrong
	// Help and usage errors are written before flags are parsed.
	a.screen = term.NewScreen(stderr, slices.Contains(args, "--no-color"), a.getenv)
	root := a.command()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd(args...)
	a.plainBash(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.formErr
	}
	err = a.ofServer(a.late(err))
	a.release()
	a.tidy()
	var end exit
	if errors.As(err, &end) {
		return int(end)
	}
	a.report(err)
	return fault.ExitCode(err)
}

// app holds what all commands share: the streams and environment they were
// started with, and the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	screen         *term.Screen
	getenv         func(string) string
	now            func() time.Time
	list           []action.Action   // the actions that recipes may call
	actions        catalogue.Actions // those of them that the account may call
	built          *node.Actions     // both, for a server
	limits         *limits.Set       // of attempts

	data    string
	recipes string // the directory of registered recipes; "" = there is none
	account string // whose runs, files and credits the command handles
	output  string
	quiet   bool
	verbose bool
	times   string
	timeout time.Duration

	target       *config.Target // the server that is named; nil = the data directory
	server       *remote.Server // the same, once it was reached
	accountGiven bool           // the user has named an account
	keyFile      string         // as the flag names it
	profileFlag  string
	others       bool // the command works on accounts other than that of the key

	config    *config.Config
	configErr error
	template  *expr.Program // from -o template=…
	formErr   error         // the result could not be written in the form of -o
	log       *slog.Logger
	ctx       context.Context // the command's context, to see afterwards whether --timeout ended it
	unhurried context.Context // ctx without --timeout; nil when the command has no --timeout
	release   context.CancelFunc

	origins  origins               // recipes from outside
	more     []action.Action       // actions in addition to those that come with Roux
	exporter telemetry.NewExporter // nil = traces are not sent
	unwrap   string                // the name of an output: its fields are printed in place of it
	shown    bool                  // the diagnostics of the error have been shown
}

// late replaces the error of a command that --timeout has ended.
func (a *app) late(err error) error {
	if a.ctx == nil || !waited(a.ctx) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.New(fault.CommandTimeout, "waited %s, as long as --timeout says, and the command was not done", a.timeout)
}

// useActions sets the actions that recipes may call, with the commands of the operator, the services
// of providers and the actions of remote workers. They may reach the addresses in allow in addition
// to public ones.
func (a *app) useActions(allow []netip.Prefix, prices map[string]string, commands *operator.Set, providers map[string]provider.Config, workers map[string]lease.Spec) error {
	actions, err := node.NewActionsWith(allow, providers, a.getenv, a.more...)
	if err != nil {
		actions = node.NewActions(allow, a.more...)
	}
	if commands != nil {
		actions.AddCommands(commands)
	}
	actions.SetLimits(a.limits)
	err = errors.Join(err, actions.AddWorkers(workers), actions.SetPrices(prices))
	a.list, a.actions, a.built = actions.List, actions.Of(a.account), actions
	return err
}

// exit is an exit code. It ends a command whose messages have been written.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:               "roux",
		Short:             "Roux runs recipes: durable workflows over files, models and services.",
		Example:           rootExample,
		Args:              cobra.ArbitraryArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
		RunE:              group,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.data, "data", "", "data directory (default ROUX_DATA, else ./.roux where it exists, else the user's data directory)")
	a.account = config.Account
	flags.Var(accountName{&a.account}, "account", "account whose runs, files and credits the command handles")
	flags.String("server", "", "URL of a server whose runs, recipes, files and credits the command handles (ROUX_SERVER); the key is in ROUX_KEY, or in a file")
	flags.String("key-file", "", "file with the key for the server")
	flags.String("profile", "", "server and key that `roux profiles set` has kept; none = the data directory")
	flags.StringVarP(&a.output, "output", "o", asTable, "form of the result: table, json, jsonl, yaml, name or template={{ … }}")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print only the result and errors")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "log on standard error what Roux does")
	flags.Bool("no-color", false, "no colours (also NO_COLOR; TERM=dumb and CI=1 mean no control codes at all)")
	flags.DurationVar(&a.timeout, "timeout", 0, "wait at most this long, then end with exit code 8 (default: as long as it takes)")
	a.times = timeRelative
	flags.Var(choice{&a.times, []string{timeRelative, timeISO}}, "time", "how times are shown: relative or iso")
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { a.help(cmd) })
	root.SetHelpCommand(a.helpCommand())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) {
			if near := spell.Nearest(unknown.GetSpecifiedName(), flagNames(cmd)); near != "" {
				return fault.Wrap(fault.Usage, err, "%v: did you mean --%s? `%s --help` lists the flags", err, near, cmd.CommandPath())
			}
		}
		return fault.Wrap(fault.Usage, err, "%v: `%s --help` lists the flags", err, cmd.CommandPath())
	})
	a.addGroups(root)
	a.completions(root)
	return root
}

// flagNames returns the names of the flags of a command.
func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// group runs a command that only has subcommands: without one it shows its help.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownCommand(cmd, args[0])
}

// addGroups adds the commands in the order in which a new user needs them. Help
// shows them in that order.
func (a *app) addGroups(root *cobra.Command) {
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"to begin", append(a.beginCommands(), a.runCommand(), a.resumeCommand())},
		{"to write recipes", slices.Concat([]*cobra.Command{a.validateCommand()}, a.estimateCommands(), a.testCommands(), a.simulatorCommands(), a.fmtCommands(), a.lintCommands(), a.schemaCommands(), a.lspCommands(), []*cobra.Command{a.actionsCommand()})},
		{"to look at runs", slices.Concat([]*cobra.Command{a.runsCommand()}, a.traceCommands(), a.graphCommands(), []*cobra.Command{a.explainCommand(), a.eventsCommand(),
			a.logsCommand()}, a.feedCommands(), a.diffCommands(), a.replayCommands())},
		{"to pay for runs", a.creditsCommands()},
		{"to serve others", slices.Concat([]*cobra.Command{a.serveCommand()}, a.devCommands(), []*cobra.Command{a.applyCommand(), a.recipesCommand()}, a.lockCommands(), a.lensCommands(), []*cobra.Command{a.keysCommand()}, a.outsideCommands(), []*cobra.Command{a.workerCommand()}, a.topCommands(), a.trialCommands())},
		{"to keep and share", slices.Concat([]*cobra.Command{a.filesCommand()}, a.cacheCommands(), []*cobra.Command{a.secretsCommand()}, a.exportCommands(), a.importCommands(), []*cobra.Command{a.backupCommand(), a.restoreCommand()})},
		{"this machine", []*cobra.Command{a.doctorCommand(), a.configCommand(), a.profilesCommand(), a.versionCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	last := root.Groups()[len(root.Groups())-1].ID
	root.SetHelpCommandGroupID(last)
	root.SetCompletionCommandGroupID(last)
}

// unknownCommand returns an error that names a similar command.
func unknownCommand(cmd *cobra.Command, name string) error {
	msg := fmt.Sprintf("%s: there is no command %q", cmd.CommandPath(), view.OneLine(view.Cut(name, 60)))
	if near := spell.Nearest(name, names(cmd)); near != "" {
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

// wants checks the number of arguments; its error shows the usage.
func wants(low, high int, usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= low && (high < 0 || len(args) <= high) {
			return nil
		}
		if len(args) < low {
			return fault.New(fault.Usage, "%s needs more: `%s %s`", cmd.CommandPath(), cmd.CommandPath(), usage)
		}
		return fault.New(fault.Usage, "%s does not take %q: `%s %s`", cmd.CommandPath(), view.OneLine(args[high]), cmd.CommandPath(), usage)
	}
}

// say writes a message to standard error, unless --quiet is set.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		a.screen.Print(fmt.Sprintf(format, args...) + "\n")
	}
}
