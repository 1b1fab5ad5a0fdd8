// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// FuzzRoutes sends requests that are made of the schemas of the document, most of them with
// something wrong, to every route: no request fails inside or takes its connection along,
// and every answer has a status, a type and a body that the document describes, and every
// refusal a code of the table under its status.
func FuzzRoutes(f *testing.F) {
	s := start(f)
	owner := s.key("acme", access.Owner)
	mine := s.own("acme", owner)
	mine["keys"] = s.call(owner, "POST", "/v1/keys", `{"name":"another","role":"viewer"}`).want(201).text("id")
	doomed := s.key("doomed", access.Owner)
	site := &fuzzed{
		server: s, mine: mine, owner: owner, lost: s.own("doomed", doomed), loser: doomed,
		others: []string{s.admin, s.key("rival", access.Viewer), "", "roux_wrong"},
	}
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for seed := range uint64(rounds * len(document().operations)) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		first := int(seed % uint64(len(document().operations)))
		site.request(t, &maker{r}, document().operations[first])
		for range 4 {
			site.request(t, &maker{r}, document().operations[r.IntN(len(document().operations))])
		}
	})
}

// fuzzed is a server that random requests are sent to.
type fuzzed struct {
	*server
	mine   resources // what operations find
	owner  string    // the key of their account
	lost   resources // what may be deleted
	loser  string    // the key of that account
	others []string  // other keys
}

// request sends one random request to an operation.
func (s *fuzzed) request(t *testing.T, m *maker, o *operation) {
	t.Helper()
	method := o.method
	if m.one(20) {
		method = m.pick("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
	}
	of, token := s.mine, s.owner
	switch {
	case o.method == http.MethodDelete:
		of, token = s.lost, s.loser
	case strings.HasPrefix(o.path, "/v1/accounts"):
		token = s.admin
	}
	if m.one(10) {
		token = m.pick(s.others...)
	}
	path, header := m.path(o, of), http.Header{}
	for _, p := range o.Parameters {
		if p.In == "header" && m.one(4) {
			header.Set(p.Name, m.header(p.Schema))
		}
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	var body []byte
	if method != http.MethodGet && method != http.MethodHead {
		body = m.body(o)
	}
	if kind := m.contentType(o); kind != "" {
		header.Set("Content-Type", kind)
	}
	if m.one(4) {
		header.Set("Idempotency-Key", m.pick("a", "b", "", strings.Repeat("k", 256)))
	}
	_, stream := o.Responses["200"].Content["text/event-stream"]
	limit := 10 * time.Second
	if stream || o.ID == "executions-start" || o.ID == "actions-call" { // they wait for runs
		limit = 300 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	said := fmt.Sprintf("%s %s %v %.300q", method, path, header, body)
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return // no client can send it
	}
	req.Header = header
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		if limit < time.Second && errors.Is(err, context.DeadlineExceeded) {
			return
		}
		t.Fatalf("%s: %v", said, err) // a panic ends the connection
	}
	defer res.Body.Close()
	if stream && res.StatusCode == http.StatusOK {
		return
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s: %v", said, err)
	}
	s.judge(t, said, method, path, res, data)
}

// judge checks an answer.
func (s *fuzzed) judge(t *testing.T, said, method, path string, res *http.Response, data []byte) {
	t.Helper()
	if res.StatusCode >= 500 {
		t.Errorf("%s answers %d: %s", said, res.StatusCode, data)
	}
	if strings.HasPrefix(path, "/v1/approval-links/") {
		return // pages for people, if the path names a link
	}
	if res.StatusCode >= 400 && method != http.MethodHead {
		got := answer{t, res.StatusCode, res.Header, data}
		row, known := fault.Lookup(fault.Code(got.text("code")))
		if !known || row.HTTP != res.StatusCode || res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s answers %d with the code %q and the type %s", said, res.StatusCode, got.text("code"), res.Header.Get("Content-Type"))
		}
	}
	if method != http.MethodHead {
		observe(t, method, path, res, data)
	}
	if t.Failed() {
		t.Logf("the request was %s", said)
	}
}

// A maker makes values, mostly as a schema says.
type maker struct{ *rand.Rand }

// one reports true once in n times.
func (m *maker) one(n int) bool { return m.IntN(n) == 0 }

func (m *maker) pick(texts ...string) string { return texts[m.IntN(len(texts))] }

// nasty are texts that programs stumble over.
var nasty = []string{
	"", " ", ".", "..", "../../etc/passwd", "a b", "run_", "recipe_", "key_", "x@1", "@", "greet@1", "greet@>=1 <", strings.Repeat("9", 400), "😀", "'; DROP TABLE runs--", "*", "?", "%", "\u202e", "\ufeff",
	"-1", "0", "1e309", "9223372036854775808", "NaN", "null", "true", "[]", "{}", "\"", "\\", "${input}", "{{ x }}", "2026-13-45T99:99:99Z", "0001-01-01T00:00:00Z", "sha256_" + strings.Repeat("0", 64),
}

