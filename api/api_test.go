// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/api"
	"github.com/roux-engine/roux/client"
)

const greet = `{"name":"greet","version":"1.0.0",
"steps":[{"id":"step_1","type":"transform","transform":{"expression":"'hi ' + input.name","outputBinding":"greeting"}}],
"inputSchema":{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}}`

// A recipe is registered and run over HTTP, in one process.
func Example() {
	dir, err := os.MkdirTemp("", "roux-api-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	e, err := roux.Open(ctx, roux.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	s, err := api.New(ctx, e, api.Options{})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(s)
	defer func() {
		s.EndStreams()
		server.Close()
		_ = e.Stop(ctx)
	}()
	c, err := client.New(client.Config{URL: server.URL, Key: s.FirstKey()})
	if err != nil {
		panic(err)
	}
	if _, _, err := c.Recipes.Create(ctx, []byte(greet)); err != nil {
		panic(err)
	}
	started, err := c.Recipes.Execute(ctx, "greet", client.ExecuteRequest{Parameters: map[string]any{"name": "Ana"}})
	if err != nil {
		panic(err)
	}
	run, err := c.Runs.Wait(ctx, started.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(run.Status, string(run.Outputs))
	// Output: completed {"greeting":"hi Ana"}
}

// open opens an engine, which the end of the test closes.
func open(t *testing.T, opt roux.Options) *roux.Engine {
	t.Helper()
	e, err := roux.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // a test that has closed it has looked at the error
	return e
}

func serve(t *testing.T, e *roux.Engine, opt api.Options) *api.Server {
	t.Helper()
	s, err := api.New(t.Context(), e, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Without a key nothing is shown, unless the program says that none is checked; then only
// requests of this machine are answered.
func TestAccess(t *testing.T) {
	for _, c := range []struct {
		name   string
		noKeys bool
		remote string
		want   int
	}{
		{"keys are checked by default", false, "127.0.0.1:1", http.StatusUnauthorized},
		{"no keys, from this machine", true, "127.0.0.1:1", http.StatusOK},
		{"no keys, from elsewhere", true, "192.0.2.1:1", http.StatusForbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, open(t, roux.Options{Dir: t.TempDir()}), api.Options{NoKeys: c.noKeys})
			r := httptest.NewRequest(http.MethodGet, "http://localhost/v1/me", nil)
			r.RemoteAddr = c.remote
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("GET /v1/me: %d, want %d: %s", w.Code, c.want, w.Body)
			}
		})
	}
}
