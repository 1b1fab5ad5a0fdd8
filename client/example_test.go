// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// serveExample starts a server with the recipe greet, for an example.
func serveExample() (c *client.Client, stop func()) {
	t := &exampleT{}
	c = startServer(t).client()
	for _, recipe := range []string{greet, tell} {
		if _, _, err := c.Recipes.Create(context.Background(), []byte(recipe)); err != nil {
			panic(err)
		}
	}
	return c, t.end
}

// exampleT is what a server of the tests needs of a test.
type exampleT struct {
	testing.TB
	ends []func()
}

func (*exampleT) Helper()             {}
func (*exampleT) Fatal(args ...any)   { panic(fmt.Sprint(args...)) }
func (*exampleT) Error(args ...any)   { panic(fmt.Sprint(args...)) }
func (t *exampleT) Cleanup(fn func()) { t.ends = append(t.ends, fn) }
func (t *exampleT) TempDir() string {
	dir, err := os.MkdirTemp("", "roux-example-")
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
func (t *exampleT) end() {
	for i := range t.ends {
		t.ends[len(t.ends)-1-i]()
	}
}

func Example() {
	c, stop := serveExample() // client.New(client.Config{URL: "https://roux.example.com", Key: os.Getenv("ROUX_KEY")})
	defer stop()
	ctx := context.Background()

	started, err := c.Recipes.Execute(ctx, "greet", client.ExecuteRequest{Parameters: map[string]any{"name": "Ana"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := c.Runs.Wait(ctx, started.ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Status, string(run.Outputs))
	// Output: completed {"greeting":"hi Ana"}
}

func ExampleRuns_Events() {
	c, stop := serveExample()
	defer stop()
	ctx := context.Background()

	started, err := c.Recipes.Execute(ctx, "greet", client.ExecuteRequest{Parameters: map[string]any{"name": "Ana"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for e, err := range c.Runs.Events(ctx, started.ID, client.EventOptions{Types: []string{"node.completed", "run.completed"}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.Type)
	}
	// Output:
	// node.completed
	// run.completed
}

// A caller switches on the code of an error, and shows its remedy.
func ExampleProblem() {
	c, stop := serveExample()
	defer stop()

	_, err := c.Recipes.Execute(context.Background(), "greet", client.ExecuteRequest{})
	var p *client.Problem
	switch {
	case errors.Is(err, fault.InputInvalid) && errors.As(err, &p):
		fmt.Println(p.Status, fault.Message(err))
		fmt.Println(strings.Split(fault.RemedyOf(err), ";")[0])
	case err != nil:
		fmt.Println(err)
	}
	// Output:
	// 422 input: missing property "name"
	// Correct the input the message names
}

func ExampleRuns_List() {
	c, stop := serveExample()
	defer stop()
	ctx := context.Background()

	for _, name := range []string{"Ana", "Bo"} {
		if _, err := c.Recipes.Execute(ctx, "greet", client.ExecuteRequest{Parameters: map[string]any{"name": name}, Labels: map[string]string{"for": name}}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for run, err := range c.Runs.List(ctx, client.RunQuery{Recipe: "greet"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(run.RecipeName, run.Labels["for"])
	}
	// Output:
	// greet Bo
	// greet Ana
}

func ExampleFiles_Upload() {
	c, stop := serveExample()
	defer stop()
	ctx := context.Background()

	f, err := c.Files.Upload(ctx, strings.NewReader("some text"), client.UploadOptions{Name: "some.txt"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Name, f.SizeBytes, f.MimeType)
	// Output: some.txt 9 text/plain
}
