// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/doctor"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) doctorCommand() *cobra.Command {
	var fix bool
	var into string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, the data directory and what is in it",
		Long: "Check this machine, the data directory and what is in it, and say how to fix what is wrong. The exit code is 1 when something is wrong. " +
			"It reads the whole store; while another command holds the data directory, that part is left out.\n\n" +
			"--salvage is for a data directory that is refused as damaged: it makes a new one of every run that verifies however its log is read, names those that do not, " +
			"and changes nothing in the old one. A binary that was built with -tags small refuses it.",
		Example:     "roux doctor\nroux doctor --fix\nroux doctor -o json\nroux doctor --salvage saved",
		Annotations: map[string]string{"config": "lenient"},
		Args:        wants(0, 0, "[--fix | --salvage DIR]"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if into != "" {
				return a.salvage(cmd.Context(), into)
			}
			list := doctor.Check(cmd.Context(), a.doctorOptions(fix))
			a.show(list, func() { a.printFindings(list) })
			for _, f := range list {
				if f.Status == doctor.Problem {
					return exit(fault.ExitFailed)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "fix what can be fixed without losing anything")
	cmd.Flags().StringVar(&into, "salvage", "", "make a new data directory of what verifies in a damaged one")
	cmd.MarkFlagsMutuallyExclusive("fix", "salvage")
	return cmd
}

// signs maps the status of a finding to the status whose glyph it has.
var signs = map[string]string{doctor.OK: "completed", doctor.Note: "waiting", doctor.Problem: "failed", doctor.Fixed: "completed"}

func (a *app) printFindings(list []doctor.Finding) {
	rows := make([][]string, len(list))
	problems := 0
	for i, f := range list {
		rows[i] = []string{term.Glyph(signs[f.Status]) + " " + f.Status, f.Check, view.OneLine(f.Text)}
		if f.Status == doctor.Problem {
			problems++
		}
	}
	a.text("%s", term.Table(rows))
	for _, f := range list {
		if f.Fix != "" {
			a.text("\n%s: %s\n  %s\n", f.Check, view.OneLine(f.Text), view.OneLine(f.Fix))
		}
	}
	if problems == 0 {
		a.say("nothing is wrong")
		return
	}
	a.say("%s", view.Count(problems, "problem"))
}

func (a *app) doctorOptions(fix bool) doctor.Options {
	b := thisBuild()
	opt := doctor.Options{
		Config: a.config, ConfigErr: a.configErr, Screen: a.screen, Getenv: a.getenv, Now: a.now, Fix: fix, Say: a.say, Hint: a.hint,
		Version: view.Join(" ", "roux", b.Version, view.Cut(b.Commit, 12), fmt.Sprintf("(%s, %s/%s, %d cores)", b.Go, b.OS, b.Arch, runtime.NumCPU())),
	}
	if b.Removable {
		opt.Broken = b.broken()
	}
	return opt
}
