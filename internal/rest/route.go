// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/telemetry"
)

// A Policy is what an operation demands of a request. Its zero value is none, with which a
// server does not start.
type Policy struct {
	// Scope is what the key must allow. Exactly one of Scope and Public is set.
	Scope access.Scope
	// Public operations need no key: they show nothing of any account.
	Public bool
	// Accepts are the media types of the body; +json is every type that ends so. Default:
	// application/json.
	Accepts []string
	// AnyQuery operations read the query of the path themselves, whatever is in it.
	AnyQuery bool
	// OwnBody operations read their body themselves: it may be absent, and has several types,
	// which the library has no input for.
	OwnBody bool
	// Produces are the media types of the answer, if its body is no Go value but bytes.
	Produces []string
	// Stream operations read or write for as long as both sides like.
	Stream bool
	// Deprecated is since when clients should no longer use the operation, and Sunset from
	// when on it may be gone. Zero = it stays. The document and the answers say so.
	Deprecated, Sunset time.Time
	// Once is how a repeated request with one idempotency key is recognised. Default: the
	// answer to the first is kept and sent again.
	Once Once
	// Unread is told the status of the answer to a request whose input is not taken. It may be nil.
	Unread func(status int)
}

// Once is how a repeated request is recognised.
type Once uint8

// How an operation treats an Idempotency-Key.
const (
	OnceKept   Once = iota // the answer is kept
	OnceItself             // the operation is told the key and takes care of it
	OnceNot                // the key is ignored, because a repeated request changes nothing
	OnceNever              // the key is ignored, because the answer has a secret, which is not kept
)

// Needs is the policy of an operation with a scope.
func Needs(s access.Scope) Policy { return Policy{Scope: s} }

// Op describes an operation in a few words.
func Op(id, method, path, summary string) huma.Operation {
	tag, _, _ := strings.Cut(id, "-")
	return huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Tags: []string{tag}}
}

// Pages declares that the answers with these statuses are pages for people, in HTML.
func Pages(o *huma.Operation, statuses ...int) {
	o.Responses = map[string]*huma.Response{}
	for _, status := range statuses {
		o.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status), Content: map[string]*huma.MediaType{"text/html": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}
	}
}

// Handle registers an operation. Errors of fn become problem documents.
func Handle[I, O any](rt *Router, o huma.Operation, p Policy, fn func(context.Context, *I) (*O, error)) {
	rt.declare(&o, p)
	rt.hidden = append(rt.hidden, hidden(o.OperationID, reflect.TypeFor[I]())...)
	rt.register(o, reflect.TypeFor[I](), reflect.TypeFor[O](), func(ctx context.Context, in any) (any, error) {
		return rt.limited(ctx, &p, in, func(ctx context.Context, in any) (any, error) { return fn(ctx, in.(*I)) })
	})
}

// declare keeps the policy of an operation and describes what follows from it.
func (rt *Router) declare(o *huma.Operation, p Policy) {
	if p.Accepts == nil {
		p.Accepts = []string{"application/json"}
	}
	if rt.policies[o.OperationID] != nil {
		rt.repeated = append(rt.repeated, o.OperationID)
	}
	rt.policies[o.OperationID] = &p
	if o.Responses == nil {
		o.Responses = map[string]*huma.Response{}
	}
	for _, status := range []string{"4XX", "5XX"} {
		o.Responses[status] = &huma.Response{
			Description: "A problem document that says what was wrong and what to do.",
			Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: problemSchema(rt.api)}},
		}
	}
	if !p.Deprecated.IsZero() {
		o.Deprecated = true
		o.Description = strings.TrimSpace(o.Description + " Deprecated since " + p.Deprecated.UTC().Format(time.DateOnly) + ".")
		if !p.Sunset.IsZero() {
			o.Description += " It may be gone from " + p.Sunset.UTC().Format(time.DateOnly) + " on."
		}
	}
	o.Security = []map[string][]string{{}}
	if !p.Public {
		o.Security[0]["key"] = []string{string(p.Scope)}
	}
}

// limited calls fn once its account may have another request carried out. The body of the
// request was read before and the answer is sent afterwards: a slow client keeps nobody
// waiting.
func (rt *Router) limited(ctx context.Context, p *Policy, in any, fn call) (any, error) {
	if p.Public || p.Stream || p.OwnBody {
		return fn(ctx, in)
	}
	release, err := rt.fair.Acquire(ctx, Account(ctx))
	if err != nil {
		return nil, err
	}
	r := From(ctx)
	r.release = sync.OnceFunc(release)
	defer r.release()
	return fn(ctx, in)
}

