// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/internal/jsonx"
)

var problemType = reflect.TypeFor[Problem]()

// maxBody is the size of the largest body of most operations; see A08.
const maxBody = 1 << 20

// MaxText bounds the body of an operation with the text of a recipe.
const MaxText = 16<<20 + 1

// maxDepth is how deep the values of a body may nest.
const maxDepth = 64

// BodyLimits bound the JSON of a request. Most of its memory is that of small values, so
// their number is bounded, too.
var BodyLimits = jsonx.Limits{Bytes: maxBody, Depth: maxDepth, Tokens: 200_000}

// limitsOf are the limits of a body that its operation permits, which may be larger than most.
func limitsOf(body []byte) jsonx.Limits {
	l := BodyLimits
	l.Bytes = max(l.Bytes, len(body))
	l.Tokens = min(l.Tokens*(1+len(body)/maxBody), mostTokens)
	return l
}

// mostTokens bounds the memory for the values of the largest body.
const mostTokens = 1_000_000

// jsonFormat reads and writes JSON. Names that are repeated, trailing text and numbers that
// do not fit are refused (A07).
func jsonFormat() huma.Format {
	return huma.Format{
		Marshal: writeJSON,
		Unmarshal: func(data []byte, v any) error {
			if out, ok := v.(*any); ok {
				decoded, err := jsonx.Decode(data, limitsOf(data))
				if err != nil {
					return err
				}
				*out = decoded
				return nil
			}
			return json.Unmarshal(data, v) // its JSON was checked before
		},
	}
}

// Encoded is the body of an answer that is JSON already. It is sent as it is: the encoder
// would read all of it again.
type Encoded interface{ EncodedJSON() []byte }

// JSON is a body, or a part of one, that is JSON already.
type JSON []byte

// MarshalJSON implements json.Marshaler.
func (j JSON) MarshalJSON() ([]byte, error) { return j, nil }

// EncodedJSON implements [Encoded].
func (j JSON) EncodedJSON() []byte { return j }

func writeJSON(w io.Writer, v any) error {
	if e, ok := v.(Encoded); ok {
		_, err := w.Write(e.EncodedJSON())
		return err
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// pointer turns a location such as body.steps[0].id into a JSON pointer; the name of a
// parameter stays.
func pointer(location string) string {
	rest, ok := strings.CutPrefix(location, "body")
	if !ok {
		_, name, found := strings.Cut(location, ".")
		if found {
			return name
		}
		return location
	}
	var b strings.Builder
	for _, part := range strings.FieldsFunc(rest, func(c rune) bool { return c == '.' || c == '[' || c == ']' }) {
		b.WriteString("/" + jsonx.EscapeToken(part))
	}
	return b.String()
}

// maxID bounds an id that a client gives a request.
const maxID = 128

// printable reports whether a text of a client may be logged and sent back: it has no
// control character and no byte outside of ASCII (A31).
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= maxID
}

// requestID returns the id of a request: the client's own, if it is one, else a new one.
func (rt *Router) requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); printable(id) {
		return id
	}
	id, err := rt.ids.ID("req_")
	if err != nil {
		return "req_unknown"
	}
	return id
}

// loopback reports whether a host, with or without a port, is this machine.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
