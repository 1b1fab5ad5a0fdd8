// SPDX-License-Identifier: Apache-2.0

// Command guards removes the guards of the engine, one at a time, and checks that the
// simulator notices. It builds ./sim so that guards can be removed, and plays
// schedules without one guard until an invariant is broken or the time is up. It exits
// 1 when the simulator does not notice a removal, because such a guard is not proved
// to work.
//
//	go run ./sim/guards                 all of them, 60 s each at most
//	go run ./sim/guards -only fence,fsync -seconds 20
//
// The simulator decides what counts as broken. It has no triggers and no directories of runs, and merges no
// values itself; for the guards of these a test of their package decides. For the real binary this command
// decides one thing itself: whether its commits are synced, by counting its system
// calls (Linux, with strace).
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/mutation"
)

type options struct {
	only    string
	seconds int
	seed    uint64
	json    bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "guards to remove, by name, with commas; default all")
	flag.IntVar(&o.seconds, "seconds", 60, "how long the simulator may take to notice")
	flag.Uint64Var(&o.seed, "seed", 1, "the first seed")
	flag.BoolVar(&o.json, "json", false, "one JSON line a guard")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	missed, err := run(ctx, os.Stdout, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "guards:", err)
		os.Exit(2)
	}
	if missed > 0 {
		os.Exit(1)
	}
}

// A caught is the result of removing one guard.
type caught struct {
	Guard   string  `json:"guard"`
	Caught  bool    `json:"caught"`
	Skipped bool    `json:"skipped,omitempty"` // By is the reason
	Seconds float64 `json:"seconds"`
	By      string  `json:"by,omitempty"` // the broken invariant, with the simulator's message
	Keeps   string  `json:"keeps"`
}

// run removes each requested guard. missed is how many removals were not noticed.
func run(ctx context.Context, out io.Writer, o options) (missed int, err error) {
	dir, err := os.MkdirTemp("", "roux-guards-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	guards, err := chosen(o.only)
	if err != nil {
		return 0, err
	}
	sim := filepath.Join(dir, "sim")
	if err := build(ctx, sim, mutation.Tag, "./sim"); err != nil {
		return 0, err
	}
	for _, g := range guards {
		play := func() (caught, error) { return remove(ctx, sim, g, o) }
		if by, ok := tested[g.Name]; ok {
			play = func() (caught, error) { return by.remove(ctx, dir, g, o) }
		}
		c, err := play()
		if err != nil {
			return missed, fmt.Errorf("%s: %w", g.Name, err)
		}
		if !c.Caught {
			missed++
		}
		show(out, o, c)
		if g.Name == fsyncGuard {
			c, err := syncs(ctx, dir, g)
			if err != nil {
				return missed, err
			}
			if !c.Caught && !c.Skipped {
				missed++
			}
			show(out, o, c)
		}
	}
	if !o.json {
		fmt.Fprintf(out, "%d guards removed, %d not noticed\n", len(guards), missed)
	}
	return missed, ctx.Err()
}

func chosen(only string) ([]mutation.Guard, error) {
	all := mutation.Guards()
	if only == "" {
		return all, nil
	}
	var some []mutation.Guard
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(g mutation.Guard) bool { return g.Name == name })
		if i < 0 {
			var names []string
			for _, g := range all {
				names = append(names, g.Name)
			}
			return nil, fmt.Errorf("there is no guard %q; there are %s", name, strings.Join(names, ", "))
		}
		some = append(some, all[i])
	}
	return some, nil
}

func show(out io.Writer, o options, c caught) {
	if o.json {
		line, err := json.Marshal(c)
		if err != nil {
			panic("guards: a result is not JSON: " + err.Error())
		}
		fmt.Fprintf(out, "%s\n", line)
		return
	}
	word := "MISSED"
	switch {
	case c.Skipped:
		word = "skipped"
	case c.Caught:
		word = "caught"
	}
	fmt.Fprintf(out, "%-12s %s %6.1f s  %s\n", c.Guard, word, c.Seconds, c.By)
}

