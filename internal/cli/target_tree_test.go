// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/client"
)

// Lists over a server have the runs below one, and no others. A tree that was imported is
// adopted as a whole while a server holds the directory.
func TestTreesOverAServer(t *testing.T) {
	work, dir, address := t.TempDir(), shortDir(t), freeAddress(t)
	for name, text := range map[string]string{
		"outer.yaml": "name: outer\nsteps:\n  - {id: a, recipe: {file: leaf.yaml}}\n  - {id: b, recipe: {file: leaf.yaml}}\n",
		"leaf.yaml":  "name: leaf\nsteps:\n  - {id: work, transform: {expression: '1'}}\n",
	} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, bundle := []string{"ROUX_DATA=" + shortDir(t)}, filepath.Join(work, "outer.zip")
	here := []string{"ROUX_DATA=" + dir}
	do := func(env []string, args ...string) string {
		t.Helper()
		out, talk, code := roux(t, env, args...)
		if code != 0 {
			t.Fatalf("roux %s: exit %d\n%s%s", strings.Join(args, " "), code, out, talk)
		}
		return out
	}
	do(first, "run", filepath.Join(work, "outer.yaml"), "-q")
	do(first, "export", "@last", "--out", bundle)
	do(here, "import", bundle)
	do(here, "run", filepath.Join(work, "leaf.yaml"), "-q")
	outer := strings.Fields(do(here, "runs", "list", "--recipe", "outer", "-o", "name"))[0]

	key := strings.Repeat("operator-", 5)
	server := start(t, []string{"ROUX_ADMIN_KEY=" + key}, "serve", "--data", dir, "--listen", address)
	defer func() {
		server.stop()
	}()
	c, err := client.New(client.Config{URL: "http://" + address, Key: key})
	if err == nil {
		_, err = c.Runs.Heads(t.Context(), client.HeadQuery{Limit: 1}) // waits for the server
	}
	if err != nil {
		t.Fatal(err)
	}
	there := []string{"ROUX_DATA=" + shortDir(t), "ROUX_SERVER=http://" + address, "ROUX_KEY=" + key}
	below := func(imported bool) {
		t.Helper()
		heads := object[[]headView](t, there, "runs", "list", "--children", outer)
		if len(heads) != 2 {
			t.Fatalf("%d runs below %s: %+v", len(heads), outer, heads)
		}
		for _, h := range heads {
			if h.Parent != outer || h.Root != outer || h.Recipe != "leaf" || h.Imported != imported || h.EndedAt == "" {
				t.Errorf("below %s, imported %v: %+v", outer, imported, h)
			}
		}
	}
	below(true)
	do(here, "runs", "adopt", outer) // the server holds the directory
	below(false)
}
