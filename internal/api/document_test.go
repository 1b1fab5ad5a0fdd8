// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"html/template"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden document")

const golden = "testdata/openapi.json"

// The document is what clients are generated from: a change of it is a change of a promise.
func TestOpenAPIDocument(t *testing.T) {
	s := start(t)
	data, err := s.svc.API.Document()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", " "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(want, b.Bytes()) {
		t.Errorf("the document is not %s (%v); go test ./internal/api -run OpenAPI -rewrite writes it", golden, err)
	}
	if served := s.call("", "GET", "/openapi.json", nil).want(200); !bytes.Equal(served.body, data) {
		t.Error("another document is served")
	}
}

// R34: the type of a problem is an address, which leads to what the code means.
func TestR34_TypesOfProblems(t *testing.T) {
	s := start(t)
	page := string(s.call("", "GET", "/docs/errors", nil).want(200).body)
	for _, row := range fault.All() {
		if !strings.Contains(page, `<h2 id="`+string(row.Code)+`">`) || !strings.Contains(page, template.HTMLEscapeString(row.Remedy)) {
			t.Errorf("the page does not explain %s", row.Code)
		}
	}
	var p struct{ Type, Code string }
	if err := json.Unmarshal(s.call("", "GET", "/v1/me", nil).problem(fault.Unauthorized).body, &p); err != nil {
		t.Fatal(err)
	}
	address, anchor, _ := strings.Cut(p.Type, "#")
	if anchor != p.Code {
		t.Errorf("the type of %s is %s", p.Code, p.Type)
	}
	s.call("", "GET", address, nil).want(200)
}

// What a remedy tells those to do who have no command line is an operation of the document, and
// no remedy is for the command line alone, unless its code is.
func TestRemediesServeBoth(t *testing.T) {
	named := regexp.MustCompile("`((?:GET|POST|PUT|PATCH|DELETE) [^`]*)`")
	of := regexp.MustCompile(`/[A-Z]+(/|$)`)
	shape := regexp.MustCompile(`\{\w+\}`)
	n := 0
	for _, row := range fault.All() {
		requests := named.FindAllStringSubmatch(row.Remedy, -1)
		for _, m := range requests {
			n++
			method, path, _ := strings.Cut(m[1], " ")
			path, _, _ = strings.Cut(path, "?")
			path = of.ReplaceAllString(path, "/{}$1")
			if !slices.ContainsFunc(document().operations, func(o *operation) bool { return o.method == method && shape.ReplaceAllString(o.path, "{}") == path }) {
				t.Errorf("%s: there is no %s", row.Code, m[1])
			}
		}
		switch row.Code {
		case fault.ConfigInvalid, fault.CommandTimeout, fault.Usage: // of commands
		case fault.StoreFull: // the server carries the run on by itself
		default:
			if strings.Contains(row.Remedy, "`roux ") && len(requests) == 0 {
				t.Errorf("%s: the remedy is for the command line alone: %s", row.Code, row.Remedy)
			}
		}
	}
	if n < 15 {
		t.Errorf("only %d requests are named", n)
	}
}

// An operation is one of the document.
type operation struct {
	ID         string `json:"operationId"`
	method     string
	path       string
	Security   []map[string][]string `json:"security"`
	Parameters []struct {
		Name, In string
		Required bool
		Schema   json.RawMessage
	} `json:"parameters"`
	RequestBody *struct {
		Content map[string]struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
}

// document is the golden one, parsed once.
var document = sync.OnceValue(func() (d struct {
	operations []*operation
	components json.RawMessage
}) {
	data, err := os.ReadFile(golden)
	if err != nil {
		panic(err) // TestOpenAPIDocument makes it
	}
	var all struct {
		Paths      map[string]map[string]json.RawMessage
		Components json.RawMessage
	}
	if err := json.Unmarshal(data, &all); err != nil {
		panic(err)
	}
	d.components = all.Components
	for path, methods := range all.Paths {
		for method, raw := range methods {
			o := &operation{method: strings.ToUpper(method), path: path}
			if err := json.Unmarshal(raw, o); err != nil {
				panic(err)
			}
			if len(o.Security) == 1 && len(o.Security[0]) == 0 {
				o.Security = nil // it says that it needs no key
			}
			d.operations = append(d.operations, o)
		}
	}
	slices.SortFunc(d.operations, func(a, b *operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return d
})

// operationOf finds the operation of a request: the one with the most fixed parts.
func operationOf(method, path string) (best *operation) {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	fixed := -1
	for _, o := range document().operations {
		want := strings.Split(o.path, "/")
		if o.method != method || len(want) != len(parts) {
			continue
		}
		n := 0
		for i := range want {
			if want[i] == parts[i] {
				n++
			} else if !strings.HasPrefix(want[i], "{") {
				n = -1
				break
			}
		}
		if n > fixed {
			best, fixed = o, n
		}
	}
	return best
}

var schemas sync.Map // of *jsonschema.Schema, by the text of the schema

// schemaOf compiles a schema of the document.
func schemaOf(t testing.TB, raw json.RawMessage) *jsonschema.Schema {
	if s, ok := schemas.Load(string(raw)); ok {
		return s.(*jsonschema.Schema)
	}
	text := `{"components":` + string(document().components) + `,"allOf":[` + string(raw) + `]}`
	s, err := jsonschema.Compile([]byte(text))
	if err != nil {
		t.Errorf("a schema of the document is none: %v", err)
		return nil
	}
	schemas.Store(string(raw), s)
	return s
}

// observe checks an answer against the document: every answer of these tests is one that
// it describes.
func observe(t testing.TB, method, path string, res *http.Response, body []byte) {
	t.Helper()
	o := operationOf(method, path)
	if o == nil {
		if res.StatusCode < 300 {
			t.Errorf("%s %s is in no document and answers %d", method, path, res.StatusCode)
		}
		return
	}
	r, ok := o.Responses[strconv.Itoa(res.StatusCode)]
	if !ok {
		r, ok = o.Responses[strconv.Itoa(res.StatusCode/100)+"XX"]
	}
	if !ok && (res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified) {
		ok = true
	}
	if !ok && res.StatusCode/100 == 2 { // such as 200 for what was there before, where 201 is documented
		for status, other := range o.Responses {
			if strings.HasPrefix(status, "2") {
				r, ok = other, true
			}
		}
	}
	if !ok {
		t.Errorf("%s %s answers %d, which the document does not have", method, path, res.StatusCode)
		return
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	content, ok := r.Content[kind]
	if _, any := r.Content["*/*"]; any {
		return
	}
	if !ok || !strings.HasSuffix(kind, "json") {
		if len(body) > 0 && len(r.Content) > 0 && !ok {
			t.Errorf("%s %s answers %d with the type %q, which the document does not have", method, path, res.StatusCode, kind)
		}
		return
	}
	v, err := jsonx.Decode(body, jsonx.Limits{Bytes: 64 << 20})
	if err != nil {
		t.Errorf("%s %s: the answer is no JSON: %v", method, path, err)
		return
	}
	if s := schemaOf(t, content.Schema); s != nil {
		for _, violation := range s.Validate(v) {
			t.Errorf("%s %s answers %d, and %s %s: %s", method, path, res.StatusCode, violation.Pointer, violation.Msg, body)
		}
	}
}
