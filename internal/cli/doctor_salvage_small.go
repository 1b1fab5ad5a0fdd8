// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import (
	"context"

	"github.com/roux-engine/roux/fault"
)

// salvage refuses: a small binary leaves it to the full one, on a machine with room for two data
// directories.
func (a *app) salvage(context.Context, string) error {
	return fault.New(fault.Usage, "a small binary cannot salvage: copy the data directory, and let the full one do it with `roux doctor --salvage`")
}
