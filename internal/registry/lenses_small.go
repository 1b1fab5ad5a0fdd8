// SPDX-License-Identifier: Apache-2.0

//go:build small

package registry

import (
	"context"

	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/userfile"
)

// A small binary has no lenses.
type (
	accountLenses struct{}
	lensFiles     struct{}
	lensText      struct {
		name, shown string
		text        []byte
		unread      error
	}

	// LensVersion is none.
	LensVersion struct{ Lens, Version string }
)

func inLenses(string) bool { return false }

func isLens(string, string, []byte, error) bool { return false }

func (f *Folder) addLenses(map[string]userfile.Stamp) error { return nil }

func (f *Folder) forget(string) {}

func (f *Folder) putLenses(context.Context) []FolderChange { return nil }

func newAccountLenses(*RecipesConfig, func(account string)) accountLenses { return accountLenses{} }

// Of returns no lenses.
func (accountLenses) Of(context.Context, string) catalogue.Lenses { return catalogue.NewLenses() }

func isLensText(string, []byte) bool { return false }

// Lens implements [catalogue.Lenses].
func (f *Files) Lens(id, version string) (*catalogue.Lens, error) {
	return catalogue.NewLenses().Lens(id, version)
}

// LensIDs implements [catalogue.Lenses].
func (f *Files) LensIDs() []string { return nil }
