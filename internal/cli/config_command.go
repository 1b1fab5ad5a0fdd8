// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/view"
)

// A settingView is a setting in the output of `config`.
type settingView struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Origin  string `json:"origin"`
	Where   string `json:"where,omitempty"`
	Env     string `json:"env"`
	Flag    string `json:"flag,omitempty"`
	Default string `json:"default"`
	What    string `json:"what"`
	Want    string `json:"want"`
	// Files lists the files that may set it.
	Files []string `json:"files"`
	// Overridden lists the values that do not count.
	Overridden []config.Value `json:"overridden,omitempty"`
}

func (a *app) viewSetting(s *config.Setting, cmd *cobra.Command) settingView {
	values := a.config.Lookup(s, givenFlags(cmd))
	v := settingView{
		Key: s.Key, Value: values[0].Value, Origin: values[0].Origin, Where: values[0].Where,
		Env: s.Env, Default: s.Default, What: s.What, Want: s.Want, Overridden: values[1:],
		Files: []string{"roux.yaml", "the user's config.yaml"},
	}
	if s.Personal {
		v.Files = v.Files[1:]
	}
	if s.Flag != "" {
		v.Flag = "--" + s.Flag
	}
	a.viewTarget(&v, cmd)
	if s.Key == "data" {
		if dir, err := a.config.DataDir(); err == nil {
			v.Value = dir
		}
	}
	return v
}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show settings and where each comes from",
		Long: "Show settings and where each comes from. A flag overrides a variable of the environment, which overrides roux.yaml of the " +
			"project (in this directory or one above), which overrides config.yaml of the user, which overrides the default.",
		Example:     "roux config list\nroux config explain data\nroux config get output",
		Annotations: map[string]string{"config": "lenient"},
		Args:        cobra.ArbitraryArgs,
		RunE:        group,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "list", Short: "List all settings with their values and origins",
			Example: "roux config list\nroux config list -o json",
			Args:    wants(0, 0, ""),
			RunE: func(cmd *cobra.Command, _ []string) error {
				views := make([]settingView, len(config.All()))
				rows := [][]string{{"KEY", "VALUE", "FROM"}}
				for i := range config.All() {
					views[i] = a.viewSetting(&config.All()[i], cmd)
					rows = append(rows, []string{views[i].Key, view.OneLine(view.Cut(views[i].Value, 60)), view.Join(" ", views[i].Origin, views[i].Where)})
				}
				a.show(views, func() { a.table(rows, 1, 2) })
				return a.configErr
			},
		},
		&cobra.Command{
			Use: "get KEY", Short: "Print the value of one setting",
			Example: "roux config get data",
			Args:    wants(1, 1, "KEY"), ValidArgsFunction: completeSettings,
			RunE: func(cmd *cobra.Command, args []string) error {
				s, err := findSetting(args[0])
				if err != nil {
					return err
				}
				v := a.viewSetting(s, cmd)
				a.show(v, func() { a.text("%s\n", view.Clean(v.Value)) })
				return a.configErr
			},
		},
		&cobra.Command{
			Use: "explain KEY", Short: "Explain a setting, its value and where that comes from",
			Example: "roux config explain data\nroux config explain output -o json",
			Args:    wants(1, 1, "KEY"), ValidArgsFunction: completeSettings,
			RunE: func(cmd *cobra.Command, args []string) error {
				s, err := findSetting(args[0])
				if err != nil {
					return err
				}
				v := a.viewSetting(s, cmd)
				a.show(v, func() { a.printSetting(v) })
				return a.configErr
			},
		},
	)
	return cmd
}

func (a *app) printSetting(v settingView) {
	rows := [][]string{
		{"setting", v.Key},
		{"what for", v.What},
		{"value", view.OneLine(v.Value)},
		{"from", view.Join(" ", v.Origin, v.Where)},
		{"takes", v.Want},
		{"default", v.Default},
		{"change it", view.Join(", ", v.Flag, v.Env, v.Key+" in "+strings.Join(v.Files, " or "))},
	}
	for _, o := range v.Overridden {
		if o.Origin != "default" {
			rows = append(rows, []string{"overridden", fmt.Sprintf("%s from %s %s", view.OneLine(o.Value), o.Origin, o.Where)})
		}
	}
	a.sheet(rows)
}

// findSetting finds a setting. Its error names a similar one.
func findSetting(key string) (*config.Setting, error) {
	if s := config.Find(key); s != nil {
		return s, nil
	}
	if near := spell.Nearest(key, config.Keys()); near != "" {
		return nil, fault.New(fault.Usage, "there is no setting %q; did you mean `roux config explain %s`?", view.OneLine(view.Cut(key, 60)), near)
	}
	return nil, fault.New(fault.Usage, "there is no setting %q; there are: %s", view.OneLine(view.Cut(key, 60)), strings.Join(config.Keys(), ", "))
}

func completeSettings(_ *cobra.Command, args []string, _ string) (list []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, s := range config.All() {
		list = append(list, s.Key+"\t"+s.What)
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
