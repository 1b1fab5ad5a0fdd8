// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) providersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "providers",
		Short: "List the services behind actions: their kinds, models, keys and webhooks",
		Long: "List the services that the configuration names under `providers`: those with language models, which `llm`, `claude` and `translate-text` call, and those that " +
			"carry out jobs, each with an action of its own. It shows where their keys come from and how their webhooks are signed, sends nothing, and shows no key.",
		Example: "roux providers\nroux providers -o json",
		Args:    wants(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			list := a.built.Providers()
			rows := [][]string{{"NAME", "KIND", "KEY", "SLOTS", "ACTION", "WEBHOOKS", "MODELS"}}
			for i := range list {
				p := &list[i]
				key := p.Key
				switch {
				case key == "":
					key = "none"
				case p.KeyMissing:
					key += " (not set)"
				}
				rows = append(rows, []string{p.Name, p.Kind, key, fmt.Sprint(p.Slots), p.Action, p.Webhooks, view.Cut(strings.Join(p.Models, " "), 60)})
			}
			a.show(list, func() {
				if len(list) == 0 {
					a.say("no provider is configured: name one under `providers` in roux.yaml (docs/models.md, docs/jobs.md)")
					return
				}
				a.table(rows, 6, 5)
				if v := a.config.Get("public-url"); v.Origin == "default" && slices.ContainsFunc(list, provider.Info.HasWebhooks) {
					a.say("no webhook can come without the address at which services reach the server (ROUX_PUBLIC_URL): without it they are only asked")
				}
			})
			return nil
		},
	}
}
