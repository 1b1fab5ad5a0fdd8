// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/resultcache"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) cacheCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Show the results of actions that are kept for later steps",
		Long: "Show the results of actions that are kept for later steps of the account: those of steps whose recipe has a `cache`, which use the result " +
			"of an earlier call with the same input. `roux cache clear` removes them, `roux run --no-cache` uses none.",
		Example: `roux cache
roux cache clear llm`,
		Args: wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serving(cmd.Context(), false, func(ctx context.Context, s remote.Service) error {
				list, err := s.KeptResults(ctx)
				if err != nil {
					return err
				}
				a.show(list, func() { a.printKept(list) })
				return nil
			})
		},
	}
	cmd.AddCommand(a.clearCacheCommand())
	return cmd
}

func (a *app) printKept(list []resultcache.ActionUsage) {
	if len(list) == 0 {
		a.say("%sno results are kept", a.inAccount())
		return
	}
	rows := [][]string{{"ACTION", "VERSION", "RESULTS", "SIZE"}}
	for _, u := range list {
		rows = append(rows, []string{u.Action, u.Version, fmt.Sprint(u.Results), term.Size(u.Bytes)})
	}
	a.table(rows, 0, ^0)
}

func (a *app) clearCacheCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clear [ACTION[@VERSION]]",
		Short: "Remove results that are kept for later steps",
		Long:  "Remove results that are kept for later steps of the account: those of an action, or all. The next steps call their actions. Runs that have one of the results keep it.",
		Example: `roux cache clear
roux cache clear llm
roux cache clear word-count@1.0.0`,
		Args: wants(0, 1, "[ACTION[@VERSION]]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			action := ""
			if len(args) > 0 {
				action = args[0]
			}
			return a.serving(cmd.Context(), false, func(ctx context.Context, s remote.Service) error {
				n, err := s.ClearResults(ctx, action)
				if err != nil {
					return err
				}
				a.show(struct {
					Removed int `json:"removed"`
				}{n}, func() { a.say("%sremoved %s", a.inAccount(), view.Count(n, "result")) })
				return nil
			})
		},
	}
}
