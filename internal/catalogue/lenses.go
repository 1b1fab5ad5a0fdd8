// SPDX-License-Identifier: Apache-2.0

package catalogue

import (
	"encoding/json"
	"slices"

	"github.com/roux-engine/roux/fault"
)

// Lenses finds the lenses that steps name (X25). The caller implements it. Its errors are of type
// fault.Error: fault.LensNotFound when there is no such lens or version.
type Lenses interface {
	// Lens returns a version of a lens, or its current one when version is "".
	Lens(id, version string) (*Lens, error)
	// LensIDs lists the ids of the lenses there are, sorted.
	LensIDs() []string
}

// A Lens is one version of a prompt template (X22).
type Lens struct {
	ID       string
	Version  string
	Template string          // text with {{ placeholders }}
	Model    string          // "" = the default of the account
	Input    json.RawMessage // JSON Schema of the placeholders' values; nil = none
	Output   json.RawMessage // JSON Schema of the answer; nil = none
}

// NewLenses returns Lenses with these versions. The last one of an id is the current one.
func NewLenses(versions ...*Lens) Lenses { return fixedLenses(versions) }

type fixedLenses []*Lens

// Lens implements [Lenses].
func (f fixedLenses) Lens(id, version string) (*Lens, error) {
	for _, l := range slices.Backward(f) {
		if l.ID == id && (version == "" || l.Version == version) {
			return l, nil
		}
	}
	if version != "" {
		return nil, fault.New(fault.LensNotFound, "no lens has the id %q and the version %q", id, version)
	}
	return nil, fault.New(fault.LensNotFound, "no lens has the id %q", id)
}

// LensIDs implements [Lenses].
func (f fixedLenses) LensIDs() (ids []string) {
	for _, l := range f {
		ids = append(ids, l.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
