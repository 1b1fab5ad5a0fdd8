// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"cmp"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/redact"
	"github.com/roux-engine/roux/internal/signature"
)

// A Message is a delivery as it came.
type Message struct {
	Header http.Header
	Query  string // as in the address
	Body   []byte
}

const (
	// maxPairs bounds the fields of a form and of a query.
	maxPairs = 1_000
	formType = "application/x-www-form-urlencoded"
)

// bodyLimits bound the JSON of a body, as those of other requests.
var bodyLimits = jsonx.Limits{Bytes: MaxBody, Depth: 64, Tokens: 200_000}

// hidden are headers that no expression sees: whoever reads a run could use what is in them.
var hidden = []string{"authorization", "cookie", "proxy-authorization", "webhook-signature"}

// usualIDs are the headers in which senders name a delivery.
var usualIDs = []string{signature.HeaderID, "x-github-delivery", "idempotency-key"}

// variables reads what expressions see of a message. The value of the secret is taken out of it;
// "" = none is known.
func (m *Message) variables(scheme *signature.Scheme, secret string) (expr.MapVars, error) {
	var known *redact.Set
	if secret != "" {
		var err error
		if known, err = redact.New(secret); err != nil {
			return nil, fault.Wrap(fault.SecretInvalid, err, "the secret of the trigger cannot be used: %v", err)
		}
	}
	body, err := m.body()
	if err != nil {
		return nil, err
	}
	query, err := fields(m.Query)
	if err != nil {
		return nil, fault.Wrap(fault.RequestMalformed, err, "the query cannot be read: %s", fault.Message(err))
	}
	return expr.MapVars{"body": known.Value(body), "headers": known.Value(headers(m.Header, scheme)), "query": known.Value(query)}, nil
}

// body decodes the body: JSON, or a form.
func (m *Message) body() (any, error) {
	if kind, _, err := mime.ParseMediaType(m.Header.Get("Content-Type")); err == nil && kind == formType {
		form, err := fields(string(m.Body))
		if err != nil {
			return nil, fault.Wrap(fault.RequestMalformed, err, "the form cannot be read: %s", fault.Message(err))
		}
		return form, nil
	}
	v, err := jsonx.Decode(m.Body, bodyLimits)
	if err != nil {
		return nil, fault.Wrap(fault.RequestMalformed, err, "the body is no JSON that can be read: %v", err)
	}
	return v, nil
}

// fields decodes a form: texts by their names, and a list of texts where a name is repeated.
func fields(form string) (map[string]any, error) {
	if strings.Count(form, "&") >= maxPairs {
		return nil, fault.New(fault.RequestMalformed, "it has more than %d fields", maxPairs)
	}
	values, err := url.ParseQuery(form)
	if err != nil {
		return nil, fault.Wrap(fault.RequestMalformed, err, "%v", err)
	}
	out := make(map[string]any, len(values))
	for name, list := range values {
		name = strings.ToValidUTF8(name, "\uFFFD")
		if len(list) == 1 {
			out[name] = strings.ToValidUTF8(list[0], "\uFFFD")
			continue
		}
		all := make([]any, len(list))
		for i, text := range list {
			all[i] = strings.ToValidUTF8(text, "\uFFFD")
		}
		out[name] = all
	}
	return out, nil
}

// headers are the headers of a message that expressions see, by their names in lower case.
func headers(header http.Header, scheme *signature.Scheme) map[string]any {
	out := make(map[string]any, len(header))
	for name, values := range header {
		name = strings.ToLower(name)
		if slices.Contains(hidden, name) || strings.EqualFold(name, scheme.Header) {
			continue
		}
		out[strings.ToValidUTF8(name, "\uFFFD")] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	return out
}

// idOf returns the id of a delivery: what the trigger says, or else what senders usually say, or
// else the hash of its body.
func (m *mapping) idOf(vars expr.MapVars, hash string) (string, error) {
	sent, _ := vars["headers"].(map[string]any)
	for _, name := range m.idHeaders {
		if id, _ := sent[name].(string); id != "" {
			return id, nil
		}
	}
	id, err := text("deliveryId", m.id, vars)
	return cmp.Or(id, hash), err
}
