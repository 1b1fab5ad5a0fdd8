// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// The parts of CycloneDX 1.6 that a Go binary needs.
type (
	cycloneDX struct {
		Schema       string       `json:"$schema"`
		BOMFormat    string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		SerialNumber string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		Purl       string     `json:"purl,omitempty"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Licenses   []licence  `json:"licenses,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Alg     string `json:"alg"`
		Content string `json:"content"`
	}
	licence struct {
		License struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

// sbom encodes the bill. The same binary always has the same bill: it has no time, and its
// serial number is derived from the binary.
func (b *bill) sbom() ([]byte, error) {
	raw, err := hex.DecodeString(b.sum)
	if err != nil || len(raw) != sha256.Size {
		return nil, fmt.Errorf("checksum %q: want SHA-256", b.sum)
	}
	raw[6], raw[8] = raw[6]&0x0f|0x80, raw[8]&0x3f|0x80 // a custom UUID (version 8)
	self := newComponent("application", b.main, b.version, "Apache-2.0")
	self.Hashes = []hash{{"SHA-256", b.sum}}
	self.Properties = []property{{"go:version", b.compiler}}
	for _, key := range []string{"GOOS", "GOARCH", "CGO_ENABLED", "-trimpath", "vcs.revision", "vcs.time"} {
		if v := b.settings[key]; v != "" {
			self.Properties = append(self.Properties, property{"go:build:" + strings.TrimPrefix(key, "-"), v})
		}
	}
	parts := []component{newComponent("library", "stdlib", b.compiler, "BSD-3-Clause")}
	for i := range b.modules {
		m := &b.modules[i]
		c := newComponent("library", m.path, m.version, m.licences...)
		c.Properties = []property{{"go:sum", m.sum}}
		parts = append(parts, c)
	}
	needs := dependency{Ref: self.Ref}
	for i := range parts {
		needs.DependsOn = append(needs.DependsOn, parts[i].Ref)
	}
	out := cycloneDX{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", BOMFormat: "CycloneDX", SpecVersion: "1.6", Version: 1,
		SerialNumber: fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", raw[0:4], raw[4:6], raw[6:8], raw[8:10], raw[10:16]),
		Metadata:     metadata{self}, Components: parts, Dependencies: []dependency{needs},
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

// newComponent returns a component, identified by its package URL.
func newComponent(kind, path, version string, licences ...string) component {
	ref := "pkg:golang/" + strings.ToLower(path) + "@" + version
	c := component{Type: kind, Ref: ref, Name: path, Version: version, Purl: ref}
	for _, id := range licences {
		var l licence
		l.License.ID = id
		c.Licenses = append(c.Licenses, l)
	}
	return c
}

func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
