// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import (
	"context"

	"github.com/roux-engine/roux/fault"
)

// salvage refuses: only the full binary can do it.
func (a *app) salvage(context.Context, string) error {
	return fault.New(fault.Usage, "this binary was built with -tags small and cannot salvage: run `roux doctor --salvage` with the full one, on this data directory or a copy")
}
