// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// isBundle reports whether a file begins as bundles do, which no text does. A file that cannot be read is reported where it is
// read.
func isBundle(path string) bool {
	if path == "-" {
		return false
	}
	f, err := userfile.Open(path, fault.FileNotFound)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [4]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && string(head[:2]) == "PK"
}

// importBundle reads a run that export wrote.
func (a *app) importBundle(cmd *cobra.Command, path string, unverified bool) error {
	if err := a.aimAs(cmd, onlyHere); err != nil {
		return err
	}
	b, err := readBundle(path, unverified)
	if err != nil {
		return err
	}
	dir, err := a.config.DataDir()
	if err != nil {
		return err
	}
	st, err := a.openStore(cmd.Context(), dir)
	if err != nil {
		return err
	}
	state, err := b.Commit(cmd.Context(), st, a.account)
	if err = errors.Join(err, datadir.Error(dir, st.Close())); err != nil {
		return err
	}
	a.show(map[string]any{"id": b.Run, "recipe": b.Recipe, "status": b.State.Status().String(), "events": b.State.Last(), "runs": b.Runs, "state": state, "verified": !b.Unverified}, func() {
		a.text("%s%s %s: %s, %s, %d events\n", b.Run, andBelow(b.Runs), state, view.OneLine(b.Recipe), b.State.Status(), b.State.Last())
	})
	return nil
}
