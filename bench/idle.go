// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/engine"
)

// recoverLimit is the time limit of a recovery.
const recoverLimit = 2 * time.Minute

// runsFile holds the ids of the waiting runs, one per line.
const runsFile = "runs.txt"

// idle measures the cost of many waiting runs: a child process starts them and reports
// once it is idle. It is then killed, and recover_s is how long another process takes to
// recover.
func idle(ctx context.Context, b *bench) ([]Line, error) {
	n := b.few(b.waiting, 200)
	l := b.line("idle", n)
	dir := b.fresh()
	args := []string{"-idle", b.rest().String()}
	if b.profile != "" {
		args = append(args, "-profile", b.profile+".heap")
	}
	filled, err := b.fill(ctx, dir, n, args...)
	if err != nil {
		return nil, err
	}
	l.Seconds = filled["seconds"]
	steps := float64(n * b.done)
	l.StepsPerS, l.CPUPerStepUS = steps/l.Seconds, filled["cpu_us"]/steps
	l.RSSMB = filled["rss_mb"]
	for _, k := range []string{"rss_before_mb", "rss_start_mb", "pss_empty_mb", "pss_mb", "heap_mb", "bytes_per_run", "syncs_per_s", "idle_written", "idle_cpu_ms_per_s"} {
		l.put(k, filled[k])
	}
	used, err := diskUse(filepath.Join(dir, "data"))
	if err != nil {
		return nil, err
	}
	l.BytesPerStep = float64(used) / steps
	l.put("disk_mb", float64(used)/(1<<20))
	took, _, err := b.takeOver(ctx, dir)
	if err != nil {
		return nil, err
	}
	l.put("recover_s", took.Seconds())
	return []Line{l}, b.denominators(ctx, &l, chainOf(max(b.done, 1)), nothing, 0)
}

// recovery measures how long a new process takes to recover after one that was killed
// five seconds after the last of many runs began to wait, and after one that was killed
// at that moment, before the runs were suspended.
func recovery(ctx context.Context, b *bench) (lines []Line, err error) {
	for _, kind := range []struct {
		name string
		rest time.Duration
	}{{"recover", b.rest()}, {"recover-hot", 0}} {
		n := b.few(b.waiting, 200)
		l := b.line(kind.name, n)
		dir := b.fresh()
		if _, err := b.fill(ctx, dir, n, "-rest", kind.rest.String()); err != nil {
			return lines, err
		}
		took, got, err := b.takeOver(ctx, dir)
		if err != nil {
			return lines, err
		}
		l.Seconds = took.Seconds()
		l.P50US, l.P99US = us(took), us(took)
		for _, k := range []string{"main_ms", "store_ms", "engine_ms", "signal_ms", "runs_read"} {
			l.put(k, got[k])
		}
		l.RSSMB = got["rss_mb"]
		if err := b.denominators(ctx, &l, chainOf(max(b.done, 1)), nothing, 0); err != nil {
			return lines, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// fill has a child start n runs that wait, and kills it.
func (b *bench) fill(ctx context.Context, dir string, n int, args ...string) (filled figures, err error) {
	p, err := b.child(ctx, &filled, "fill", append([]string{"-dir", dir, "-n", fmt.Sprint(n), "-done", fmt.Sprint(b.done)}, args...)...)
	if err == nil {
		err = p.kill()
	}
	return filled, err
}

// takeOver starts a child on the data of a killed one, and measures the time from the
// call that starts it until the step after a signal to one of its runs is called.
func (b *bench) takeOver(ctx context.Context, dir string) (took time.Duration, got figures, err error) {
	run, err := anyLine(filepath.Join(dir, runsFile))
	if err != nil {
		return 0, nil, err
	}
	args := []string{"-dir", dir, "-signal", run}
	if b.profile != "" {
		args = append(args, "-profile", b.profile+".recover")
	}
	limited, cancel := context.WithTimeout(ctx, recoverLimit)
	defer cancel()
	began := time.Now()
	p, err := b.child(limited, &got, "recover", args...)
	took = time.Since(began)
	if err != nil {
		return took, nil, fmt.Errorf("after %v (it is killed after %v): %w", took, recoverLimit, err)
	}
	return took, got, p.kill()
}

func anyLine(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	ids := strings.Fields(string(text))
	if len(ids) == 0 {
		return "", fmt.Errorf("%s is empty", file)
	}
	return ids[rand.IntN(len(ids))], nil
}

// figures are the measurements of a child, by name.
type figures map[string]float64

// A process is a child that has reported its figures and waits to be killed.
type process struct{ cmd *exec.Cmd }

// child starts this program again in another role and waits for its figures.
func (b *bench) child(ctx context.Context, into *figures, role string, args ...string) (*process, error) {
	p, _, out, err := b.start(ctx, role, args...)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, into)
	}
	if err != nil {
		_ = p.kill()
		return nil, fmt.Errorf("the process that should %s told nothing: %w", role, err)
	}
	return p, nil
}

// start starts this program again in another role. Its standard input is closed when this process
// dies, which makes the child exit.
func (b *bench) start(ctx context.Context, role string, args ...string) (_ *process, stdin io.Writer, stdout io.Reader, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = b.stderr
	if stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	if stdin, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, err
	}
	return &process{cmd}, stdin, stdout, nil
}

// kill kills the child, as a crash would.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = p.cmd.Wait() // the error says that it was killed
	return nil
}

// roleVariable is the environment variable that makes this program a child.
const roleVariable = "ROUX_BENCH_ROLE"

