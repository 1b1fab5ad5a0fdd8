// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
)

// A family is a plan with those of its child runs, for another process.
type family struct {
	Plan       json.RawMessage   `json:"plan"`
	Embedded   []json.RawMessage `json:"embedded,omitempty"`
	Registered []relative        `json:"registered,omitempty"`
}

// A relative is a Registered.
type relative struct {
	Ref     ChildRef `json:"ref"`
	Name    string   `json:"name"`
	Version string   `json:"version,omitempty"`
	Family  *family  `json:"family,omitempty"`
}

// EncodeFamily returns a plan with the plans of its child runs, which Encode leaves out because
// each is stored under its own key.
func EncodeFamily(p *Plan) ([]byte, error) {
	f, err := familyOf(p)
	if err != nil {
		return nil, err
	}
	return json.Marshal(f)
}

func familyOf(p *Plan) (*family, error) {
	data, err := p.Encode()
	if err != nil {
		return nil, err
	}
	f := &family{Plan: data}
	for _, e := range p.Embedded {
		if data, err = e.Encode(); err != nil {
			return nil, err
		}
		f.Embedded = append(f.Embedded, data)
	}
	for i := range p.Registered {
		r := &p.Registered[i]
		other := relative{Ref: r.Ref, Name: r.Name, Version: r.Version}
		if r.Plan != nil {
			if other.Family, err = familyOf(r.Plan); err != nil {
				return nil, err
			}
		}
		f.Registered = append(f.Registered, other)
	}
	return f, nil
}

// DecodeFamily decodes the result of EncodeFamily.
func DecodeFamily(data []byte) (*Plan, error) {
	var f family
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("decode plan: %w", err)
	}
	return f.decode(true)
}

// decode decodes a plan. Only the first one of a family has registered plans.
func (f *family) decode(first bool) (*Plan, error) {
	p, err := Decode(f.Plan)
	if err != nil {
		return nil, err
	}
	for _, data := range f.Embedded {
		e, err := Decode(data)
		if err != nil {
			return nil, err
		}
		p.Embedded = append(p.Embedded, e)
	}
	if !first && len(f.Registered) > 0 {
		return nil, fmt.Errorf("decode plan: a registered plan has registered plans")
	}
	for _, r := range f.Registered {
		out := Registered{Ref: r.Ref, Name: r.Name, Version: r.Version}
		if r.Family != nil {
			if out.Plan, err = r.Family.decode(false); err != nil {
				return nil, err
			}
		}
		p.Registered = append(p.Registered, out)
	}
	return p, nil
}
