// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"html/template"
	"net/http"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/rest"
)

func (s *Server) healthRoutes() {
	public := rest.Policy{Public: true}
	page, document := public, public
	page.Produces, document.Produces = []string{"text/html"}, []string{"application/json"}
	rest.Handle(s.rest, rest.Op("server-health", http.MethodGet, "/healthz", "Whether the server runs"), public, s.health)
	rest.Handle(s.rest, rest.Op("server-ready", http.MethodGet, "/readyz", "Whether the server takes requests"), public, s.ready)
	rest.Handle(s.rest, rest.Op("server-docs", http.MethodGet, "/docs", "The interface for people (HTML)"), page, s.docsPage)
	rest.Handle(s.rest, rest.Op("server-errors", http.MethodGet, "/docs/errors", "What the codes of problem documents mean (HTML)"), page, s.errorsPage)
	rest.Handle(s.rest, rest.Op("server-openapi", http.MethodGet, "/openapi.json", "This document"), document, s.openAPI)
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
	data, err := s.rest.Document()
	return &documentOut{"application/json", data}, err
}
