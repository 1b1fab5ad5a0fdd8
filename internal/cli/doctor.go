// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// A finding is what doctor says of one thing.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, note, problem or fixed
	Text   string `json:"text"`
	Fix    string `json:"fix,omitempty"`
}

// What a finding can be. A note does not make doctor fail.
const (
	isOK      = "ok"
	isNote    = "note"
	isProblem = "problem"
	isFixed   = "fixed"
)

// A doctor gathers findings. mend says that what can be mended is.
type doctor struct {
	app  *app
	ctx  context.Context
	mend bool
	dir  string
	list []finding
}

func (d *doctor) ok(check, format string, args ...any) {
	d.list = append(d.list, finding{check, isOK, fmt.Sprintf(format, args...), ""})
}

func (d *doctor) note(check, fix, format string, args ...any) {
	d.list = append(d.list, finding{check, isNote, fmt.Sprintf(format, args...), fix})
}

func (d *doctor) problem(check, fix, format string, args ...any) {
	d.list = append(d.list, finding{check, isProblem, fmt.Sprintf(format, args...), fix})
}

// mended runs a repair when --fix says so, and tells what came of it.
func (d *doctor) mended(check, fix, text string, repair func() error) {
	if !d.mend {
		d.problem(check, fix+", or `roux doctor --fix`", "%s", text)
		return
	}
	if err := repair(); err != nil {
		d.problem(check, fix, "%s; mending it failed: %v", text, err)
		return
	}
	d.list = append(d.list, finding{check, isFixed, text, ""})
}

// fail is a problem that an error tells, with its remedy.
func (d *doctor) fail(check string, err error) {
	d.problem(check, fault.RemedyOf(err), "%s", fault.Message(err))
}

func (a *app) doctorCommand() *cobra.Command {
	var mend bool
	var into string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, the data directory and what is in it",
		Long: "Check this machine, the data directory and what is in it, and say how to mend what is wrong. Exit code 1 when something is. " +
			"It reads the whole store; while another command holds the data directory, that part is left out.\n\n" +
			"--salvage is for a data directory that is refused as damaged: it makes a new one of every run that verifies however its log is read, names those that do not, " +
			"and changes nothing in the old one.",
		Example:     "roux doctor\nroux doctor --fix\nroux doctor -o json\nroux doctor --salvage saved",
		Annotations: map[string]string{"config": "lenient"},
		Args:        wants(0, 0, "[--fix | --salvage DIR]"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if into != "" {
				return a.salvage(cmd.Context(), into)
			}
			d := &doctor{app: a, ctx: cmd.Context(), mend: mend}
			d.machine()
			d.settings()
			d.data()
			d.parser()
			a.show(d.list, func() { a.printFindings(d.list) })
			for _, f := range d.list {
				if f.Status == isProblem {
					return exit(fault.ExitFailed)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&mend, "fix", false, "mend what can be mended without losing anything")
	cmd.Flags().StringVar(&into, "salvage", "", "make a new data `directory` of what verifies in a damaged one")
	cmd.MarkFlagsMutuallyExclusive("fix", "salvage")
	return cmd
}

// signs are how findings look, each with a glyph and a word.
var signs = map[string]string{isOK: "completed", isNote: "waiting", isProblem: "failed", isFixed: "completed"}

func (a *app) printFindings(list []finding) {
	rows := make([][]string, len(list))
	problems := 0
	for i, f := range list {
		rows[i] = []string{term.Glyph(signs[f.Status]) + " " + f.Status, f.Check, view.OneLine(f.Text)}
		if f.Status == isProblem {
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
