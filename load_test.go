// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/fault"
)

// The recipes of a directory are read and checked, each with those beside it.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "recipes")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{
		"a.yaml": "name: a\nsteps: [{recipe: {file: b.yaml}}]\n",
		"b.yaml": "name: b\nsteps: [{transform: {expression: 1 +}}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	list, err := roux.Load(context.Background(), dir)
	if err != nil {
		log.Fatal(err)
	}
	for _, def := range list {
		_, err := roux.Check(def, "")
		fmt.Println(def.Name, fault.CodeOf(err))
	}
	// Output:
	// a RECIPE_INVALID
	// b RECIPE_INVALID
}

// A recipe that nothing is registered under is found before anything runs.
func ExampleCheck() {
	def := roux.Definition{Text: []byte("name: loop\nversion: 1.0.0\nsteps: [{recipe: {inline: {name: in, steps: [{recipe: {ref: gone}}]}}}]\n")}
	diags, err := roux.Check(def, "")
	fmt.Println(fault.CodeOf(err))
	fmt.Println(diags[0].Msg)
	// Output:
	// RECIPE_NOT_FOUND
	// no recipe "gone" is registered: there is no directory ./recipes; --recipes names another one
}

// A source from outside without its hash is refused, and so is an address that is not public (X201, X241).
func TestLoadOutside(t *testing.T) {
	if _, err := roux.Load(t.Context(), "https://127.0.0.1:1/r.yaml"); fault.CodeOf(err) != fault.EgressRefused {
		t.Errorf("loopback: %v", err)
	}
	if _, err := roux.Load(t.Context(), "git+ssh://example.com/r"); fault.CodeOf(err) != fault.Usage {
		t.Errorf("ssh: %v", err)
	}
	if _, err := roux.Load(t.Context(), filepath.Join(t.TempDir(), "gone.yaml")); fault.CodeOf(err) != fault.RecipeNotFound {
		t.Errorf("gone: %v", err)
	}
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Start(t.Context(), roux.Request{Ref: "gone"}); fault.CodeOf(err) != fault.RecipeNotFound {
		t.Errorf("an unknown reference: %v", err)
	}
	if _, err := e.Start(t.Context(), roux.Request{Ref: "gone", Recipe: []byte("x")}); !strings.Contains(fault.Message(err), "want one of them") {
		t.Errorf("both: %v", err)
	}
}