// path fills in the parameters of the path and of the query.
func (m *maker) path(o *operation, mine resources) string {
	path := mine.fill(o)
	if m.one(4) {
		path = parameter.ReplaceAllStringFunc(o.path, func(string) string { return url.PathEscape(m.pick(nasty...)) })
	}
	query := url.Values{}
	for _, p := range o.Parameters {
		if p.In == "query" && (p.Required && !m.one(10) || m.one(3)) {
			query.Add(p.Name, m.header(p.Schema))
		}
	}
	switch m.IntN(15) {
	case 0:
		query.Add(m.pick("limt", "x", "label.", "label.a", "cursor"), m.pick(nasty...))
	case 1:
		return path + "?" + m.pick("%", "a=%zz", "limit=1&limit=2", ";", "&&=")
	}
	path, _, _ = strings.Cut(path, "?")
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// header makes a value of a parameter as text.
func (m *maker) header(schema json.RawMessage) string {
	if m.one(4) {
		return strings.Map(func(c rune) rune {
			if c < ' ' || c > '~' {
				return -1
			}
			return c
		}, m.pick(nasty...))
	}
	text := fmt.Sprint(m.value(decoded(schema), 3))
	return text[:min(len(text), 2000)]
}

func (m *maker) contentType(o *operation) string {
	if m.one(20) {
		return m.pick("", "text/html", "application/json; charset=latin1", "a/b/c", "application/xml", "multipart/form-data")
	}
	if o.RequestBody == nil {
		return ""
	}
	return m.pick(slices.Sorted(maps.Keys(o.RequestBody.Content))...)
}

// body makes a body of an operation, one in twelve of which is broken as text.
func (m *maker) body(o *operation) []byte {
	if o.RequestBody == nil {
		if m.one(4) {
			return []byte(m.pick(nasty...))
		}
		return nil
	}
	var data []byte
	content, ok := o.RequestBody.Content["application/json"]
	switch {
	case strings.HasPrefix(o.ID, "recipes-") && m.one(2):
		data = []byte(m.pick(greet, waits, `{"name":"x","version":"1.0.0","steps":[{"id":"a","transform":{"expression":"1"}}]}`))
	case !ok:
		return []byte(m.pick(nasty...))
	default:
		data, _ = json.Marshal(m.value(decoded(content.Schema), 6)) // values of JSON
	}
	if len(data) == 0 || !m.one(12) {
		return data
	}
	switch at := m.IntN(len(data)); m.IntN(5) {
	case 0:
		return data[:at]
	case 1:
		return slices.Concat(data[:at], []byte{byte(m.IntN(256))}, data[at:])
	case 2:
		return append(data, data...)
	case 3:
		return []byte(strings.Repeat("[", 100_000))
	}
	return bytes.Replace(data, []byte(`{"`), []byte(`{"a":1,"a":2,"`), 1)
}

func decoded(schema json.RawMessage) map[string]any {
	var v map[string]any
	if json.Unmarshal(schema, &v) != nil {
		return nil
	}
	return v
}

// value makes a value of a schema, one in 25 of which is another one.
func (m *maker) value(schema map[string]any, depth int) any {
	if ref, ok := schema["$ref"].(string); ok {
		return m.value(component(ref), depth)
	}
	if m.one(25) || depth == 0 {
		return m.anything()
	}
	if options, ok := schema["enum"].([]any); ok && len(options) > 0 {
		return options[m.IntN(len(options))]
	}
	kind, _ := schema["type"].(string)
	if kinds, ok := schema["type"].([]any); ok && len(kinds) > 0 {
		kind, _ = kinds[m.IntN(len(kinds))].(string)
	}
	switch kind {
	case "string":
		return m.text(schema)
	case "integer", "number":
		return m.number(schema)
	case "boolean":
		return m.one(2)
	case "null":
		return nil
	case "array":
		items, _ := schema["items"].(map[string]any)
		list := []any{}
		for range m.IntN(4) {
			list = append(list, m.value(items, depth-1))
		}
		return list
	case "object":
		return m.object(schema, depth)
	}
	return m.anything()
}

func (m *maker) object(schema map[string]any, depth int) map[string]any {
	out := map[string]any{}
	required, _ := schema["required"].([]any)
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if p, ok := properties[name].(map[string]any); ok && (slices.Contains(required, any(name)) && !m.one(10) || m.one(2)) {
			out[name] = m.value(p, depth-1)
		}
	}
	if more, ok := schema["additionalProperties"].(map[string]any); ok {
		for range m.IntN(3) {
			out[m.pick(append(nasty, "team", "name")...)] = m.value(more, depth-1)
		}
	}
	if m.one(16) {
		out[m.pick("x", "ID", "createdAt", "account", "")] = m.anything()
	}
	return out
}

func (m *maker) text(schema map[string]any) string {
	switch most, bounded := schema["maxLength"].(float64); {
	case bounded && m.one(10):
		return strings.Repeat("x", int(most)+1)
	case schema["format"] == "date-time":
		return time.Unix(int64(m.Uint32()), 0).UTC().Format(time.RFC3339)
	case m.one(2):
		return m.pick(nasty...)
	}
	return m.pick("Ana", "name", "approved", "1.0.0", "node.*", "developer", "monthly", "http://127.0.0.1:1/", "1h", "active", "acme")
}

func (m *maker) number(schema map[string]any) any {
	least, low := schema["minimum"].(float64)
	most, high := schema["maximum"].(float64)
	switch n := m.IntN(8); {
	case n == 0:
		return m.pick("1", "x")
	case n == 1:
		return json.Number(m.pick("1e400", "-0", "0.5", "9223372036854775807", "9223372036854775808", "-9223372036854775809"))
	case n == 2 && low:
		return least - 1
	case n == 3 && high:
		return most + 1
	case n == 4 && high:
		return most
	case low:
		return least
	}
	return m.IntN(100)
}

// anything is a value of any type.
func (m *maker) anything() any {
	return []any{nil, true, 0, -1, 1.5, "", m.pick(nasty...), []any{}, []any{nil}, map[string]any{}, map[string]any{"a": []any{map[string]any{"b": nil}}}}[m.IntN(11)]
}

// component finds a schema that another one names.
func component(ref string) map[string]any {
	var all struct{ Schemas map[string]json.RawMessage }
	if json.Unmarshal(document().components, &all) != nil {
		return nil
	}
	return decoded(all.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")])
}
