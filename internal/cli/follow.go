// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

const (
	// grace is how long an engine that stops waits for attempts to return.
	grace = 5 * time.Second
	// redraw is the time between two drawings of a live tree.
	redraw = 100 * time.Millisecond
)

// A watcher calls fn for the committed events of a run, from after+1 on, until the
// run or the context has ended or fn fails. fn does not keep an event.
type watcher func(ctx context.Context, run string, after uint64, fn func(*journal.Event) error) error

// A followed is a run that is shown while it runs.
type followed struct {
	id   string
	plan *plan.Plan
	skip uint64 // events up to this number are old
	view *view.Run
	mask *view.Mask // nil = nothing is hidden but what its own recipe marks
	err  error

	into  string // directory for the files of its outputs; "" when they are not saved
	saved []saved
}

// An update is an event of a followed run, an error in showing it, or the end of
// its events.
type update struct {
	run *followed
	ev  journal.Event
	end bool
	err error
}

// follow shows runs until all have ended. It returns earlier at the first Ctrl-C,
// with interrupted set, and when the store fails.
func (a *app) follow(ctx context.Context, watch watcher, interrupts <-chan os.Signal, failed <-chan error, runs []*followed) (interrupted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := make(chan update, 256)
	for _, r := range runs {
		r.view = view.NewRun(r.plan, r.id)
		mask := cmp.Or(r.mask, view.NewMask(r.plan))
		go func() {
			err := a.contained(r.id, func() error {
				return watch(ctx, r.id, 0, func(ev *journal.Event) error {
					u := update{run: r}
					u.err = a.contained(r.id, func() error { u.ev = *mask.Event(ev); return nil })
					select {
					case updates <- u:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
			})
			select {
			case updates <- update{run: r, end: true, err: err}:
			case <-ctx.Done():
			}
		}()
	}
	show := a.display(runs)
	defer func() { _ = a.contained("", func() error { show.end(); return nil }) }()
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for open := len(runs); open > 0; {
		select {
		case u := <-updates:
			if u.end && ctx.Err() != nil {
				return true, nil // the end of the wait, and not of the events
			}
			if u.end {
				open--
			}
			switch r := u.run; {
			case r.err != nil: // the run continues without being shown
			case u.end || u.err != nil:
				r.err = u.err
			default:
				r.err = a.contained(r.id, func() error { return a.showEvent(show, r, &u.ev) })
			}
		case <-ticker.C:
			if err := a.contained(runs[0].id, func() error { show.tick(); return nil }); err != nil {
				runs[0].err, show = err, silent{}
			}
		case err := <-failed:
			return false, err
		case <-interrupts:
			return true, nil
		case <-ctx.Done():
			return true, nil
		}
	}
	return false, nil
}

// showEvent applies an event to the view of its run and shows it.
func (a *app) showEvent(show display, r *followed, ev *journal.Event) error {
	if err := r.view.Apply(ev); err != nil {
		return err
	}
	a.logEvent(r, ev)
	switch {
	case ev.Seq > r.skip:
		show.event(r.view, ev)
		return nil
	case ev.Seq == r.skip:
		show.rejoined(r.view)
	}
	if d, ok := show.(*jsonDisplay); ok { // what caused later events is among these
		d.public(r.view).Note(ev)
	}
	return nil
}

// contained calls fn, which shows a run. It returns a panic as an error, because
// the engine is in the same process and carries on other runs (I16).
func (a *app) contained(run string, fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			a.log.Error("a panic was contained", "run", run, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = fault.New(fault.InternalError, "showing run %s panicked; what it did is recorded, and -v has the details", run)
		}
	}()
	return fn()
}

// A display shows followed runs: as a live tree, one line per event, as JSON
// lines, or not at all.
type display interface {
	// rejoined is called once for a run that had started before this command, after the
	// last of its events that are not shown.
	rejoined(v *view.Run)
	event(v *view.Run, ev *journal.Event)
	tick()
	end()
}

func (a *app) display(runs []*followed) display {
	switch {
	case a.output == asLines:
		return &jsonDisplay{a, map[*view.Run]*journal.Renderer{}}
	case a.quiet:
		return silent{}
	case a.screen.Live() && !a.verbose && len(runs) == 1:
		return &treeDisplay{tree: &tree{screen: a.screen, now: a.now, hint: a.hint}, view: runs[0].view}
	case len(runs) == 1:
		return &lineDisplay{a: a}
	}
	return &lineDisplay{a: a, several: true}
}

type silent struct{}

func (silent) rejoined(*view.Run)              {}
func (silent) event(*view.Run, *journal.Event) {}
func (silent) tick()                           {}
func (silent) end()                            {}

// A jsonDisplay prints one envelope per event.
type jsonDisplay struct {
	a    *app
	runs map[*view.Run]*journal.Renderer
}

func (d *jsonDisplay) public(v *view.Run) *journal.Renderer {
	if d.runs[v] == nil {
		d.runs[v] = journal.NewRenderer(v.Plan, v.ID)
	}
	return d.runs[v]
}

func (d *jsonDisplay) event(v *view.Run, ev *journal.Event) { d.a.encode(d.public(v).Render(ev)) }
func (d *jsonDisplay) rejoined(*view.Run)                   {}
func (d *jsonDisplay) tick()                                {}
func (d *jsonDisplay) end()                                 {}

// A lineDisplay prints one line per event.
type lineDisplay struct {
	a        *app
	several  bool
	unfunded bool // it was said how a run that waits for credits goes on
}

func (d *lineDisplay) event(v *view.Run, ev *journal.Event) {
	line := d.a.eventLine(v.Plan, ev)
	if d.several {
		line = v.ID + "  " + line
	}
	d.a.screen.Print(line + "\n")
	if !d.unfunded && v.Unfunded() != nil {
		d.unfunded = true
		d.a.say("  it goes on after a grant: `%s` says how many credits it needs", d.a.hint("explain", v.ID))
	}
}

func (d *lineDisplay) rejoined(v *view.Run) {
	d.a.screen.Print(fmt.Sprintf("%s %s goes on after event %d%s\n", view.OneLine(v.Recipe), v.ID, v.Events, v.Open()))
}
func (d *lineDisplay) tick() {}
func (d *lineDisplay) end()  {}

type treeDisplay struct {
	tree  *tree
	view  *view.Run
	dirty bool
}

func (d *treeDisplay) rejoined(*view.Run)              { d.dirty = true }
func (d *treeDisplay) event(*view.Run, *journal.Event) { d.dirty = true }

func (d *treeDisplay) tick() {
	if d.dirty || !d.view.Done() {
		d.tree.draw(d.view)
		d.dirty = false
	}
}

func (d *treeDisplay) end() {
	d.tree.draw(d.view)
	d.tree.frame.Forget()
}

// interrupts delivers SIGINT and SIGTERM until stop is called. Until then they do
// not end the process.
func interrupts() (c <-chan os.Signal, stop func()) {
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	return ch, func() { signal.Stop(ch) }
}

// hint returns a command line for the user, with --data when the user gave it, and
// with --account when that is not the default one.
func (a *app) hint(command, run string) string {
	words := view.Join(" ", "roux", command, run)
	if a.target != nil {
		words += a.aimHint()
	} else if a.data != "" {
		words += " --data " + term.ShellQuote(a.data)
	}
	if a.target == nil && a.account != config.Account || a.target != nil && a.accountGiven {
		words += " --account " + a.account
	}
	return words
}
