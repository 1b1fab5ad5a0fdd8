// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// An actionView is an action in the output of `actions`.
type actionView struct {
	Name        string           `json:"name"`
	Version     string           `json:"version"`
	Aliases     []string         `json:"aliases,omitempty"`
	Description string           `json:"description"`
	Cost        int64            `json:"cost"`
	Price       string           `json:"price,omitempty"`
	Takes       []string         `json:"takes,omitempty"` // MIME types of its files
	Versions    []string         `json:"versions,omitempty"`
	Delivery    action.Delivery  `json:"delivery,omitempty"`
	Provider    string           `json:"provider,omitempty"`
	Limits      []string         `json:"limits,omitempty"`
	Faults      []fault.Code     `json:"errors,omitempty"`
	Examples    []action.Example `json:"examples,omitempty"`
	Input       json.RawMessage  `json:"input,omitempty"`
	Output      json.RawMessage  `json:"output,omitempty"`
	Metadata    *action.Metadata `json:"recipeMetadata,omitempty"`
}

func (a *app) actionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "actions",
		Short: "List, describe and call the actions that recipes use",
		Example: `roux actions list
roux actions get pdf-to-markdown
roux actions call file-inspect --file examples/report.pdf`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.actionsList(), a.actionsGet(), a.actionsCall())
	return cmd
}

func (a *app) actionsList() *cobra.Command {
	var takes string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the actions with their cost and what they do",
		Example: "roux actions list\nroux actions list --takes image/png",
		Args:    wants(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			views := []actionView{}
			rows := [][]string{{"ACTION", "VERSION", "COST", "TAKES", "WHAT"}}
			for _, name := range a.actions.Names() {
				act := a.actions.Find(name, "")
				if act == nil || takes != "" && !takesType(act, takes) {
					continue
				}
				v := actionView{Name: act.Name, Version: act.Version, Aliases: act.Aliases, Description: act.Description, Cost: act.Cost, Price: act.Price, Takes: takesTypes(act)}
				views = append(views, v)
				rows = append(rows, []string{v.Name, v.Version, cmp.Or(v.Price, fmt.Sprint(v.Cost)), view.Cut(strings.Join(v.Takes, " "), 32), view.OneLine(view.Cut(v.Description, 80))})
			}
			a.show(views, func() {
				if len(views) == 0 {
					a.say("no action takes %s: `roux actions list` shows all", view.OneLine(takes))
					return
				}
				a.table(rows, 4, 3)
			})
			return nil
		},
	}
	cmd.Flags().StringVar(&takes, "takes", "", "only those that take files of this MIME type")
	return cmd
}

