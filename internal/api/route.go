// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/telemetry"
)

// A policy is what an operation demands of a request. Its zero value is none, with which a
// server does not start.
type policy struct {
	// scope is what the key must allow. Exactly one of scope and public is set.
	scope access.Scope
	// public operations need no key: they show nothing of any account.
	public bool
	// accepts are the media types of the body. Default: application/json.
	accepts []string
	// stream operations read or write for as long as both sides like.
	stream bool
	// once is how a repeated request with one idempotency key is recognised. Default: the
	// answer to the first is kept and sent again.
	once once
}

// once is how an operation treats an Idempotency-Key.
type once uint8

const (
	onceKept   once = iota // the answer is kept
	onceItself             // the operation is told the key and takes care of it
	onceNot                // the key is ignored, because a repeated request changes nothing
)

// needs is the policy of an operation with a scope.
func needs(s access.Scope) policy { return policy{scope: s} }

// op describes an operation in a few words.
func op(id, method, path, summary string) huma.Operation {
	tag, _, _ := strings.Cut(id, "-")
	return huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Tags: []string{tag}}
}

// handle registers an operation. Errors of fn become problem documents.
func handle[I, O any](s *Server, o huma.Operation, p policy, fn func(context.Context, *I) (*O, error)) {
	if p.accepts == nil {
		p.accepts = []string{"application/json"}
	}
	if s.policies[o.OperationID] != nil {
		s.repeated = append(s.repeated, o.OperationID)
	}
	s.policies[o.OperationID] = &p
	if o.Responses == nil {
		o.Responses = map[string]*huma.Response{}
	}
	for _, status := range []string{"4XX", "5XX"} {
		o.Responses[status] = &huma.Response{
			Description: "A problem document that says what was wrong and what to do.",
			Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: problemSchema(s.api)}},
		}
	}
	if !p.public {
		o.Security = []map[string][]string{{"key": {string(p.scope)}}}
	}
	huma.Register(s.api, o, func(ctx context.Context, in *I) (*O, error) {
		out, err := fn(ctx, in)
		if err != nil {
			return nil, s.problemOf(ctx, err)
		}
		return out, nil
	})
}

// problemSchema returns the schema of a Problem.
func problemSchema(api huma.API) *huma.Schema {
	return huma.SchemaFromType(api.OpenAPI().Components.Schemas, problemType)
}

// checkPolicies fails if an operation has no policy or one that says nothing (A03).
func (s *Server) checkPolicies() error {
	if len(s.repeated) > 0 {
		return fmt.Errorf("api: two operations are called %s", s.repeated[0])
	}
	for path, item := range s.api.OpenAPI().Paths {
		for _, o := range operationsOf(item) {
			p := s.policies[o.OperationID]
			if p == nil || (p.scope == "") == !p.public {
				return fmt.Errorf("api: %s %s declares no policy", o.Method, path)
			}
		}
	}
	return nil
}

func operationsOf(item *huma.PathItem) (list []*huma.Operation) {
	for _, o := range []*huma.Operation{item.Get, item.Head, item.Post, item.Put, item.Patch, item.Delete} {
		if o != nil {
			list = append(list, o)
		}
	}
	return list
}

// A request is what is known of a request besides its input.
type request struct {
	id          string
	path        string
	operation   string
	correlation string
	http        *http.Request
	writer      http.ResponseWriter
	key         string // its Idempotency-Key
}

type requestKey struct{}

