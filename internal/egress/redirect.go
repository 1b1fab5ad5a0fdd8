// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// MaxRedirects is how many redirects [Client.Do] follows.
const MaxRedirects = 5

// RoundTrip sends one request and follows no redirect, so a Client may be the transport
// of an http.Client, such as that of a service's own library. Errors are of type
// *fault.Error, with the code EGRESS_REFUSED or SERVICE_UNAVAILABLE, or the cause of the
// request's context. They say whether the outcome is unknown: if a request that may have an
// effect was sent and there was no answer. Such a request is sent once.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := checkURL(req.URL); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	traced, sent := trace(req)
	resp, err := c.transport.RoundTrip(traced)
	switch {
	case err == nil:
		resp.Request = req
		return resp, nil
	case sent.Load() && req.Context().Err() == nil: // otherwise its cause says what became of it
		return nil, fault.Unsure(explain(req, err))
	}
	return nil, explain(req, err)
}

// Do sends a request and follows at most MaxRedirects redirects by the rules of
// RFC 9110: 303, and 301 and 302 of a POST, become a GET without a body; the
// others repeat method and body, for which a request with a body needs GetBody.
//
// Every hop is checked like the first. A redirect to another origin keeps only headers
// that cannot hold a secret, and no hop learns the URL of the previous one. A body is
// never repeated from https to http.
//
// The response's Request is the last one that was sent. Errors are those of
// RoundTrip, and HTTP_STATUS for a redirect that cannot be followed.
func (c *Client) Do(req *http.Request) (*http.Response, error) { return c.do(req, false) }

// DoTLS is Do for https only: a redirect to http is refused, also on the way to https.
func (c *Client) DoTLS(req *http.Request) (*http.Response, error) { return c.do(req, true) }

func (c *Client) do(req *http.Request, tls bool) (*http.Response, error) {
	done := false // a request with an effect was answered by a redirect to what came of it
	for hop := 0; ; hop++ {
		resp, err := c.RoundTrip(req)
		if err == nil && !redirects(resp) {
			return resp, nil
		}
		if err == nil {
			_, _ = io.CopyN(io.Discard, resp.Body, 2<<10) // so that the connection can be used again
			_ = resp.Body.Close()
			was, from := req.Method, req.URL
			if req, err = c.next(req, resp, hop); err == nil && tls && req.URL.Scheme != "https" {
				err = refused("%s redirects to %s: it would leave the protection of TLS", Show(from), Show(req.URL))
			}
			done = done || err == nil && HasEffect(was) && !HasEffect(req.Method)
		}
		switch {
		case err != nil && done:
			return nil, fault.Unsure(err)
		case err != nil:
			return nil, err
		}
	}
}

// next returns the request that follows a redirect, which is the hop-th.
func (c *Client) next(req *http.Request, resp *http.Response, hop int) (*http.Request, error) {
	if hop == MaxRedirects {
		return nil, fault.New(fault.HTTPStatus, "%s redirects on after %d redirects: it may lead in a circle", Show(req.URL), MaxRedirects)
	}
	return follow(req, resp)
}

func redirects(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}
	return false
}

// safeHeaders are the headers that another origin may see.
var safeHeaders = []string{"Accept", "Accept-Language", "Content-Type", "Idempotency-Key", "User-Agent"}

// follow returns the request that follows a redirect.
func follow(req *http.Request, resp *http.Response) (*http.Request, error) {
	to, err := target(req.URL, resp.Header.Get("Location"))
	if err != nil {
		return nil, err
	}
	next := req.Clone(req.Context())
	next.URL, next.Host, next.Body = to, "", nil
	switch code := resp.StatusCode; {
	case code == http.StatusSeeOther && req.Method != http.MethodHead && req.Method != http.MethodGet,
		code <= http.StatusFound && req.Method == http.MethodPost:
		next.Method, next.ContentLength, next.GetBody = http.MethodGet, 0, nil
		for name := range next.Header {
			if strings.HasPrefix(name, "Content-") || name == "Idempotency-Key" {
				delete(next.Header, name)
			}
		}
	case req.GetBody != nil:
		if req.URL.Scheme == "https" && to.Scheme == "http" {
			return nil, refused("%s redirects a request with a body to %s: it would leave the protection of TLS", Show(req.URL), Show(to))
		}
		if next.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	case req.Body != nil && req.Body != http.NoBody:
		return nil, fault.New(fault.HTTPStatus, "%s redirects a request whose body cannot be sent again", Show(req.URL))
	}
	if !sameOrigin(req.URL, to) {
		for name := range next.Header {
			if !slices.Contains(safeHeaders, name) {
				delete(next.Header, name)
			}
		}
	}
	return next, nil
}

// target returns the URL of a redirect.
func target(from *url.URL, location string) (*url.URL, error) {
	if len(location) > MaxURL {
		return nil, fault.New(fault.HTTPStatus, "%s redirects to a URL of %d bytes: at most %d are followed", Show(from), len(location), MaxURL)
	}
	to, err := from.Parse(location)
	if err != nil || strings.ContainsAny(location, "\\ \t") {
		return nil, fault.New(fault.HTTPStatus, "%s redirects to what is no URL", Show(from))
	}
	if err := checkURL(to); err != nil {
		return nil, fault.Wrap(fault.CodeOf(err), err, "%s redirects on: %s", Show(from), fault.Message(err))
	}
	return to, nil
}

// sameOrigin reports whether a redirect may keep all headers: scheme, host and port are
// the same, or the host is the same and http becomes https on the default ports.
func sameOrigin(a, b *url.URL) bool {
	if !strings.EqualFold(a.Hostname(), b.Hostname()) {
		return false
	}
	return a.Scheme == b.Scheme && port(a) == port(b) || port(a) == "80" && port(b) == "443" && b.Scheme == "https"
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
