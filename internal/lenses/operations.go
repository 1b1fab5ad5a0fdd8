// SPDX-License-Identifier: Apache-2.0

//go:build !small

package lenses

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/lens"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/store"
)

type server struct {
	rest   *rest.Router
	lenses *lens.Lenses
}

// register adds the operations.
func register(rt *rest.Router, recipes *registry.Recipes) {
	s := &server{rt, recipes.Lenses()}
	read, write := rest.Needs(access.RecipesRead), rest.Needs(access.RecipesWrite)
	rest.Handle(rt, rest.Op("lenses-list", http.MethodGet, "/v1/lenses", "List the lenses of the account, by id, each with its current version"), read, s.list)
	rest.Handle(rt, rest.Op("lenses-get", http.MethodGet, "/v1/lenses/{id}", "Get a version of a lens with its template and contracts"), read, s.get)
	rest.Handle(rt, rest.Op("lenses-versions", http.MethodGet, "/v1/lenses/{id}/versions", "List the versions of a lens, the newest first"), read, s.versions)
	put := rest.Op("lenses-put", http.MethodPut, "/v1/lenses/{id}", "Add a version of a lens, which becomes the current one")
	put.Description = "A version never changes. The same content as the current version without a version, or as the version that is named, changes nothing, and is answered with 200. " +
		"Steps that name no version of the lens have the current one when their run starts."
	put.MaxBodyBytes = lens.MaxDocument
	rest.Handle(rt, put, write, s.put)
	rest.Handle(rt, rest.Op("lenses-current", http.MethodPut, "/v1/lenses/{id}/current", "Make a version of a lens the current one"), write, s.setCurrent)
	rest.Handle(rt, rest.Op("lenses-delete", http.MethodDelete, "/v1/lenses/{id}", "Delete a lens with all its versions; runs go on with what they have"), write, s.delete)
}

// A LensContracts are what a lens takes and gives (X25).
type LensContracts struct {
	Input  json.RawMessage `json:"input,omitempty" doc:"JSON Schema of the values of the placeholders; null = there is none."`
	Output json.RawMessage `json:"output,omitempty" doc:"JSON Schema of the answer; null = there is none."`
}

// A LensResource is a version of a lens.
type LensResource struct {
	ID        string         `json:"id" example:"summarize" doc:"Of the lens."`
	Version   string         `json:"version" example:"2"`
	Current   bool           `json:"current" doc:"Whether steps that name no version have this one."`
	Model     string         `json:"model,omitempty" doc:"The model that is asked. Default: that of the account."`
	Template  string         `json:"template,omitempty" doc:"The prompt, with {{ placeholders }}. Lists do not have it."`
	Contracts *LensContracts `json:"contracts,omitempty" doc:"Lists do not have them."`
	Size      int            `json:"size" doc:"Of the template, in bytes."`
	Hash      string         `json:"hash" doc:"Of model, template and contracts."`
	CreatedAt time.Time      `json:"createdAt"`
	CreatedBy string         `json:"createdBy,omitempty" doc:"Id of the key that put it."`
	Revision  uint64         `json:"revision" doc:"Of the lens; it changes with its current version."`
}

func summary(v *lens.Version) LensResource {
	return LensResource{
		ID: v.Lens, Version: v.Version, Current: v.Current, Model: v.Model, Size: v.Size, Hash: v.Hash,
		CreatedAt: rest.Stamp(v.Created), CreatedBy: v.By, Revision: v.Revision,
	}
}

// A LensPath names a lens.
type LensPath struct {
	ID string `path:"id" maxLength:"64" doc:"Id of a lens."`
}

