// SPDX-License-Identifier: Apache-2.0

// Command bench measures the engine and compares it with the limits of the
// hardware.
//
//	go run ./bench -shapes chain,many -runs 3
//
// Each shape runs on the real store and a real disk. In the same process, and where it
// matters at the same moment, the same commits are repeated without the engine: as
// bytes appended to a file and synced, as bytes written over a preallocated file and
// synced, and as commits of the store. One JSON line per shape goes to standard output,
// a table for people to standard error.
//
// It decides what a figure means and how it is measured. It never decides how fast is
// fast enough: that is the table in bars.go, which -check compares with. It only
// measures the code that ships.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

func main() {
	began := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, began, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// A shape is a workload to measure; it returns one or more lines.
type shape struct {
	name string
	run  func(context.Context, *bench) ([]Line, error)
}

var shapes = []shape{
	{"chain", chain},
	{"fan", fan},
	{"children", children},
	{"many", many},
	{"metered", metered},
	{"slow", slow},
	{"submit", submit},
	{"wide", wide},
	{"fairness", fairness},
	{"idle", idle},
	{"recover", recovery},
	{"disk", disk},
	{"books", books},
	{"steady", steady},
	{"execute", execute},
	{"get", gets},
	{"ready", ready},
	{"subscribers", subscribers},
	{"readers", readers},
	{"overload", overload},
	{"remote", remote},
	{"jobs", jobsWaiting},
	{"streams", streams},
	{"streams-killed", streamsKilled},
}

// A bench is one invocation of the command.
type bench struct {
	dir     string
	smoke   bool
	waiting int
	done    int
	steady  time.Duration
	press   time.Duration
	keyed   bool
	streams int
	observe bool
	profile string
	stderr  io.Writer

	seq      int
	run      int
	settings map[string]string
}

// few returns n, or small in a smoke test.
func (b *bench) few(n, small int) int {
	if b.smoke {
		return min(n, small)
	}
	return n
}

// rest returns how long an idle engine is observed.
func (b *bench) rest() time.Duration {
	if b.smoke {
		return 200 * time.Millisecond
	}
	return 5 * time.Second
}

// fresh returns the name of a new directory.
func (b *bench) fresh() string {
	b.seq++
	return filepath.Join(b.dir, strconv.Itoa(b.seq))
}

func (b *bench) line(shape string, n int) Line {
	return Line{Shape: shape, N: n, Run: strconv.Itoa(b.run), Set: b.settings}
}

// options are the flags of the command line.
type options struct {
	shapes       string
	runs         int
	smoke, check bool
	report       bool
	observe      bool
	profile, dir string
	waiting      int
	steady       time.Duration
	press        time.Duration
	keyed        bool
	streams      int
	part         part
}

func (o *options) parse(args []string, stderr io.Writer) error {
	var names []string
	for _, s := range shapes {
		names = append(names, s.name)
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.shapes, "shapes", strings.Join(names, ","), "what to measure")
	f.IntVar(&o.runs, "runs", 1, "how often; above 1 a line of medians follows")
	f.BoolVar(&o.smoke, "smoke", false, "small sizes, a few seconds in all; the figures mean nothing")
	f.BoolVar(&o.check, "check", false, "compare with the bars and exit 1 when one is missed")
	f.BoolVar(&o.report, "report", false, "print Markdown tables made of JSON lines on standard input, and measure nothing")
	f.StringVar(&o.profile, "profile", "", "write a processor profile to this file, one of recovery to this name with .recover, and one of the memory of idle with .heap")
	f.StringVar(&o.dir, "dir", "", "where data directories are made; their disk is what is measured (default: the system's temporary directory)")
	f.IntVar(&o.waiting, "n", 100_000, "how many runs wait in idle, recover and jobs, and have paid in books")
	f.IntVar(&o.part.done, "done", 20, "how many steps each of them has done before")
	f.BoolVar(&o.observe, "observe", false, "metrics are on in many, metered and slow, as in a service")
	f.DurationVar(&o.steady, "steady", time.Minute, "how long steady lasts")
	f.DurationVar(&o.press, "press", 10*time.Second, "how long execute, get, readers and overload send requests, and streams is measured")
	f.BoolVar(&o.keyed, "keyed", false, "each request of execute has an Idempotency-Key of its own")
	f.IntVar(&o.streams, "streams", 10_000, "how many streams subscribers and readers open")
	f.StringVar(&o.part.signal, "signal", "", "for the processes that this one starts")
	f.DurationVar(&o.part.rest, "rest", 0, "for the processes that this one starts")
	f.DurationVar(&o.part.idle, "idle", 0, "for the processes that this one starts")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("bench takes no arguments, got %q", f.Args())
	}
	return nil
}

