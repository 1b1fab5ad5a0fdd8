// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/roux-engine/roux"
)

func main() {
	roux.Dispatch() // lets actions parse files in a child process
	if len(os.Args) != 3 {
		log.Fatal("usage: headlines RECIPE INPUT")
	}
	if err := run(context.Background(), "data", os.Args[1], os.Args[2], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run runs the recipe of a file with an input in JSON, and prints the result.
func run(ctx context.Context, dir, name, input string, out io.Writer) error {
	recipe, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	req := roux.Request{Recipe: recipe, Source: name}
	if err := json.Unmarshal([]byte(input), &req.Input); err != nil {
		return fmt.Errorf("input %s: %w", input, err)
	}
	e, err := roux.Open(ctx, roux.Options{Dir: dir, Actions: actions})
	if err != nil {
		return err
	}
	defer e.Close()
	id, err := e.Start(ctx, req)
	if err != nil {
		return err
	}
	result, err := e.Wait(ctx, id)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, result.Status, string(result.Outputs))
	return nil
}
