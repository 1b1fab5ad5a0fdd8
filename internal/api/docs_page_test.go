// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"html"
	"io"
	"regexp"
	"strings"
	"testing"
)

// The page at /docs has every operation, every parameter and every schema with its fields, of
// the document that is served. It needs no network: it has no script, nothing is loaded from
// elsewhere, and its policy forbids both. All its links lead somewhere.
func TestDocsPage(t *testing.T) {
	s := start(t)
	got := s.call("", "GET", "/docs", nil).want(200)
	page := string(got.body)
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Description string
					Examples    []any
				}
			}
		}
	}
	if err := json.Unmarshal(s.call("", "GET", "/openapi.json", nil).want(200).body, &doc); err != nil {
		t.Fatal(err)
	}
	section := func(id string) string {
		_, rest, ok := strings.Cut(page, `<h3 id="`+id+`">`)
		if !ok {
			t.Errorf("there is no %s", id)
		}
		rest, _, _ = strings.Cut(rest, "<h3 ")
		return rest
	}
	for _, o := range document().operations {
		text := section(o.ID)
		if !strings.Contains(text, o.method+" "+o.path+"<") {
			t.Errorf("%s: it is not %s %s", o.ID, o.method, o.path)
		}
		for _, p := range o.Parameters {
			if !strings.Contains(text, "<code>"+p.Name+"</code>") {
				t.Errorf("%s: the parameter %s is missing", o.ID, p.Name)
			}
		}
		for _, allowed := range o.Security {
			if !strings.Contains(text, "<code>"+allowed["key"][0]+"</code>") {
				t.Errorf("%s: its scope is missing", o.ID)
			}
		}
		for status := range o.Responses {
			if !strings.Contains(text, "<li>"+status+":") {
				t.Errorf("%s: the status %s is missing", o.ID, status)
			}
		}
	}
	if len(doc.Components.Schemas) < 50 {
		t.Errorf("there are %d schemas", len(doc.Components.Schemas))
	}
	for name, schema := range doc.Components.Schemas {
		text := section("schema-" + name)
		for field, f := range schema.Properties {
			if !strings.Contains(text, "<code>"+field+"</code>") || !strings.Contains(text, html.EscapeString(f.Description)) {
				t.Errorf("%s: the field %s is missing, or what it means", name, field)
			}
			for _, e := range f.Examples {
				if text, ok := e.(string); ok && !strings.Contains(page, html.EscapeString(text)) {
					t.Errorf("%s.%s: the example is missing", name, field)
				}
			}
		}
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("two places are called %s", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(` (?:href|src)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if id, inside := strings.CutPrefix(m[1], "#"); inside && !ids[id] {
			t.Errorf("the link %s leads nowhere", m[1])
		} else if !inside {
			s.call("", "GET", m[1], nil).want(200)
		}
	}
	if m := regexp.MustCompile(`(?i)<script|<link|<img|@import|url\(|javascript:| on\w+=|%!`).FindString(page); m != "" {
		t.Errorf("the page has %q", m)
	}
	_, style, _ := strings.Cut(page, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	policy := got.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'") || !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %s", policy)
	}
	// The page is also well-formed XML but for its first line, so no tag is left open.
	d := xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(got.body, []byte("<!doctype html>\n"))))
	d.Entity = xml.HTMLEntity
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
