// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import (
	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A small binary compares and replays no runs, compares no versions of recipes, keeps and reads no lenses, draws no traces, watches no server, begins no recipes, exports,
// imports and adopts no runs, shows no cached results, no changes and no credits, and checks no workers, and what a server has to do with the
// outside world is changed over its API. In the shell it completes commands and flags, and no names of what there is. It estimates, tests, formats, lints and refactors no recipes, serves none while they are written,
// serves no editors, and prints no schemas of them: the full one does all that, on another machine.

func (a *app) diffCommands() []*cobra.Command { return nil }

func (a *app) recipeDiffCommands() []*cobra.Command { return nil }

func (a *app) beginCommands() []*cobra.Command { return nil }

func (a *app) traceCommands() []*cobra.Command { return nil }

func (a *app) exportCommands() []*cobra.Command { return nil }

func (a *app) topCommands() []*cobra.Command { return nil }

func (a *app) cacheCommands() []*cobra.Command { return nil }

func (a *app) importCommands() []*cobra.Command { return nil }

func (a *app) outsideCommands() []*cobra.Command { return nil }

func (a *app) lensCommands() []*cobra.Command { return nil }

func (a *app) creditsCommands() []*cobra.Command { return nil }

func (a *app) estimateCommands() []*cobra.Command { return nil }

func (a *app) feedCommands() []*cobra.Command { return nil }

func (a *app) adoptCommands() []*cobra.Command { return nil }

func (a *app) replayCommands() []*cobra.Command { return nil }

func (a *app) conformCommands() []*cobra.Command { return nil }

func (a *app) fmtCommands() []*cobra.Command { return nil }

func (a *app) schemaCommands() []*cobra.Command { return nil }

func (a *app) lintCommands() []*cobra.Command { return nil }
func (a *app) lspCommands() []*cobra.Command  { return nil }

func (a *app) devCommands() []*cobra.Command { return nil }

func (a *app) testCommands() []*cobra.Command { return nil }

func testKinds() []schemaKind { return nil }

func keyOrder(name string, text []byte) *yamlx.Order { return dialect.Of(name, text).Form.KeyOrder() }

func (a *app) completions(*cobra.Command) {}

const rootExample = `roux run documents.yaml --file 'files/*'
roux runs get @last
roux help run`
