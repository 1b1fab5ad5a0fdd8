// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/conform"
	"github.com/roux-engine/roux/internal/view"
)

// whatConforms is what a worker has to do to be checked.
const whatConforms = `Check that a program is a remote worker. A server of its own, in a temporary directory and on loopback, gives it tasks, loses answers, restarts and cancels runs; the program is started several times, stopped and killed.

The program gets ROUX_SERVER, ROUX_KEY (a key with the role worker) and ROUX_QUEUE=conform, and carries out at least two tasks at once, of these actions:

  conform-echo      returns its input
  conform-fail      fails with the code, the message and the outcomeUnknown of its input; without a code it raises an error of the language with that message
  conform-progress  reports the progress 0.25, 0.5 and 0.75, the log line "a line of the log", the pieces of text a, b and c, and the preview {"so": "far"}, and returns {"done": true}
  conform-slow      returns {"slept": MS} after the milliseconds "ms" of its input, or when it is cancelled
  conform-file      reads the file with the hash "file" of its input, stores its content in upper case as another one, and returns {"size": BYTES, "upper": HASH}
  conform-key       returns effectKey, attempt, account, run and step of its task
  conform-submit    has submitted the job "job" of its input to the provider conform, which may take 600 s
  conform-big       returns {"text": …} with as many bytes as "bytes" of its input says

It asks for these actions by name, since the queue has another one. The protocol is in docs/workers.md. It takes a minute.`

// A conformance is what was found.
type conformance struct {
	Cases  []conform.Case `json:"cases"`
	Passed int            `json:"passed"`
	Failed int            `json:"failed"`
}

func (a *app) workerConformCommand() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "conform [flags] -- COMMAND [ARGUMENT...]",
		Short: "Check that a program is a remote worker",
		Long:  whatConforms,
		Example: `roux worker conform -- python3 workers/python/conform.py
roux worker conform --case drain --case kill -- ./my-worker --verbose
roux worker conform -o json -- node conform.js`,
		Args: wants(1, -1, "-- COMMAND [ARGUMENT...]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.interruptible(cmd.Context(), func(ctx context.Context) error { return a.conform(ctx, args, only) })
		},
	}
	cmd.Flags().StringSliceVar(&only, "case", nil, "check only this case (repeatable; default: all)")
	completeFlag(cmd, "case", conform.Names)
	return cmd
}

// conform checks a worker, and shows each case when it is decided.
func (a *app) conform(ctx context.Context, command, only []string) error {
	out := conformance{Cases: []conform.Case{}}
	cfg := conform.Config{Command: command, Only: only, Output: a.stderr, Tell: func(c conform.Case) {
		if c.OK {
			out.Passed++
		} else {
			out.Failed++
		}
		if a.output == asTable {
			a.text("%s", caseLine(&c))
		}
	}}
	cases, err := conform.Run(ctx, cfg)
	if err != nil {
		return err
	}
	out.Cases = append(out.Cases, cases...)
	a.show(out, func() { a.say("%d of %d cases passed", out.Passed, len(out.Cases)) })
	if out.Failed > 0 {
		return exit(fault.ExitFailed)
	}
	return nil
}

// caseLine is a line of a case: what the worker had to do, and what came instead.
func caseLine(c *conform.Case) string {
	if c.OK {
		return "✓ " + c.Name + ": " + c.Want + "\n"
	}
	return "✗ " + c.Name + ": " + c.Want + "; but " + view.OneLine(c.Got) + "\n"
}
