// SPDX-License-Identifier: Apache-2.0

package registry

// What a version may use.
const (
	UsesRecipe = "recipe"
	UsesLens   = "lens"
	UsesAction = "action"
)

// A Use is something that a version uses: a recipe that a step runs, a lens that a step sends,
// or an action. What recipes in its text do counts, too; what registered recipes do that it
// runs is theirs.
type Use struct {
	Kind string `json:"kind"`
	Name string `json:"name"` // of a recipe its name or id, as the step has it
	// Version is what the step names of a recipe or an action, "" = the newest; of a lens the
	// version that it stood for.
	Version string `json:"version,omitempty"`
}
