// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"net/http"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// CorrelationHeader is the header in which a caller says what its run belongs to.
const CorrelationHeader = "X-Correlation-ID"

// maxCorrelation is how long a correlation may be, in bytes.
const maxCorrelation = 128

// Correlation returns the correlation of a request (X209): that of the header
// X-Correlation-ID, else a traceparent, else "", which stands for the id of the run. A
// traceparent that is none is ignored, as W3C Trace Context says; the other header must be
// right, because a caller looks for what it has said.
func Correlation(h http.Header) (string, error) {
	given := h.Values(CorrelationHeader)
	switch {
	case len(given) > 1:
		return "", fault.New(fault.RequestMalformed, "the header %s is given %d times: want it once", CorrelationHeader, len(given))
	case len(given) == 1:
		text := given[0]
		if text == "" || len(text) > maxCorrelation || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return "", fault.New(fault.RequestMalformed, "the header %s: want 1 to %d letters, digits and signs of ASCII, without spaces", CorrelationHeader, maxCorrelation)
		}
		return text, nil
	}
	if parent := h.Values("Traceparent"); len(parent) == 1 && len(parent[0]) <= maxCorrelation {
		if _, ok := journal.ParseTraceParent(parent[0]); ok {
			return parent[0], nil
		}
	}
	return "", nil
}
