// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/retention"
)

const account = "acme"

// hands is a clock that advances by a microsecond whenever it is read, and that can be
// set ahead.
type hands struct {
	began time.Time
	ahead atomic.Int64
}

func newHands(began time.Time) *hands { return &hands{began: began} }

// time advances the clock by a microsecond, so no two transitions have the same time.
func (h *hands) time() time.Time      { return h.began.Add(time.Duration(h.ahead.Add(1_000))) }
func (h *hands) pass(d time.Duration) { h.ahead.Add(int64(d)) }

type shapeSet struct {
	actions catalogue.Finder
	plans   []*plan.Plan
	keyed   *plan.Plan
}

// shapes are the recipes of the load: steps in a row and beside each other, loops,
// waits, retries, failures, outputs of many pages, names of files.
var shapes = sync.OnceValue(func() *shapeSet {
	noop := &action.Action{Name: "noop", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{"ok": true}}, nil
	}}
	big := &action.Action{Name: "big", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		dice := rand.New(rand.NewPCG(uint64(len(task.EffectKey)), uint64(task.EffectKey[len(task.EffectKey)-1])))
		text := make([]byte, 1_000+dice.IntN(8_000))
		for i := range text {
			text[i] = 'a' + byte(dice.IntN(26)) // does not compress
		}
		return action.Result{Output: string(text)}, nil
	}}
	file := &action.Action{Name: "file", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		return action.Result{Output: fmt.Sprintf("sha256_%064x", []byte(task.EffectKey)[:8])}, nil
	}}
	flaky := &action.Action{Name: "flaky", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		if task.Attempt < 2 {
			return action.Result{}, fault.New(fault.ServiceUnavailable, "not yet")
		}
		return action.Result{Output: int64(task.Attempt)}, nil
	}}
	all := catalogue.New(noop, big, file, flaky)
	s := &shapeSet{actions: all}
	compiled := func(src string) *plan.Plan {
		r, source, diags := dialect.Parse("shape.yaml", []byte(src), form.Options{})
		if r != nil && !compile.HasErrors(diags) {
			var p *plan.Plan
			if p, diags = compile.Compile(r, source, compile.Options{Actions: all}); p != nil {
				return p
			}
		}
		panic(fmt.Sprint(diags))
	}
	for _, src := range []string{`
name: chain
steps:
  - {id: a, action: {name: noop}}
  - {id: b, action: {name: big}, outputBinding: text}
  - {id: c, transform: {expression: 'size(text)'}}
  - {id: d, action: {name: file}}
  - {id: e, action: {name: noop}}
`, `
name: fan
order: none
steps:
  - {id: a, action: {name: noop}}
  - {id: b, action: {name: file}}
  - {id: c, action: {name: noop}}
  - {id: d, action: {name: big}}
  - {id: join, action: {name: noop}, dependsOn: [a, b, c, d]}
`, `
name: waiter
steps:
  - {id: before, action: {name: file}, outputBinding: made}
  - {id: asked, wait: {signal: go}, outputBinding: got}
  - {id: rest, wait: {duration: 10m}}
  - {id: after, action: {name: noop, parameters: {a: '{{ made }}', b: '{{ got }}'}}}
`, `
name: each
steps:
  - id: each
    loop:
      over: '[1, 2, 3, 4, 5, 6]'
      maxConcurrency: 3
      steps:
        - {id: x, action: {name: noop, parameters: {n: '{{ item }}'}}}
        - {id: y, transform: {expression: 'item * 2'}}
  - {id: end, action: {name: big}}
`, `
name: stubborn
steps:
  - {id: a, action: {name: flaky}, retryPolicy: {maxAttempts: 3, initialDelay: 1s}, compensate: {action: {name: noop}}}
  - {id: nap, wait: {duration: 1m}}
  - {id: no, fail: {message: by design}}
`} {
		s.plans = append(s.plans, compiled(src))
	}
	s.keyed = compiled("name: keyed\nsteps:\n  - {id: a, action: {name: noop}}\n  - {id: w, wait: {signal: go}}\n")
	return s
})

// A load is a recording of what an engine did to a store until the power failed.
type load struct {
	base  map[string][]byte
	ids   map[string]int
	tape  *tape
	facts []*fact
	clock time.Time
}