func run(ctx context.Context, began time.Time, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if os.Getenv(roleVariable) == "roux" {
		return rouxRole(ctx, args, stdin, stdout, stderr)
	}
	var o options
	if err := o.parse(args, stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		fmt.Fprintln(stderr, err)
		return 2
	}
	node.SetGC(os.Getenv("GOGC")) // as the roux binary does
	if o.profile == "" {
		runtime.MemProfileRate = 0 // the memory of an unused profile must not be measured
	}
	var err error
	switch role := os.Getenv(roleVariable); {
	case role != "":
		o.part.dir, o.part.n, o.part.profile, o.part.began = o.dir, o.waiting, o.profile, began
		err = o.part.play(ctx, role, stdin, stdout)
	case o.report:
		err = report(stdin, stdout)
	default:
		err = o.measure(ctx, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

func (o *options) measure(ctx context.Context, stdout, stderr io.Writer) (err error) {
	chosen, err := choose(o.shapes)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "roux-bench-")
	if err != nil {
		return err
	}
	defer func() { err = closing(func() error { return os.RemoveAll(dir) }, err) }()
	b := &bench{dir: dir, smoke: o.smoke, waiting: o.waiting, done: o.part.done, steady: o.steady, press: o.press, keyed: o.keyed, streams: o.streams, observe: o.observe, profile: o.profile, stderr: stderr}
	if b.smoke {
		b.steady = min(b.steady, time.Second)
	}
	if b.settings, err = settings(ctx, b); err != nil {
		return err
	}
	stop, err := profiled(o.profile)
	if err != nil {
		return err
	}
	defer func() { err = closing(stop, err) }()
	tableHead(stderr)
	results := map[string][]Line{} // by shape and size, one per run
	var order []string
	for b.run = 1; b.run <= o.runs; b.run++ {
		for _, s := range chosen {
			lines, failed := s.run(ctx, b)
			for _, l := range lines {
				key := fmt.Sprint(l.Shape, " ", l.N)
				if results[key] == nil {
					order = append(order, key)
				}
				results[key] = append(results[key], l)
				l.table(stderr)
				if err := l.write(stdout); err != nil {
					return err
				}
			}
			if err := b.clean(); err != nil {
				return err
			}
			if failed != nil {
				return fmt.Errorf("%s: %w", s.name, failed)
			}
		}
	}
	var final []Line
	for _, key := range order {
		l := medianOf(results[key])
		if final = append(final, l); o.runs > 1 {
			l.table(stderr)
			if err := l.write(stdout); err != nil {
				return err
			}
		}
	}
	if o.check {
		return check(final, stderr)
	}
	return nil
}

// profiled writes a CPU profile until stop is called.
func profiled(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}

// clean removes the files of the last shape.
func (b *bench) clean() error {
	old, err := filepath.Glob(filepath.Join(b.dir, "*"))
	for _, dir := range old {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	debug.FreeOSMemory() // so that the garbage of one shape is not counted for the next
	return err
}

// choose finds shapes by name.
func choose(names string) (chosen []shape, err error) {
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(shapes, func(s shape) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no shape %q", name)
		}
		chosen = append(chosen, shapes[i])
	}
	return chosen, nil
}

// settings returns the settings that readers must know to interpret the
// figures.
func settings(ctx context.Context, b *bench) (_ map[string]string, err error) {
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: b.fresh()})
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(st.Close, err) }()
	s, err := st.Settings()
	if err != nil {
		return nil, err
	}
	maps.Copy(s, machine(b.dir))
	s["go"] = runtime.Version()
	s["platform"] = runtime.GOOS + "/" + runtime.GOARCH
	s["gogc"] = gogc()
	s["gomaxprocs"] = strconv.Itoa(runtime.GOMAXPROCS(0))
	return s, nil
}

// gogc returns the GOGC setting in percent, or "off".
func gogc() string {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	percent := sample[0].Value.Uint64()
	if percent == math.MaxUint64 {
		return "off"
	}
	return strconv.FormatUint(percent, 10)
}

// closing joins err with the error of a clean-up.
func closing(clean func() error, err error) error { return errors.Join(err, clean()) }

func errSteps(got, want int) error { return fmt.Errorf("%d steps ran, want %d", got, want) }

// memoryFloor measures walking a graph in memory.
func memoryFloor(l *Line, walk func() (int, error)) (steps int, err error) {
	const least = 5 * time.Millisecond
	began := time.Now()
	n := 0
	for time.Since(began) < least {
		if steps, err = walk(); err != nil {
			return 0, err
		}
		n += steps
	}
	l.put("memory_us_per_step", us(time.Since(began))/float64(n))
	return steps, nil
}