// takesTypes returns the MIME types of the files that an action reads.
func takesTypes(act *action.Action) (types []string) {
	for _, d := range act.Metadata.InputTypes {
		for _, t := range d.MimeTypes {
			if !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	return types
}

func takesType(act *action.Action, mime string) bool {
	return slices.ContainsFunc(takesTypes(act), func(pattern string) bool {
		ok, err := path.Match(pattern, mime)
		return err == nil && ok || pattern == mime || pattern == "*/*"
	})
}

// findAction finds NAME or NAME@VERSION. Its error names a similar action.
func (a *app) findAction(ref string) (*action.Action, error) {
	name, version, _ := strings.Cut(ref, "@")
	if act := a.actions.Find(name, version); act != nil {
		return act, nil
	}
	if have := a.actions.Versions(name); len(have) > 0 {
		return nil, fault.New(fault.ActionNotFound, "there is no version %q of %s; there are: %s", view.OneLine(view.Cut(version, 40)), name, strings.Join(have, ", "))
	}
	msg := fmt.Sprintf("there is no action %q", view.OneLine(view.Cut(name, 60)))
	near := spell.Nearest(name, a.actions.Names())
	for _, n := range a.actions.Names() {
		if sameWords(name, n) {
			near = n
		}
	}
	if near != "" {
		return nil, fault.New(fault.ActionNotFound, "%s; did you mean %s?", msg, near)
	}
	return nil, fault.New(fault.ActionNotFound, "%s: `roux actions list` shows those there are", msg)
}

// sameWords reports whether two names differ only in the order of their words, as
// image-convert and convert-image do.
func sameWords(a, b string) bool {
	x, y := strings.Split(a, "-"), strings.Split(b, "-")
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

func (a *app) actionsGet() *cobra.Command {
	var page bool
	cmd := &cobra.Command{
		Use:     "get NAME[@VERSION]",
		Short:   "Describe an action: inputs, output, cost, limits, examples",
		Example: "roux actions get pdf-to-markdown\nroux actions get file-inspect@1 -o json\nroux actions get hash --page > hash.md",
		Args:    wants(1, 1, "NAME[@VERSION]"), ValidArgsFunction: a.completeActions,
		RunE: func(_ *cobra.Command, args []string) error {
			act, err := a.findAction(args[0])
			if err != nil {
				return err
			}
			if page {
				a.text("%s", builtin.Page(*act, ""))
				return nil
			}
			v := actionView{
				Name: act.Name, Version: act.Version, Aliases: act.Aliases, Description: act.Description, Cost: act.Cost, Price: act.Price, Takes: takesTypes(act),
				Versions: a.actions.Versions(act.Name), Delivery: cmp.Or(act.Delivery, action.AtLeastOnce), Provider: act.Provider,
				Limits: act.Limits, Faults: act.Faults, Examples: act.Examples, Input: act.Input, Output: act.Output, Metadata: &act.Metadata,
			}
			a.show(v, func() { a.printAction(v) })
			return nil
		},
	}
	cmd.Flags().BoolVar(&page, "page", false, "print the page of documentation, in Markdown")
	return cmd
}

func (a *app) printAction(v actionView) {
	a.text("%s %s\n%s\n\n", v.Name, v.Version, term.Wrap(view.OneLine(v.Description), helpColumns, 0))
	rows := [][]string{{"cost", credits1(v.Cost, v.Price)}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, view.OneLine(value)})
		}
	}
	add("takes", strings.Join(v.Takes, " "))
	if d := v.Metadata.DurationRange; d != nil {
		add("lasts", d.Min+" to "+d.Max)
	}
	add("also called", strings.Join(v.Aliases, ", "))
	if len(v.Versions) > 1 {
		add("versions", strings.Join(v.Versions, ", "))
	}
	add("provider", v.Provider)
	for _, l := range v.Limits {
		add("limit", l)
	}
	var codes []string
	for _, c := range v.Faults {
		codes = append(codes, string(c))
	}
	add("errors", strings.Join(codes, ", "))
	a.sheet(rows)
	a.fields("input", v.Input)
	a.fields("output", v.Output)
	for i, e := range v.Examples {
		if i == 0 {
			a.section("examples")
		}
		a.text("  %s\n    %s\n", view.OneLine(e.Title), view.OneLine(callLine(v, e)))
	}
}

func credits1(n int64, price string) string {
	switch {
	case price != "":
		return price + " credits"
	case n == 0:
		return "nothing"
	}
	return view.Count(int(n), "credit")
}

// callLine formats an example as a command.
func callLine(v actionView, e action.Example) string {
	words := []string{"roux", "actions", "call", v.Name}
	var in map[string]json.RawMessage
	if json.Unmarshal(e.Input, &in) != nil {
		return strings.Join(words, " ")
	}
	files := jsonschema.FileFields(v.Input)
	for _, name := range sortedNames(in) {
		if slices.Contains(files, name) {
			words = append(words, "--file", "FILE")
			continue
		}
		text := string(in[name])
		var s string
		if json.Unmarshal(in[name], &s) == nil {
			text = s
		}
		words = append(words, "--input", term.ShellQuote(name+"="+text))
	}
	return strings.Join(words, " ")
}