// record runs an engine on a directory that begins as an image, and records what
// reaches the disk.
func (c *cutter) record(t *testing.T, dir string, dice *rand.Rand, clock time.Time) *load {
	t.Helper()
	base, err := readImage(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &load{base: base, tape: newTape(dir, sortedKeys(base))}
	l.tape.blind = c.blind
	l.ids = map[string]int{}
	for name, id := range l.tape.names {
		l.ids[name] = id
	}
	s, err := Open(ctx, Options{Dir: dir, vfs: useDisk(&disk{tape: l.tape}), cold: true})
	if err != nil {
		t.Fatal(err)
	}
	if c.begin != nil {
		c.begin(s)
	}
	files, err := blob.Open(blob.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	w := &witness{Store: s, tape: l.tape, keys: map[string]string{}}
	now := newHands(clock)
	e, err := engine.Open(ctx, engine.Config{
		Store: w, Actions: shapes().actions, MaxLoaded: 6, CompactBytes: 12 << 10, CompactCheck: 2 << 10, Now: now.time,
		Blobs: files, Retention: retention.Policy{Runs: 30 * time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	drive(t, e, w, now, dice, 30+dice.IntN(40))
	l.tape.stop()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, _ = e.Stop(gone)                                     // the tape has stopped, so what the engine does now is not recorded
	l.facts, l.clock = w.facts, now.time().Add(time.Minute) // the engine has stopped, so there are no more commits
	useDisk(nil)
	var packs int
	if err := s.read.QueryRow(`SELECT count(*) FROM packs`).Scan(&packs); err != nil {
		t.Fatal(err)
	}
	c.seen["packs"] += packs
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return l
}

// drive starts runs and disturbs them by signals, cancels and other requests, and writes
// records beside them.
func drive(t *testing.T, e *engine.Engine, w *witness, now *hands, dice *rand.Rand, steps int) {
	t.Helper()
	s := w.Store
	var mu sync.Mutex
	var runs []string
	begin := func(req engine.StartRequest) {
		started, err := e.Start(ctx, req)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		runs = append(runs, started.Run)
		mu.Unlock()
	}
	var wg sync.WaitGroup
	for n := range steps {
		some := func() string {
			mu.Lock()
			defer mu.Unlock()
			if len(runs) == 0 {
				return ""
			}
			return runs[dice.IntN(len(runs))]
		}()
		var err error
		switch k := dice.IntN(15); {
		case k < 3 || some == "":
			for range 1 + dice.IntN(4) {
				p := shapes().plans[dice.IntN(len(shapes().plans))]
				wg.Go(func() { begin(engine.StartRequest{Account: account, Plan: p, Recipe: "shape"}) })
			}
		case k < 4:
			key := fmt.Sprintf("key-%d", n)
			begin(engine.StartRequest{Account: account, Plan: shapes().keyed, Recipe: "keyed", IdempotencyKey: key,
				Parameters: map[string]any{"n": int64(len(key))}})
		case k < 7:
			err = e.Signal(ctx, account, some, "go", strings.Repeat("x", dice.IntN(3_000)))
		case k < 8:
			err = e.Cancel(ctx, account, some, "by chance")
		case k < 9:
			err = e.Retry(ctx, account, some, engine.RetryRequest{})
		case k < 11:
			now.pass(time.Duration(dice.IntN(20)) * time.Minute)
			err = e.Sync(ctx)
		case k < 12:
			_, err = e.Clean(ctx, false)
		case k < 14:
			err = w.someRecords(dice, now.time().UnixMicro())
		default:
			s.w.Lock()
			s.up.pages = checkpointPages
			s.w.Unlock()
			if dice.IntN(2) == 0 {
				wg.Go(s.checkpoint) // concurrently with the commits
			} else {
				s.checkpoint()
			}
		}
		if code := fault.CodeOf(err); err != nil && code != fault.Conflict && code != fault.TooLate && code != fault.RunNotFound {
			t.Fatalf("step %d: %v", n, err)
		}
		if n%5 == 4 {
			wg.Wait()
		}
	}
	wg.Wait()
	if err := e.Sync(ctx); err != nil {
		t.Fatal(err)
	}
}

// A cutter cuts the power.
type cutter struct {
	dir     string       // for images
	begin   func(*Store) // spoils a store before the load
	blind   bool         // the disk ignores syncs of the directory
	seed    uint64
	ps      programs
	goOn    int // an engine takes over every goOn-th image
	mu      sync.Mutex
	broken  []string
	images  int
	resumed int
	keepAt  int // number of the image with which the next generation begins
	kept    *survivor
	seen    map[string]int // counts of what the loads contained
}

// A survivor is an image on which the next generation may begin.
type survivor struct {
	image map[string][]byte
	truth *truth
}

// cutAll cuts the power `images` times during a load that began with the image `before`.
func (c *cutter) cutAll(l *load, before *truth, images int) {
	dice := rand.New(rand.NewPCG(c.seed, uint64(len(l.tape.ops))))
	cuts := make([]int, images)
	for i := range cuts {
		cuts[i] = dice.IntN(len(l.tape.ops) + 1)
	}
	// Cuts just before and just after an acknowledgement show whether acknowledged
	// commits are durable.
	var acks []int
	for i, o := range l.tape.ops {
		if o.kind == opAck {
			acks = append(acks, i)
		}
	}
	for i := 0; i < len(cuts) && len(acks) > 0; i += 3 {
		cuts[i] = acks[dice.IntN(len(acks))] + dice.IntN(2)
	}
	slices.Sort(cuts)

	p := newPlatter(l.tape, l.base, l.ids)
	now := before.clone()
	flying := map[int]*fact{}
	at := 0
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for n, cut := range cuts {
		for ; at < cut; at++ {
			switch o := &l.tape.ops[at]; o.kind {
			case opSubmit:
				flying[o.file] = l.facts[o.file]
			case opAck:
				now.holds(l.facts[o.file])
				delete(flying, o.file)
			}
		}
		p.advance(cut)
		f := fates[dice.IntN(len(fates))]
		image := p.image(f, dice)
		want := now.clone()
		var some []*fact
		for _, i := range slices.Sorted(maps.Keys(flying)) {
			some = append(some, flying[i])
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c.try(fmt.Sprintf("seed %d, %s, cut %d of %d", c.seed, f.name, cut, len(l.tape.ops)), n, image, want, some, l.clock)
		})
	}
	wg.Wait()
}

// try opens an image and checks that everything acknowledged survived.
func (c *cutter) try(name string, n int, image map[string][]byte, want *truth, flying []*fact, clock time.Time) {
	dir := filepath.Join(c.dir, fmt.Sprintf("%d-%d", c.seed, n))
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = writeImage(dir, image)
	}
	goOn := n%c.goOn == 0 && n != c.keepAt
	if err == nil {
		err = func() error {
			s, err := Open(ctx, Options{Dir: dir, cold: true})
			if err != nil {
				return err
			}
			err = survived(ctx, s, want, flying, &c.ps)
			if err == nil && goOn {
				err = goesOn(ctx, s, want, clock)
			}
			return errors.Join(err, s.Close())
		}()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.images++
	switch {
	case err != nil:
		c.broken = append(c.broken, fmt.Sprintf("%s: %v", name, err))
		if c.begin == nil && !c.blind && len(c.broken) <= 3 {
			c.keep(image)
		}
	case goOn:
		c.resumed++
	case n == c.keepAt:
		c.kept = &survivor{image, want}
	}
	_ = os.RemoveAll(dir)
}

// keep stores an image for the person who investigates. The seed alone does not
// reproduce it, because it also depends on how goroutines were scheduled.
func (c *cutter) keep(image map[string][]byte) {
	dir, err := os.MkdirTemp("", "roux-power-cut-")
	if err == nil {
		err = writeImage(dir, image)
	}
	c.broken = append(c.broken, fmt.Sprintf("the directory before it was opened is kept in %s (%v)", dir, err))
}

// count records what a load contained, because cuts through an empty load prove nothing.
func (c *cutter) count(l *load) {
	c.seen["operations"] += len(l.tape.ops)
	for _, o := range l.tape.ops {
		switch {
		case o.kind == opSyncDir:
			c.seen["syncs of the directory"]++
		case o.kind == opWrite && o.file == l.tape.names["roux.db"]:
			c.seen["pages checkpointed"]++
		case o.kind == opWrite && o.file == l.tape.names["roux.db-wal"] && o.off == 0:
			c.seen["restarts of the log"]++
		}
	}
	for _, f := range l.facts {
		if len(f.gone) > 0 {
			c.seen["deletions"]++
		}
		if len(f.moves) > 1 {
			c.seen["commits of several runs"]++
		}
		if len(f.records) > 1 {
			c.seen["changes of records"]++
		}
		for i := range f.moves {
			m := &f.moves[i]
			for what, is := range map[string]bool{"compactions": m.compaction, "suspensions": m.suspension != nil, "names of files": len(m.files) > 0, "keys": m.idem != nil, "ends": m.head != nil && m.head.Ended != 0} {
				if is {
					c.seen[what]++
				}
			}
		}
	}
}

func (c *cutter) report(t *testing.T) {
	t.Helper()
	for i, b := range c.broken {
		if i == 10 {
			t.Errorf("and %d more", len(c.broken)-i)
			break
		}
		t.Error(b)
	}
}

func newCutter(t *testing.T) *cutter {
	return &cutter{dir: imageDir(t), goOn: 16, ps: programs{m: map[string]*machine.Program{}}, seen: map[string]int{}}
}

// run cuts the power `images` times, in loads on new directories and in loads on
// directories that a power cut left behind.
func (c *cutter) run(t *testing.T, seeds, generations, images int) {
	t.Helper()
	for seed := range seeds {
		c.seed = uint64(seed)
		dice := rand.New(rand.NewPCG(33, c.seed))
		from := &survivor{truth: newTruth()}
		clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for generation := range generations {
			dir := t.TempDir()
			if generation > 0 && dice.IntN(2) == 0 {
				// Lengthen the log with zeros, as Open does.
				name := "roux.db-wal"
				from.image[name] = append(from.image[name], make([]byte, max(0, 1<<20-len(from.image[name])))...)
			}
			if err := writeImage(dir, from.image); err != nil {
				t.Fatal(err)
			}
			l := c.record(t, dir, dice, clock)
			share := images / seeds / generations
			c.keepAt, c.kept = dice.IntN(share), nil
			c.cutAll(l, from.truth, share)
			c.count(l)
			if c.kept == nil {
				break // the chosen image was not intact; report lists the problems
			}
			from, clock = c.kept, l.clock
		}
	}
}

// imageDir returns a directory in memory if possible, because images need no real disk.
func imageDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "roux-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// F33: the power fails at any moment while an engine works on the real store. Whatever
// the disk kept of the writes that were not synced, everything that was acknowledged is
// there, nothing that was never committed is, and an engine can continue all runs to
// their end. ROUX_LONG=1 tries 100,000 images.
func TestF33_PowerCuts(t *testing.T) {
	seeds, images := 3, 720
	switch {
	case os.Getenv("ROUX_LONG") != "":
		seeds, images = 200, 100_000
	case testing.Short():
		seeds, images = 1, 60
	}
	c := newCutter(t)
	c.run(t, seeds, 2, images)
	c.report(t)
	if c.images < images || c.resumed < images/20 {
		t.Errorf("%d images were opened and %d taken over, want %d and %d", c.images, c.resumed, images, images/20)
	}
	for _, what := range []string{
		"syncs of the directory", "pages checkpointed", "restarts of the log", "commits of several runs",
		"compactions", "packs", "suspensions", "names of files", "keys", "ends", "deletions", "changes of records",
	} {
		if c.seen[what] == 0 {
			t.Errorf("the loads had no %s", what)
		}
	}
	t.Logf("%d images opened and compared, %d taken over by an engine to the end of every run; the loads had %v", c.images, c.resumed, c.seen)
}

// The same cuts detect a store that never syncs, one that does not sync every commit,
// and one that does not sync the directory after creating files in it.
func TestF33_CutsCatchWhatDoesNotSync(t *testing.T) {
	images := 60
	if testing.Short() {
		images = 20
	}
	pragma := func(mode string) func(*Store) {
		return func(s *Store) {
			st, err := s.db.Prepare("PRAGMA synchronous=" + mode)
			if err == nil {
				_, err = st.Exec()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		begin func(*Store)
		blind bool
	}{
		"synchronous=OFF":    {begin: pragma("OFF")},
		"synchronous=NORMAL": {begin: pragma("NORMAL")},
		"the directory":      {blind: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCutter(t)
			c.begin, c.blind = tt.begin, tt.blind
			c.run(t, 1, 1, images)
			if len(c.broken) < c.images/10 {
				t.Fatalf("%d of %d images are broken: these cuts would miss it", len(c.broken), c.images)
			}
			t.Logf("%d of %d images are broken, such as: %s", len(c.broken), c.images, c.broken[0])
		})
	}
}
