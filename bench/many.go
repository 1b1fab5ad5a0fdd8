// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/telemetry"
)

const chainSteps = 10 // steps of a run of the shape many

// concurrentRuns measures the times between steps of many runs at once. A run is
// identified by the number in its steps' input.
type concurrentRuns struct {
	last []time.Time
	gaps [][]time.Duration
	text []string // outputs; if empty, the output is only a number
	seen atomic.Int64
}

func newConcurrentRuns(runs int) *concurrentRuns {
	return &concurrentRuns{last: make([]time.Time, runs), gaps: make([][]time.Duration, runs)}
}

// run is the action. A run has one step at a time, so its entries have one user.
func (c *concurrentRuns) run(_ context.Context, t *action.Task) (action.Result, error) {
	n, err := number(t.Input)
	if err != nil {
		return action.Result{}, err
	}
	now := time.Now()
	if !c.last[n].IsZero() {
		c.gaps[n] = append(c.gaps[n], now.Sub(c.last[n]))
	}
	c.last[n] = now
	seen := c.seen.Add(1)
	if len(c.text) > 0 {
		return action.Result{Output: map[string]any{"n": n, "text": c.text[int(seen)%len(c.text)]}}, nil
	}
	return action.Result{Output: map[string]any{"n": n}}, nil
}

// number reads {"n":17}.
func number(input json.RawMessage) (int, error) {
	const before, after = `{"n":`, `}`
	s := string(input)
	if len(s) > len(before)+len(after) && s[:len(before)] == before {
		return strconv.Atoi(s[len(before) : len(s)-len(after)])
	}
	return 0, fmt.Errorf("the input is %s", input)
}

func (c *concurrentRuns) forget() {
	for i := range c.gaps {
		c.gaps[i], c.last[i] = c.gaps[i][:0], time.Time{}
	}
	c.seen.Store(0)
}

func (c *concurrentRuns) all() (gaps []time.Duration) {
	for _, g := range c.gaps {
		gaps = append(gaps, g...)
	}
	return gaps
}

// many repeatedly measures 1,000 concurrent runs of a chain of ten steps.
func many(ctx context.Context, b *bench) ([]Line, error) {
	l, err := manyRuns(ctx, b, "many", 0, "")
	return []Line{l}, err
}

// slow is many with a disk whose sync takes two milliseconds longer.
func slow(ctx context.Context, b *bench) ([]Line, error) {
	l, err := manyRuns(ctx, b, "slow", 2*time.Millisecond, "")
	return []Line{l}, err
}

// metered is many with a price for each step, and an account that pays: every run
// reserves credits when it starts and settles them when it ends.
func metered(ctx context.Context, b *bench) ([]Line, error) {
	l, err := manyRuns(ctx, b, "metered", 0, "0.0025")
	return []Line{l}, err
}

func manyRuns(ctx context.Context, b *bench, name string, delay time.Duration, price string) (l Line, err error) {
	runs := b.few(1_000, 50)
	l = b.line(name, runs)
	dir := b.fresh()
	c := newConcurrentRuns(runs)
	cfg := engine.Config{}
	if b.observe {
		tel := telemetry.New(telemetry.Config{})
		defer tel.Close()
		cfg.Observer = tel
	}
	if price != "" {
		cfg.Accounts = func(string) engine.AccountRules { return engine.AccountRules{MaxLiveRuns: 2 * runs} } // all at once, as in many
	}
	w, err := openPriced(ctx, filepath.Join(dir, "data"), c.run, cfg, price)
	if err != nil {
		return l, err
	}
	defer func() { err = closing(w.close, err) }()
	if price != "" {
		if _, err := w.e.Grant(ctx, engine.GrantRequest{Account: account, Key: "all", Amount: 1_000_000_000, Terms: ledger.Terms{Source: ledger.Paid}}); err != nil {
			return l, err
		}
	}
	pl, err := planOf(boundOf(chainSteps), w.act)
	if err != nil {
		return l, err
	}
	round := func() error {
		for i := range c.last {
			c.last[i] = time.Time{}
		}
		return together(runs, func(i int) error { return w.once(ctx, pl, map[string]any{"n": int64(i)}) })
	}
	if err := round(); err != nil { // warms up
		return l, err
	}
	w.st.delay = delay
	f, err := w.floors(ctx, dir, round)
	if err != nil {
		return l, err
	}
	defer func() { err = closing(f.close, err) }()
	c.forget()
	w.st.forget()
	rounds := b.few(20, 2)
	took, err := f.rounds(ctx, rounds, round)
	if err != nil {
		return l, err
	}
	seconds := sum(took.times).Seconds()
	steps := float64(rounds * runs * chainSteps)
	if got := c.seen.Load(); got != int64(steps) {
		return l, errSteps(int(got), int(steps))
	}
	l.Seconds, l.StepsPerS, l.CPUPerStepUS = seconds/float64(rounds), steps/seconds, us(took.cpu)/steps
	l.spread(c.all())
	n := w.st.count()
	l.BytesPerStep = float64(n.bytes) / steps
	l.RSSMB = rss()
	f.delay = delay
	f.describe(&l, quantile(took.times, 0.5))
	l.put("best_steps_per_s", float64(runs*chainSteps)/slices.Min(took.times).Seconds())
	l.put("commits_per_round", float64(n.commits)/float64(rounds))
	l.put("written_per_step", float64(took.wrote)/steps)
	l.Hist = w.st.histogram()
	_, err = memoryFloor(&l, func() (int, error) { return walkGraph(pl, func() {}) })
	return l, err
}