func sortedNames[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A fieldSchema is the part of the schema of a property that is shown.
type fieldSchema struct {
	Type        any             `json:"type"`
	Description string          `json:"description"`
	Format      string          `json:"format"`
	Default     json.RawMessage `json:"default"`
	Enum        []any           `json:"enum"`
}

type objectSchema struct {
	Properties           map[string]fieldSchema `json:"properties"`
	Required             []string               `json:"required"`
	AdditionalProperties *bool                  `json:"additionalProperties"`
}

// fields prints the properties of a schema, the required ones first.
func (a *app) fields(title string, schema json.RawMessage) {
	var s objectSchema
	if len(schema) == 0 || json.Unmarshal(schema, &s) != nil || len(s.Properties) == 0 {
		return
	}
	names := sortedNames(s.Properties)
	slices.SortStableFunc(names, func(x, y string) int {
		return cmp.Compare(b2i(!slices.Contains(s.Required, x)), b2i(!slices.Contains(s.Required, y)))
	})
	a.section(title)
	var rows [][]string
	for _, name := range names {
		f := s.Properties[name]
		kind := strings.Trim(fmt.Sprint(f.Type), "[]")
		switch {
		case f.Format == "file":
			kind = "file"
		case f.Type == nil && len(f.Enum) > 0:
			kind = "one of"
		case f.Type == nil:
			kind = "any"
		}
		text := f.Description
		if len(f.Enum) > 0 {
			text = view.Join(" ", text, "One of "+strings.Trim(fmt.Sprint(f.Enum), "[]")+".")
		}
		if len(f.Default) > 0 {
			text = view.Join(" ", text, "Default "+string(f.Default)+".")
		}
		if slices.Contains(s.Required, name) {
			kind += ", required"
		}
		rows = append(rows, []string{"  " + name, kind, view.OneLine(text)})
	}
	a.sheet(rows)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a *app) actionsCall() *cobra.Command {
	var in, files []string
	cmd := &cobra.Command{
		Use:   "call NAME[@VERSION]",
		Short: "Call one action, outside a recipe",
		Long: "Call one action, outside a recipe: as a run of one step, recorded in the data directory like any other, so that it can be " +
			"interrupted, resumed, explained and retried.",
		Example: `roux actions call pdf-to-markdown --file examples/report.pdf
roux actions call word-count --input text='two words'
roux actions call file-inspect --file scan.png -o json`,
		Args: oneAndFiles(&files, "NAME[@VERSION] [--input name=value] [--file PATH]"), ValidArgsFunction: a.completeActions,
		RunE: func(cmd *cobra.Command, args []string) error {
			act, err := a.findAction(args[0])
			if err != nil {
				return err
			}
			return a.call(cmd.Context(), act, in, files)
		},
	}
	cmd.Flags().StringArrayVar(&in, "input", nil, "input field name=value, or @file with an object of them (repeatable)")
	cmd.Flags().StringArrayVar(&files, "file", nil, "input file, or a pattern in quotes such as 'scans/*.pdf' (repeatable)")
	return cmd
}

// call runs a recipe of one step.
func (a *app) call(ctx context.Context, act *action.Action, in, files []string) error {
	params, err := inputs(in, act.Input, a.stdin)
	if err != nil {
		return err
	}
	var schema objectSchema
	if len(act.Input) > 0 {
		if err := json.Unmarshal(act.Input, &schema); err != nil {
			return fault.Wrap(fault.InternalError, err, "the schema of %s cannot be read: %v", act.Name, err)
		}
	}
	if err := checkCall(act, &schema, params, files); err != nil {
		return err
	}
	binds := map[string]string{}
	for _, name := range jsonschema.FileLists(act.Input) {
		if _, given := params[name]; !given && len(files) > 0 {
			binds[name] = "fileHashes"
		}
	}
	text, err := catalogue.CallText(act, params, binds, false)
	if err != nil {
		return err
	}
	c := &compiled{text: text, name: "call"}
	c.plan, c.recipe, c.source, c.diags = compile.Source(c.name, text, compile.Options{Actions: a.actions})
	if c.plan == nil {
		return fault.Invalid(fault.RecipeInvalid, c.diags)
	}
	a.unwrap = "output"
	return a.start(ctx, c, params, files, "", payment{})
}

// checkCall refuses what the action would refuse later.
func checkCall(act *action.Action, schema *objectSchema, params map[string]any, files []string) error {
	known := sortedNames(schema.Properties)
	for name := range params {
		if schema.Properties == nil || slices.Contains(known, name) || schema.AdditionalProperties == nil || *schema.AdditionalProperties {
			continue
		}
		if near := spell.Nearest(name, known); near != "" {
			return fault.New(fault.Usage, "%s takes no input %q; did you mean %q?", act.Name, view.OneLine(view.Cut(name, 60)), near)
		}
		return fault.New(fault.Usage, "%s takes no input %q; it takes: %s", act.Name, view.OneLine(view.Cut(name, 60)), strings.Join(known, ", "))
	}
	fields := jsonschema.FileFields(act.Input)
	for _, name := range fields {
		if path, ok := params[name].(string); ok && !blob.ValidHash(path) {
			word := "PATH"
			if len(path) < 200 && path == view.OneLine(path) {
				word = term.ShellQuote(path)
			}
			return fault.New(fault.Usage, "the input %q takes the hash of a file that is kept, and %q is none: `roux actions call %s --file %s` gives the file",
				name, view.Cut(path, 60), act.Name, word)
		}
	}
	for _, name := range schema.Required {
		if _, ok := params[name]; ok {
			continue
		}
		if slices.Contains(fields, name) {
			if len(files) == 0 {
				return fault.New(fault.Usage, "%s needs a file: `roux actions call %s --file PATH`", act.Name, act.Name)
			}
			continue
		}
		if !slices.Contains(jsonschema.FileLists(act.Input), name) {
			return fault.New(fault.Usage, "%s needs the input %q: `roux actions call %s --input %s=…`; `roux actions get %s` describes it",
				act.Name, name, act.Name, name, act.Name)
		}
	}
	return nil
}

// completeActions completes names of actions.
func (a *app) completeActions(_ *cobra.Command, args []string, _ string) (list []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		for _, name := range a.actions.Names() {
			list = append(list, name+"\t"+view.OneLine(a.actions.Find(name, "").Description))
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
