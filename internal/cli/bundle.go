// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/bundle"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// An exported is the result of export.
type exported struct {
	*bundle.Manifest
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

func (a *app) exportCommand() *cobra.Command {
	var out string
	var redact, force bool
	cmd := &cobra.Command{
		Use:   "export RUN",
		Short: "Write a run into one file, to keep or to share",
		Long: "Write a run, with the child runs below it, into one file: their plans and their whole journals. `roux import` reads it on another machine, where every command " +
			"that looks at runs works on it. With --redact every text that passed through the run (inputs, outputs, logs, messages) is " +
			"replaced; the recipe, numbers, times and codes stay. Files that the run names are not included.",
		Example: "roux export @last\nroux export @last-failed --redact --out bug.roux.zip",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				head, err := a.findRun(ctx, j, args[0])
				if err != nil {
					return err
				}
				if out == "" {
					out = head.Run + bundle.Ext
				}
				a.sayImported(head)
				done, err := a.export(ctx, j, head, out, redact, force)
				if err != nil {
					return err
				}
				if out != "-" {
					a.show(done, func() {
						a.text("%s: %s%s, %d events, %s\n", view.OneLine(done.File), done.Run, andBelow(done.Runs), done.Events, view.Bytes(done.Bytes))
					})
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&out, "out", "O", "", "file to write (default RUN"+bundle.Ext+"); - is standard output")
	cmd.Flags().BoolVar(&redact, "redact", false, "replace every text that passed through the run")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return cmd
}

// andBelow counts the runs below that of a bundle.
func andBelow(n int) string {
	if n == 0 {
		return ""
	}
	return " with " + view.Count(n, "child run")
}

// export writes the bundle, to standard output or as a file.
func (a *app) export(ctx context.Context, j store.Reader, head store.Head, path string, redact, force bool) (*exported, error) {
	if path == "-" {
		if _, terminal := a.stdoutColumns(); terminal {
			return nil, fault.New(fault.Usage, "a bundle is no text for a terminal: name a file with --out, or pipe it on")
		}
		_, err := bundle.Write(ctx, j, head, a.stdout, redact)
		return nil, err
	}
	root, base, err := userfile.OpenParent(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	d, err := userfile.NewAtomic(root, base, path, 0o600, force)
	if err != nil {
		return nil, err
	}
	defer d.Discard()
	m, err := bundle.Write(ctx, j, head, d, redact)
	if err != nil {
		return nil, err
	}
	size, err := d.Size()
	if err != nil {
		return nil, err
	}
	if err := d.Place(); err != nil {
		return nil, err
	}
	return &exported{Manifest: m, File: path, Bytes: size}, nil
}

// readBundle reads a bundle that the user names.
func readBundle(path string, unverified bool) (*bundle.Bundle, error) {
	f, err := userfile.Open(path, fault.FileNotFound)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, userfile.OpenError(path, fault.FileNotFound, err)
	}
	return bundle.Read(f, info.Size(), path, unverified)
}
