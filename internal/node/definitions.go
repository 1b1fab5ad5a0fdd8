// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/program"
)

// UseDefinitions says what finds the recipes that expressions of steps name. Until it is called, steps wait that
// Config.Definitions, if there is one, does not find theirs for.
func (n *Node) UseDefinitions(find program.Definitions) { n.definitions.Store(&find) }

// define implements [program.Definitions].
func (n *Node) define(ctx context.Context, account string, d *program.Definition) (*program.Defined, error) {
	own, registered := n.Config.Definitions, n.definitions.Load()
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
