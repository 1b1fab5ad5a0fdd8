// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/program"
)

// UseRegistered sets what finds the registered recipes that expressions of steps name. Until then a step waits if
// Config.Resolve does not find its recipe.
func (n *Node) UseRegistered(find program.ResolveFunc) { n.registered.Store(&find) }

// resolve implements [program.ResolveFunc]. It asks Config.Resolve, and then what UseRegistered has set.
func (n *Node) resolve(ctx context.Context, account string, d *program.Definition) (*program.Resolved, error) {
	own, registered := n.Config.Resolve, n.registered.Load()
	var missing error
	if own != nil {
		def, err := own(ctx, account, d)
		if fault.CodeOf(err) != fault.RecipeNotFound {
			return def, err
		}
		missing = err
	}
	if registered == nil {
		return nil, fault.New(fault.ServiceUnavailable, "the registered recipes cannot be read yet")
	}
	def, err := (*registered)(ctx, account, d)
	if fault.CodeOf(err) == fault.RecipeNotFound && missing != nil {
		err = missing
	}
	return def, err
}
