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

// sbom writes the bill. The same binary always has the same bill: it has no time,
// and its serial number follows from the binary.
func (b *bill) sbom() ([]byte, error) {
	raw, err := hex.DecodeString(b.sum)
	if err != nil || len(raw) != sha256.Size {
		return nil, fmt.Errorf("checksum %q: want SHA-256", b.sum)
	}
	raw[6], raw[8] = raw[6]&0x0f|0x80, raw[8]&0x3f|0x80 // a UUID of our own making (version 8)
	self := component{
		Type: "application", Ref: purl(b.main, b.version), Name: b.main, Version: b.version, Purl: purl(b.main, b.version),
		Hashes:     []hash{{"SHA-256", b.sum}},
		Properties: []property{{"go:version", b.compiler}},
	}
	self.Licenses = licences([]string{"Apache-2.0"})
	for _, key := range []string{"GOOS", "GOARCH", "CGO_ENABLED", "-trimpath", "vcs.revision", "vcs.time"} {
		if v := b.settings[key]; v != "" {
			self.Properties = append(self.Properties, property{"go:build:" + strings.TrimPrefix(key, "-"), v})
		}
	}
	runtime := component{Type: "library", Ref: purl("stdlib", b.compiler), Name: "stdlib", Version: b.compiler, Purl: purl("stdlib", b.compiler)}
	runtime.Licenses = licences([]string{"BSD-3-Clause"})
	out := cycloneDX{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", BOMFormat: "CycloneDX", SpecVersion: "1.6", Version: 1,
		SerialNumber: fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", raw[0:4], raw[4:6], raw[6:8], raw[8:10], raw[10:16]),
		Metadata:     metadata{self}, Components: []component{runtime},
	}
	needs := dependency{Ref: self.Ref, DependsOn: []string{runtime.Ref}}
	for i := range b.modules {
		m := &b.modules[i]
		c := component{
			Type: "library", Ref: purl(m.path, m.version), Name: m.path, Version: m.version, Purl: purl(m.path, m.version),
			Licenses: licences(m.licences), Properties: []property{{"go:sum", m.sum}},
		}
		out.Components = append(out.Components, c)
		needs.DependsOn = append(needs.DependsOn, c.Ref)
	}
	out.Dependencies = []dependency{needs}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

func purl(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + version
}

func licences(ids []string) (out []licence) {
	for _, id := range ids {
		var l licence
		l.License.ID = id
		out = append(out, l)
	}
	return out
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
