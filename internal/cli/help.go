// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/reference"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// A commandView is a command in `help -o json`.
type commandView struct {
	Command  string     `json:"command"`
	Usage    string     `json:"usage"`
	Short    string     `json:"short"`
	Long     string     `json:"long,omitempty"`
	Examples []string   `json:"examples"`
	Flags    []flagView `json:"flags"`
	Commands []string   `json:"commands,omitempty"`
}

type flagView struct {
	Name    string `json:"name"`
	Short   string `json:"short,omitempty"`
	Type    string `json:"type"`
	Default string `json:"default,omitempty"`
	What    string `json:"what"`
	Env     string `json:"env,omitempty"`
	Global  bool   `json:"global,omitempty"`
}

// A codeView is an error code in the output of `help CODE`.
type codeView struct {
	Code      fault.Code  `json:"code"`
	Meaning   string      `json:"meaning"`
	Remedy    string      `json:"remedy"`
	Exit      int         `json:"exit"`
	HTTP      int         `json:"http"`
	Cause     fault.Cause `json:"cause"`
	Retryable bool        `json:"retryable"`
	Aliases   []string    `json:"aliases,omitempty"`
}

func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | CODE | TOPIC]",
		Short: "Explain a command, an error code or a part of the language",
		Long: "Explain a command, an error code or a part of the recipe language: " + topicNames() + ". " +
			"With -o json all commands, or those below COMMAND, with their flags, for tools.",
		Example: `roux help run
roux help RECIPE_INVALID
roux help loop
roux help cel
roux help -o json`,
		Annotations:       map[string]string{"config": "lenient"},
		ValidArgsFunction: completeHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if row, ok := fault.Lookup(fault.Code(strings.ToUpper(args[0]))); ok {
					v := viewOfCode(row)
					a.show(v, func() { a.printCode(v) })
					return nil
				}
			}
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				if topic, ok := reference.Find(strings.Join(args, " ")); ok {
					v := topicView{topic.Name, topic.Title, topic.What, topic.Text}
					a.show(v, func() { a.text("%s\n\n%s", v.Title, term.Markdown(v.Text, helpColumns, topicLink)) })
					return nil
				}
				return unknownTopic(cmd.Root(), target, args, rest)
			}
			if target.HasParent() {
				target.InitDefaultHelpFlag()
			}
			a.show(allCommands(target), func() { a.help(target) })
			return nil
		},
	}
}

// unknownTopic returns an error that names a similar command, code or topic.
func unknownTopic(root, at *cobra.Command, args, rest []string) error {
	word := strings.Join(args, " ")
	if len(rest) > 0 && at != nil && at != root {
		return unknownCommand(at, rest[0])
	}
	var known []string
	for _, row := range fault.All() {
		known = append(known, string(row.Code))
	}
	for _, t := range reference.Topics() {
		known = append(known, strings.ToUpper(t.Name))
	}
	if near := spell.Nearest(strings.ToUpper(word), known); near != "" {
		if _, ok := reference.Find(near); ok {
			near = strings.ToLower(near)
		}
		return fault.New(fault.Usage, "there is no command, code or topic %q; did you mean `roux help %s`?", view.OneLine(view.Cut(word, 60)), near)
	}
	return unknownCommand(root, word)
}

func viewOfCode(row fault.Info) codeView {
	v := codeView{
		Code: row.Code, Meaning: row.Meaning, Remedy: row.Remedy, Exit: row.Exit, HTTP: row.HTTP,
		Cause: row.Cause, Retryable: row.Retryable, Aliases: row.Aliases,
	}
	if row.Legacy != "" {
		v.Aliases = append([]string{row.Legacy}, v.Aliases...)
	}
	return v
}

func (a *app) printCode(v codeView) {
	again := "no: the same thing fails again"
	if v.Retryable {
		again = "yes: the same thing can succeed later"
	}
	rows := [][]string{{"exit code", fmt.Sprint(v.Exit)}, {"cause", string(v.Cause)}, {"retryable", again}}
	if len(v.Aliases) > 0 {
		rows = append(rows, []string{"also written", strings.Join(v.Aliases, ", ")})
	}
	a.text("%s\n\n%s\n\nWhat to do: %s\n\n%s", v.Code, v.Meaning, v.Remedy, term.Table(rows))
}

// allCommands describes a command and its subcommands.
func allCommands(cmd *cobra.Command) (list []commandView) {
	if cmd.IsAvailableCommand() || !cmd.HasParent() || cmd.Name() == "help" {
		list = append(list, describe(cmd))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			list = append(list, allCommands(c)...)
		}
	}
	return list
}

