// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
)

// A caller is the HTTP client of one call. It is what the libraries of the services send with, so
// that bounds, silence and failures mean the same whatever the protocol.
type caller struct {
	*service
	out    *egress.Client
	key    string
	rounds *rounds
	// text is that of a streamBody if the call asks for a stream.
	text func(data []byte) (string, bool)

	status  int    // of a response that is no success
	refusal []byte // its body, or how it begins
}

// Do sends a request. A response that is no success is an error. The body of others ends with an
// error when it is too large, or when nothing came for the time that the service may be silent.
func (c *caller) Do(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	silent := time.AfterFunc(c.stall, func() {
		cancel(fault.New(fault.StepTimeout, "providers.%s sent nothing for %s: the call was given up; providers.%s.stall in the configuration is how long it may be silent", c.name, c.stall, c.name))
	})
	done := func() {
		silent.Stop()
		cancel(nil)
	}
	req = req.WithContext(ctx)
	setHeaders(req)
	resp, err := c.out.RoundTrip(req)
	if err != nil {
		defer done()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	body := &boundedBody{ctx: ctx, method: req.Method, from: resp.Body, left: maxBody, done: done, heard: func() { silent.Reset(c.stall) }}
	resp.Body = body
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer func() { _ = body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(body, 64<<10)) // what was read explains as much as it can
		c.status, c.refusal = resp.StatusCode, text
		return nil, c.statusFault(resp, text)
	}
	if c.text != nil && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = c.stream(body)
	}
	return resp, nil
}

// A boundedBody is the body of a response within its bounds.
type boundedBody struct {
	ctx    context.Context
	method string // of the request
	from   io.ReadCloser
	left   int
	heard  func()
	done   func()
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fault.New(fault.OutputTooLarge, "the service sent more than %d MiB", maxBody>>20)
	}
	if n > 0 {
		b.heard()
	}
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case b.ctx.Err() != nil:
		return n, context.Cause(b.ctx)
	}
	return n, egress.Broke(b.method, fault.New(fault.ServiceUnavailable, "the connection to the service broke: %s", egress.Reason(err)))
}

func (b *boundedBody) Close() error {
	err := b.from.Close()
	b.done()
	return err
}

// statusFault returns what a status other than success means.
func (c *caller) statusFault(resp *http.Response, body []byte) error {
	said := c.said(body)
	switch s := resp.StatusCode; {
	case s == http.StatusUnauthorized || s == http.StatusForbidden:
		// What the service says of a key may quote it.
		from := "the configuration names none: set `secret` or `key_env` under providers." + c.name
		switch {
		case c.Secret != "" && c.KeyEnv != "":
			from = fmt.Sprintf("it is the secret %s of the account, else the variable %s", c.Secret, c.KeyEnv)
		case c.Secret != "":
			from = fmt.Sprintf("it is the secret %s of the account: replace it with `roux secrets set %s`", c.Secret, c.Secret)
		case c.KeyEnv != "":
			from = fmt.Sprintf("it is the variable %s of the environment", c.KeyEnv)
		}
		return fault.New(fault.ProviderNotConfigured, "%s does not accept the key of providers.%s (status %d); %s", c.host, c.name, s, from)
	case s == http.StatusNotFound:
		return fault.New(fault.ProviderNotConfigured, "%s does not know the model or the address (status 404)%s: check the model of the step and providers.%s.url, which is %s", c.host, said, c.name, c.show)
	case s == http.StatusTooManyRequests:
		return c.later(fault.New(fault.RateLimited, "%s asks to slow down (status 429)%s", c.host, said), resp)
	case s == 529, s == http.StatusServiceUnavailable, s == http.StatusRequestTimeout, s == http.StatusTooEarly:
		return c.later(fault.New(fault.ServiceUnavailable, "%s is overloaded or away (status %d)%s", c.host, s, said), resp)
	case egress.Gateway(s):
		return egress.Broke(resp.Request.Method, c.later(fault.New(fault.ProviderError, "%s failed (status %d)%s", c.host, s, said), resp))
	case s >= 500:
		return c.later(fault.New(fault.ProviderError, "%s failed (status %d)%s", c.host, s, said), resp)
	default:
		return fault.New(fault.HTTPStatus, "%s refused the request (status %d)%s", c.host, s, said)
	}
}

func (c *caller) later(err *fault.Error, resp *http.Response) error {
	err.RetryAfterMS = egress.RetryAfter(resp.Header.Get("Retry-After"), time.Now())
	return err
}

// said returns what the service says about a failure, for a message: one line without the key.
func (c *caller) said(body []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) != nil || e.Error.Message == "" {
		return ""
	}
	return ": " + c.clean(e.Error.Message)
}

// clean returns a text of the service for a message.
func (c *caller) clean(text string) string { return clean(text, c.key) }

func clean(text, key string) string {
	if key != "" {
		text = strings.ReplaceAll(text, key, "[masked]")
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if short := []rune(text); len(short) > 300 {
		text = string(short[:300]) + "…"
	}
	return text
}

// failure makes a *fault.Error of an error of an adapter.
func (m *Model) failure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.New(fault.ProviderError, "providers.%s sent what is no answer of its protocol", m.Provider)
	}
	return fault.New(fault.ProviderError, "providers.%s: %s", m.Provider, clean(err.Error(), m.key))
}

type requestKey struct{}

// sending returns a context of which a caller learns the headers that every request has beside
// those of its protocol.
func sending(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

func setHeaders(req *http.Request) {
	r, ok := req.Context().Value(requestKey{}).(*Request)
	if !ok {
		return
	}
	if r.EffectKey != "" {
		req.Header.Set("Idempotency-Key", r.EffectKey)
	}
	if r.TraceParent != "" {
		req.Header.Set("Traceparent", r.TraceParent)
	}
}

// streamFault is the error for a failure that a service reports within a successful response. kind
// is its word for it, or the status that it would have had.
func (c *caller) streamFault(kind, said string) error {
	code := fault.ProviderError
	is := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(kind, word) })
	}
	switch {
	case is("rate_limit", "429"):
		code = fault.RateLimited
	case is("overloaded", "unavailable", "server_error", "408", "425", "503", "529"):
		code = fault.ServiceUnavailable
	}
	return fault.New(code, "%s broke off its answer (%.60s): %s", c.host, c.clean(kind), c.clean(said))
}