// requestFrom returns the request of a context.
func requestFrom(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

// account returns the account of a request: that of its key.
func account(ctx context.Context) string { return access.From(ctx).Account }

// The times that a request may take. Streams have none.
const (
	readTime  = 30 * time.Second
	writeTime = 90 * time.Second // a client may wait 60 s for the end of a run
)

// guard stands before every operation. It decides on the operation that the path has
// matched, never on the text of the path (A03).
func (s *Server) guard(h huma.Context, next func(huma.Context)) {
	raw, w := humago.Unwrap(h)
	o := h.Operation()
	p := s.policies[o.OperationID]
	r := &request{id: s.requestID(raw), path: raw.URL.Path, operation: o.OperationID, http: raw, writer: w}
	ctx := context.WithValue(raw.Context(), requestKey{}, r)
	h.SetHeader("X-Request-Id", r.id)
	h.SetHeader("X-Content-Type-Options", "nosniff")
	h.SetHeader("Cache-Control", "no-store")
	s.deadlines(w, p)
	if p == nil {
		s.fail(ctx, h, fault.New(fault.Forbidden, "the operation has no policy"))
		return
	}
	principal, err := s.authenticate(ctx, raw, p)
	if err == nil {
		ctx = access.With(ctx, principal)
		err = s.admit(h, raw, p, principal)
	}
	if err == nil {
		r.correlation, err = telemetry.Correlation(raw.Header)
	}
	if err != nil {
		s.fail(ctx, h, err)
		return
	}
	if s.cfg.Keys != nil {
		var end func()
		ctx, end = s.cfg.Keys.Bind(ctx, principal)
		defer end()
	}
	r.key = raw.Header.Get("Idempotency-Key")
	begin := s.cfg.Now()
	if r.key != "" && raw.Method == http.MethodPost && p.once == onceKept {
		s.answers.once(ctx, s, h, next)
	} else {
		next(huma.WithContext(h, ctx))
	}
	s.cfg.Logger.DebugContext(ctx, "request", "request", r.id, "operation", r.operation, "account", principal.Account, "status", h.Status(), "duration", s.cfg.Now().Sub(begin))
}

// unmatched answers a request that no operation takes; h is what the mux would do.
func (s *Server) unmatched(w http.ResponseWriter, r *http.Request, h http.Handler) {
	rec := &statusOnly{header: http.Header{}}
	h.ServeHTTP(rec, r)
	ctx := context.WithValue(r.Context(), requestKey{}, &request{id: s.requestID(r), path: r.URL.Path})
	err := fault.New(fault.NotFound, "the server has no such path")
	if path.Clean(r.URL.Path) != r.URL.Path {
		err.Remedy = "Write the path without empty and dotted parts."
	}
	if rec.status == http.StatusMethodNotAllowed {
		err = fault.New(fault.MethodNotAllowed, "the path takes %s", rec.header.Get("Allow"))
		w.Header().Set("Allow", rec.header.Get("Allow"))
	}
	p := s.problemOf(ctx, err)
	w.Header().Set("X-Request-Id", p.RequestID)
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = writeJSON(w, p) // an error means that the client has gone
}

// statusOnly keeps the status and the headers of an answer.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// fail answers with a problem document.
func (s *Server) fail(ctx context.Context, h huma.Context, err error) {
	p := s.problemOf(ctx, err)
	for name, values := range p.header {
		h.SetHeader(name, values[0])
	}
	if p.Status == http.StatusUnauthorized {
		h.SetHeader("WWW-Authenticate", `Bearer realm="roux"`)
	}
	h.SetHeader("Content-Type", p.ContentType(""))
	h.SetStatus(p.Status)
	_ = writeJSON(h.BodyWriter(), p) // an error means that the client has gone
}

func (s *Server) deadlines(w http.ResponseWriter, p *policy) {
	if p != nil && p.stream {
		return
	}
	ctl := http.NewResponseController(w)
	now := s.cfg.Now()
	_ = ctl.SetReadDeadline(now.Add(readTime)) // a recorder in a test has no deadlines
	_ = ctl.SetWriteDeadline(now.Add(writeTime))
}

// authenticate returns who makes a request.
func (s *Server) authenticate(ctx context.Context, r *http.Request, p *policy) (*access.Principal, error) {
	if s.cfg.Keys == nil {
		return s.cfg.Open, checkOrigin(r)
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok && p.stream {
		token, ok = protocolKey(r)
	}
	switch {
	case !ok && p.public:
		return &access.Principal{}, nil
	case !ok:
		err := fault.New(fault.Unauthorized, "the request has no key")
		err.Remedy = "Send one in the header `Authorization: Bearer <key>`; `POST /v1/keys` makes one."
		return nil, err
	}
	principal, err := s.cfg.Keys.Authenticate(ctx, token)
	if err != nil && p.public && fault.CodeOf(err) == fault.Unauthorized {
		return &access.Principal{}, nil
	}
	return principal, err
}

// checkOrigin refuses what a page in a browser sends to a server that checks no keys
// (A23): requests of other origins, and those for a name that is not this machine's, by
// which a page reaches the server as if it were its own.
func checkOrigin(r *http.Request) error {
	if !loopback(r.Host) {
		return fault.New(fault.Forbidden, "a server that checks no keys answers only requests for localhost")
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return fault.New(fault.Forbidden, "a server that checks no keys answers no page of another origin")
		}
	}
	return nil
}

// admit refuses a request that the key does not allow, that comes too soon, or that the
// operation cannot read.
func (s *Server) admit(h huma.Context, r *http.Request, p *policy, who *access.Principal) error {
	if !p.public {
		if err := who.Check(p.scope); err != nil {
			return err
		}
		if err := s.rates.take(h, who.Account, s.cfg.Now()); err != nil {
			return err
		}
	}
	if err := checkQuery(h.Operation(), r.URL.RawQuery); err != nil {
		return err
	}
	if len(r.Header.Get("Idempotency-Key")) > maxKey {
		return fault.New(fault.RequestMalformed, "the Idempotency-Key is longer than %d bytes", maxKey)
	}
	return checkBody(h.Operation(), r, p)
}

// maxKey bounds an idempotency key.
const maxKey = 255

// checkQuery refuses parameters that the operation does not have: a filter with a
// misspelled name would otherwise select everything.
func checkQuery(o *huma.Operation, query string) error {
	if query == "" {
		return nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return fault.New(fault.RequestMalformed, "the query of the path cannot be read: %v", err)
	}
	var known []string
	for _, p := range o.Parameters {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	for name, all := range values {
		prefix, _, labelled := strings.Cut(name, ".")
		switch {
		case slices.Contains(known, name) && len(all) > 1:
			return fault.New(fault.RequestMalformed, "the query parameter %q is given more than once", name)
		case slices.Contains(known, name), labelled && slices.Contains(known, prefix+".{key}"):
			continue
		}
		text := "the operation has no query parameter of that name"
		if near := spell.Nearest(name, known); near != "" {
			text += fmt.Sprintf("; did you mean %q?", near)
		} else if len(known) > 0 {
			text += ": it has " + strings.Join(known, ", ")
		}
		return &paramError{name: name, err: fault.New(fault.RequestMalformed, "%s", text)}
	}
	return nil
}

// A paramError is an error of a query parameter, which the problem document names.
type paramError struct {
	name string
	err  *fault.Error
}

func (e *paramError) Error() string { return e.err.Error() }
func (e *paramError) Unwrap() error { return e.err }

// checkBody refuses a body of a type that the operation does not read (A10).
func checkBody(o *huma.Operation, r *http.Request, p *policy) error {
	if r.ContentLength == 0 || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return fault.New(fault.MediaTypeUnsupported, "bodies are not taken with a Content-Encoding")
	}
	text := r.Header.Get("Content-Type")
	if text == "" && slices.Contains(p.accepts, "application/json") {
		return nil
	}
	kind, _, err := mime.ParseMediaType(text)
	if err != nil || !slices.Contains(p.accepts, kind) && !slices.Contains(p.accepts, "*/*") {
		return fault.New(fault.MediaTypeUnsupported, "the operation takes a body of the type %s", strings.Join(p.accepts, " or "))
	}
	return nil
}
