// SPDX-License-Identifier: Apache-2.0

package registry

import "crypto/sha256"

// What a Found is.
const (
	FoundRecipe = "recipe"
	FoundLens   = "lens"
)

// A Found is what a reference of a recipe stood for, or a text that a Folder is to register.
type Found struct {
	Kind    string            // recipe or lens
	Ref     string            // as the step names it; "" = it is to be registered
	Name    string            // of the recipe, which Ref may name by its id, or the id of the lens
	Version string            // "" = a lens that is to be registered states none
	Text    [sha256.Size]byte // hash of its text
	// Files is the hash of the files that the text includes, and those that they include; nil =
	// it includes none.
	Files []byte
}

// join returns a name and what is wanted of it as a step has them.
func join(name, wanted string) string {
	if wanted == "" {
		return name
	}
	return name + "@" + wanted
}
