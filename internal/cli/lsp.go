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
)

func (a *app) lspCommand() *cobra.Command {
	limit := int64(defaultSource)
	cmd := &cobra.Command{
		Use:   "lsp",
		Short: "Serve an editor: problems, completion and renaming in recipes",
		Long: "Speak the Language Server Protocol on standard input and output, which an editor starts: problems as `roux validate` shows them, descriptions, completion, " +
			"definitions, references, renaming of steps and bindings, an outline, and `roux fmt`. The settings, actions and recipes are those of the working directory. " +
			"It writes no files and uses no network.",
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
					files, err := a.recipesFor(file, limit)
					if err != nil { // recipes from outside that cannot be had: what they are is not known
						return compile.Options{Actions: a.actions, MaxSource: limit, Secret: secret}
					}
					opt := a.compileOptions(files, limit)
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
