// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/redact"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// secretsIn returns the secrets that runs in a data directory may use.
func (a *app) secretsIn(dir string) *secrets.Secrets {
	return secrets.New(secrets.Config{
		Getenv: a.getenv, EnvAccount: config.Account, Dir: settingOr(a.config.Get("secrets.dir"), ""), Data: dir,
	})
}

// hasSecret returns why steps cannot use a secret, for the warnings of a recipe.
func (a *app) hasSecret(name string) error {
	dir, err := a.config.DataDir()
	if err != nil {
		return nil // the command that needs the directory says so
	}
	_, err = a.secretsIn(dir).Secret(a.commandContext(), a.account, name)
	return err
}

func (a *app) commandContext() context.Context {
	if a.ctx != nil {
		return a.ctx
	}
	return context.Background()
}

func (a *app) secretsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Keep secrets that steps use by name",
		Long: "Keep secrets that steps use by name, as in \"Bearer {{ secret('api-token') }}\". They are kept sealed in the data directory. " +
			"A secret may also be in a variable such as ROUX_SECRET_API_TOKEN (for the account local), or in a file of the directory that the setting secrets.dir names. No command shows a value.",
		Example: `pass show api-token | roux secrets set api-token
roux secrets list
roux secrets delete api-token`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.setSecretCommand(), a.listSecretsCommand(), a.deleteSecretCommand(), a.rotateSecretsCommand())
	return cmd
}

// vault returns the vault of the data directory.
func (a *app) vault(ctx context.Context) (*secrets.Vault, string, error) {
	if err := a.checkAccount(ctx); err != nil {
		return nil, "", err
	}
	dir, err := a.config.DataDir()
	if err != nil {
		return nil, "", err
	}
	return a.secretsIn(dir).Vault(), dir, nil
}

func (a *app) setSecretCommand() *cobra.Command {
	var file, variable string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Keep a secret, in place of an earlier one of that name",
		Long: "Keep a secret, in place of an earlier one of that name. Its value is read from standard input, or from where a flag says, and never from " +
			"the command line, which other users can see. The end of the last line is not part of it. Runs use the new value from their next attempt on.",
		Example: `pass show api-token | roux secrets set api-token
roux secrets set api-token --from-file token.txt
roux secrets set api-token --from-env API_TOKEN`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 { // what follows may be the value, so it is not quoted
				return fault.New(fault.Usage, "%s takes a name only: the value is read from standard input, or with --from-file or --from-env", cmd.CommandPath())
			}
			return wants(1, 1, "NAME")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := secrets.CheckName(args[0]); err != nil {
				return err
			}
			if file != "" && variable != "" {
				return fault.New(fault.Usage, "--from-file and --from-env both name the value: want one")
			}
			value, err := a.secretValue(args[0], file, variable)
			if err != nil {
				return err
			}
			err = a.setSecret(cmd.Context(), args[0], value)
			if err != nil {
				return err
			}
			a.say("%sthe secret %s is set", a.inAccount(), args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "from-file", "", "file that holds the value")
	cmd.Flags().StringVar(&variable, "from-env", "", "variable of the environment that holds the value")
	return cmd
}

// secretValue reads the value of a secret.
func (a *app) secretValue(name, file, variable string) (string, error) {
	const most = redact.MaxLen + 2 // with the end of the line
	switch {
	case variable != "":
		v := a.getenv(variable)
		if v == "" {
			return "", fault.New(fault.Usage, "the variable %s is not set or is empty", view.OneLine(view.Cut(variable, 60)))
		}
		return secrets.Trim(v), nil
	case file != "":
		f, _, err := userfile.OpenRegular(file)
		if err != nil {
			return "", err
		}
		defer func() { _ = f.Close() }()
		text, err := io.ReadAll(io.LimitReader(f, most+1))
		if err != nil {
			return "", userfile.OpenError(file, fault.Usage, err)
		}
		return secrets.Trim(string(text)), nil
	}
	if w, ok := a.stdin.(*os.File); ok && term.IsTerminal(w) {
		return "", fault.New(fault.Usage, "the value of %s is read from standard input, which is a terminal and would show it: pipe it in, as in `pass show %s | roux secrets set %s`, or use --from-file", name, name, name)
	}
	text, err := io.ReadAll(io.LimitReader(a.stdin, most+1))
	if err != nil {
		return "", fault.Wrap(fault.Usage, err, "standard input cannot be read: %v", err)
	}
	return secrets.Trim(string(text)), nil
}

func (a *app) listSecretsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the names of the secrets that are kept",
		Long: "List the names of the secrets that are kept: sealed in the vault of the data directory, and in the directory of the setting secrets.dir. " +
			"Variables of the environment are not listed.",
		Example: "roux secrets list\nroux secrets list --account acme -o json",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.listSecrets(cmd.Context())
			if err != nil {
				return err
			}
			if list == nil {
				list = []secrets.Listed{}
			}
			a.show(list, func() {
				if len(list) == 0 {
					a.say("%sno secret is kept; `roux secrets set NAME` keeps one", a.inAccount())
					return
				}
				rows := [][]string{{"NAME", "FROM"}}
				for _, s := range list {
					rows = append(rows, []string{s.Name, s.From})
				}
				a.table(rows, 0)
			})
			return nil
		},
	}
}

func (a *app) deleteSecretCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a secret from the vault",
		Example: "roux secrets delete api-token",
		Args:    wants(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.deleteSecret(cmd.Context(), args[0]); err != nil {
				return err
			}
			a.say("%sthe secret %s is deleted", a.inAccount(), args[0])
			return nil
		},
	}
}

func (a *app) rotateSecretsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Make a new master key and seal all secrets with it",
		Long: "Make a new master key and seal the secrets of all accounts with it. Do so when somebody may have read the master key; then also replace the " +
			"secrets themselves. Earlier keys stay in the file of the master key, so that a backup of the sealed secrets can still be opened.",
		Example: "roux secrets rotate",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, dir, err := a.vault(cmd.Context())
			if err != nil {
				return err
			}
			n, err := v.Rotate(cmd.Context())
			if err != nil {
				return datadir.Error(dir, err)
			}
			a.say("%s sealed with a new master key", view.Count(n, "secret"))
			return nil
		},
	}
}
