// SPDX-License-Identifier: Apache-2.0

//go:build small

package node

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
)

// keepWorkspaces refuses a directory of workspaces: this program has none, and an action that asks for
// one gets fault.NotAvailable.
func (n *Node) keepWorkspaces(*engine.Config) (attach func(context.Context) error) {
	n.endSpaces = func(context.Context) {}
	return func(context.Context) error {
		if n.Config.Workspaces != "" {
			return fault.New(fault.NotAvailable, "nested_workspace_root: the small roux has no workspaces")
		}
		return nil
	}
}