// A part holds the parameters of a child, which reports its figures and is then
// killed.
type part struct {
	dir     string
	n       int
	done    int           // steps before the wait; the plan has two more
	profile string        // memory or CPU profile; "" = none
	idle    time.Duration // how long to watch the runs wait; 0 = do not
	rest    time.Duration // how long to let them wait instead
	signal  string
	began   time.Time
}

// play is the main function of a child.
func (p *part) play(ctx context.Context, role string, stdin io.Reader, stdout io.Writer) error {
	var f figures
	var err error
	switch role {
	case "jobs":
		return jobsRole(ctx, stdin, stdout)
	case "fill":
		f, err = p.fill(ctx)
	case "recover":
		var stop func() error
		if stop, err = profiled(p.profile); err == nil {
			f, err = p.takeOver(ctx)
			err = closing(stop, err)
		}
	case "bare":
		f, err = p.bare(ctx)
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		return err
	}
	line, err := json.Marshal(f)
	if err == nil {
		_, err = stdout.Write(append(line, '\n'))
	}
	if err == nil {
		_, err = io.Copy(io.Discard, stdin)
	}
	return err
}

// freeMemory returns free memory to the system. It collects twice, because objects in a
// sync.Pool survive one collection; an idle process has one every two minutes.
func freeMemory() {
	runtime.GC()
	debug.FreeOSMemory()
}

// fill starts n runs that do some steps and then wait for a signal.
func (p *part) fill(ctx context.Context) (f figures, err error) {
	freeMemory()
	f = figures{"pss_empty_mb": pss()}
	var t callCounter
	w, err := open(ctx, filepath.Join(p.dir, "data"), t.run, engine.Config{})
	if err != nil {
		return nil, err
	}
	pl, err := planOf(waitingOf(p.done), w.act)
	if err != nil {
		return nil, err
	}
	f["rss_start_mb"] = rss()
	list, err := os.Create(filepath.Join(p.dir, runsFile))
	if err != nil {
		return nil, err
	}
	ids := make(chan string, 256)
	written1 := make(chan error, 1)
	go func() {
		out := bufio.NewWriter(list)
		for id := range ids {
			_, _ = out.WriteString(id + "\n") // Flush reports the first error
		}
		written1 <- out.Flush()
	}()
	began, used := time.Now(), cpu()
	var next atomic.Int64
	err = together(64, func(int) error {
		for next.Add(1) <= int64(p.n) {
			s, err := w.e.Start(ctx, engine.StartRequest{Account: account, Plan: pl, Recipe: "bench"})
			if err != nil {
				return err
			}
			ids <- s.Run
		}
		return nil
	})
	close(ids)
	if werr := <-written1; err == nil {
		err = werr
	}
	if err == nil {
		err = list.Close()
	}
	if err != nil {
		return nil, err
	}
	want := int64(p.n * p.done)
	for t.calls.Load() < want {
		if err := w.e.Err(); err != nil {
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
	if err := w.e.Sync(ctx); err != nil {
		return nil, err
	}
	f["seconds"], f["cpu_us"] = time.Since(began).Seconds(), us(cpu()-used)
	if p.idle == 0 {
		time.Sleep(p.rest)
		return f, nil
	}
	if err := w.calm(ctx); err != nil {
		return nil, err
	}
	f["rss_before_mb"] = rss()
	freeMemory()
	f["rss_mb"], f["pss_mb"] = rss(), pss()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f["heap_mb"] = float64(m.HeapAlloc) / (1 << 20)
	f["bytes_per_run"] = (f["rss_mb"] - f["rss_start_mb"]) * (1 << 20) / float64(p.n)
	if p.profile != "" {
		if err := writeHeap(p.profile); err != nil {
			return nil, err
		}
	}
	commits, disk, used := w.st.count().commits, written(), cpu()
	time.Sleep(p.idle)
	f["syncs_per_s"] = float64(w.st.count().commits-commits) / p.idle.Seconds()
	f["idle_written"] = float64(written() - disk)
	f["idle_cpu_ms_per_s"] = us(cpu()-used) / 1000 / p.idle.Seconds()
	return f, nil
}

func writeHeap(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}

// calm waits until the engine has committed nothing for three seconds. Compaction and
// suspension, which start after a second in the background, have then finished.
func (w *instance) calm(ctx context.Context) error {
	for quiet, last := 0, -1; quiet < 30; quiet++ {
		if n := w.st.count().commits; n != last {
			quiet, last = 0, n
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// takeOver opens the data of a killed process and signals one run.
func (p *part) takeOver(ctx context.Context) (figures, error) {
	f := figures{"main_ms": us(time.Since(p.began)) / 1000}
	ms := func(name string, since time.Time) { f[name] = us(time.Since(since)) / 1000 }
	called := make(chan string, 1)
	began := time.Now()
	w, err := open(ctx, filepath.Join(p.dir, "data"), func(_ context.Context, t *action.Task) (action.Result, error) {
		called <- t.Run + " " + t.Step
		return action.Result{}, nil
	}, engine.Config{})
	if err != nil {
		return nil, err
	}
	ms("engine_ms", began)
	f["store_ms"] = us(w.opened) / 1000
	began = time.Now()
	if err := w.e.Signal(ctx, account, p.signal, signalName, nil); err != nil {
		return nil, err
	}
	if got, want := <-called, p.signal+" "+lastStep; got != want {
		return nil, fmt.Errorf("the step %s was handed out, want %s", got, want)
	}
	ms("signal_ms", began)
	f["rss_mb"], f["runs_read"] = rss(), float64(w.st.recovered)
	return f, nil
}
