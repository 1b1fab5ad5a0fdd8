// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// The page shows the program that is compiled here.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../service.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := func(text []byte) string { return strings.ReplaceAll(string(text), "\r\n", "\n") }
	_, code, _ := strings.Cut(lines(program), "\n\n")
	if !strings.Contains(lines(page), "\n```go\n// main.go\n"+code+"```\n") {
		t.Errorf("docs/service.md does not show the program:\n%s", code)
	}
}

// The program serves a recipe, refuses who has no key, ends when it is told to, and has the key
// and the recipe when it starts again.
func TestProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	key := ""
	for _, when := range []string{"first", "again"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		said, out := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			err := serve(ctx, dir, ln, out)
			ended <- errors.Join(err, out.Close())
		}()
		if when == "first" {
			line, err := bufio.NewReader(said).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			key = strings.TrimPrefix(strings.TrimSpace(line), "first key: ")
		}
		use := func(key string) *client.Client {
			c, err := client.New(client.Config{URL: "http://" + ln.Addr().String(), Key: key})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			return c
		}
		c := use(key)
		_, created, err := c.Recipes.Create(t.Context(), []byte("name: two\nversion: 1.0.0\nsteps: [{id: two, transform: {expression: 1 + 1, outputBinding: sum}}]\n"))
		if err != nil || created != (when == "first") {
			t.Fatalf("%s: created is %t, %v", when, created, err)
		}
		started, err := c.Recipes.Execute(t.Context(), "two", client.ExecuteRequest{})
		if err != nil {
			t.Fatal(err)
		}
		last := ""
		for ev, err := range c.Runs.Events(t.Context(), started.ID, client.EventOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			last = ev.Type
		}
		if last != "run.completed" {
			t.Errorf("%s: the run ends with %q", when, last)
		}
		if _, err := use(key + "x").Me(t.Context()); fault.CodeOf(err) != fault.Unauthorized {
			t.Errorf("%s: another key: %v", when, err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}