// Waits says that a request waits for something that takes long, from here on: it does not
// count as one that is carried out any more.
func Waits(ctx context.Context) {
	if r := From(ctx); r.release != nil {
		r.release()
	}
}

// hidden names the embedded fields of an input that the library passes over, because their
// type is not exported: their parameters would be ignored.
func hidden(id string, t reflect.Type) (list []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Anonymous && !f.IsExported():
			list = append(list, id+": "+f.Name)
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			list = append(list, hidden(id, f.Type)...)
		}
	}
	return list
}

// problemSchema returns a reference to the schema of a Problem.
func problemSchema(api huma.API) *huma.Schema {
	return api.OpenAPI().Components.Schemas.Schema(problemType, true, "Problem")
}

// checkPolicies fails if an operation has no policy or one that says nothing (A03).
func (rt *Router) checkPolicies() error {
	if len(rt.repeated) > 0 {
		return fmt.Errorf("two operations are called %s", rt.repeated[0])
	}
	if len(rt.unfit) > 0 {
		return rt.unfit[0]
	}
	if len(rt.hidden) > 0 {
		return fmt.Errorf("the parameters of a type that is not exported would be ignored: %s", rt.hidden[0])
	}
	for path, item := range rt.api.OpenAPI().Paths {
		for _, o := range operationsOf(item) {
			p := rt.policies[o.OperationID]
			if p == nil || (p.Scope == "") == !p.Public {
				return fmt.Errorf("%s %s declares no policy", o.Method, path)
			}
			for _, tag := range o.Tags {
				if rt.cfg.Tags[tag] == "" {
					return fmt.Errorf("%s %s is of the group %s, which has no description", o.Method, path, tag)
				}
			}
			if !p.Sunset.IsZero() && !p.Sunset.After(p.Deprecated) {
				return fmt.Errorf("%s %s has a sunset that is not after its deprecation", o.Method, path)
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

// A Request is what is known of a request besides its input.
type Request struct {
	ID          string // names the request in the logs
	Path        string
	Operation   string // id of the operation
	Correlation string // see telemetry.Correlation
	HTTP        *http.Request
	Writer      http.ResponseWriter
	Key         string // its Idempotency-Key
	release     func() // see Waits; nil = it is not limited
}

type requestKey struct{}

// From returns the request of a context.
func From(ctx context.Context) *Request {
	if r, ok := ctx.Value(requestKey{}).(*Request); ok {
		return r
	}
	return &Request{}
}

// Lasting returns a context for what goes on when the handler of a request has returned. It
// knows who made the request and what it is called in the logs, keeps nothing else of it, and
// ends when the key does, or when the operator disables the account. Call end when it is done.
func (rt *Router) Lasting(ctx context.Context) (lasting context.Context, end func(), err error) {
	r, principal := From(ctx), access.From(ctx)
	kept := &Request{ID: r.ID, Path: r.Path, Operation: r.Operation, Correlation: r.Correlation}
	lasting = access.With(context.WithValue(context.Background(), requestKey{}, kept), principal)
	if rt.cfg.Keys == nil {
		return lasting, func() {}, nil
	}
	lasting, end = rt.cfg.Keys.Bind(lasting, principal)
	// See guard: from here on, it ends when the account is disabled.
	if err := rt.disabled(rt.policies[r.Operation], principal); err != nil {
		end()
		return nil, nil, err
	}
	return lasting, end, nil
}

// Account returns the account of a request: that of its key.
func Account(ctx context.Context) string { return access.From(ctx).Account }

// The times that a request may take. Streams have none.
const (
	readTime  = 30 * time.Second
	writeTime = 90 * time.Second // a client may wait 60 s for the end of a run
)

// guard stands before every operation. It decides on the operation that the path has
// matched, never on the text of the path (A03).
func (rt *Router) guard(h huma.Context, next func(huma.Context)) {
	raw, w := humago.Unwrap(h)
	o := h.Operation()
	p := rt.policies[o.OperationID]
	r := &Request{ID: rt.requestID(raw), Path: raw.URL.Path, Operation: o.OperationID, HTTP: raw, Writer: w}
	ctx := context.WithValue(raw.Context(), requestKey{}, r)
	h.SetHeader("X-Request-Id", r.ID)
	h.SetHeader("X-Content-Type-Options", "nosniff")
	h.SetHeader("Cache-Control", "no-store")
	rt.deadlines(w, p)
	if p == nil {
		rt.fail(ctx, h, fault.New(fault.Forbidden, "the operation has no policy"))
		return
	}
	p.ending(h)
	principal, err := rt.authenticate(ctx, raw, p)
	if err == nil {
		ctx = access.With(ctx, principal)
		err = rt.admit(h, raw, p, principal)
	}
	if err == nil {
		r.Correlation, err = telemetry.Correlation(raw.Header)
	}
	if err != nil {
		rt.fail(ctx, h, err)
		return
	}
	if rt.cfg.Keys != nil {
		var end func()
		ctx, end = rt.cfg.Keys.Bind(ctx, principal)
		defer end()
		// The account may have been disabled since it was admitted. From here on that ends ctx.
		if err := rt.disabled(p, principal); err != nil {
			rt.fail(ctx, h, err)
			return
		}
	}
	r.Key = raw.Header.Get("Idempotency-Key")
	begin := rt.cfg.Now()
	if r.Key != "" && raw.Method == http.MethodPost && p.Once == OnceKept {
		rt.answers.once(ctx, rt, h, next)
	} else {
		next(huma.WithContext(h, ctx))
	}
	rt.cfg.Logger.DebugContext(ctx, "request", "request", r.ID, "operation", r.Operation, "account", principal.Account, "status", h.Status(), "duration", rt.cfg.Now().Sub(begin))
}

// ending sets the headers of a deprecated operation (RFC 9745, RFC 8594).
func (p *Policy) ending(h huma.Context) {
	if p.Deprecated.IsZero() {
		return
	}
	h.SetHeader("Deprecation", DeprecatedSince(p.Deprecated))
	if !p.Sunset.IsZero() {
		h.SetHeader("Sunset", p.Sunset.UTC().Format(http.TimeFormat))
	}
}

// DeprecatedSince is the value of the header Deprecation (RFC 9745).
func DeprecatedSince(t time.Time) string { return "@" + strconv.FormatInt(t.Unix(), 10) }

// unmatched answers a request that no operation takes; h is what the mux would do.
func (rt *Router) unmatched(w http.ResponseWriter, r *http.Request, h http.Handler) {
	rec := &statusOnly{header: http.Header{}}
	h.ServeHTTP(rec, r)
	ctx := context.WithValue(r.Context(), requestKey{}, &Request{ID: rt.requestID(r), Path: r.URL.Path})
	err := fault.New(fault.NotFound, "the server has no such path")
	if path.Clean(r.URL.Path) != r.URL.Path {
		err.Remedy = "Write the path without empty and dotted parts."
	}
	if rec.status == http.StatusMethodNotAllowed {
		err = fault.New(fault.MethodNotAllowed, "the path takes %s", rec.header.Get("Allow"))
		w.Header().Set("Allow", rec.header.Get("Allow"))
	}
	p := rt.Problem(ctx, err)
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
func (rt *Router) fail(ctx context.Context, h huma.Context, err error) {
	// The server reads some of a body that nobody wants, before it sends the answer. That ends in
	// time also for a stream, which has no deadline of its own (A08).
	_ = h.SetReadDeadline(rt.cfg.Now().Add(readTime)) // a recorder in a test has no deadlines
	p := rt.Problem(ctx, err)
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

func (rt *Router) deadlines(w http.ResponseWriter, p *Policy) {
	if p != nil && p.Stream {
		return
	}
	ctl := http.NewResponseController(w)
	now := rt.cfg.Now()
	_ = ctl.SetReadDeadline(now.Add(readTime)) // a recorder in a test has no deadlines
	_ = ctl.SetWriteDeadline(now.Add(writeTime))
}

// authenticate returns who makes a request.
func (rt *Router) authenticate(ctx context.Context, r *http.Request, p *Policy) (*access.Principal, error) {
	if who := access.From(r.Context()); who.Account != "" && r.Header.Get("Authorization") == "" {
		return chosen(who, r.Header.Get(accountHeader))
	}
	if rt.cfg.Keys == nil {
		return rt.cfg.Open, checkOrigin(r)
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok && p.Stream {
		token, ok = protocolKey(r)
	}
	switch {
	case !ok && p.Public:
		return &access.Principal{}, nil
	case !ok:
		err := fault.New(fault.Unauthorized, "the request has no key")
		err.Remedy = "Send one in the header `Authorization: Bearer <key>`; `roux keys create` or `POST /v1/keys` makes one."
		return nil, err
	}
	principal, err := rt.cfg.Keys.Authenticate(ctx, token)
	if err != nil && p.Public && fault.CodeOf(err) == fault.Unauthorized {
		return &access.Principal{}, nil
	}
	return principal, err
}

// accountHeader chooses the account of a request that comes over a listener whose callers are
// known already, such as the socket of a data directory. Other listeners ignore it.
const accountHeader = "Roux-Account"

// chosen returns a caller that the listener knows, as one of the account that it names.
func chosen(who *access.Principal, account string) (*access.Principal, error) {
	if account == "" || account == who.Account {
		return who, nil
	}
	if err := access.CheckAccount(account); err != nil {
		return nil, fault.New(fault.RequestInvalid, "%s: %v", accountHeader, err)
	}
	other := *who
	other.Account = account
	return &other, nil
}

// keyProtocol begins the subprotocol in which a WebSocket request offers its key: pages in
// browsers cannot set its headers.
const keyProtocol = "roux.key."

// protocolKey is the key that a WebSocket request offers as a subprotocol.
func protocolKey(r *http.Request) (token string, ok bool) {
	for _, p := range strings.Split(r.Header.Get("Sec-WebSocket-Protocol"), ",") {
		if token, ok = strings.CutPrefix(strings.TrimSpace(p), keyProtocol); ok {
			return token, true
		}
	}
	return "", false
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
func (rt *Router) admit(h huma.Context, r *http.Request, p *Policy, who *access.Principal) error {
	if !p.Public {
		if err := rt.disabled(p, who); err != nil {
			return err
		}
		if err := who.Check(p.Scope); err != nil {
			return err
		}
		if who.Local { // could read the directory as fast as the disk
			return checkRequest(h, r, p)
		}
		if err := rt.rates.take(h, who.Account, rt.cfg.Now()); err != nil {
			return err
		}
	}
	return checkRequest(h, r, p)
}

// checkRequest refuses a request that no input can be read from.
func checkRequest(h huma.Context, r *http.Request, p *Policy) error {
	if err := checkQuery(h.Operation(), r.URL.RawQuery, p.AnyQuery); err != nil {
		return err
	}
	if len(r.Header.Get("Idempotency-Key")) > maxKey {
		return fault.New(fault.RequestMalformed, "the Idempotency-Key is longer than %d bytes", maxKey)
	}
	return checkBody(h.Operation(), r, p)
}

// disabled refuses a request of an account that the operator has disabled.
func (rt *Router) disabled(p *Policy, who *access.Principal) error {
	if p.Public || rt.cfg.Admit == nil || who.Allows(access.AccountsAdmin) {
		return nil
	}
	return rt.cfg.Admit(who.Account)
}

// maxKey bounds an idempotency key.
const maxKey = 255

// checkQuery refuses parameters that the operation does not have: a filter with a
// misspelled name would otherwise select everything.
func checkQuery(o *huma.Operation, query string, anything bool) error {
	if query == "" {
		return nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return fault.New(fault.RequestMalformed, "the query of the path cannot be read: %v", err)
	}
	if anything {
		return nil
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
func checkBody(o *huma.Operation, r *http.Request, p *Policy) error {
	if r.ContentLength == 0 || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return fault.New(fault.MediaTypeUnsupported, "bodies are not taken with a Content-Encoding")
	}
	text := r.Header.Get("Content-Type")
	if text == "" && slices.Contains(p.Accepts, "application/json") {
		return nil
	}
	kind, _, err := mime.ParseMediaType(text)
	if err != nil || !p.accepts(kind) {
		return fault.New(fault.MediaTypeUnsupported, "the operation takes a body of the type %s", strings.Join(p.Accepts, " or "))
	}
	return nil
}

func (p *Policy) accepts(kind string) bool {
	return slices.Contains(p.Accepts, kind) || slices.Contains(p.Accepts, "*/*") || slices.Contains(p.Accepts, "+json") && strings.HasSuffix(kind, "+json")
}
