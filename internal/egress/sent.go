// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/roux-engine/roux/fault"
)

// HasEffect reports whether a request of that method may change something. Of others nobody
// needs to know whether they were carried out (RFC 9110, section 9.2.1).
func HasEffect(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "":
		return false
	}
	return true
}

// Gateway reports whether a status says that a server on the way, such as a proxy, has got no
// answer: the one behind it may have carried out the request.
func Gateway(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusGatewayTimeout
}

// Broke returns the error of an exchange that failed after the request was sent: its outcome is
// unknown if the request has an effect.
func Broke(method string, err error) error {
	if HasEffect(method) {
		return fault.Unsure(err)
	}
	return err
}

// trace returns a request that is like req, and whether it was sent. A request with an effect is
// sent once: net/http would send one again that has an idempotency key if its connection broke
// before the answer began, but not every service honours keys, and whether there is another
// attempt is for the engine to decide.
func trace(req *http.Request) (*http.Request, *atomic.Bool) {
	sent := new(atomic.Bool)
	if !HasEffect(req.Method) {
		return req, sent
	}
	// The request counts as sent when its header was written, which is before it reaches the
	// network: that is the safe side.
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}))
	cloned := false
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		values, ok := req.Header[name]
		if !ok {
			continue
		}
		if !cloned {
			req.Header, cloned = req.Header.Clone(), true
		}
		delete(req.Header, name)
		req.Header[unnoticed[name]] = values
	}
	return req, sent
}

// unnoticed are the spellings of the headers by which net/http does not notice that a request has
// a key. Names of headers have no case.
var unnoticed = map[string]string{"Idempotency-Key": "idempotency-key", "X-Idempotency-Key": "x-idempotency-key"}