func (s *server) list(ctx context.Context, in *rest.Paging) (*rest.Listed[LensResource], error) {
	list := "lenses " + rest.Account(ctx)
	place, err := s.rest.Place(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	all, next, err := s.lenses.List(ctx, rest.Account(ctx), place, in.Limit)
	if err != nil {
		return nil, err
	}
	return rest.PageOf(ctx, s.rest, list, next, summaries(all)), nil
}

func summaries(all []*lens.Version) []LensResource {
	data := make([]LensResource, len(all))
	for i, v := range all {
		data[i] = summary(v)
	}
	return data
}

func (s *server) versions(ctx context.Context, in *LensPath) (*rest.Listed[LensResource], error) {
	all, err := s.lenses.Versions(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return rest.PageOf(ctx, s.rest, "", "", summaries(all)), nil
}

type getIn struct {
	LensPath
	Version string `query:"version" maxLength:"64" doc:"Default: the current one."`
}

type found struct {
	ETag string `header:"ETag"`
	Body LensResource
}

func (s *server) get(ctx context.Context, in *getIn) (*found, error) {
	v, d, err := s.lenses.Get(ctx, rest.Account(ctx), in.ID, in.Version)
	if err != nil {
		return nil, err
	}
	out := &found{ETag: rest.ETag(v.Revision), Body: summary(v)}
	out.Body.Template = d.Template
	if c := d.Contracts; c.Input != nil || c.Output != nil {
		out.Body.Contracts = &LensContracts{c.Input, c.Output}
	}
	return out, nil
}

// A NewLens is a version of a lens as it is put; a file has the same fields.
type NewLens struct {
	Lens      string         `json:"lens,omitempty" maxLength:"64" doc:"The id of the path, which need not be repeated."`
	Version   string         `json:"version,omitempty" maxLength:"64" doc:"Default: the next whole number." example:"2"`
	Model     string         `json:"model,omitempty" maxLength:"200" doc:"The model that is asked. Default: that of the account." example:"small"`
	Template  string         `json:"template" maxLength:"262144" doc:"The prompt, with {{ placeholders }}; at most 256 KiB." example:"Summarize in {{ language }}: {{ text }}"`
	Contracts *LensContracts `json:"contracts,omitempty" doc:"What the lens takes and gives; each schema has at most 64 KiB."`
}

type putIn struct {
	LensPath
	IfMatch string `header:"If-Match" maxLength:"100" doc:"ETag of the lens, which must not have changed since."`
	Body    NewLens
}

type stored struct {
	Status   int
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Body     LensResource
}

func (s *server) put(ctx context.Context, in *putIn) (*stored, error) {
	b := &in.Body
	if b.Lens != "" && b.Lens != in.ID {
		return nil, fault.New(fault.RequestInvalid, "the path names the lens %q, and the body %q: leave lens out of the body, or name the same one", in.ID, b.Lens)
	}
	revision, err := rest.Revision(in.IfMatch, store.AnyRevision)
	if err != nil {
		return nil, err
	}
	doc := lens.Document{Lens: in.ID, Version: b.Version, Model: b.Model, Template: b.Template}
	if c := b.Contracts; c != nil {
		doc.Contracts = lens.Contracts{Input: notNull(c.Input), Output: notNull(c.Output)}
	}
	who := access.From(ctx)
	v, created, err := s.lenses.Put(ctx, who.Account, &doc, revision, who.Key)
	if err != nil {
		return nil, err
	}
	out := &stored{Status: http.StatusOK, Location: "/v1/lenses/" + v.Lens + "?version=" + v.Version, ETag: rest.ETag(v.Revision), Body: summary(v)}
	if created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

// notNull returns a schema, or nil for null: there is none then.
func notNull(schema json.RawMessage) json.RawMessage {
	if bytes.Equal(bytes.TrimSpace(schema), []byte("null")) {
		return nil
	}
	return schema
}

// A CurrentLens says which version of a lens becomes the current one.
type CurrentLens struct {
	Version string `json:"version" maxLength:"64" doc:"A version that the lens has." example:"1"`
}

type currentIn struct {
	LensPath
	IfMatch string `header:"If-Match" maxLength:"100" doc:"ETag of the lens, which must not have changed since."`
	Body    CurrentLens
}

func (s *server) setCurrent(ctx context.Context, in *currentIn) (*found, error) {
	revision, err := rest.Revision(in.IfMatch, store.AnyRevision)
	if err != nil {
		return nil, err
	}
	v, err := s.lenses.SetCurrent(ctx, rest.Account(ctx), in.ID, in.Body.Version, revision)
	if err != nil {
		return nil, err
	}
	return &found{ETag: rest.ETag(v.Revision), Body: summary(v)}, nil
}

func (s *server) delete(ctx context.Context, in *LensPath) (*struct{}, error) {
	return nil, s.lenses.Delete(ctx, rest.Account(ctx), in.ID)
}
