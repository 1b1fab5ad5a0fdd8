// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"html/template"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/fault"
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
func (s *Server) finishDocument() {
	doc := s.api.OpenAPI()
	for _, unused := range []string{"ErrorModel", "ErrorDetail"} { // the library's own; see ours
		delete(doc.Components.Schemas.Map(), unused)
	}
	for _, item := range doc.Paths {
		for _, o := range operationsOf(item) {
			p := s.policies[o.OperationID]
			if o.OperationID == "server-errors" {
				o.Responses["200"].Content = map[string]*huma.MediaType{"text/html": {Schema: &huma.Schema{Type: huma.TypeString}}}
			}
			if o.OperationID == "recipes-source" || o.OperationID == "server-openapi" {
				o.Responses["200"].Content = map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}}}
			}
			if o.OperationID == "recipes-source" {
				o.Responses["200"].Content["application/yaml"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
			}
			if o.RequestBody == nil || len(p.accepts) == 1 {
				continue
			}
			o.RequestBody.Content = map[string]*huma.MediaType{}
			for _, kind := range p.accepts {
				schema := &huma.Schema{Type: huma.TypeObject, Description: "A recipe; `roux schema recipe` prints its schema.", AdditionalProperties: true}
				if kind != "application/json" {
					schema = &huma.Schema{Type: huma.TypeString}
				}
				o.RequestBody.Content[kind] = &huma.MediaType{Schema: schema}
			}
		}
	}
}

func (s *Server) healthRoutes() {
	public := policy{public: true}
	handle(s, op("server-health", http.MethodGet, "/healthz", "Whether the server runs"), public, s.health)
	handle(s, op("server-ready", http.MethodGet, "/readyz", "Whether the server takes requests"), public, s.ready)
	handle(s, op("server-errors", http.MethodGet, "/docs/errors", "What the codes of problem documents mean (HTML)"), public, s.errorsPage)
	doc := op("server-openapi", http.MethodGet, "/openapi.json", "This document")
	handle(s, doc, public, s.openAPI)
}

// A Health is the state of the server.
type Health struct {
	Status string `json:"status" enum:"ok,stopping"`
}

func (s *Server) health(context.Context, *struct{}) (*struct{ Body Health }, error) {
	return &struct{ Body Health }{Health{"ok"}}, nil
}

type readiness struct {
	Status int
	Body   Health
}

func (s *Server) ready(context.Context, *struct{}) (*readiness, error) {
	if err := s.cfg.Node.Engine.Err(); err != nil || s.stopping.Err() != nil {
		return &readiness{http.StatusServiceUnavailable, Health{"stopping"}}, nil
	}
	return &readiness{http.StatusOK, Health{"ok"}}, nil
}

// errorsPage explains every code, at the anchor that the type of a problem names.
func (s *Server) errorsPage(context.Context, *struct{}) (*documentOut, error) {
	var b bytes.Buffer
	err := errorsTemplate.Execute(&b, fault.All())
	return &documentOut{"text/html; charset=utf-8", b.Bytes()}, err
}

var errorsTemplate = template.Must(template.New("errors").Parse(`<!doctype html><html lang="en"><meta charset="utf-8"><title>Roux: errors</title><h1>Errors</h1>
{{range .}}<h2 id="{{.Code}}">{{.Code}}</h2><p>{{.Meaning}}</p><p>What to do: {{.Remedy}}</p><p>HTTP {{.HTTP}}{{if .Retryable}}; another try can succeed{{end}}{{with .Legacy}}; {{.}}{{end}}</p>
{{end}}</html>
`))

type documentOut struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *Server) openAPI(context.Context, *struct{}) (*documentOut, error) {
	data, err := s.Document()
	return &documentOut{"application/json", data}, err
}

// Document returns the OpenAPI document.
func (s *Server) Document() ([]byte, error) { return s.api.OpenAPI().MarshalJSON() }
