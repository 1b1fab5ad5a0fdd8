// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"errors"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/lsp"
	"github.com/roux-engine/roux/internal/registry"
)

func (a *app) lspCommand() *cobra.Command {
	limit := int64(defaultSource)
	cmd := &cobra.Command{
		Use:   "lsp",
		Short: "Serve an editor: problems, completion and renaming in recipes",
		Long: "Speak the Language Server Protocol on standard input and output, which an editor starts: problems as `roux validate` shows them, descriptions, completion, " +
			"definitions, references, renaming of steps and bindings, an outline, and `roux fmt`. The settings, actions and recipes are those of the working directory. " +
			"It changes no files and uses no network: of recipes from elsewhere it knows what an earlier command has fetched.",
		Example: `roux lsp
roux lsp --recipes flows`,
		Args: wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxSource {
				return fault.New(fault.Usage, "--max-source %d: want 1 byte to 16MiB", limit)
			}
			dir, err := os.Getwd()
			if err != nil {
				return err
			}
			a.origins.offline = true
			// Requests are answered at the same time, and the settings behind secrets are read by one at a time.
			var one sync.Mutex
			secret := func(name string) error {
				one.Lock()
				defer one.Unlock()
				return a.hasSecret(name)
			}
			err = lsp.Serve(cmd.Context(), lsp.Config{
				Options: func(file string) compile.Options {
					one.Lock()
					defer one.Unlock()
					a.origins.read = false // the lock may be another one since the last check
					dir, err := a.fetched(a.recipes)
					in := a.recipesIn(file, dir, limit)
					in.NoDir = err
					opt := a.compileOptions(registry.NewFiles(in), limit)
					opt.Secret = secret
					return opt
				},
				Actions: a.actions, Dir: dir, Version: thisBuild().Version, Ignore: []string{config.ProjectFile},
			}, a.stdin, a.stdout)
			if errors.Is(err, lsp.ErrNoShutdown) {
				return exit(fault.ExitFailed)
			}
			return err
		},
	}
	cmd.Flags().Bool("stdio", true, "use standard input and output, which it always does; editors give this flag")
	a.sourceFlags(cmd, &limit)
	return cmd
}
