// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

const (
	topInterval = 2 * time.Second
	minInterval = 100 * time.Millisecond
	// mostActions is how many actions are listed.
	mostActions = 5
)

func (a *app) topCommand() *cobra.Command {
	t := &top{a: a, interval: topInterval}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what a server or a data directory does right now",
		Long: "Show what a server, or the process that holds the data directory, does right now, and again every two seconds until Ctrl-C: runs that have not ended, attempts and " +
			"their limits, commits, what waits, memory, the accounts with most runs and what has failed last. Rates are those of the last ten seconds. " +
			"A terminal is redrawn in place; elsewhere, and with CI=1, each state follows the one before. Nothing happens in a directory that no process holds: its runs are counted once. " +
			"Over a server the key needs the role admin.",
		Example: "roux top\nroux top --interval 10s\nroux top --once -o json",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if t.interval < minInterval {
				return fault.New(fault.Usage, "--interval %s: want at least %s", t.interval, minInterval)
			}
			return t.run(cmd.Context())
		},
	}
	cmd.Flags().DurationVar(&t.interval, "interval", t.interval, "time between two looks, such as 10s")
	cmd.Flags().BoolVarP(&t.once, "once", "n", false, "show it once")
	return cmd
}

// A top shows what a server does.
type top struct {
	a        *app
	interval time.Duration
	once     bool
	frame    *term.Frame // nil = what is shown is not redrawn in place
	of       string      // what is looked at: a URL or a directory
	lines    []string    // the last drawing
}

func (t *top) run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := t.a
	if screen := term.NewScreen(a.stdout, !a.screen.Coloured(), a.getenv); screen.Live() && !t.once && !a.forPrograms() {
		t.frame = &term.Frame{Screen: screen}
	}
	for first := true; ; first = false {
		v, err := t.look(ctx)
		switch {
		case ctx.Err() != nil:
		case !first && a.target != nil && errors.Is(err, fault.ServerUnreachable):
			t.trouble(err) // it may come back
		case err != nil:
			return err
		default:
			t.show(v, first)
		}
		if err == nil && (t.once || v.AtRest) {
			return nil
		}
		if ctx.Err() == nil && pause(ctx, t.interval) {
			continue
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err() // --timeout
		}
		return nil // the user has interrupted the command
	}
}

// look asks what is done now. A directory that nobody holds is opened for a moment: to hold it
// would keep others from its runs.
func (t *top) look(ctx context.Context) (*topView, error) {
	a := t.a
	if c, err := a.remote(ctx); err != nil {
		return nil, err
	} else if c != nil {
		t.of = view.OneLine(a.target.URL.Value)
		l, err := c.Operator.Load(ctx)
		if err != nil {
			return nil, err
		}
		return &topView{ServerLoad: *l}, nil
	}
	dir, err := a.config.DataDir()
	if err != nil {
		return nil, err
	}
	if err := datadir.MustExist(dir); err != nil {
		return nil, err
	}
	t.of = view.OneLine(dir)
	for deadline := a.now().Add(patience); ; {
		if h := a.dial(ctx, dir); h != nil {
			l, err := h.Client.Operator.Load(ctx)
			if err == nil {
				return &topView{ServerLoad: *l}, nil
			}
			if !errors.Is(err, fault.ServerUnreachable) || !a.holderGone(ctx) {
				return nil, err
			}
		}
		st, err := a.openStore(ctx, dir)
		if err == nil {
			v, err := t.atRest(ctx, st)
			return v, errors.Join(err, datadir.Error(dir, st.Close()))
		}
		if !errors.Is(err, fault.StoreLocked) || a.now().After(deadline) {
			return nil, err
		}
	}
}

// atRest returns what there is to say of a store that no process uses.
func (t *top) atRest(ctx context.Context, st node.Store) (*topView, error) {
	runs, accounts, err := node.CountRuns(ctx, st)
	if err != nil {
		return nil, err
	}
	v := &topView{AtRest: true, ServerLoad: client.ServerLoad{
		Version: thisBuild().Version, Now: t.a.now().UTC(), Runs: client.RunLoad(runs), Accounts: []client.AccountLoad{},
		Attempts: client.AttemptLoad{ByAction: map[string]int{}}, Limits: []client.LimitLoad{}, Failures: []client.RecentFailure{},
	}}
	for _, c := range accounts {
		v.Accounts = append(v.Accounts, client.AccountLoad(c))
	}
	return v, nil
}

// show shows a state.
func (t *top) show(v *topView, first bool) {
	a := t.a
	a.show(v, func() {
		text := t.text(v)
		if t.frame == nil {
			if !first {
				text = "\n" + text
			}
			a.text("%s", text)
			return
		}
		t.lines = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		t.draw("")
	})
	if v.AtRest {
		a.say("no process holds %s, so nothing happens there; `%s` goes on with its runs", t.of, a.hint("resume", ""))
	}
}

// trouble says why a state is not known now.
func (t *top) trouble(err error) {
	note := fmt.Sprintf("%s: %s; trying again", t.a.now().UTC().Format(time.TimeOnly), view.OneLine(fault.Message(t.a.ofServer(err))))
	if t.frame == nil {
		t.a.say("%s", note)
		return
	}
	t.draw(note)
}

