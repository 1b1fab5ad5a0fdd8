// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/internal/store"
)

// completions sets the completions of all commands. They are in one place so that
// a new command is not forgotten.
func (a *app) completions(root *cobra.Command) {
	runs, steps := a.completeRuns(nil), a.completeRuns(a.stepNames)
	second := func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) { // NAME RECIPE
		if len(args) != 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completeOf(a.recipeNames)(cmd, nil, begun)
	}
	for path, fn := range map[string]cobra.CompletionFunc{
		"resume": runs, "runs get": runs, "runs cancel": runs, "runs retry": runs, "runs signal": a.completeRuns(a.signalNames),
		"runs release": runs, "runs pause": runs, "runs unpause": runs, "credits explain": runs, "runs delete": runs, "runs watch": runs, "events": runs, "replay": runs, "explain": steps, "logs": steps, "trace": runs,
		"diff":      a.completeRuns(func(ctx context.Context, j store.Reader, _ string) []string { return a.runNames(ctx, j, "run_") }),
		"files get": a.completeFiles, "files inspect": a.completeFiles, "files rm": a.completeFiles,
		"recipes get": a.completeOf(a.recipeNames), "recipes source": a.completeOf(a.recipeNames), "recipes versions": a.completeOf(a.recipeNames), "recipes diff": a.completeOf(a.recipeNames),
		"recipes deprecate": a.completeOf(a.recipeNames), "recipes activate": a.completeOf(a.recipeNames), "recipes delete": a.completeOf(a.recipeNames), "apply": completeRecipes,
		"lenses put": completeRecipes, "lenses show": a.completeOf(a.lensNames), "lenses versions": a.completeOf(a.lensNames), "lenses current": a.completeOf(a.lensNames), "lenses delete": a.completeOf(a.lensNames),
		"keys get": a.completeOf(a.keyNames), "keys rotate": a.completeOf(a.keyNames), "keys revoke": a.completeOf(a.keyNames),
		"webhooks get": a.completeOf(a.hookNames), "webhooks update": a.completeOf(a.hookNames), "webhooks rotate": a.completeOf(a.hookNames), "webhooks test": a.completeOf(a.hookNames), "webhooks delete": a.completeOf(a.hookNames),
		"webhooks deliveries list": a.completeOf(a.hookNames), "webhooks deliveries get": a.completeOf(a.hookNames), "webhooks deliveries resend": a.completeOf(a.hookNames),
		"schedules add":  second,
		"schedules show": a.completeOf(a.scheduleNames), "schedules pause": a.completeOf(a.scheduleNames), "schedules resume": a.completeOf(a.scheduleNames), "schedules delete": a.completeOf(a.scheduleNames),
		"schedules next": a.completeOf(a.scheduleNames), "schedules run-now": a.completeOf(a.scheduleNames), "schedules history": a.completeOf(a.scheduleNames),
		"triggers get": a.completeOf(a.triggerNames), "triggers pause": a.completeOf(a.triggerNames), "triggers rotate": a.completeOf(a.triggerNames), "triggers resume": a.completeOf(a.triggerNames), "triggers rm": a.completeOf(a.triggerNames),
		"triggers test": a.completeOf(a.triggerNames), "triggers history": a.completeOf(a.triggerNames), "triggers add": second,
		"approvals show": a.completeOf(a.approvalNames), "approvals approve": a.completeOf(a.approvalNames), "approvals reject": a.completeOf(a.approvalNames), "approvals edit": a.completeOf(a.approvalNames), "approvals link": a.completeOf(a.approvalNames),
		"export": runs, "graph": a.completeRecipeOrRun, "validate": completeRecipes, "estimate": completeRecipes,
	} {
		cmd, rest, err := root.Find(strings.Fields(path))
		if err == nil && len(rest) == 0 && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = fn
		}
	}
	for path, words := range map[string]func() []string{
		"keys create --role": roleWords, "keys create --scope": scopeWords, "keys create --reset": resetWords,
		"schedules add --catch-up": catchUpWords, "schedules add --overlap": overlapWords,
		"triggers add --scheme": schemeWords, "triggers add --encoding": encodingWords, "triggers add --if-active": ifActiveWords,
		"listen --events": eventWords, "listen --payload": payloadWords,
		"webhooks create --events": eventWords, "webhooks create --payload": payloadWords, "webhooks update --events": eventWords, "webhooks update --payload": payloadWords,
		"runs delete --status": statusWords, "runs list --status": statusWords, "--output": outputWords, "--profile": a.profileWords, "--time": func() []string { return []string{timeRelative, timeISO} },
	} {
		at := strings.Fields(path)
		cmd, rest, err := root.Find(at[:len(at)-1])
		if err == nil && len(rest) == 0 {
			completeFlag(cmd, strings.TrimPrefix(at[len(at)-1], "--"), words)
		}
	}
	for _, path := range []string{"runs retry"} {
		if cmd, rest, err := root.Find(strings.Fields(path)); err == nil && len(rest) == 0 {
			fn := func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
				if len(args) == 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return steps(cmd, args, begun)
			}
			if err := cmd.RegisterFlagCompletionFunc("from", fn); err != nil {
				panic(err) // a flag that was never defined: no input can cause it
			}
		}
	}
}
