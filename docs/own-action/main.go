// SPDX-License-Identifier: Apache-2.0

// Command own-action is the program of docs/own-action.md: Roux embedded, with two
// actions of its own.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
)

const recipe = `
name: headline
steps:
  - {id: short, action: {name: shorten, parameters: {text: "{{ input.title }}", most: 12}}}
  - {id: count, action: {name: word-count, parameters: {text: "{{ short.output.text }}"}}}
outputs: {title: short.output.text, words: count.output.words}
`

func main() {
	roux.Dispatch() // lets files be parsed in a process of their own
	if err := run(context.Background(), "data", os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string, out io.Writer) error {
	e, err := roux.Open(ctx, roux.Options{Dir: dir, Actions: []action.Action{shorten, pay}})
	if err != nil {
		return err
	}
	defer e.Close()
	id, err := e.Start(ctx, roux.Request{Recipe: []byte(recipe), Input: map[string]any{"title": "The ferry sails at noon"}})
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
