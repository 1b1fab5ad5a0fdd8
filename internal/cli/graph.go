// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/layout"
	"github.com/roux-engine/roux/internal/picture"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// The forms of a picture.
const (
	asSVG     = "svg"
	asMermaid = "mermaid"
	asDOT     = "dot"
	asASCII   = "ascii"
)

// mostDrawn is the number of steps beyond which a picture is an overview, unless
// --full is set.
const mostDrawn = 200

var pictureForms = []string{asSVG, asMermaid, asDOT, asASCII, asJSON}

// byEnding maps the ending of a file name to the form of a picture.
var byEnding = map[string]string{
	".svg": asSVG, ".mmd": asMermaid, ".mermaid": asMermaid, ".dot": asDOT, ".gv": asDOT, ".txt": asASCII, ".json": asJSON,
}

// A drawing holds the flags of graph.
type drawing struct {
	form, out, direction string
	at                   uint64
	critical, bindings   bool
	full                 bool
	width                int
	limit                int64
}

// graphCommands are the commands that a small binary does not have.
func (a *app) graphCommands() []*cobra.Command { return []*cobra.Command{a.graphCommand()} }

func (a *app) graphCommand() *cobra.Command {
	d := &drawing{limit: defaultSource}
	cmd := &cobra.Command{
		Use:   "graph FILE|RUN",
		Short: "Draw a recipe, or a run and its progress",
		Long: "Draw a recipe, or a run with the status of each step: its tries and time, which way it took and what it waits for. " +
			"On the terminal the picture is text; -o or the ending of --out asks for another form. " +
			"A picture can be made again at any time, so --out replaces a file that is there.",
		Example: `roux graph examples/document-digest.yaml
roux graph examples/document-digest.yaml --out digest.svg
roux graph @last --at 12 -o mermaid`,
		Args: wants(1, 1, "FILE|RUN [-o svg|mermaid|dot|ascii|json] [--out FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("output") {
				d.form = "" // the configured -o is for tables, not for pictures
			}
			if err := d.check(); err != nil {
				return err
			}
			if d.form == asJSON {
				a.output = asJSON
			}
			pic, err := a.pictureOf(cmd.Context(), args[0], d)
			if err != nil {
				return err
			}
			if len(pic.Nodes) > mostDrawn && !d.full && d.form != asJSON {
				steps := len(pic.Nodes)
				pic = pic.Overview()
				a.say("%d steps are drawn on %d cards; --full draws each of them", steps, len(pic.Nodes))
			}
			return a.deliver(pic, d)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&d.form, "output", "o", "", "form of the picture: svg, mermaid, dot, ascii or json (default by the ending of --out, else ascii)")
	flags.StringVarP(&d.out, "out", "O", "", "write the picture to this file")
	flags.StringVar(&d.direction, "direction", "down", "where edges lead: down or right")
	flags.Uint64Var(&d.at, "at", 0, "draw the run as it was after this event (default the last)")
	flags.BoolVar(&d.critical, "critical", false, "mark the critical path of a finished run")
	flags.BoolVar(&d.bindings, "bindings", false, "also draw which step reads the output of which")
	flags.BoolVar(&d.full, "full", false, fmt.Sprintf("draw every step; else more than %d become an overview", mostDrawn))
	flags.IntVar(&d.width, "width", 0, "columns of the text form (default those of the terminal, else 120)")
	a.sourceFlags(cmd, &d.limit)
	completeFlag(cmd, "output", func() []string { return pictureForms })
	completeFlag(cmd, "direction", func() []string { return []string{"down", "right"} })
	return cmd
}

