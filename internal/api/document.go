// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"

	"github.com/roux-engine/roux/internal/docpage"
	"github.com/roux-engine/roux/internal/rest"
)

// groups describe the operations by what begins their ids.
var groups = map[string]string{
	"account":    "The settings and the usage of the account.",
	"accounts":   "Accounts, their limits and their credits, for the operator of the server.",
	"approvals":  "What people are asked, and their answers.",
	"actions":    "What the steps of recipes can call.",
	"cache":      "Results of actions that are kept for later steps.",
	"bulk":       "One thing done to many runs.",
	"credits":    "The credits of the account: balance, entries and grants.",
	"executions": "Runs in the words of recipes: start, read, control.",
	"feed":       "All changes of the account, as a stream.",
	"files":      "Files of the account, by the hash of their content.",
	"jobs":       "Runs in the words of jobs, with their graphs.",
	"keys":       "The keys of the account, their scopes and spending limits.",
	"lenses":     "Prompt templates that steps name, and their versions.",
	"recipes":    "Registered recipes and their versions.",
	"schedules":  "Times at which recipes are started.",
	"providers":  "What services report about the jobs that steps wait for.",
	"workers":    "Tasks that remote workers carry out.",
	"secrets":    "The names of the account's secrets; nothing answers a value.",
	"server":     "The state of the server, and its pages.",
	"socket":     "The streams of many runs over one WebSocket.",
	"triggers":   "Addresses to which outside systems send webhooks that start recipes.",
	"webhooks":   "Changes of the account, delivered to addresses of its own.",
	"workflows":  "Workflows of nodes and flows, and their runs in the words of those.",
}

func (s *Server) healthRoutes() {
	public := rest.Policy{Public: true}
	page, document := public, public
	page.Produces, document.Produces = []string{"text/html"}, []string{"application/json"}
	rest.Handle(s.rest, rest.Op("server-health", http.MethodGet, "/healthz", "Whether the server runs"), public, s.health)
	rest.Handle(s.rest, rest.Op("server-ready", http.MethodGet, "/readyz", "Whether the server takes requests"), public, s.ready)
	rest.Handle(s.rest, rest.Op("server-docs", http.MethodGet, "/docs", "The interface for people (HTML)"), page, s.docsPage)
	rest.Handle(s.rest, rest.Op("server-errors", http.MethodGet, "/docs/errors", "What the codes of problem documents mean (HTML)"), page, s.errorsPage)
	rest.Handle(s.rest, rest.Op("server-openapi", http.MethodGet, "/openapi.json", "This document"), document, s.openAPI)
	rest.Handle(s.rest, rest.Op("server-asyncapi", http.MethodGet, "/asyncapi.json", "The streams of events, as an AsyncAPI document"), document, s.asyncAPI)
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

type pageOut struct {
	ContentType string `header:"Content-Type"`
	Policy      string `header:"Content-Security-Policy"`
	Body        []byte
}

func pageOf(data []byte, err error) (*pageOut, error) {
	return &pageOut{"text/html; charset=utf-8", docpage.Policy(), data}, err
}

// docsPage is the reference of the interface: the OpenAPI document for people.
func (s *Server) docsPage(context.Context, *struct{}) (*pageOut, error) { return pageOf(s.docs()) }

// errorsPage explains every code, at the anchor that the type of a problem names.
func (s *Server) errorsPage(context.Context, *struct{}) (*pageOut, error) {
	return pageOf(docpage.Errors(), nil)
}

type documentOut struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *Server) openAPI(context.Context, *struct{}) (*documentOut, error) {
	data, err := s.rest.Document()
	return &documentOut{"application/json", data}, err
}

// asyncAPI returns the AsyncAPI 3 document: the streams of events, and their messages.
func (s *Server) asyncAPI(context.Context, *struct{}) (*documentOut, error) {
	data, err := docpage.AsyncAPI(s.cfg.Release)
	return &documentOut{"application/json", data}, err
}
