// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// Lenses are the prompt templates of the account that steps name. A lens has versions, which never
// change, and one of them is the current one: that of steps which name no version.
type Lenses struct{ c *Client }

// A Lens is a version of a lens.
type Lens struct {
	ID        string        `json:"id"` // of the lens
	Version   string        `json:"version"`
	Current   bool          `json:"current"`
	Model     string        `json:"model,omitempty"`    // "" = the default of the account
	Template  string        `json:"template,omitempty"` // only Get sets it
	Contracts LensContracts `json:"contracts,omitzero"` // only Get sets them
	Size      int           `json:"size"`               // of the template, in bytes
	Hash      string        `json:"hash"`               // of model, template and contracts
	CreatedAt time.Time     `json:"createdAt"`
	CreatedBy string        `json:"createdBy,omitempty"` // id of the key that put it
	Revision  uint64        `json:"revision"`            // of the lens; it changes with its current version
}

// LensContracts are the JSON Schemas of what a lens takes and gives; nil = there is none.
type LensContracts struct {
	Input  json.RawMessage `json:"input,omitempty"`  // of the values of the placeholders
	Output json.RawMessage `json:"output,omitempty"` // of the answer
}

// A NewLens is a version of a lens that is put.
type NewLens struct {
	Lens      string        `json:"lens,omitempty"`    // its id, which may be left out
	Version   string        `json:"version,omitempty"` // "" = the next whole number
	Model     string        `json:"model,omitempty"`   // "" = the default of the account
	Template  string        `json:"template"`
	Contracts LensContracts `json:"contracts,omitzero"`
	// Revision is that of the lens as it was read: if it has changed since, the error is
	// fault.PreconditionFailed. 0 = any.
	Revision uint64 `json:"-"`
}

// Put adds a version of a lens, which becomes the current one. created is false when nothing has
// changed, because the lens has that content already, also when the request had to be sent again.
// Another content under a version that exists is fault.Conflict.
func (l *Lenses) Put(ctx context.Context, id string, req NewLens) (v *Lens, created bool, err error) {
	cl, err := at(http.MethodPut, "v1", "lenses", id).ifRevision(req.Revision).send(req)
	if err != nil {
		return nil, false, err
	}
	v = new(Lens)
	a, err := l.c.do(ctx, cl, v)
	if err != nil {
		return nil, false, err
	}
	return v, a.status == http.StatusCreated, nil
}

// ifRevision lets a call succeed only if what it changes has a revision; 0 = any. With one it is not
// sent again when it may have arrived, because the revision is then another one.
func (cl *call) ifRevision(revision uint64) *call {
	if revision != 0 {
		cl.set("If-Match", `"`+strconv.FormatUint(revision, 10)+`"`).once = true
	}
	return cl
}

// List returns the lenses by their ids, each with its current version.
func (l *Lenses) List(ctx context.Context) iter.Seq2[Lens, error] {
	return list[Lens](ctx, l.c, func() *call { return at(http.MethodGet, "v1", "lenses") })
}

// Get returns a version of a lens with its template and contracts; "" = the current one.
func (l *Lenses) Get(ctx context.Context, id, version string) (*Lens, error) {
	v := new(Lens)
	_, err := l.c.do(ctx, at(http.MethodGet, "v1", "lenses", id).with("version", version), v)
	return result(v, err)
}

// Versions returns the versions of a lens, the newest first.
func (l *Lenses) Versions(ctx context.Context, id string) iter.Seq2[Lens, error] {
	return list[Lens](ctx, l.c, func() *call { return at(http.MethodGet, "v1", "lenses", id, "versions") })
}

// SetCurrent makes a version the current one. revision is as in [NewLens].
func (l *Lenses) SetCurrent(ctx context.Context, id, version string, revision uint64) (*Lens, error) {
	cl, err := at(http.MethodPut, "v1", "lenses", id, "current").ifRevision(revision).send(map[string]string{"version": version})
	if err != nil {
		return nil, err
	}
	v := new(Lens)
	_, err = l.c.do(ctx, cl, v)
	return result(v, err)
}

// Delete deletes a lens with all its versions. Runs go on with what they have.
func (l *Lenses) Delete(ctx context.Context, id string) error {
	_, err := l.c.do(ctx, at(http.MethodDelete, "v1", "lenses", id), nil)
	return err
}
