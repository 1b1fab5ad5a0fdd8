// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// strict makes the library tell Parameters from parameters (A07). It has no setting of a
// server for that.
var strict sync.Once

// humaConfig is how the library behaves: it serves no pages of its own, which would load
// scripts from elsewhere, and adds nothing to answers.
func humaConfig(release string) huma.Config {
	strict.Do(func() { huma.ValidateStrictCasing = true })
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Roux", Version: "v1",
				Description: "Recipes, runs, files and credits of a Roux server. Errors are problem documents (RFC 9457) with a code and a remedy. Release " + release + ".",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Servers: []*huma.Server{{URL: "/"}},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer", Description: "A key of the server, such as roux_01K3…"}},
			},
		},
		Formats: map[string]huma.Format{"application/json": jsonFormat(), "json": jsonFormat()}, DefaultFormat: "application/json",
	}
}

// finishDocument completes what the library cannot know.
func (rt *Router) finishDocument() {
	doc := rt.api.OpenAPI()
	for _, unused := range []string{"ErrorModel", "ErrorDetail"} { // the library's own; see ours
		delete(doc.Components.Schemas.Map(), unused)
	}
	for _, name := range slices.Sorted(maps.Keys(rt.cfg.Tags)) {
		doc.Tags = append(doc.Tags, &huma.Tag{Name: name, Description: rt.cfg.Tags[name]})
	}
	for _, item := range doc.Paths {
		for _, o := range operationsOf(item) {
			p := rt.policies[o.OperationID]
			o.Description = strings.TrimSpace(o.Description + " " + p.describe(o.Method))
			if len(p.Produces) > 0 {
				o.Responses["200"].Content = content(p.Produces, "")
			}
			if p.OwnBody {
				o.RequestBody = new(huma.RequestBody)
			}
			if o.RequestBody != nil && len(p.Accepts) > 1 {
				o.RequestBody.Content = content(p.Accepts, "A recipe; `roux schema recipe` prints its schema.")
			}
		}
	}
}

// describe says for people what the policy demands.
func (p *Policy) describe(method string) string {
	text := "Needs no key."
	if !p.Public {
		text = "Needs a key with the scope `" + string(p.Scope) + "`."
	}
	if p.Stream {
		text += " The request lasts until one side ends it."
	}
	if method == http.MethodPost {
		switch p.Once {
		case OnceKept:
			text += " With the header `Idempotency-Key`, a repeated request gets the answer of the first one for 24 hours."
		case OnceNot:
			text += " A repeated request changes nothing."
		case OnceNever:
			text += " A repeated request makes another one, also with the header `Idempotency-Key`: the answer has a secret, which is not kept."
		}
	}
	return text
}

// content describes a body that is no Go value, in each of its types.
func content(types []string, description string) map[string]*huma.MediaType {
	out := map[string]*huma.MediaType{}
	for _, kind := range types {
		schema := &huma.Schema{Type: huma.TypeString}
		if strings.HasSuffix(kind, "json") {
			schema = &huma.Schema{Type: huma.TypeObject, Description: description, AdditionalProperties: true}
		}
		out[kind] = &huma.MediaType{Schema: schema}
	}
	return out
}

// Document returns the OpenAPI document.
func (rt *Router) Document() ([]byte, error) { return rt.api.OpenAPI().MarshalJSON() }
