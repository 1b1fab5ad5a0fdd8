// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/roux-engine/roux/client"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// What listen forwards is what a webhook would send: a receiver that verifies signatures takes
// it. The server needs no way to this machine, and Ctrl-C ends the command in order.
func TestListen(t *testing.T) {
	dir, address, files := shortDir(t), freeAddress(t), t.TempDir()
	recipe, secret := filepath.Join(files, "good.yaml"), filepath.Join(files, "secret")
	if err := os.WriteFile(recipe, []byte("name: good\nsteps:\n  - {id: work, transform: {expression: \"'x'\", outputBinding: y}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := strings.Repeat("operator-", 5)
	server := start(t, []string{"ROUX_ADMIN_KEY=" + key}, "serve", "--data", dir, "--listen", address)
	c, err := client.New(client.Config{URL: "http://" + address, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}

	got := make(chan map[string]any, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		text, kept := os.ReadFile(secret)
		if err != nil || kept != nil {
			t.Error(err, kept)
			return
		}
		hook, err := standardwebhooks.NewWebhook(string(bytes.TrimSpace(text)))
		if err == nil {
			err = hook.Verify(body, r.Header)
		}
		var m map[string]any
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			m = map[string]any{"error": err.Error()}
		}
		got <- m
	}))
	defer receiver.Close()

	// What has happened before is not received.
	early, talk, code := roux(t, []string{"ROUX_DATA=" + dir}, "run", recipe, "-o", "name")
	if code != 0 {
		t.Fatal(code, talk)
	}
	here := start(t, []string{"ROUX_DATA=" + dir}, "listen", "--forward", receiver.URL, "--events", "run.completed", "--secret-file", secret)
	here.until("listening to account local")
	there := start(t, []string{"ROUX_SERVER=http://" + address, "ROUX_KEY=" + key, "ROUX_DATA=" + shortDir(t)}, "listen", "--forward", "http://127.0.0.1:1", "--events", "run.*", "--payload", "full", "--limit", "1", "-o", "jsonl")
	there.until("listening to account local")
	if out, talk, code := roux(t, []string{"ROUX_DATA=" + dir}, "run", recipe); code != 0 {
		t.Fatal(code, out, talk)
	}
	m := <-got
	data, _ := m["data"].(map[string]any)
	if m["type"] != "run.completed" || data["executionId"] == strings.TrimSpace(early) || data["webhookId"] != "hook_listen" || !strings.HasPrefix(data["executionId"].(string), "run_") {
		t.Errorf("the receiver got %v", m)
	}
	here.signal(syscall.SIGINT)
	if code := here.wait(); code != 0 || !strings.Contains(here.stdout.String(), "run.completed") {
		t.Errorf("after Ctrl-C it ends with %d: %s%s", code, here.said(), here.stdout.String())
	}
	if code := there.wait(); code != 0 || strings.Contains(there.stdout.String(), strings.TrimSpace(early)) || !strings.Contains(there.stdout.String(), `"recipeName":"good"`) || !strings.Contains(there.stdout.String(), `"Webhook-Signature"`) || !strings.Contains(there.stdout.String(), `"error":"`) {
		t.Errorf("over the server it ends with %d: %s%s", code, there.said(), there.stdout.String())
	}
	server.stop()
}