// draw draws the last state, as far as it fits, and a note below it.
func (t *top) draw(note string) {
	lines := t.lines
	if note != "" {
		lines = append(slices.Clone(lines), t.frame.Screen.Paint("warning", note))
	}
	if _, height := t.frame.Screen.Size(); len(lines) > height-1 {
		lines = lines[:height-1]
	}
	t.frame.Draw(lines)
}

// text returns a state for people.
func (t *top) text(v *topView) string {
	head := view.Join("  ", "roux "+view.OneLine(v.Version), t.of)
	if v.AtRest {
		return head + "\n" + term.Table([][]string{{"runs", runsText(&v.Runs)}}) + accountsText(v.Accounts)
	}
	head = view.Join("  ", head, "up "+view.Took(v.Now.Sub(v.StartedAt)), v.Now.UTC().Format("15:04:05")+" UTC")
	c, m := &v.Commits, &v.Memory
	commits := fmt.Sprintf("%.1f a second, %d since the start", c.PerSecond, c.Total)
	if c.SlowestMS > 0 {
		commits += fmt.Sprintf("; median %.1f ms, p99 %.1f ms, slowest %.1f ms", c.MedianMS, c.P99MS, c.SlowestMS)
	}
	if c.Failed > 0 {
		commits += fmt.Sprintf("; %d failed", c.Failed)
	}
	rows := [][]string{
		{"runs", view.Join("; ", runsText(&v.Runs), fmt.Sprintf("%d in memory", v.Runs.Loaded))},
		{"attempts", attemptsText(&v.Attempts)},
		{"slots", slotsText(v.Limits)},
		{"commits", commits},
		{"waiting", fmt.Sprintf("%s for the disk, %s, %s for watchers", view.Count(int(v.Queues.Requests), "request"), view.Count(int(v.Queues.Inputs), "input"), view.Count(v.Queues.Feed, "commit"))},
		{"memory", fmt.Sprintf("%s of values, %s in all; %s", term.Size(int64(m.HeapBytes)), term.Size(int64(m.TotalBytes)), view.Count(m.Goroutines, "goroutine"))},
		{"store", fmt.Sprintf("journal %s, write-ahead log %s", term.Size(v.Store.JournalBytes), term.Size(v.Store.LogBytes))},
	}
	return head + "\n" + term.Table(rows) + accountsText(v.Accounts) + t.failuresText(v.Failures)
}

// runsText says how many runs have not ended.
func runsText(r *client.RunLoad) string {
	text := fmt.Sprintf("%d live, %d queued", r.Live, r.Queued)
	var states []string
	for _, s := range slices.Sorted(maps.Keys(r.States)) {
		if s != "queued" {
			states = append(states, fmt.Sprintf("%d %s", r.States[s], view.OneLine(s)))
		}
	}
	if len(states) > 0 {
		text += " (" + strings.Join(states, ", ") + ")"
	}
	if !r.Complete {
		text += ", and more that are not counted"
	}
	return text
}

// attemptsText says how many attempts run, and of which actions most of them are.
func attemptsText(l *client.AttemptLoad) string {
	names := slices.SortedFunc(maps.Keys(l.ByAction), func(x, y string) int {
		return cmp.Or(cmp.Compare(l.ByAction[y], l.ByAction[x]), cmp.Compare(x, y))
	})
	var of []string
	for i, name := range names {
		if i == mostActions {
			of = append(of, fmt.Sprintf("%d other actions", len(names)-i))
			break
		}
		of = append(of, fmt.Sprintf("%d %s", l.ByAction[name], view.OneLine(name)))
	}
	text := fmt.Sprintf("%d running", l.Running)
	if len(of) > 0 {
		text += " (" + strings.Join(of, ", ") + ")"
	}
	return text + fmt.Sprintf("; %.1f finished a second, %d since the start", l.PerSecond, l.Finished)
}

// slotsText says how far the limits of attempts are used.
func slotsText(limits []client.LimitLoad) string {
	var parts []string
	for i := range limits {
		l := &limits[i]
		part := view.Join(" ", l.Of, view.OneLine(l.Name), view.OneLine(l.Key))
		if l.Slots > 0 {
			part += fmt.Sprintf(" %d of %d", l.Used, l.Slots)
		}
		if l.Waiting > 0 {
			part += fmt.Sprintf(", %d waiting", l.Waiting)
		}
		if l.Until != "" {
			part += " until " + l.Until
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "none in use"
	}
	return strings.Join(parts, "; ")
}

func accountsText(accounts []client.AccountLoad) string {
	if len(accounts) == 0 {
		return ""
	}
	rows := [][]string{{"ACCOUNT", "LIVE", "QUEUED"}}
	for i := range accounts {
		c := &accounts[i]
		rows = append(rows, []string{view.OneLine(c.Account), fmt.Sprint(c.Live), fmt.Sprint(c.Queued)})
	}
	return "\n" + term.Table(rows)
}

func (t *top) failuresText(failures []client.RecentFailure) string {
	if len(failures) == 0 {
		return ""
	}
	rows := [][]string{{"FAILED", "CODE", "ACCOUNT", "RUN", "RECIPE"}}
	for i := range failures {
		f := &failures[i]
		run := f.RunID
		if f.Account == "" {
			run = "(a commit)"
		}
		rows = append(rows, []string{t.a.when(f.At.UnixMicro()), view.OneLine(string(f.Code)), view.OneLine(f.Account), run, view.OneLine(view.Cut(f.Recipe, 40))})
	}
	return "\n" + term.Table(rows)
}