// violation matches the line in which ./sim reports a broken invariant.
var violation = regexp.MustCompile(`(?m)^VIOLATION in seed (\d+): (.*)$`)

// remove plays schedules without a guard until the simulator notices.
func remove(ctx context.Context, sim string, g mutation.Guard, o options) (caught, error) {
	c := caught{Guard: g.Name, Keeps: g.Keeps}
	began := time.Now()
	cmd := exec.CommandContext(ctx, sim, "-seed", fmt.Sprint(o.seed), "-duration", fmt.Sprintf("%ds", o.seconds))
	cmd.Env = append(os.Environ(), mutation.Variable+"="+g.Name)
	said, err := cmd.CombinedOutput()
	c.Seconds = time.Since(began).Seconds()
	if err == nil {
		c.By = "nothing was noticed"
		return c, nil
	}
	m := violation.FindSubmatch(said)
	if m == nil {
		return c, fmt.Errorf("the simulator ended with %w and named no invariant:\n%s", err, tail(said))
	}
	c.Caught, c.By = true, fmt.Sprintf("seed %s: %s", m[1], m[2])
	return c, nil
}

// A test notices that a guard is missing.
type test struct{ pkg, name string }

// tested are the guards for which the simulator has nothing.
var tested = map[string]test{
	"trigger":    {"internal/inbound", "TestI13_KilledBetween"},
	"mergeorder": {"internal/machine", "TestScenarios"},
	"cleanup":    {"internal/workspace", "TestX235_RemovedWithItsRun"},
	"foreign":    {"internal/workspace", "TestR25_LeftoversOfAKilledProcess"},
}

// remove runs the test, first with the guard and then without it.
func (t test) remove(ctx context.Context, dir string, g mutation.Guard, o options) (caught, error) {
	c := caught{Guard: g.Name, Keeps: g.Keeps}
	root, err := moduleRoot(ctx)
	if err != nil {
		return c, err
	}
	bin := filepath.Join(dir, g.Name+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-tags", mutation.Tag, "-o", bin, "./"+t.pkg)
	build.Dir = root
	if said, err := build.CombinedOutput(); err != nil {
		return c, fmt.Errorf("go test -c %s: %w\n%s", t.pkg, err, said)
	}
	run := func(guard string) (said []byte, err error) {
		cmd := exec.CommandContext(ctx, bin, "-test.run", "^"+t.name+"$", "-test.timeout", fmt.Sprintf("%ds", o.seconds))
		cmd.Dir, cmd.Env = filepath.Join(root, t.pkg), append(os.Environ(), mutation.Variable+"="+guard)
		return cmd.CombinedOutput()
	}
	if said, err := run(""); err != nil {
		return c, fmt.Errorf("with the guard %s fails: %w\n%s", t.name, err, tail(said))
	}
	began := time.Now()
	said, err := run(g.Name)
	c.Seconds = time.Since(began).Seconds()
	switch m := failure.FindSubmatch(said); {
	case err == nil:
		c.By = t.name + " noticed nothing"
	case m == nil:
		return c, fmt.Errorf("%s ended with %w and says of no failure:\n%s", t.name, err, tail(said))
	default:
		c.Caught, c.By = true, fmt.Sprintf("%s: %s", t.name, m[1])
	}
	return c, nil
}

// failure matches the first message of a test that has failed.
var failure = regexp.MustCompile(`(?m)^--- FAIL: .*\n\s+(.*)$`)

func tail(said []byte) []byte {
	return said[max(0, len(said)-2_000):]
}

// build builds a command of this module with a tag, from the root of the module.
func build(ctx context.Context, bin, tag, pkg string) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", tag, "-o", bin, pkg)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build -tags %s %s: %w\n%s", tag, pkg, err, said)
	}
	return nil
}

// moduleRoot is the directory of the module.
func moduleRoot(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("run this inside of the module: %w", err)
	}
	return string(bytes.TrimSpace(root)), nil
}
