// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
)

// The document of the streams is a promise, as that of the operations is. It has every type of
// event of the one table (X178), and nothing that is not sent.
func TestX178_AsyncAPIDocument(t *testing.T) {
	s := start(t)
	served := s.call("", "GET", "/asyncapi.json", nil).want(200)
	var b bytes.Buffer
	if err := json.Indent(&b, served.body, "", " "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	const file = "testdata/asyncapi.json"
	if *rewrite {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(want, b.Bytes()) {
		t.Errorf("the document is not %s (%v); go test ./internal/api -run AsyncAPI -rewrite writes it", file, err)
	}
	var doc struct {
		Channels map[string]struct {
			Address  string
			Messages map[string]any
		}
		Components struct {
			Messages map[string]struct{ Summary string }
		}
	}
	if err := json.Unmarshal(served.body, &doc); err != nil {
		t.Fatal(err)
	}
	for name, m := range doc.Components.Messages {
		if m.Summary == "" {
			t.Errorf("nothing says what %s means", name)
		}
	}
	events := slices.DeleteFunc(slices.Sorted(maps.Keys(doc.Channels["jobEvents"].Messages)), func(n string) bool { return n == "heartbeat" || n == "reset" })
	if !slices.Equal(events, journal.Types()) {
		t.Errorf("the stream of a run has %v, want %v", events, journal.Types())
	}
	for name := range doc.Channels["flowEvents"].Messages {
		if name != "reset" && !slices.Contains(flowTypes, name) {
			t.Errorf("the stream of the flow has %s", name)
		}
	}
	var paths struct{ Paths map[string]any }
	if err := json.Unmarshal(s.call("", "GET", "/openapi.json", nil).want(200).body, &paths); err != nil {
		t.Fatal(err)
	}
	for name, c := range doc.Channels {
		if paths.Paths[c.Address] == nil {
			t.Errorf("channel %s is at %s, which is no path of the server", name, c.Address)
		}
	}
	for _, text := range strings.Split(b.String(), "\n") {
		if _, to, ok := strings.Cut(text, `"$ref": "#/`); ok && lookUp(served.value(), strings.Split(strings.Trim(to, `",`), "/")) == nil {
			t.Errorf("%s leads nowhere", to)
		}
	}
}

func lookUp(v any, path []string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// Every frame of streams that have been read follows the schema that the document gives its
// message.
func TestX179_FramesFollowTheDocument(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.grant("acme", 100)
	s.register(dev, `{"name":"talks","version":"1.0.0","steps":[{"id":"pay","action":{"name":"costly"}},{"id":"say","action":{"name":"chat"}},{"id":"no","fail":{"code":"STEP_FAILED","message":"as it should"}}],
		"creditEstimation":{"strategy":"fixed","fixedCredits":10,"maxCredits":50}}`)
	close(s.gate)
	run := s.execute(dev, "talks", `{}`)
	doc := s.call("", "GET", "/asyncapi.json", nil).want(200).value()
	schemas := map[string]*jsonschema.Schema{}
	check := func(e event) {
		name, _ := lookUp(doc, []string{"components", "messages", e.name, "payload", "$ref"}).(string)
		schema := schemas[name]
		if schema == nil {
			raw, err := json.Marshal(lookUp(doc, strings.Split(strings.TrimPrefix(name, "#/"), "/")))
			if err == nil {
				schema, err = jsonschema.Compile(raw)
			}
			if err != nil {
				t.Fatalf("%s: %v", e.name, err)
			}
			schemas[name] = schema
		}
		raw, err := json.Marshal(e.data)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
		if err != nil {
			t.Fatal(err)
		}
		if bad := schema.Validate(v); len(bad) > 0 {
			t.Errorf("%s: %v", e.name, bad)
		}
	}
	seen := map[string]bool{}
	for _, path := range []string{"/v1/recipe-executions/" + run + "/events", "/v1/feed"} {
		if _, err := s.stream(dev, path, nil, func(e event) bool {
			check(e)
			seen[e.name] = true
			return e.data["runId"] != run || e.data["status"] != "failed"
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"run.started", "node.stream.delta", "node.failed", "run.failed", "credits.settled", "run.changed", "credits.entry"} {
		if !seen[want] {
			t.Errorf("%s was not sent: %v", want, slices.Sorted(maps.Keys(seen)))
		}
	}
}
