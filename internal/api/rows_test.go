// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// X170: the input of a run is checked by the inputSchema of its recipe before it starts, and its
// result by the outputSchema before it completes.
func TestX170_Schemas(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, `{"name":"checked","version":"1.0.0","inputSchema":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}},
		"outputSchema":{"type":"object","required":["r"],"properties":{"r":{"type":"integer","maximum":10}}},
		"steps":[{"id":"a","transform":{"expression":"input.n * 2","outputBinding":"r"}}]}`)
	s.call(dev, "POST", "/v1/recipes/checked/execute", `{"parameters":{"n":"one"}}`).problem(fault.InputInvalid)
	if got := s.call(dev, "POST", "/v1/recipes/checked/execute", `{"parameters":{"n":5},"async":false}`).want(200); got.text("status") != "completed" {
		t.Errorf("a result that fits: %s", got.body)
	}
	got := s.call(dev, "POST", "/v1/recipes/checked/execute", `{"parameters":{"n":6},"async":false}`).want(200)
	if got.text("status") != "failed" || !strings.Contains(string(got.body), string(fault.OutputContractViolation)) {
		t.Errorf("a result that does not fit: %s", got.body)
	}
}

// X161: the bytes of files are kept apart from the state of the engine, under their hash.
func TestX161_FilesAreApart(t *testing.T) {
	dir := t.TempDir()
	s := startAt(t, dir)
	text := strings.Repeat("the content of a file ", 50)
	hash := s.call(s.key("acme", access.Developer), "POST", "/v1/files?name=a.txt", text, "Content-Type", "text/plain").want(201).text("hash")
	s.stop()
	found := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			if found++; strings.HasPrefix(d.Name(), "roux.db") || !strings.Contains(filepath.ToSlash(path), strings.TrimPrefix(hash, "sha256_")) {
				t.Errorf("the content is in %s", path)
			}
		}
		return err
	})
	if err != nil || found != 1 {
		t.Errorf("the content is in %d files, %v", found, err)
	}
}

// X203: a key is sent as a bearer token, and in no other way.
func TestX203_Bearer(t *testing.T) {
	s := start(t)
	token := s.key("acme", access.Viewer)
	s.call("", "GET", "/v1/me", nil, "Authorization", "Bearer "+token).want(200)
	for _, other := range []string{token, "Basic " + token, "Token " + token, "Bearer", "Bearer  ", "Bearer " + token + " x"} {
		s.call("", "GET", "/v1/me", nil, "Authorization", other).problem(fault.Unauthorized)
	}
	s.call("", "GET", "/v1/me", nil, "X-Api-Key", token).problem(fault.Unauthorized)
	if got := s.call("", "GET", "/v1/me?access_token="+token, nil).want(401); strings.Contains(string(got.body), token) {
		t.Errorf("the key is repeated: %s", got.body)
	}
}
