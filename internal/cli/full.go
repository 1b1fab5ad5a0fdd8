// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import "github.com/spf13/cobra"

// A small binary does not have these commands. Others that it does not have are graphCommands,
// simulatorCommands and trialCommands.

func (a *app) diffCommands() []*cobra.Command { return []*cobra.Command{a.diffCommand()} }

func (a *app) beginCommands() []*cobra.Command {
	return []*cobra.Command{a.demoCommand(), a.initCommand()}
}

func (a *app) traceCommands() []*cobra.Command { return []*cobra.Command{a.traceCommand()} }

func (a *app) exportCommands() []*cobra.Command { return []*cobra.Command{a.exportCommand()} }

func (a *app) topCommands() []*cobra.Command { return []*cobra.Command{a.topCommand()} }

func (a *app) cacheCommands() []*cobra.Command { return []*cobra.Command{a.cacheCommand()} }

func (a *app) importCommands() []*cobra.Command { return []*cobra.Command{a.importCommand()} }

func (a *app) outsideCommands() []*cobra.Command {
	return []*cobra.Command{a.webhooksCommand(), a.schedulesCommand(), a.triggersCommand(), a.approvalsCommand(), a.providersCommand(), a.jobsCommand()}
}

func (a *app) lensCommands() []*cobra.Command { return []*cobra.Command{a.lensesCommand()} }

func (a *app) creditsCommands() []*cobra.Command {
	return []*cobra.Command{a.accountsCommand(), a.creditsCommand()}
}

func (a *app) estimateCommands() []*cobra.Command { return []*cobra.Command{a.estimateCommand()} }

func (a *app) feedCommands() []*cobra.Command { return []*cobra.Command{a.feedCommand()} }

func (a *app) adoptCommands() []*cobra.Command { return []*cobra.Command{a.adoptCommand()} }

func (a *app) replayCommands() []*cobra.Command { return []*cobra.Command{a.replayCommand()} }

func (a *app) conformCommands() []*cobra.Command { return []*cobra.Command{a.workerConformCommand()} }

func (a *app) fmtCommands() []*cobra.Command {
	return []*cobra.Command{a.fmtCommand(), a.convertCommand()}
}

func (a *app) schemaCommands() []*cobra.Command { return []*cobra.Command{a.schemaCommand()} }

func (a *app) lspCommands() []*cobra.Command { return []*cobra.Command{a.lspCommand()} }

func (a *app) devCommands() []*cobra.Command { return []*cobra.Command{a.devCommand()} }

const rootExample = `roux demo
roux init my && cd my && roux run documents.yaml --file 'files/*'
roux runs get @last
roux help run`
