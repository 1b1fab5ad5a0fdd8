// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/doctor"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// salvage makes a new data directory of what verifies in a damaged one, which it
// leaves as it is.
func (a *app) salvage(ctx context.Context, to string) error {
	from, err := a.config.DataDir()
	if err != nil {
		return err
	}
	if err := datadir.MustExist(from); err != nil {
		return err
	}
	if to, err = doctor.EmptyDir(to, from); err != nil {
		return err
	}
	a.say("reading %s; Ctrl-C ends it and changes nothing there", from)
	out, err := doctor.Salvage(ctx, from, to)
	if err != nil {
		return err
	}
	a.show(out, func() { a.printSalvaged(out) })
	if len(out.Damaged) > 0 || len(out.Store) > 0 {
		return exit(fault.ExitFailed)
	}
	return nil
}

func (a *app) printSalvaged(out doctor.Salvaged) {
	a.text("saved %s and %s to %s (the log was read: %s)\n", view.Count(out.Runs, "run"), view.Count(out.Files, "file"), out.Dir, out.Read)
	for _, o := range out.Others {
		a.text("  the log was read %s for %s\n", o.Read, o.Run)
	}
	for _, d := range out.Damaged {
		a.text("  not saved, or not whole: %s: %s\n", d.Run, view.OneLine(d.Why))
	}
	for _, c := range out.Store {
		a.text("  store: %s\n", view.OneLine(c))
	}
	if out.Rest != "" {
		a.say("what can be read of runs that are not saved is in %s: `roux events RUN --data %s`", out.Rest, term.ShellQuote(out.Rest))
	}
	a.say("`roux doctor --data %s` checks it; `roux resume --data %s` goes on with it", term.ShellQuote(out.Dir), term.ShellQuote(out.Dir))
}
