// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os/exec"
	"path/filepath"
	"testing"
)

func TestWorkersPage(t *testing.T) {
	needs(t, "curl", "python3", "node", "go")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := shownLines(string(caches))
	// The module is taken from this clone, and nothing from the network.
	first := "export GOPROXY=off GOSUMDB=off GOFLAGS= GOWORK=off GOTOOLCHAIN=local GOCACHE='" + dirs[0] + "' GOMODCACHE='" + dirs[1] + "'\n"
	for _, file := range []string{"python/worker.py", "python/conform.py", "typescript/worker.js", "typescript/package.json"} {
		first += "cp '" + filepath.Join(root, "workers", file) + "' .\n"
	}
	runSelfServed(t, "workers", first, 34, "go get ", "go mod edit -replace github.com/roux-engine/roux='"+root+"'\ngo get ")
}
