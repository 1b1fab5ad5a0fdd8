// SPDX-License-Identifier: Apache-2.0

// Package doctor checks a machine, a data directory and what is in it, and saves
// runs from a damaged data directory.
//
// It decides what is a problem and how to fix it, and which runs of a damaged store can
// be trusted. It changes a data directory only by repairs that lose nothing, and never
// changes one that it salvages. It prints nothing.
package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/term"
)

// A Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, note, problem or fixed
	Text   string `json:"text"`
	Fix    string `json:"fix,omitempty"`
}

// The values of Finding.Status. Only a problem makes the command fail.
const (
	OK      = "ok"
	Note    = "note"
	Problem = "problem"
	Fixed   = "fixed"
)

// Options are what a check needs to know of the command that runs it.
type Options struct {
	Config    *config.Config
	ConfigErr error // why the configuration is not valid
	Screen    *term.Screen
	Getenv    func(string) string
	Now       func() time.Time
	Version   string // of this build
	Broken    string // why this build is not for use; usually ""
	Fix       bool   // fix what can be fixed without losing anything
	// Say reports what takes long.
	Say func(format string, args ...any)
	// Hint returns a command line for the user, with the data directory in it.
	Hint func(command, run string) string
}

// A checkup collects findings.
type checkup struct {
	Options
	ctx  context.Context
	dir  string // the data directory
	list []Finding
}

// Check checks everything and returns its findings.
func Check(ctx context.Context, opt Options) []Finding { //nolint:gocritic // called once
	d := &checkup{Options: opt, ctx: ctx}
	d.machine()
	d.settings()
	d.data()
	d.parser()
	d.commands()
	return d.list
}

// Contents checks what is in a data directory, whose store is open. Tests use it
// for stores that they keep open.
func Contents(ctx context.Context, opt Options, dir string, st node.Store) []Finding { //nolint:gocritic // called once
	d := &checkup{Options: opt, ctx: ctx, dir: dir}
	d.openStore(st)
	return d.list
}

func (d *checkup) ok(check, format string, args ...any) {
	d.list = append(d.list, Finding{check, OK, fmt.Sprintf(format, args...), ""})
}

func (d *checkup) note(check, fix, format string, args ...any) {
	d.list = append(d.list, Finding{check, Note, fmt.Sprintf(format, args...), fix})
}

func (d *checkup) problem(check, fix, format string, args ...any) {
	d.list = append(d.list, Finding{check, Problem, fmt.Sprintf(format, args...), fix})
}

// repair runs a repair when Fix is set, and adds a finding about it.
func (d *checkup) repair(check, fix, text string, do func() error) {
	if !d.Fix {
		d.problem(check, fix+", or `roux doctor --fix`", "%s", text)
		return
	}
	if err := do(); err != nil {
		d.problem(check, fix, "%s; fixing it failed: %v", text, err)
		return
	}
	d.list = append(d.list, Finding{check, Fixed, text, ""})
}

// fail adds an error as a problem, with its remedy.
func (d *checkup) fail(check string, err error) {
	d.problem(check, fault.RemedyOf(err), "%s", fault.Message(err))
}

// locale returns the setting that decides how characters are encoded.
func (d *checkup) locale() string {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := d.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}
