// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// writeFiles writes files into a directory.
func writeFiles(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// serveTLS serves over https, and returns the URL and an environment in which a process trusts it.
func serveTLS(t *testing.T, handler http.HandlerFunc) (base string, env []string) {
	t.Helper()
	srv := httptest.NewTLSServer(handler)
	t.Cleanup(srv.Close)
	home := t.TempDir()
	authority := filepath.Join(home, "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(home, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	return srv.URL, []string{"SSL_CERT_FILE=" + authority, "ROUX_EGRESS_ALLOW=127.0.0.1/32", "XDG_CACHE_HOME=" + filepath.Join(home, "cache"), "TMPDIR=" + temp}
}

// recipeOf is a recipe that gives a number.
func recipeOf(name, version string, n int) string {
	return fmt.Sprintf("name: %s\nversion: %s\nsteps: [{transform: {expression: '%d'}}]\n", name, version, n)
}

// The query of a source may hold a secret, and is in no result.
func TestApplyHidesQueries(t *testing.T) {
	text := recipeOf("digest", "1.0.0", 1)
	base, env := serveTLS(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	source := fmt.Sprintf("%s/digest.yaml?token=hidden#sha256=%x", base, sha256.Sum256([]byte(text)))
	for _, form := range []string{"table", "json"} {
		out, talk, code := roux(t, append(env, "ROUX_DATA="+shortDir(t)), "apply", source, "-o", form)
		if code != 0 || !strings.Contains(out, base+"/digest.yaml?token=") || strings.Contains(out+talk, "hidden") {
			t.Errorf("exit %d\n%s\n%s", code, out, talk)
		}
	}
}

// Ctrl-C while a source is fetched leaves neither a directory nor git behind.
func TestCtrlCWhileFetching(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no program git here")
	}
	asked := make(chan struct{}, 100)
	base, env := serveTLS(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	temp := strings.TrimPrefix(env[3], "TMPDIR=")
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"main.yaml": recipeOf("main", "1.0.0", 1)})
	source := "git+" + base + "/r"
	for _, args := range [][]string{{"lock", source}, {"validate", "main.yaml", "--recipes", source}, {"apply", source}, {"lint", "main.yaml", "--recipes", source}, {"estimate", "main.yaml", "--recipes", source}} {
		p := startIn(t, dir, append(env, "ROUX_DATA="+shortDir(t)), args...)
		select {
		case <-asked:
		case <-p.done:
			t.Fatalf("%s ended: %s", args[0], p.said())
		}
		p.signal(os.Interrupt)
		if code := p.wait(); code != fault.ExitInterrupted {
			t.Errorf("%s: exit code %d, want %d\n%s", args[0], code, fault.ExitInterrupted, p.said())
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
			t.Errorf("%s leaves %v, %v", args[0], left, err)
		}
	}
}

// What a directory has is admitted once the lock has it, while the server runs: recipes and lenses.
func TestServeFollowsLock(t *testing.T) {
	dir, data := t.TempDir(), shortDir(t)
	writeFiles(t, dir, map[string]string{
		"main.yaml":           "name: main\nsteps: [{id: a, recipe: {ref: digest@1}}, {id: b, action: {name: llm, lens: tone}}]\n",
		"recipes/digest.yaml": recipeOf("digest", "1.0.0", 1), "recipes/tone.yaml": "lens: tone\nversion: '1'\ntemplate: hello\n",
	})
	lock := func(args ...string) {
		t.Helper()
		if p := startIn(t, dir, nil, append([]string{"lock"}, args...)...); p.wait() != 0 {
			t.Fatal(p.said())
		}
	}
	lock()
	p := startIn(t, dir, []string{"ROUX_DATA=" + data}, "serve", "--no-keys", "--listen", "127.0.0.1:0", "--recipes", "recipes")
	p.until("no keys are checked")
	writeFiles(t, dir, map[string]string{"recipes/digest.yaml": recipeOf("digest", "1.1.0", 2), "recipes/tone.yaml": "lens: tone\nversion: '2'\ntemplate: bye\n"})
	p.until(`"digest@1" stands for version 1.0.0 there`)
	p.until(`"tone" stands for version 1 there`)
	lock("--update")
	p.until("the lens tone@2 is registered")
	p.until("registered digest@1.1.0")
	p.stop()
}

// What was fetched and has vanished is fetched again, and nothing is deprecated. What is pinned anew is
// served at once, however long the time is after which it is fetched again.
func TestServeKeepsWhatItServes(t *testing.T) {
	dir, data := t.TempDir(), shortDir(t)
	pack := func(version string) {
		t.Helper()
		writeFiles(t, dir, map[string]string{"packed/digest.yaml": recipeOf("digest", version, 1), "packed/other.yaml": recipeOf("other", "1.0.0", 1)})
		cmd := exec.Command("tar", "czf", "recipes.tar.gz", "-C", "packed", ".")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("there is no tar here: %v %s", err, out)
		}
		p := startIn(t, dir, nil, "lock", "--update", "--recipes", "recipes.tar.gz")
		if p.wait() != 0 {
			t.Fatal(p.said())
		}
	}
	pack("1.0.0")
	env := []string{"ROUX_DATA=" + data}
	p := startIn(t, dir, env, "serve", "--no-keys", "--listen", "127.0.0.1:0", "--recipes", "recipes.tar.gz")
	p.until("no keys are checked")
	unpacked, err := filepath.Glob(filepath.Join(data, datadir.Fetched, "*", "*.yaml"))
	if err != nil || len(unpacked) != 2 {
		t.Fatalf("unpacked %q, %v", unpacked, err)
	}
	for _, name := range unpacked {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	p.until("is served now")
	pack("1.1.0")
	p.until("registered digest@1.1.0")
	if said := p.said(); strings.Contains(said, "other") {
		t.Errorf("it says of a recipe that did not change:\n%s", said)
	}
	if list, _ := filepath.Glob(filepath.Join(data, datadir.Fetched, "*")); len(list) != 1 {
		t.Errorf("directories are left: %q", list)
	}
	p.stop()
	if p := startIn(t, dir, env, "serve", "--check"); p.wait() != 0 {
		t.Error(p.said())
	}
	if list, err := os.ReadDir(filepath.Join(data, datadir.Fetched)); err != nil || len(list) != 0 {
		t.Errorf("what is not served any more is left: %v, %v", list, err)
	}
}

// SIGTERM ends a server that registers many recipes, in an orderly way.
func TestServeEndsWhileItRegisters(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	texts := map[string]string{}
	for i := range 900 {
		name := fmt.Sprintf("r%03d", i)
		texts[name+".yaml"] = recipeOf(name, "1.0.0", i)
	}
	writeFiles(t, dir, texts)
	p := startIn(t, t.TempDir(), []string{"ROUX_DATA=" + shortDir(t)}, "serve", "--no-keys", "--listen", address, "--recipes", dir)
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		select {
		case <-p.done:
			t.Fatal(p.said())
		case <-time.After(10 * time.Millisecond): // it does not say that it listens before it has registered all
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 || !strings.Contains(p.said(), "stopping") || strings.Contains(p.stdout.String(), "listening") {
		t.Errorf("exit code %d\n%s\n%s", code, p.stdout.String(), p.said())
	}
}
