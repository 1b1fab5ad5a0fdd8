// SPDX-License-Identifier: Apache-2.0

package catalogue

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
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

// Placeholders returns the names that the template has, sorted. The error says why no step can use it.
func (l *Lens) Placeholders() ([]string, error) {
	prog, err := expr.CompileTemplate(l.Template)
	var f *fault.Error
	if errors.As(err, &f) && len(f.Diags) > 0 && f.Diags[0].Hint != "" {
		err = fault.New(f.Code, "%s; %s", fault.Message(err), f.Diags[0].Hint)
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, ref := range prog.Refs() {
		if ref.Name == expr.NowVar || ref.Name == expr.SeedVar {
			return nil, fault.New(fault.TemplateError, "the template calls %s, and a lens only has its placeholders: write one of any name, and bind the value to it in the step", expr.NameFor(ref.Name))
		}
		names = append(names, ref.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
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
