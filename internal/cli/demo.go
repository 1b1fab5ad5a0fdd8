// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/examples"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// demoSave is the directory for the files that the runs of the demo make.
const demoSave = "made"

// A demo runs examples in a directory of its own.
type demo struct {
	*app
	dir  string
	runs []*followed
}

// A demoResult is the result of the demo.
type demoResult struct {
	Dir  string    `json:"dir"`
	Runs []demoRun `json:"runs"`
	// Crash is set by --crash.
	Crash *crashed `json:"crash,omitempty"`
}

type demoRun struct {
	result
	Recipe string `json:"recipe"`
}

// A crashed reports what the journal has of a run whose process was killed.
type crashed struct {
	Pid         int    `json:"pid"`
	KilledAfter string `json:"killedAfter"`  // the last event that was seen
	Before      uint64 `json:"eventsBefore"` // stored when the process died
	Interrupted int64  `json:"attemptsInterrupted"`
	Repeated    int    `json:"stepsDoneTwice"`
	Same        bool   `json:"replayEqualsStore"`
}

func (a *app) demoCommand() *cobra.Command {
	var crash bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show what Roux does: two recipes on real files, a failure, and with --crash a kill",
		Long: "Show what Roux does, without network, account or key: a PDF becomes a digest and a photo becomes a pack of pictures. One " +
			"failure is injected and retried. With --crash the process that works on the photo is killed with SIGKILL, and its run goes " +
			"on where it was. Everything happens in a new directory, which is kept.",
		Example: "roux demo\nroux demo --crash",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.newDemo()
			if err != nil {
				return err
			}
			out := &demoResult{Dir: d.dir}
			if crash {
				out.Crash, err = d.crash(cmd.Context())
			} else {
				err = d.tour(cmd.Context())
			}
			if err != nil {
				return err
			}
			for _, r := range d.runs {
				res := resultOf(r.view)
				res.Saved = r.saved
				out.Runs = append(out.Runs, demoRun{res, r.view.Recipe})
			}
			a.show(out, func() { d.statement(out) })
			for _, r := range d.runs {
				if code := exitOf(r.view); code != fault.ExitOK {
					return exit(code)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&crash, "crash", false, "kill the process in the middle of a run, and go on")
	return cmd
}

// newDemo makes the directory with the files of the examples. The data directory is
// in it, under the name that commands look for.
func (a *app) newDemo() (*demo, error) {
	a.account = config.Account // whose runs cost nothing
	dir, err := os.MkdirTemp("", "roux-demo-")
	if err != nil {
		return nil, datadir.Error(os.TempDir(), err)
	}
	p, err := userfile.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	for _, name := range []string{"document-digest", "photo-pack"} {
		e, ok := examples.Find(name)
		if !ok {
			return nil, fault.New(fault.InternalError, "the example %s is missing in this build", name)
		}
		for _, f := range append([]string{e.Recipe}, e.Files...) {
			text, err := examples.Read(f)
			if err == nil {
				_, err = p.Offer(path.Base(f), text, true)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	a.data = filepath.Join(dir, config.LocalDir)
	a.say("everything happens in %s, which is kept", dir)
	return &demo{app: a, dir: dir}, nil
}

// tour runs both examples. One step fails once.
func (d *demo) tour(ctx context.Context) error {
	d.built = d.built.With(failsOnce(d.list, "pdf-to-markdown")...)
	d.actions = d.built.Catalogue
	d.say("\n1 of 2: a PDF becomes a digest. Its first reading fails, because the demo says so, and is retried.")
	if err := d.scene(ctx, "document-digest.yaml", "report.pdf"); err != nil {
		return err
	}
	d.say("\n2 of 2: a photo becomes four pictures at once, upright and without the place where it was taken.")
	return d.scene(ctx, "photo-pack.yaml", "photo.jpg")
}

// failsOnce returns the named actions, changed so that the first attempt of a step
// fails.
func failsOnce(list []action.Action, names ...string) []action.Action {
	var out []action.Action
	for _, act := range list {
		if !slices.Contains(names, act.Name) {
			continue
		}
		run := act.Run
		act.Run = func(ctx context.Context, t *action.Task) (action.Result, error) {
			if t.Attempt == 1 {
				return action.Result{}, fault.New(fault.ServiceUnavailable, "injected for the demo")
			}
			return run(ctx, t)
		}
		out = append(out, act)
	}
	return out
}

// scene runs one recipe on one file and saves its outputs.
func (d *demo) scene(ctx context.Context, recipe, file string) error {
	c, err := d.compileFile(filepath.Join(d.dir, recipe), defaultSource)
	if err != nil {
		return err
	}
	f, err := userfile.Open(filepath.Join(d.dir, file), fault.FileNotFound)
	if err != nil {
		return err
	}
	defer f.Close()
	sigs, unhook := interrupts()
	defer unhook()
	h, err := d.openHost(ctx, nil)
	if err != nil {
		return err
	}
	defer h.abandon()
	info, err := h.PutFile(ctx, f, file)
	if err != nil {
		return datadir.Error(h.dir, err)
	}
	run, err := h.start(ctx, c, nil, []action.FileInfo{info}, payment{})
	if err != nil {
		return h.refused(err)
	}
	return d.watch(ctx, h, sigs, &followed{id: run, plan: c.plan})
}

// watch follows a run to its end, saves its outputs and closes the host.
func (d *demo) watch(ctx context.Context, h *host, sigs <-chan os.Signal, r *followed) error {
	interrupted, err := d.follow(ctx, h.watch, sigs, h.failed, []*followed{r})
	switch {
	case err != nil:
		return h.lost(err)
	case interrupted:
		return d.interrupted(ctx, h, sigs, []*followed{r})
	case r.err != nil:
		return d.broken(h, r)
	}
	r.into = filepath.Join(d.dir, demoSave)
	if r.saved, err = d.saveOutputs(ctx, h, r.view, r.into); err != nil {
		return err
	}
	d.runs = append(d.runs, r)
	return h.finish(sigs)
}

// crash runs the photo pack in another process, kills that process in the middle
// of the run, and resumes the run in this one.
func (d *demo) crash(ctx context.Context) (*crashed, error) {
	d.say("\na photo becomes four pictures in another process, which is killed when the first one is done")
	c, run, err := d.killInTheMiddle(ctx)
	if err != nil {
		return nil, err
	}
	d.say("\nprocess %d was killed with SIGKILL after %s; this one goes on with what it left", c.Pid, c.KilledAfter)
	sigs, unhook := interrupts()
	defer unhook()
	var head store.Head
	h, err := d.openHost(ctx, func(ctx context.Context, r store.Reader) (_ []store.Head, err error) {
		if head, err = d.findRun(ctx, r, run); err != nil {
			return nil, err
		}
		c.Before, err = lastEvent(ctx, r, head.Key)
		return []store.Head{head}, err
	})
	if err != nil {
		return nil, err
	}
	defer h.abandon()
	p, err := store.LoadPlan(ctx, h, head)
	if err != nil {
		return nil, err
	}
	if err := d.watch(ctx, h, sigs, &followed{id: run, plan: p, skip: c.Before}); err != nil {
		return nil, err
	}
	return c, d.check(ctx, c, run)
}

// killInTheMiddle starts `roux run` and kills it when it reports the first picture,
// while the others are in progress.
func (d *demo) killInTheMiddle(ctx context.Context) (*crashed, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", fault.Wrap(fault.InternalError, err, "this program cannot start itself: %v", err)
	}
	child := exec.CommandContext(ctx, self)
	child.Args = []string{"roux", "run", filepath.Join(d.dir, "photo-pack.yaml"), "--file", filepath.Join(d.dir, "photo.jpg"), "--data", d.data, "--account", d.account, "-o", "jsonl"}
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		return nil, "", fault.Wrap(fault.InternalError, err, "this program cannot start itself: %v", err)
	}
	c, run := &crashed{Pid: child.Process.Pid}, ""
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		var ev journal.Envelope
		if err != nil || json.Unmarshal(line, &ev) != nil {
			_ = child.Process.Kill() // it may have ended
			_ = child.Wait()         // how does not matter here
			return nil, "", fault.New(fault.InternalError, "the other process ended before it could be killed; run the demo again")
		}
		step, _ := ev.Payload["step"].(string)
		run = ev.RunID
		d.say("  process %d: %s", c.Pid, view.Join(" ", ev.Type, view.OneLine(step)))
		if ev.Type == "node.completed" && strings.HasPrefix(step, "make[") {
			c.KilledAfter = ev.Type + " " + step
			break
		}
	}
	err = child.Process.Kill()
	_, _ = io.Copy(io.Discard, out) // further output does not matter
	if waitErr := child.Wait(); err == nil && waitErr == nil {
		err = errors.New("it had ended by itself")
	}
	if err != nil {
		return nil, "", fault.Wrap(fault.InternalError, err, "process %d could not be killed in time (%v): run the demo again", c.Pid, err)
	}
	return c, run, nil
}

// check reads the effects of the crash from the journal.
func (d *demo) check(ctx context.Context, c *crashed, run string) error {
	return d.reading(ctx, func(ctx context.Context, j store.Reader) error {
		head, err := d.findRun(ctx, j, run)
		if err != nil {
			return err
		}
		var found view.Recovery
		err = store.EachEvent(ctx, j, head.Key, 0, found.Apply)
		c.Interrupted, c.Repeated = found.Interrupted, found.Repeated
		if err != nil {
			return err
		}
		r, err := replay(ctx, j, head, 0)
		if err == nil {
			c.Same = r.Same
		}
		return err
	})
}

// statement prints what was made, what it cost and what to try next.
func (d *demo) statement(out *demoResult) {
	if c := out.Crash; c != nil {
		d.text("\nthe crash\n")
		d.text("  %d events were stored when the process died, %s interrupted and attempted again\n", c.Before, view.Count(int(c.Interrupted), "attempt"))
		if c.Repeated == 0 {
			d.text("  no step was done twice, and no credit taken twice\n")
		} else {
			d.text("  %s done twice\n", view.Count(c.Repeated, "step"))
		}
		if c.Same {
			d.text("  folding the journal again gives the state that is stored\n")
		}
	}
	d.text("\nmade\n")
	for _, r := range d.runs {
		if digest, ok := view.Decoded(r.view.Outputs).(map[string]any); ok && digest["digest"] != nil {
			d.text("  %s\n", view.Brief(view.RawOf(digest["digest"])))
		}
		for _, f := range r.saved {
			d.text("  %s\n", view.OneLine(f.Path))
		}
	}
	d.text("\ncredits\n")
	rows, total := [][]string{}, int64(0)
	for _, r := range d.runs {
		for _, s := range r.view.Order {
			if s.Cost > 0 {
				rows = append(rows, []string{"  " + view.OneLine(r.view.Recipe), view.OneLine(s.Path), tries(s.Attempts), fmt.Sprintf("%3s", s.Cost)})
			}
		}
		total += r.view.Used()
	}
	d.text("%s", term.Table(append(rows, []string{"  total", "", "", fmt.Sprintf("%3d", total)})))
	d.text("\nwhat to try next\n  cd %s\n  roux trace @last --flame\n  roux graph @last\n  roux init my --example receipts\n", term.ShellQuote(d.dir))
}

func tries(n uint32) string {
	if n > 1 {
		return fmt.Sprintf("%d tries", n)
	}
	return ""
}