func (d *drawing) check() error {
	ending := strings.ToLower(filepath.Ext(d.out))
	switch {
	case d.form != "" && !slices.Contains(pictureForms, d.form):
		return fault.New(fault.Usage, "-o %s: want svg, mermaid, dot, ascii or json", view.OneLine(d.form))
	case d.form == "" && d.out == "":
		d.form = asASCII
	case d.form == "":
		if d.form = byEnding[ending]; d.form == "" {
			return fault.New(fault.Usage, "--out %s: the ending %q names no form; add -o svg, mermaid, dot, ascii or json", view.OneLine(d.out), ending)
		}
	}
	if d.direction != "down" && d.direction != "right" {
		return fault.New(fault.Usage, "--direction %s: want down or right", view.OneLine(d.direction))
	}
	if d.width != 0 && (d.width < 40 || d.width > 1_000) {
		return fault.New(fault.Usage, "--width %d: want 40 to 1000 columns", d.width)
	}
	return nil
}

// namesRun reports whether an argument names a run and not a file: @last, an id or
// the beginning of one, unless there is a file of that name.
func namesRun(arg string) bool {
	if strings.HasPrefix(arg, "@") || strings.HasPrefix(arg, "run_") {
		return true
	}
	if arg == "-" || strings.ContainsAny(arg, `./\`) {
		return false
	}
	_, err := os.Stat(arg)
	return errors.Is(err, fs.ErrNotExist)
}

func (a *app) pictureOf(ctx context.Context, arg string, d *drawing) (*picture.Picture, error) {
	if !namesRun(arg) {
		if d.at != 0 || d.critical {
			return nil, fault.New(fault.Usage, "--at and --critical are for a run: %s is a recipe; `roux graph @last` draws the last run", view.OneLine(arg))
		}
		c, err := a.compileFile(arg, d.limit)
		if err != nil {
			if c != nil {
				a.printDiagnostics(a.stderr, c)
				a.shown = true
			}
			return nil, err
		}
		return picture.FromPlan(c.plan, c.recipe.Name, d.bindings), nil
	}
	var pic *picture.Picture
	err := a.reading(ctx, func(ctx context.Context, j store.Reader) error {
		head, err := a.findRun(ctx, j, arg)
		if err != nil {
			return err
		}
		p, err := store.LoadPlan(ctx, j, head)
		if err != nil {
			return err
		}
		f := picture.NewFold(p, d.critical)
		last := uint64(0)
		err = eachShown(ctx, j, head.Key, p, 0, func(ev *journal.Event) error {
			if last = ev.Seq; d.at == 0 || ev.Seq <= d.at {
				f.Add(ev)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if d.at > last {
			return fault.New(fault.Usage, "--at %d: the run has %d events", d.at, last)
		}
		if pic, err = f.Picture(head.Recipe, d.bindings); err == nil && head.Imported() {
			pic.Imported, pic.Note = true, store.ImportedReason+", "+pic.Note
		}
		return err
	})
	return pic, err
}

// deliver writes the picture to standard output or to a file.
func (a *app) deliver(pic *picture.Picture, d *drawing) error {
	o := picture.Options{Width: d.width}
	if d.direction == "right" {
		o.Direction = layout.Right
	}
	if o.Width == 0 {
		o.Width = a.columns(d)
	}
	text, err := render(pic, d.form, o)
	if err != nil {
		return err
	}
	if d.out == "" {
		a.text("%s", text)
		return nil
	}
	root, base, err := userfile.OpenParent(d.out)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := userfile.Replace(root, base, d.out, []byte(text)); err != nil {
		return err
	}
	a.say("wrote %s", view.OneLine(d.out))
	return nil
}

// columns returns the width of the terminal that shows the picture, else 120.
func (a *app) columns(d *drawing) int {
	if columns, ok := a.stdoutColumns(); ok && d.out == "" {
		return columns
	}
	return 120
}

func render(pic *picture.Picture, form string, o picture.Options) (string, error) {
	switch form {
	case asSVG:
		return pic.SVG(o)
	case asMermaid:
		return pic.Mermaid(o), nil
	case asDOT:
		return pic.DOT(o), nil
	case asJSON:
		v, err := pic.View(o)
		if err != nil {
			return "", err
		}
		var b bytes.Buffer
		err = writeJSON(&b, v, true)
		return b.String(), err
	}
	return pic.Text(o)
}
