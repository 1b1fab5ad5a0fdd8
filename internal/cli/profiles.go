// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/view"
)

// A profileView is a profile as commands show it.
type profileView struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	HasKey bool   `json:"hasKey"`
	InUse  bool   `json:"inUse"`
}

func (a *app) profilesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "Keep servers and the keys for them under names",
		Long: "Keep servers and the keys for them under names. `--profile NAME` or ROUX_PROFILE uses one for a command, and `roux profiles use NAME` for all that " +
			"name nothing else. They are kept in profiles.json of the user's directory of configuration, which nobody else may read.",
		Example: `roux profiles set prod --server https://roux.example.com --key-file key.txt
roux profiles use prod
roux profiles list`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.listProfiles(), a.setProfile(), a.useProfile(), a.removeProfile())
	return cmd
}

func (a *app) listProfiles() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the profiles",
		Example: "roux profiles list\nroux profiles list -o json",
		Args:    wants(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			all, err := a.config.Profiles()
			if err != nil {
				return err
			}
			list := []profileView{}
			rows := [][]string{{"NAME", "SERVER", "KEY", ""}}
			for _, name := range slices.Sorted(maps.Keys(all.Profiles)) {
				p := all.Profiles[name]
				list = append(list, profileView{name, p.URL, p.Key != "", name == all.Use})
				key, use := "none", ""
				if p.Key != "" {
					key = "kept"
				}
				if name == all.Use {
					use = "in use"
				}
				rows = append(rows, []string{name, view.OneLine(p.URL), key, use})
			}
			a.show(list, func() {
				if len(list) == 0 {
					a.say("no profile is kept: `roux profiles set NAME --server URL` keeps one")
					return
				}
				a.table(rows, 1)
			})
			return nil
		},
	}
}

func (a *app) setProfile() *cobra.Command {
	unchecked := false
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Keep a server and a key for it, in place of an earlier profile of that name",
		Long: "Keep a server and a key for it, in place of an earlier profile of that name. The key is copied from the file of --key-file, else it is that of ROUX_KEY. " +
			"The server is asked who the key is, unless --no-check is given.",
		Example: "roux profiles set prod --server https://roux.example.com --key-file key.txt\nroux profiles set here --server http://127.0.0.1:7420",
		Args:    wants(1, 1, "NAME --server URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := config.CheckProfile(name); err != nil || name == config.NoProfile {
				return fault.New(fault.Usage, "%s: want a name of letters, digits, '.', '_' and '-' other than none", view.OneLine(view.Cut(name, 60)))
			}
			flags := givenFlags(cmd)
			url := a.config.Lookup(config.Find("server"), flags)[0]
			if url.Origin == "default" {
				return fault.New(fault.Usage, "%s needs --server, as in `roux profiles set %s --server https://roux.example.com`", cmd.CommandPath(), name)
			}
			if err := config.CheckServer(url.Value); err != nil {
				return err
			}
			p := config.Profile{URL: strings.TrimRight(url.Value, "/"), Key: strings.TrimSpace(a.config.Get("key").Value)}
			if a.config.Get("key").Origin == "default" {
				p.Key = ""
			}
			if file := a.config.Lookup(config.Find("key-file"), flags)[0]; file.Origin == "flag" || p.Key == "" && file.Origin != "default" {
				var err error
				if p.Key, err = config.ReadKey(file.Value); err != nil {
					return err
				}
			}
			who := ""
			if !unchecked {
				account, err := a.tryProfile(cmd.Context(), name, p)
				if err != nil {
					return err
				}
				who = ", account " + account
			}
			all, err := a.config.Profiles()
			if err != nil {
				return err
			}
			all.Profiles[name] = p
			if err := a.config.SaveProfiles(all); err != nil {
				return err
			}
			a.show(profileView{name, p.URL, p.Key != "", all.Use == name}, func() { a.text("%s: %s%s\n", name, view.OneLine(p.URL), view.OneLine(who)) })
			if all.Use != name {
				a.say("`roux profiles use %s` uses it for all commands, `--profile %s` for one", name, name)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&unchecked, "no-check", false, "do not ask the server")
	return cmd
}

// tryProfile asks the server of a profile whose key it is.
func (a *app) tryProfile(ctx context.Context, name string, p config.Profile) (account string, err error) {
	a.target = &config.Target{URL: config.Value{Value: p.URL, Origin: "flag", Where: "--server"}, Key: p.Key, KeyFrom: config.Value{Origin: "profile", Where: name}}
	c, err := client.New(client.Config{URL: p.URL, Key: p.Key, Attempts: 2})
	if err != nil {
		return "", err
	}
	defer c.Close()
	me, err := c.Me(ctx)
	if err != nil {
		return "", err
	}
	return me.Account, nil
}

func (a *app) useProfile() *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Use a profile where a command names neither a server nor a data directory",
		Long:              "Use a profile where a command names neither a server nor a data directory. NAME none goes back to the data directory.",
		Example:           "roux profiles use prod\nroux profiles use none",
		Args:              wants(1, 1, "NAME"),
		ValidArgsFunction: a.completeProfiles,
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := a.config.Profiles()
			if err != nil {
				return err
			}
			name := args[0]
			if _, ok := all.Profiles[name]; !ok && name != config.NoProfile {
				return unknownProfile(name)
			}
			all.Use = name
			if name == config.NoProfile {
				all.Use = ""
			}
			if err := a.config.SaveProfiles(all); err != nil {
				return err
			}
			text := "the data directory"
			if all.Use != "" {
				text = all.Profiles[name].URL
			}
			a.show(map[string]string{"name": name, "server": all.Profiles[name].URL}, func() { a.text("commands use %s\n", view.OneLine(text)) })
			return nil
		},
	}
}

func unknownProfile(name string) error {
	return fault.New(fault.Usage, "there is no profile %s: `roux profiles list` shows those that there are", view.OneLine(view.Cut(name, 60)))
}

func (a *app) removeProfile() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Short:             "Forget a profile and its key",
		Long:              "Forget a profile and its key. The key itself stays valid: `roux keys revoke` or `DELETE /v1/keys/ID` of its server ends it.",
		Example:           "roux profiles remove prod",
		Args:              wants(1, 1, "NAME"),
		ValidArgsFunction: a.completeProfiles,
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := a.config.Profiles()
			if err != nil {
				return err
			}
			p, ok := all.Profiles[args[0]]
			if !ok {
				return unknownProfile(args[0])
			}
			delete(all.Profiles, args[0])
			if all.Use == args[0] {
				all.Use = ""
			}
			if err := a.config.SaveProfiles(all); err != nil {
				return err
			}
			a.show(profileView{args[0], p.URL, p.Key != "", false}, func() { a.text("%s is forgotten\n", args[0]) })
			return nil
		},
	}
}

// completeProfiles completes the name of a profile.
func (a *app) completeProfiles(_ *cobra.Command, args []string, _ string) (list []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.profileWords(), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) profileWords() (list []string) {
	all, err := a.config.Profiles()
	if err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(all.Profiles)) {
		list = append(list, name+"\t"+cmp.Or(all.Profiles[name].URL, "?"))
	}
	return append(list, config.NoProfile+"\tthe data directory")
}
