// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/pem"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// publishing makes a repository, and a command that commits a version of a recipe and moves a tag to it.
const publishing = `
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
REPO=$ROOT_OF_REPOS/team/recipes
mkdir -p $REPO/recipes
git -C $REPO init -q -b main
publish() {
  printf 'name: digest\nversion: %s\nsteps: [{id: text, transform: {expression: "%s"}}]\noutputs: {text: steps.text.output}\n' $2 "'$3'" > $REPO/recipes/digest.yaml
  git -C $REPO add -A
  git -C $REPO -c user.name=t -c user.email=t@example.com commit -q -m x
  git -C $REPO tag -f $1 > /dev/null
}
publish v1 1.0.0 one
`

// The page of recipes from elsewhere, with a real Git server that has a certificate of its own. X28: what was fetched is kept
// under its reference and is fresh for `pipeline_cache_ttl` seconds, after which the server loads what has changed.
func TestRegistryPage(t *testing.T) {
	if testing.Short() {
		t.Skip("one process after the other: the race detector has nothing to see here")
	}
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skip("there is no program git here")
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("there is no git http-backend here")
	}
	repos, home := t.TempDir(), t.TempDir()
	srv := httptest.NewTLSServer(&cgi.Handler{Path: backend, Env: []string{
		"GIT_PROJECT_ROOT=" + repos, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}})
	t.Cleanup(srv.Close)
	authority := filepath.Join(home, "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	runSelfServed(t, "registry", "export HOME="+home+" XDG_CACHE_HOME="+home+"/cache SSL_CERT_FILE="+authority+" ROUX_EGRESS_ALLOW=127.0.0.1/32 ROOT_OF_REPOS="+repos+"\n"+publishing, 6,
		"https://example.com", srv.URL)
}
