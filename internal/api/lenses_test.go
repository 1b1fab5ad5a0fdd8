// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// X22, X25: lenses are put, read, listed, set back and deleted; a version never changes.
func TestX25_Lenses(t *testing.T) {
	s := start(t)
	acme, rival := s.key("acme", access.Developer), s.key("rival", access.Developer)
	const full = `{"lens":"summarize","model":"small","template":"Summarize: {{ text }}","contracts":{"input":{"type":"object","required":["text"]},"output":null}}`
	first := s.call(acme, "PUT", "/v1/lenses/summarize", full).want(201)
	if first.text("version") != "1" || first.get("current") != true || first.header.Get("Location") != "/v1/lenses/summarize?version=1" || first.header.Get("ETag") == "" || !strings.HasPrefix(first.text("createdBy"), "key_") {
		t.Errorf("put: %s %v", first.body, first.header)
	}
	s.call(acme, "PUT", "/v1/lenses/summarize", full).want(200)
	got := s.call(acme, "GET", "/v1/lenses/summarize", nil).want(200)
	if got.text("template") != "Summarize: {{ text }}" || got.text("model") != "small" || fmt.Sprint(got.get("contracts")) != "map[input:map[required:[text] type:object]]" || got.header.Get("ETag") != first.header.Get("ETag") {
		t.Errorf("got: %s", got.body)
	}
	s.call(acme, "PUT", "/v1/lenses/summarize", `{"version":"1","template":"other"}`).problem(fault.Conflict)
	s.call(acme, "PUT", "/v1/lenses/summarize", `{"template":"other"}`, "If-Match", `"7"`).problem(fault.PreconditionFailed)
	second := s.call(acme, "PUT", "/v1/lenses/summarize", `{"template":"other"}`, "If-Match", first.header.Get("ETag")).want(201)
	if second.text("version") != "2" {
		t.Errorf("the second: %s", second.body)
	}
	if old := s.call(acme, "GET", "/v1/lenses/summarize?version=1", nil).want(200); old.get("current") != false || old.text("model") != "small" {
		t.Errorf("the first: %s", old.body)
	}
	s.call(acme, "GET", "/v1/lenses/summarize?version=3", nil).problem(fault.LensNotFound)
	if list := s.call(acme, "GET", "/v1/lenses/summarize/versions", nil).want(200); len(list.get("data").([]any)) != 2 || strings.Contains(string(list.body), "template") {
		t.Errorf("versions: %s", list.body)
	}
	s.call(acme, "PUT", "/v1/lenses/summarize/current", `{"version":"1"}`, "If-Match", first.header.Get("ETag")).problem(fault.PreconditionFailed)
	if back := s.call(acme, "PUT", "/v1/lenses/summarize/current", `{"version":"1"}`).want(200); back.text("version") != "1" || back.get("current") != true {
		t.Errorf("set back: %s", back.body)
	}
	s.call(acme, "PUT", "/v1/lenses/summarize/current", `{"version":"9"}`).problem(fault.LensNotFound)
	for _, id := range []string{"a", "b", "z"} {
		s.call(acme, "PUT", "/v1/lenses/"+id, `{"template":"x"}`).want(201)
	}
	s.call(rival, "PUT", "/v1/lenses/summarize", `{"template":"of rival"}`).want(201)
	var ids []string
	for path := "/v1/lenses?limit=3"; path != ""; {
		page := s.call(acme, "GET", path, nil).want(200)
		for _, l := range page.get("data").([]any) {
			ids = append(ids, fmt.Sprint(l.(map[string]any)["id"], "@", l.(map[string]any)["version"]))
		}
		if path, _ = page.get("next").(string); path != "" && len(ids) != 3 {
			t.Errorf("a page has %d lenses", len(ids))
		}
	}
	if fmt.Sprint(ids) != "[a@1 b@1 summarize@1 z@1]" {
		t.Errorf("the list is %q", ids)
	}
	s.call(acme, "DELETE", "/v1/lenses/summarize", nil).want(204)
	s.call(acme, "GET", "/v1/lenses/summarize", nil).problem(fault.LensNotFound)
	s.call(acme, "DELETE", "/v1/lenses/summarize", nil).problem(fault.LensNotFound)
	if got := s.call(rival, "GET", "/v1/lenses/summarize", nil).want(200); got.text("template") != "of rival" {
		t.Errorf("the lens of the rival: %s", got.body)
	}
}

// What is wrong with a lens is said with its place.
func TestBadLenses(t *testing.T) {
	s := start(t)
	acme := s.key("acme", access.Developer)
	for _, tt := range []struct {
		id, body, pointer string
		code              fault.Code
	}{
		{"a", `{}`, "", fault.RequestInvalid},
		{"a", `{"template":" "}`, "/template", fault.RecipeInvalid},
		{"a", `{"template":"x","templat":"y"}`, "/templat", fault.RequestInvalid},
		{"a", `{"template":"x","contracts":{"in":{}}}`, "/contracts/in", fault.RequestInvalid},
		{"a", `{"template":"x","contracts":{"input":{"type":"objekt"}}}`, "/contracts/input", fault.RecipeInvalid},
		{"a", `{"template":"x","contracts":{"output":[]}}`, "/contracts/output", fault.RecipeInvalid},
		{"a", `{"template":"x","version":"a b"}`, "/version", fault.RecipeInvalid},
		{"a", `{"template":"` + strings.Repeat("x", 256<<10+1) + `"}`, "/template", fault.RequestInvalid},
		{"a", `{"template":"` + strings.Repeat("é", 128<<10+1) + `"}`, "/template", fault.RecipeInvalid},
		{"a", `{"template":"` + strings.Repeat("x", 3<<20) + `"}`, "", fault.RequestTooLarge},
		{"a", `{"template":"x","lens":"b"}`, "", fault.RequestInvalid},
		{"a@1", `{"template":"x"}`, "/lens", fault.RecipeInvalid},
		{".a", `{"template":"x"}`, "/lens", fault.RecipeInvalid},
		{"%20", `{"template":"x"}`, "/lens", fault.RecipeInvalid},
	} {
		p := s.call(acme, "PUT", "/v1/lenses/"+tt.id, tt.body).problem(tt.code)
		if tt.pointer != "" && !strings.Contains(string(p.body), `"pointer":"`+tt.pointer+`"`) {
			t.Errorf("%s %.80s: no place %s: %s", tt.id, tt.body, tt.pointer, p.body)
		}
	}
	s.call(acme, "PUT", "/v1/lenses/a", `{"template":"`+strings.Repeat(`\u0041`, 256<<10)+`"}`).want(201)
	viewer := s.key("acme", access.Viewer)
	s.call(viewer, "GET", "/v1/lenses/a", nil).want(200)
	s.call(viewer, "PUT", "/v1/lenses/a", `{"template":"x"}`).problem(fault.Forbidden)
	s.call(viewer, "DELETE", "/v1/lenses/a", nil).problem(fault.Forbidden)
}