// steady is many for a long time, with a new run whenever one ends, outputs of 1 KB, and
// a subscriber to each tenth run.
func steady(ctx context.Context, b *bench) (lines []Line, err error) {
	runs := b.few(1_000, 50)
	l := b.line("steady", runs)
	c := newConcurrentRuns(runs)
	c.text = texts()
	w, err := open(ctx, b.fresh(), c.run, engine.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(w.close, err) }()
	pl, err := planOf(boundOf(chainSteps), w.act)
	if err != nil {
		return nil, err
	}
	lasting := b.steady
	trims := &journalSizes{w: w, stop: make(chan struct{}), done: make(chan struct{})}
	go trims.watch()
	disk := written()
	began, used := time.Now(), cpu()
	var events, ended atomic.Int64
	err = together(runs, func(i int) error {
		for n := i; time.Since(began) < lasting; n++ {
			c.last[i] = time.Time{}
			if err := steadyRun(ctx, w, pl, i, n%10 == 0, &events); err != nil {
				return err
			}
			ended.Add(1)
		}
		return nil
	})
	took := time.Since(began)
	used = cpu() - used
	close(trims.stop)
	<-trims.done
	if err = errors.Join(err, trims.err); err != nil {
		return nil, err
	}
	steps := float64(c.seen.Load())
	l.Seconds, l.StepsPerS, l.CPUPerStepUS = took.Seconds(), steps/took.Seconds(), us(used)/steps
	l.spread(c.all())
	n := w.st.count()
	l.BytesPerStep = float64(n.bytes) / steps
	l.RSSMB = rss()
	l.put("runs", float64(ended.Load()))
	l.put("events_watched", float64(events.Load()))
	l.put("trims", float64(trims.times))
	l.put("journal_most_mb", float64(trims.most)/(1<<20))
	l.put("written_per_step", float64(written()-disk)/steps)
	l.Hist = w.st.histogram()
	one := newConcurrentRuns(2)
	one.text = c.text
	return []Line{l}, b.denominators(ctx, &l, boundOf(chainSteps), one.run, 0)
}

func steadyRun(ctx context.Context, w *instance, pl *plan.Plan, i int, watched bool, events *atomic.Int64) error {
	s, err := w.e.Start(ctx, engine.StartRequest{Account: account, Plan: pl, Recipe: "bench", Parameters: map[string]any{"n": int64(i)}})
	if err != nil || !watched {
		if err == nil {
			err = w.end(ctx, s.Run)
		}
		return err
	}
	var last uint64
	var name string
	for ev, err := range w.e.Watch(ctx, account, s.Run, 0) {
		if err != nil {
			return err
		}
		if ev.Seq != last+1 {
			return fmt.Errorf("run %s: event %d after event %d", s.Run, ev.Seq, last)
		}
		last, name = ev.Seq, ev.Name()
	}
	events.Add(int64(last))
	if name != "run.completed" {
		return fmt.Errorf("run %s: the last event is %s", s.Run, name)
	}
	return nil
}

// texts returns outputs of 1 KB that do not compress well.
func texts() (all []string) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 512 {
		raw := make([]byte, 750)
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		all = append(all, base64.StdEncoding.EncodeToString(raw))
	}
	return all
}

// journalSizes records how the journal grows and shrinks.
type journalSizes struct {
	w          *instance
	stop, done chan struct{}
	times      int   // how often it shrank by a MiB or more
	most       int64 // its largest size in bytes
	err        error
}

func (t *journalSizes) watch() {
	defer close(t.done)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var top int64
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
		}
		var st store.Stats
		if st, t.err = t.w.sql.Stats(context.Background()); t.err != nil {
			return
		}
		t.most = max(t.most, st.JournalBytes)
		top = max(top, st.JournalBytes)
		if st.JournalBytes < top-1<<20 {
			t.times++
			top = st.JournalBytes
		}
	}
}
