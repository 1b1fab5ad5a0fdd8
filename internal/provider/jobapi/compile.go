// SPDX-License-Identifier: Apache-2.0

package jobapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Compiled is an API that can be used. It is safe for concurrent use.
type Compiled struct {
	authHeader, authPrefix string
	headers                map[string]*expr.Program
	submit, poll           *call
	result, cancel         *call // nil = there is none
	body                   *expr.Tree
	merge                  bool
	job                    *expr.Program
	phases                 map[string]Phase
	state, output, failure *expr.Program // output and failure may be nil
	preview                *expr.Program // may be nil
	stream                 *stream       // nil = there is none
	usage                  [3]*expr.Program
	seconds                *expr.Program
	hook                   *hook // nil = there are no webhooks
}

type call struct {
	method string
	path   *expr.Program
	query  map[string]*expr.Program
}

// The names that are known, see API.
var (
	ofSubmission = []string{"model", "input", "webhook", "effectKey", "maxTokens"}
	ofRequests   = []string{"model", "job"}
	ofResponses  = []string{"model", "job", "body"}
)

// The bounds of a description.
const (
	maxNames = 50  // of headers, of fields of a query, of states
	maxText  = 200 // of a name, in bytes
)

var (
	headerForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")
	// secretForm are the variables that may hold the secret of webhooks.
	secretForm = regexp.MustCompile(`^ROUX_WEBHOOK_[A-Z0-9_]{1,100}$`)
	methods    = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}
)

// Compile checks an API. The error names the first part that is wrong.
func (a *API) Compile() (*Compiled, error) {
	b := &builder{}
	c := &Compiled{authHeader: cmp.Or(a.Auth.Header, "Authorization"), authPrefix: a.Auth.Prefix, merge: a.Submit.Merge, phases: map[string]Phase{}}
	if a.Auth == (Auth{}) {
		c.authPrefix = "Bearer "
	}
	b.check("auth.header", headerForm.MatchString(c.authHeader), "want the name of a header")
	b.check("auth.prefix", len(c.authPrefix) <= maxText && !strings.ContainsAny(c.authPrefix, "\r\n"), "want one short line")
	c.headers = b.templates("headers", a.Headers, ofRequests[:1])
	for name := range a.Headers {
		b.check("headers", headerForm.MatchString(name) && !strings.EqualFold(name, c.authHeader), fmt.Sprintf("%.40q: want the name of a header; `auth` says which has the key", name))
	}
	c.submit, c.poll = b.call("submit", &a.Submit.Call, "POST", ofSubmission), b.call("poll", &a.Poll, "GET", ofRequests)
	if a.Result != nil {
		c.result = b.call("result", a.Result, "GET", ofRequests)
	}
	if a.Cancel != nil {
		c.cancel = b.call("cancel", a.Cancel, "DELETE", ofRequests)
	}
	if len(a.Submit.Body) > 0 {
		c.body = b.tree("submit.body", a.Submit.Body)
	}
	b.check("submit", len(a.Submit.Body) > 0 || a.Submit.Merge, "body is missing; with `merge: true` it may be {}")
	c.job = b.reading("submit.job", a.Submit.Job, []string{"model", "body"})
	c.state = b.reading("state", a.State, ofResponses)
	c.output, c.failure = b.optional("output", a.Output), b.optional("error", a.Error)
	c.preview = b.optional("preview", a.Preview)
	c.stream = b.stream(a.Stream)
	if u := a.Usage; u != nil {
		c.seconds = b.optional("usage.seconds", u.Seconds)
		if c.seconds == nil || u.Input != "" || u.Cached != "" || u.Output != "" {
			c.usage = [3]*expr.Program{b.reading("usage.input", u.Input, ofResponses), b.optional("usage.cached", u.Cached), b.reading("usage.output", u.Output, ofResponses)}
		}
	}
	b.check("succeeded", len(a.Succeeded) > 0, "want the states of a job that has succeeded")
	b.phases(c.phases, "succeeded", a.Succeeded, Succeeded)
	b.phases(c.phases, "failed", a.Failed, Failed)
	if a.Webhook != nil {
		c.hook = b.hook(a.Webhook)
	}
	if b.err != nil {
		return nil, b.err
	}
	return c, nil
}

// A builder compiles the parts of an API, and keeps the first error.
type builder struct{ err error }

func (b *builder) wrong(at string, err error) {
	if b.err == nil {
		b.err = fmt.Errorf("%s: %s", at, fault.Message(err))
	}
}

func (b *builder) check(at string, ok bool, want string) {
	if !ok {
		b.wrong(at, errors.New(want))
	}
}

func (b *builder) call(at string, c *Call, method string, names []string) *call {
	out := &call{method: cmp.Or(c.Method, method)}
	b.check(at+".method", slices.Contains(methods, out.method), "want one of "+strings.Join(methods, ", "))
	b.check(at+".path", c.Path != "", "is missing")
	out.path = b.template(at+".path", c.Path, names)
	out.query = b.templates(at+".query", c.Query, names)
	return out
}

func (b *builder) templates(at string, all map[string]string, names []string) map[string]*expr.Program {
	b.check(at, len(all) <= maxNames, fmt.Sprintf("want at most %d", maxNames))
	out := map[string]*expr.Program{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out[name] = b.template(at+"."+name, all[name], names)
	}
	return out
}

func (b *builder) template(at, src string, names []string) *expr.Program {
	p, err := expr.CompileTemplate(src)
	if err != nil {
		b.wrong(at, err)
		return nil
	}
	b.known(at, p.Refs(), names)
	return p
}

func (b *builder) tree(at string, raw []byte) *expr.Tree {
	if v, err := jsonx.Decode(raw, limits); err != nil {
		b.wrong(at, err)
		return nil
	} else if _, ok := v.(map[string]any); !ok {
		b.wrong(at, errors.New("want an object"))
		return nil
	}
	t, err := expr.CompileTree(raw)
	if err != nil {
		b.wrong(at, err)
		return nil
	}
	b.known(at, t.Refs(), ofSubmission)
	return t
}

func (b *builder) optional(at, src string) *expr.Program {
	if src == "" {
		return nil
	}
	return b.reading(at, src, ofResponses)
}

func (b *builder) reading(at, src string, names []string) *expr.Program {
	if src == "" {
		b.wrong(at, errors.New("is missing"))
		return nil
	}
	p, err := expr.Compile(src)
	if err != nil {
		b.wrong(at, err)
		return nil
	}
	b.known(at, p.Refs(), names)
	return p
}

// known refuses names that have no value there.
func (b *builder) known(at string, refs []expr.Ref, names []string) {
	for _, r := range refs {
		if !slices.Contains(names, r.Name) {
			b.wrong(at, fmt.Errorf("%s is not known there: want %s", expr.NameFor(r.Name), strings.Join(names, ", ")))
		}
	}
}

func (b *builder) phases(into map[string]Phase, at string, states []string, phase Phase) {
	b.check(at, len(states) <= maxNames, fmt.Sprintf("want at most %d", maxNames))
	for _, s := range states {
		_, twice := into[s]
		b.check(at, s != "" && len(s) <= maxText && !twice, fmt.Sprintf("%.40q: want a short text that is there once", s))
		into[s] = phase
	}
}
