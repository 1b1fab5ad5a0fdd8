// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
)

// A call is a request, which is sent again if need be.
type call struct {
	method string
	path   string // with escaped parts
	query  url.Values
	header http.Header
	// body returns the body anew for each attempt, and its size; -1 = not known. nil = none.
	body func() (io.Reader, int64, error)
	// once calls do more when they are carried out twice: they are sent again only when they
	// cannot have arrived.
	once bool
	// again is set when the call was sent before, and may have been carried out.
	again bool
}

// at returns a call of an operation. parts are the segments of its path, which are escaped.
func at(method string, parts ...string) *call {
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
		if p == "." || p == ".." {
			parts[i] = strings.ReplaceAll(p, ".", "%2E")
		}
	}
	return &call{method: method, path: "/" + strings.Join(parts, "/"), query: url.Values{}, header: http.Header{}}
}

// with adds a parameter, unless it is empty.
func (cl *call) with(name, value string) *call {
	if value != "" {
		cl.query.Set(name, value)
	}
	return cl
}

// set adds a header, unless it is empty.
func (cl *call) set(name, value string) *call {
	if value != "" {
		cl.header.Set(name, value)
	}
	return cl
}

// send sets the body, a value that is sent as JSON.
func (cl *call) send(v any) (*call, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, "the request cannot be written as JSON: %v", err)
	}
	return cl.text(data, "application/json"), nil
}

// text sets the body.
func (cl *call) text(data []byte, kind string) *call {
	cl.header.Set("Content-Type", kind)
	cl.body = func() (io.Reader, int64, error) { return bytes.NewReader(data), int64(len(data)), nil }
	return cl
}

// An answer is one whose body has been read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// maxAnswer bounds an answer that is read into memory.
const maxAnswer = 256 << 20

// do sends a call and decodes the JSON of the answer into out; nil = it is not read.
func (c *Client) do(ctx context.Context, cl *call, out any) (*answer, error) {
	return retrying(ctx, c, cl, func() (*answer, error) {
		res, err := c.once(ctx, cl)
		if err != nil {
			return nil, err
		}
		defer func() { _ = res.Body.Close() }()
		a := &answer{status: res.StatusCode, header: res.Header}
		if a.body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer)); err != nil {
			return nil, unreachable(ctx, cl, err)
		}
		if out == nil {
			return a, nil
		}
		return a, a.decode(cl, out)
	})
}

// decode decodes the answer to a call, if it has a body.
func (a *answer) decode(cl *call, out any) error {
	if len(a.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return fault.Wrap(fault.InternalError, err, "%s %s: the answer cannot be read: %v", cl.method, cl.path, err)
	}
	return nil
}

// open sends a call and returns the answer with its body unread.
func (c *Client) open(ctx context.Context, cl *call) (*http.Response, error) {
	return retrying(ctx, c, cl, func() (*http.Response, error) { return c.once(ctx, cl) })
}

// retrying calls send until it succeeds, or until another attempt would not help.
func retrying[T any](ctx context.Context, c *Client, cl *call, send func() (T, error)) (out T, err error) {
	if cl.method == http.MethodPost && !cl.once && cl.header.Get("Idempotency-Key") == "" {
		cl.header.Set("Idempotency-Key", newKey())
	}
	for attempt := 1; ; attempt++ {
		out, err = send()
		if err == nil {
			return out, nil
		}
		pause, again := c.pause(ctx, cl, attempt, err)
		if !again {
			return out, err
		}
		if serr := c.cfg.Sleep(ctx, pause); serr != nil {
			return out, fmt.Errorf("%w; it was not sent again: %w", err, serr)
		}
	}
}

// newKey returns a random idempotency key.
func newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// once sends a call one time. The answer is one that reports no error.
func (c *Client) once(ctx context.Context, cl *call) (*http.Response, error) {
	req, err := c.request(ctx, cl)
	if err != nil {
		return nil, err
	}
	res, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return nil, unreachable(ctx, cl, err)
	}
	if res.StatusCode < 300 || res.StatusCode == http.StatusNotModified {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	if cl.method == http.MethodDelete && cl.again && res.StatusCode == http.StatusNotFound {
		// The attempt before deleted it, and its answer was lost.
		res.StatusCode, res.Body = http.StatusNoContent, http.NoBody
		return res, nil
	}
	return nil, problemOf(res)
}

func (c *Client) request(ctx context.Context, cl *call) (*http.Request, error) {
	u := c.base.String() + cl.path
	if len(cl.query) > 0 {
		u += "?" + cl.query.Encode()
	}
	var body io.Reader
	size := int64(0)
	if cl.body != nil {
		var err error
		if body, size, err = cl.body(); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, cl.method, u, body)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, "%s %s: %v", cl.method, cl.path, err)
	}
	req.ContentLength = size
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	maps.Copy(req.Header, c.cfg.Header)
	maps.Copy(req.Header, cl.header)
	if c.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
	return req, nil
}

// unreachable describes a connection that failed, or the end of ctx.
func unreachable(ctx context.Context, cl *call, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", cl.method, cl.path, context.Cause(ctx))
	}
	var own *fault.Error // of the body, or of the way to the server
	if errors.As(err, &own) {
		return own
	}
	cause := err
	var u *url.Error
	if errors.As(err, &u) {
		cause = u.Err // without the address
	}
	e := fault.Wrap(fault.ServerUnreachable, err, "the server does not answer: %v", cause)
	e.Remedy = "Check that the server runs, and its address."
	return e
}

// arrived reports whether the server may have got a request that ended with an error.
func arrived(err error) bool {
	var op *net.OpError
	return !errors.As(err, &op) || op.Op != "dial"
}

// pause returns how long to wait before a call is sent again, and whether it is.
func (c *Client) pause(ctx context.Context, cl *call, attempt int, err error) (time.Duration, bool) {
	var p *Problem
	var e *fault.Error
	wait := c.backoff(attempt)
	switch {
	case ctx.Err() != nil || attempt >= c.cfg.Attempts:
		return 0, false
	case errors.As(err, &p):
		if !repeatable(cl, p) || p.RetryAfter > c.cfg.MaxRetryAfter {
			return 0, false
		}
		wait = max(wait, p.RetryAfter)
	case errors.As(err, &e) && e.Code == fault.ServerUnreachable:
		cl.again = cl.again || arrived(err)
		if cl.once && cl.again {
			return 0, false
		}
	default:
		return 0, false
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		return 0, false // the error says more than that the time is over
	}
	return wait, true
}

// repeatable reports whether a call is sent again after an error of the server.
func repeatable(cl *call, p *Problem) bool {
	switch p.Status {
	case http.StatusTooManyRequests:
		return p.Retryable
	case http.StatusConflict:
		return p.Code == fault.RequestInFlight // the attempt before is being carried out
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		cl.again = true
		return p.Retryable && !cl.once
	}
	return false
}

// backoff returns the pause after an attempt, counted from 1.
func (c *Client) backoff(attempt int) time.Duration {
	d := c.cfg.MaxBackoff
	if attempt <= 30 {
		d = min(d, c.cfg.Backoff<<(attempt-1))
	}
	return jitter(d)
}

// jitter shortens d by up to a half, so that clients which were cut off together do not come
// back together.
func jitter(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d/2 + time.Duration(mathrand.Int64N(int64(d/2)))
}
