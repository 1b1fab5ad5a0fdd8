// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/linediff"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/yamlx"
)

// recipeTypes are the media types of the text of a recipe.
var recipeTypes = []string{"application/json", "application/yaml", "application/x-yaml", "text/yaml"}

// A RecipeSummary is a version of a recipe in a list, and the answer to its registration
// (X187).
type RecipeSummary struct {
	ID          string    `json:"id" example:"recipe_01K3ABCDEFGHJKMNPQRSTVWXYZ" doc:"Of the recipe; it stays when versions are added."`
	Name        string    `json:"name" example:"pdf-to-translated-markdown"`
	Version     string    `json:"version" example:"1.0.0"`
	Description string    `json:"description,omitempty"`
	Category    string    `json:"category,omitempty"`
	Status      string    `json:"status" enum:"draft,active,deprecated"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	CreatedBy   string    `json:"createdBy" doc:"The account."`
	HasRun      bool      `json:"hasRun" doc:"A version that has run never changes."`
	Plan        string    `json:"plan" doc:"Hash of what it compiled to."`
	Note        string    `json:"note,omitempty" doc:"Why it is deprecated."`
	// SunsetAt is what the owner of the recipe intends.
	SunsetAt *time.Time `json:"sunsetAt,omitempty" doc:"From when on a deprecated version may be gone."`
	Warnings int        `json:"warnings,omitempty"`
	Revision uint64     `json:"revision"`
}

func summary(account string, v *registry.Version) RecipeSummary {
	return RecipeSummary{
		ID: v.Recipe, Name: v.Name, Version: v.Version, Description: v.Description, Category: v.Category, Status: v.Status,
		CreatedAt: rest.Stamp(v.Created), UpdatedAt: rest.Stamp(v.Updated), CreatedBy: account, HasRun: v.Ran, Plan: v.Plan, Note: v.Note,
		Warnings: v.Warnings, Revision: v.Revision, SunsetAt: rest.StampOr(v.Sunset),
	}
}

// A RecipeText is the text of a recipe as a body.
type RecipeText struct {
	Name    string `query:"name" maxLength:"200" doc:"Name of a text that has none, such as that of its file; a text in the dialect recipe needs one."`
	RawBody []byte `contentType:"application/octet-stream"`
}

// A RecipePath names a recipe or a version of it.
type RecipePath struct {
	ID string `path:"id" maxLength:"300" doc:"Id or name of a recipe, with an exact version or a range after @, such as pdf-report@1.2. Without one it is the newest active version."`
}

type registered struct {
	Status   int
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Body     RecipeSummary
}

// A RecipeDocument is a recipe as it was registered, with what the server knows of it (X2).
// Its fields are those of the text.
type RecipeDocument map[string]any

type recipeFound struct {
	Ending
	ETag         string `header:"ETag"`
	LastModified string `header:"Last-Modified"`
	Body         RecipeDocument
}

func (s *Server) recipeRoutes() {
	create := rest.Op("recipes-create", http.MethodPost, "/v1/recipes", "Register a recipe, or another version of one")
	create.DefaultStatus = http.StatusCreated
	create.MaxBodyBytes = rest.MaxText
	text := rest.Needs(access.RecipesWrite)
	text.Accepts = recipeTypes
	rest.Handle(s.rest, create, text, s.createRecipe)

	rest.Handle(s.rest, rest.Op("recipes-list", http.MethodGet, "/v1/recipes", "List recipes, the newest first"), rest.Needs(access.RecipesRead), s.listRecipes)
	rest.Handle(s.rest, rest.Op("recipes-get", http.MethodGet, "/v1/recipes/{id}", "Get a recipe"), rest.Needs(access.RecipesRead), s.getRecipe)
	rest.Handle(s.rest, rest.Op("recipes-versions", http.MethodGet, "/v1/recipes/{id}/versions", "List the versions of a recipe, the newest first"), rest.Needs(access.RecipesRead), s.recipeVersions)
	source := rest.Needs(access.RecipesRead)
	source.Produces = []string{"application/json", "application/yaml"}
	rest.Handle(s.rest, rest.Op("recipes-source", http.MethodGet, "/v1/recipes/{id}/source", "Get the text of a recipe as it was registered"), source, s.recipeSource)
	rest.Handle(s.rest, rest.Op("recipes-diff", http.MethodGet, "/v1/recipes/{id}/diff", "Compare two versions of a recipe"), rest.Needs(access.RecipesRead), s.diffRecipes)

	replace := rest.Op("recipes-replace", http.MethodPut, "/v1/recipes/{id}", "Replace a version that never ran, or add a version")
	replace.MaxBodyBytes = rest.MaxText
	rest.Handle(s.rest, replace, text, s.replaceRecipe)
	rest.Handle(s.rest, rest.Op("recipes-deprecate", http.MethodPost, "/v1/recipes/{id}/deprecate", "Deprecate a version, or make it active again"), rest.Needs(access.RecipesWrite), s.deprecateRecipe)
	rest.Handle(s.rest, rest.Op("recipes-delete", http.MethodDelete, "/v1/recipes/{id}", "Delete a recipe; its runs go on"), rest.Needs(access.RecipesWrite), s.deleteRecipe)

	check := rest.Op("recipes-check", http.MethodPost, "/v1/recipes/validate", "Validate a recipe without registering it")
	check.MaxBodyBytes = rest.MaxText
	read := rest.Needs(access.RecipesRead)
	read.Accepts, read.Once = recipeTypes, rest.OnceNot
	rest.Handle(s.rest, check, read, s.checkRecipe)
	read.OwnBody = true
	rest.Handle(s.rest, rest.Op("recipes-validate", http.MethodPost, "/v1/recipes/{id}/validate", "Validate a registered recipe, or a text in its place"), read, s.validateRecipe)
}

func (s *Server) createRecipe(ctx context.Context, in *RecipeText) (*registered, error) {
	v, existing, _, err := s.cfg.Recipes.Register(ctx, rest.Account(ctx), registry.Draft{Text: in.RawBody, File: "body", Name: in.Name, By: rest.Account(ctx)})
	if err != nil {
		return nil, err
	}
	out := s.registered(ctx, v)
	out.Status = http.StatusCreated
	if existing {
		out.Status = http.StatusOK
	}
	return out, nil
}

func (s *Server) registered(ctx context.Context, v *registry.Version) *registered {
	return &registered{Location: "/v1/recipes/" + v.ID(), ETag: rest.ETag(v.Revision), Body: summary(rest.Account(ctx), v)}
}

type recipesIn struct {
	rest.Paging
	Status   string `query:"status" enum:"draft,active,deprecated" doc:"Only recipes whose newest version has this status."`
	Category string `query:"category" maxLength:"100" doc:"Only recipes of this category."`
	Q        string `query:"q" maxLength:"200" doc:"Only recipes with this text in name, description or category."`
}

func (s *Server) listRecipes(ctx context.Context, in *recipesIn) (*rest.Listed[RecipeSummary], error) {
	list := "recipes " + rest.Account(ctx) + " " + in.Status + " " + in.Category + " " + in.Q
	place, err := s.rest.Place(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	found, next, err := s.cfg.Recipes.List(ctx, rest.Account(ctx), place, in.Limit, func(v *registry.Version) bool {
		text := strings.ToLower(v.Name + " " + v.Description + " " + v.Category)
		return (in.Status == "" || v.Status == in.Status) && (in.Category == "" || v.Category == in.Category) && strings.Contains(text, strings.ToLower(in.Q))
	})
	if err != nil {
		return nil, err
	}
	data := make([]RecipeSummary, len(found))
	for i, v := range found {
		data[i] = summary(rest.Account(ctx), v)
	}
	return rest.PageOf(ctx, s.rest, list, next, data), nil
}

func (s *Server) getRecipe(ctx context.Context, in *RecipePath) (*recipeFound, error) {
	v, err := s.cfg.Recipes.Find(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	text, err := s.cfg.Recipes.Source(ctx, rest.Account(ctx), v)
	if err != nil {
		return nil, err
	}
	doc, err := document(v.Format, text)
	if err != nil {
		return nil, err
	}
	known, err := fieldsOf(summary(rest.Account(ctx), v))
	if err != nil {
		return nil, err
	}
	for name, value := range known {
		doc[name] = value
	}
	return &recipeFound{Ending: ending(v), ETag: rest.ETag(v.Revision), LastModified: rest.Stamp(v.Updated).Format(http.TimeFormat), Body: doc}, nil
}

// An Ending are the headers that say that something is deprecated (RFC 9745), and from when
// on it may be gone (RFC 8594).
type Ending struct {
	Deprecation string `header:"Deprecation"`
	Sunset      string `header:"Sunset"`
}

func ending(v *registry.Version) (e Ending) {
	if v.Status != registry.StatusDeprecated {
		return e
	}
	e.Deprecation = rest.DeprecatedSince(rest.Stamp(cmp.Or(v.Deprecated, v.Updated)))
	if v.Sunset != 0 {
		e.Sunset = rest.Stamp(v.Sunset).Format(http.TimeFormat)
	}
	return e
}

// fieldsOf returns a value as the fields of an object.
func fieldsOf(v any) (map[string]any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(data, &out)
}

func (s *Server) recipeVersions(ctx context.Context, in *RecipePath) (*rest.Listed[RecipeSummary], error) {
	versions, err := s.cfg.Recipes.Versions(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	data := make([]RecipeSummary, len(versions))
	for i, v := range versions {
		data[i] = summary(rest.Account(ctx), v)
	}
	return rest.PageOf(ctx, s.rest, "", "", data), nil
}

type textFound struct {
	ETag        string `header:"ETag"`
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *Server) recipeSource(ctx context.Context, in *RecipePath) (*textFound, error) {
	v, err := s.cfg.Recipes.Find(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	text, err := s.cfg.Recipes.Source(ctx, rest.Account(ctx), v)
	return &textFound{ETag: rest.ETag(v.Revision), ContentType: "application/" + v.Format, Body: text}, err
}

type diffIn struct {
	RecipePath
	With string `query:"with" required:"true" maxLength:"100" doc:"The version that is compared with the one of the path, such as 1.0.0."`
}

// A RecipeDiff says how the text of one version differs from that of another.
type RecipeDiff struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Same    bool   `json:"same" doc:"Whether both mean the same: they compile to the same plan."`
	Unified string `json:"unified" doc:"The lines that differ, as diff -u shows them."`
}

func (s *Server) diffRecipes(ctx context.Context, in *diffIn) (*struct{ Body RecipeDiff }, error) {
	to, err := s.cfg.Recipes.Find(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	from, err := s.cfg.Recipes.Find(ctx, rest.Account(ctx), to.Recipe+"@"+in.With)
	if err != nil {
		return nil, err
	}
	a, err := s.cfg.Recipes.Source(ctx, rest.Account(ctx), from)
	if err != nil {
		return nil, err
	}
	b, err := s.cfg.Recipes.Source(ctx, rest.Account(ctx), to)
	if err != nil {
		return nil, err
	}
	return &struct{ Body RecipeDiff }{RecipeDiff{
		From: from.Version, To: to.Version, Same: from.Plan == to.Plan,
		Unified: linediff.Unified(to.Name, a, b),
	}}, nil
}

type replaceIn struct {
	RecipePath
	RawBody []byte `contentType:"application/octet-stream"`
	IfMatch string `header:"If-Match" maxLength:"100" doc:"ETag of the version that is replaced."`
}

func (s *Server) replaceRecipe(ctx context.Context, in *replaceIn) (*registered, error) {
	revision, err := rest.Revision(in.IfMatch, store.AnyRevision)
	if err != nil {
		return nil, err
	}
	v, created, _, err := s.cfg.Recipes.Replace(ctx, rest.Account(ctx), in.ID, revision, registry.Draft{Text: in.RawBody, File: "body", By: rest.Account(ctx)})
	if err != nil {
		return nil, err
	}
	out := s.registered(ctx, v)
	if out.Status = http.StatusOK; created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

type deprecateIn struct {
	RecipePath
	Body *struct {
		Status string     `json:"status,omitempty" enum:"active,deprecated" default:"deprecated"`
		Note   string     `json:"note,omitempty" maxLength:"500" doc:"For people, such as which version takes its place."`
		Sunset *time.Time `json:"sunset,omitempty" doc:"From when on the version may be gone, for the header Sunset of its answers. Nothing happens by itself then."`
	}
}

func (s *Server) deprecateRecipe(ctx context.Context, in *deprecateIn) (*registered, error) {
	to := registry.Standing{Status: registry.StatusDeprecated}
	if in.Body != nil {
		to.Status, to.Note = cmp.Or(in.Body.Status, to.Status), in.Body.Note
		if in.Body.Sunset != nil {
			to.Sunset = in.Body.Sunset.UnixMicro()
		}
	}
	v, err := s.cfg.Recipes.SetStatus(ctx, rest.Account(ctx), in.ID, to)
	if err != nil {
		return nil, err
	}
	out := s.registered(ctx, v)
	out.Status = http.StatusOK
	return out, nil
}

func (s *Server) deleteRecipe(ctx context.Context, in *RecipePath) (*struct{}, error) {
	return nil, s.cfg.Recipes.Delete(ctx, rest.Account(ctx), in.ID)
}

// A Validation is what is wrong in a recipe.
type Validation struct {
	Valid       bool                `json:"valid"`
	Name        string              `json:"name,omitempty"`
	Version     string              `json:"version,omitempty"`
	Plan        string              `json:"plan,omitempty" doc:"Hash of what it compiles to."`
	Steps       int                 `json:"steps,omitempty"`
	Diagnostics []rest.ProblemError `json:"diagnostics"`
}

func (s *Server) checkRecipe(ctx context.Context, in *RecipeText) (*struct{ Body Validation }, error) {
	c, diags, err := s.cfg.Recipes.Check(ctx, rest.Account(ctx), registry.Draft{Text: in.RawBody, File: "body", Name: in.Name})
	if err != nil && len(diags) == 0 {
		return nil, err
	}
	v := Validation{Valid: err == nil, Diagnostics: rest.Places(diags)}
	if c != nil {
		v.Name, v.Version, v.Plan, v.Steps = c.Version.Name, c.Version.Version, c.Version.Plan, len(c.Plan.Steps)
	}
	return &struct{ Body Validation }{v}, nil
}

func (s *Server) validateRecipe(ctx context.Context, in *RecipePath) (*struct{ Body Validation }, error) {
	v, err := s.cfg.Recipes.Find(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	// The library has no body that may be absent and has several types.
	text, err := io.ReadAll(http.MaxBytesReader(rest.From(ctx).Writer, rest.From(ctx).HTTP.Body, rest.MaxText))
	if err != nil {
		return nil, fault.Wrap(fault.RequestTooLarge, err, "the text is larger than %d bytes, or did not arrive", rest.MaxText-1)
	}
	if len(text) == 0 {
		if text, err = s.cfg.Recipes.Source(ctx, rest.Account(ctx), v); err != nil {
			return nil, err
		}
	}
	return s.checkRecipe(ctx, &RecipeText{Name: v.Name, RawBody: text})
}

// document returns the text of a recipe as an object.
func document(format string, text []byte) (map[string]any, error) {
	doc, err := recipeObject(format, text)
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "the text of the recipe cannot be read: %v", err)
	}
	return doc, nil
}

// recipeObject decodes the text of a recipe, in the format json or yaml.
func recipeObject(format string, text []byte) (map[string]any, error) {
	limits := jsonx.Limits{Bytes: rest.MaxText}
	parse := yamlx.Parse
	if format == "json" {
		parse = jsonx.Parse
	}
	n, errs := parse(text, limits)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	limits.Bytes *= 4 // of the same values without anything between them
	v, err := jsonx.Decode(yamlx.EncodeJSON(n), limits)
	if err != nil {
		return nil, err
	}
	m, _ := v.(map[string]any)
	return m, nil
}
