// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import (
	"context"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// A small binary applies no lenses.
type (
	lensDocument struct{}
	lensUse      struct{}
)

func isLens(string, []byte) bool { return false }

func (a *app) checkFile(path string, limit int64) (*compiled, error) {
	return a.compileFile(path, limit)
}

func (f *applyFile) parseLens() {}

func lensesOf(*recipe.Recipe) []lensUse { return nil }

func (f *applyFile) usesOf([]*applyFile) []lensUse { return nil }

func (f *applyFile) unknownValues([]lensUse) []fault.Diagnostic { return nil }

func (u *lensUse) mayMend(fault.Diagnostic, string) bool { return false }

func (ap *applier) compareLenses(context.Context, *client.Client) error { return nil }

func (ap *applier) putLenses(context.Context, *client.Client) error { return nil }