func describe(cmd *cobra.Command) commandView {
	v := commandView{
		Command: cmd.CommandPath(), Usage: cmd.UseLine(), Short: cmd.Short, Long: cmd.Long,
		Examples: exampleLines(cmd), Flags: []flagView{},
	}
	add := func(global bool) func(f *pflag.Flag) {
		return func(f *pflag.Flag) {
			fv := flagView{Name: "--" + f.Name, Type: f.Value.Type(), Default: f.DefValue, What: f.Usage, Global: global}
			if f.Shorthand != "" {
				fv.Short = "-" + f.Shorthand
			}
			for _, s := range config.All() {
				if s.Flag == f.Name {
					fv.Env = s.Env
				}
			}
			v.Flags = append(v.Flags, fv)
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(add(false))
	cmd.InheritedFlags().VisitAll(add(true))
	if !cmd.HasParent() {
		cmd.PersistentFlags().VisitAll(add(true))
	}
	if cmd.HasAvailableSubCommands() {
		v.Commands = names(cmd)
	}
	return v
}

func exampleLines(cmd *cobra.Command) []string {
	lines := []string{}
	for line := range strings.Lines(cmd.Example) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// topicLink replaces a link to another topic.
const topicLink = "$1 (`roux help $2`)"

// helpColumns is the width of help on every terminal.
const helpColumns = 80

// help prints the page of a command: what it does, examples, usage and flags.
func (a *app) help(cmd *cobra.Command) {
	a.text("%s\n", term.Wrap(cmd.Short, helpColumns, 0))
	if lines := exampleLines(cmd); len(lines) > 0 {
		a.section("examples")
		for _, line := range lines {
			a.text("  %s\n", line)
		}
	}
	if cmd.Long != "" && cmd.Long != cmd.Short {
		a.text("\n%s\n", term.Wrap(cmd.Long, helpColumns, 0))
	}
	a.section("usage")
	a.text("  %s\n", usageLine(cmd))
	if cmd.HasAvailableSubCommands() {
		a.commands(cmd)
	}
	a.flagSection("flags", cmd.LocalNonPersistentFlags())
	if cmd.HasParent() {
		a.flagSection("global flags", cmd.InheritedFlags())
	} else {
		a.flagSection("global flags", cmd.PersistentFlags())
		a.text("\n%s\n", term.Wrap("`roux help COMMAND` explains a command, `roux help CODE` an error code, `roux help TOPIC` a part of the language: "+topicNames()+".", helpColumns, 0))
	}
}

// commands lists the subcommands of a command, by group, all with one width.
func (a *app) commands(cmd *cobra.Command) {
	width := 0
	for _, c := range cmd.Commands() {
		width = max(width, len(c.Name()))
	}
	list := func(title, group string) {
		begun := false
		for _, c := range cmd.Commands() {
			if c.GroupID != group || !c.IsAvailableCommand() && c.Name() != "help" {
				continue
			}
			if !begun {
				a.section(title)
			}
			begun = true
			a.text("%s\n", term.Wrap("  "+term.Pad(c.Name(), width)+"  "+c.Short, helpColumns, width+4))
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	list("commands", "")
}

func usageLine(cmd *cobra.Command) string {
	line := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	if cmd.HasAvailableSubCommands() && !strings.Contains(line, "COMMAND") {
		line += " COMMAND"
	}
	return line + " [flags]"
}

func (a *app) section(title string) { a.text("\n%s\n", title) }

func (a *app) flagSection(title string, flags *pflag.FlagSet) {
	var rows [][]string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "      --" + f.Name
		if f.Shorthand != "" {
			name = "  -" + f.Shorthand + ", --" + f.Name
		}
		if t := f.Value.Type(); t != "bool" {
			name += " " + typeName(t)
		}
		what := f.Usage
		if !slices.Contains([]string{"", "false", "0", "0s", "[]"}, f.DefValue) {
			what += " (default " + f.DefValue + ")"
		}
		rows = append(rows, []string{name, what})
	})
	if len(rows) > 0 {
		a.section(title)
		at := 0
		for _, row := range rows {
			at = max(at, len(row[0])+2)
		}
		for _, row := range rows {
			a.text("%s\n", term.Wrap(term.Pad(row[0], at)+row[1], helpColumns, at))
		}
	}
}

// typeName names the type of the value of a flag.
func typeName(t string) string {
	switch t {
	case "string", "stringArray", "stringSlice":
		return "text"
	case "int", "int64", "uint64", "count":
		return "N"
	}
	return t
}

// completeHelp completes commands, topics and codes.
func completeHelp(cmd *cobra.Command, args []string, begun string) (list []string, _ cobra.ShellCompDirective) {
	at, _, err := cmd.Root().Find(args)
	if err != nil {
		at = cmd.Root()
	}
	for _, c := range at.Commands() {
		if c.IsAvailableCommand() {
			list = append(list, c.Name()+"\t"+c.Short)
		}
	}
	if len(args) == 0 {
		for _, t := range reference.Topics() {
			list = append(list, t.Name+"\t"+t.What)
		}
	}
	if len(args) == 0 && begun != "" && begun[0] >= 'A' && begun[0] <= 'Z' {
		for _, row := range fault.All() {
			list = append(list, string(row.Code)+"\t"+row.Meaning)
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// A topicView is a topic of the language reference in the output of help.
type topicView struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	What  string `json:"what"`
	Text  string `json:"text"` // Markdown
}

// topicNames returns the topics for a sentence.
func topicNames() string {
	var names []string
	for _, t := range reference.Topics() {
		names = append(names, t.Name)
	}
	return strings.Join(names, ", ")
}
