// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/roux-engine/roux/sim/bystanders"
	"github.com/roux-engine/roux/sim/effects"
)

//go:embed recipes
var recipes embed.FS

const (
	// maxCommandTime is how long a command that is not killed may take. The recipes
	// have work for a few seconds only.
	maxCommandTime = 90 * time.Second
	// servingLimit is how soon after its start a process must serve (F01).
	servingLimit = 2 * time.Second
	// exitFailed is the exit code when runs have failed.
	exitFailed = 1
	// exitLocked is the exit code when another process holds the directory. That may
	// be a command that sends a signal while no other process holds it.
	exitLocked      = 7
	exitUnreachable = 9 // the process that it asked was killed
)

// A bench is the state that rounds share.
type bench struct {
	plainBinary, failpointBinary string // the binaries, without and with failpoints
	dir                          string // of the whole bench
	files                        string // directory of the recipes
	rec                          *effects.Recorder
	servingLimit                 time.Duration // the bar

	kills, stops, hits, runs, effects, repeats, lost, released atomic.Int64
	named                                                      atomic.Int64 // how many files events named
	links, compared                                            atomic.Int64 // links planted in workspaces, and rounds whose bystanders were compared
	children, paid                                             atomic.Int64 // child runs, and credits that runs have settled
	unanswered, sequences                                      atomic.Int64 // over HTTP: starts without an answer, and what was compared of what clients were sent
	reconnects, frames                                         tally        // over HTTP: connections that read on after a cursor, and what all connections brought
	backups, replays                                           atomic.Int64 // backups that were restored, and runs that were replayed in them
	scenarios                                                  atomic.Int64 // scenarios that were run
	stalls, partitions, jobs, resubmitted, deaths              atomic.Int64 // with remote workers: processes that were stopped, and so on
	slowest                                                    atomic.Int64 // ns to the first line after a kill
	restarts                                                   atomic.Int64
	restarting                                                 atomic.Int64 // ns, sum
	late                                                       atomic.Int64 // restarts beyond the limit while the machine was overloaded
	points                                                     pointLog
}

// newBench builds the binaries and starts the recorder.
func newBench(ctx context.Context, dir, tags string, withPoints bool) (b *bench, err error) {
	b = &bench{dir: dir, files: filepath.Join(dir, "recipes"), servingLimit: servingLimit}
	if b.plainBinary, err = build(ctx, dir, "roux", tags); err != nil {
		return nil, err
	}
	if withPoints {
		if b.failpointBinary, err = build(ctx, dir, "roux-failpoints", "failpoints"); err != nil {
			return nil, err
		}
	}
	if err := os.CopyFS(dir, recipes); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "given.txt"), bytes.Repeat([]byte("given\n----"), 100), 0o600); err != nil {
		return nil, err
	}
	b.rec, err = effects.Start(filepath.Join(dir, "effects.jsonl"))
	return b, err
}

// A round is the use of one data directory, from the first run in it to the last
// check.
type round struct {
	*bench
	name   string
	dir    string
	rng    *rand.Rand
	c      *client
	offset int64             // in the recorder's file
	tags   map[string]string // the recipe of each tag
	slow   []string          // restarts that served too late

	started      map[string]string // over HTTP: by tag, the run that a start was answered with
	watch        *watch            // over HTTP: what clients were sent
	pays         bool              // its account pays for the runs
	tolerate     []string          // codes of injected failures
	hasExpired   bool              // retention has something to remove
	lostAttempts int               // attempts that are lost in the journals
	killed       int               // killed processes of this round; they count only if onlyKills is set
	onlyKills    bool              // no process ended in another way
	remote       bool              // remote workers carry out the effects
	jobSteps     int               // steps that have completed with a job of the provider
	stands       bool              // runs may not have ended, and nothing carries them on
	bystanders   *bystanders.Files // files beside the workspaces of the runs; nil = there are none
}

func (b *bench) newRound(name string, seed uint64, exe string) (*round, error) {
	r := &round{bench: b, name: name, dir: filepath.Join(b.dir, name), rng: rand.New(rand.NewPCG(seed, 0)), tags: map[string]string{}}
	data := filepath.Join(r.dir, "data")
	err := os.MkdirAll(data, 0o700)
	if err == nil {
		r.c, err = newClient(exe, data, filepath.Join(r.dir, "client.jsonl"))
	}
	if err == nil {
		r.offset, err = b.rec.Size()
	}
	return r, err
}

// run starts a run of a recipe.
func (r *round) run(recipe string, env ...string) (*process, error) {
	tag := fmt.Sprintf("%s.%d.", r.name, len(r.tags))
	r.tags[tag] = recipe
	args := []string{"run", filepath.Join(r.files, recipe+".yaml"), "--input", "base=" + r.rec.URL, "--input", "tag=" + tag}
	if recipe == "spill" || recipe == "mosaic" {
		args = append(args, "--file", filepath.Join(r.bench.dir, "given.txt"))
	}
	return r.c.start(env, args...)
}

// lay lays out files beside the workspaces of the runs, before the first process.
func (r *round) lay() (err error) {
	if r.bystanders, err = bystanders.Lay(r.dir, r.c.dir, r.files, r.rng.IntN(2) == 0); err == nil && r.bystanders.Root() != "" {
		r.c.env = append(r.c.env, "ROUX_NESTED_WORKSPACE_ROOT="+r.bystanders.Root())
	}
	return err
}

// plant plants links in the workspaces of runs, while no process runs.
func (r *round) plant() error {
	if r.bystanders == nil {
		return nil
	}
	return r.bystanders.Plant()
}

// kill kills a process at a random moment: after a number of lines and a short delay,
// or after some time. It returns false when the process ended before.
func (r *round) kill(p *process) bool {
	var after time.Duration
	if r.rng.IntN(2) == 0 {
		if !r.readLines(p, r.rng.IntN(40)) {
			return false
		}
		after = time.Duration(r.rng.IntN(4000)) * time.Microsecond
	} else {
		after = time.Duration(r.rng.IntN(450_000)) * time.Microsecond
	}
	end := time.NewTimer(after)
	defer end.Stop()
	for {
		select {
		case _, ok := <-p.lines:
			if !ok {
				return false
			}
			continue
		case <-end.C:
		}
		break
	}
	p.signal(syscall.SIGKILL)
	if p.wait() != -1 {
		return false
	}
	r.kills.Add(1)
	r.killed++
	return true
}

// readLines reads n lines of a process, or fewer if it waits for something. It returns
// false when the process has ended.
func (r *round) readLines(p *process, n int) bool {
	enough := time.NewTimer(time.Second) // a queued run has nothing to show
	defer enough.Stop()
	for ; n > 0; n-- {
		select {
		case l, ok := <-p.lines:
			if !ok {
				return false
			}
			if l.Type == "node.waiting" && r.rng.IntN(2) == 0 {
				return true
			}
		case <-enough.C:
			return true
		}
	}
	return true
}

// stop asks a process to stop in order, at a random moment.
func (r *round) stop(p *process) {
	for n := r.rng.IntN(25); n > 0; n-- {
		if _, ok := <-p.lines; !ok {
			return
		}
	}
	p.signal(syscall.SIGTERM)
	r.stops.Add(1)
}

// endWithin ends a process while an attempt without an answer is running: by a kill,
// or in order, which hands the attempt back. nth is how many effects there must be by
// then.
func (r *round) endWithin(p *process, nth int, kill bool) error {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		had, err := r.rec.Since(r.offset, r.name+".")
		if err != nil {
			return err
		}
		if len(had) >= nth {
			break
		}
		if time.Since(began) > maxCommandTime {
			return fmt.Errorf("%s: there are %d effects after %s, want %d", r.name, len(had), maxCommandTime, nth)
		}
	}
	if kill {
		p.signal(syscall.SIGKILL)
		r.kills.Add(1)
		r.killed++
	} else {
		p.signal(syscall.SIGTERM)
		r.stops.Add(1)
	}
	_, err := p.within(maxCommandTime)
	return err
}

// random starts a few runs, kills the processes that execute them, and continues until
// all runs have ended. It returns the problems. If workspaces is set, one of the runs is of mosaic,
// and the files beside its workspaces are compared.
func (r *round) random(kills int, workspaces bool) (problems []string, err error) {
	names := []string{"mixed", "chain", "wide", "gate", "undo", "nested", "nested", "bulky", "spill"}
	if workspaces {
		if err := r.lay(); err != nil {
			return nil, err
		}
	}
	if r.rng.IntN(2) == 0 {
		if err := r.pay(); err != nil {
			return nil, err
		}
	}
	r.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	if workspaces {
		names[0] = "mosaic"
	}
	done := 0
	r.onlyKills = true
	for i, name := range names[:2+r.rng.IntN(2)] {
		p, err := r.run(name)
		if err != nil {
			return nil, err
		}
		stop := r.sendRequests()
		queued := r.pays && i >= maxLive // it may wait for runs that no process carries on
		if queued || r.rng.IntN(8) > 0 && done < kills {
			if r.kill(p) {
				done++
			}
		} else if name == "gate" {
			err = r.untilWaiting(p)
		}
		code, werr := p.within(maxCommandTime)
		if err = errors.Join(err, werr, stop(), r.plant()); err != nil {
			return nil, err
		}
		if bad := r.checkExit(p, code); bad != "" {
			problems = append(problems, bad)
		}
	}
	for quiet := 0; done < kills && quiet < 3; {
		p, err := r.c.start(nil, "resume")
		if err != nil {
			return nil, err
		}
		stop := r.sendRequests()
		killed := false
		if r.rng.IntN(3) == 0 {
			r.stop(p)
		} else {
			killed = r.kill(p)
		}
		code, err := p.within(maxCommandTime)
		if err = errors.Join(err, stop(), r.plant()); err != nil {
			return nil, err
		}
		r.restarted(p.serving())
		if killed {
			done++
			continue
		}
		if bad := r.checkExit(p, code); bad != "" {
			problems = append(problems, bad)
		}
		again, err := r.release()
		if err != nil {
			return nil, err
		}
		if quiet++; !again {
			break
		}
	}
	more, err := r.resumeAll()
	return append(problems, more...), err
}

// mixed ends the processes of one run while its attempt is running, each by a kill or
// in order, and continues until the run has ended. An attempt that a stop handed back
// must not count as lost; one that was killed must (F45).
func (r *round) mixed(kills []bool) (problems []string, err error) {
	r.onlyKills = true
	p, err := r.run("kept")
	killed := 0
	for n, kill := range kills {
		if err == nil {
			err = r.endWithin(p, n+1, kill)
		}
		if err != nil {
			return nil, err
		}
		if kill {
			killed++
		}
		p, err = r.c.start(nil, "resume")
	}
	if err == nil {
		_, err = p.within(maxCommandTime)
	}
	if err != nil {
		return nil, err
	}
	if problems, err = r.resumeAll(); err == nil && r.lostAttempts != killed {
		problems = append(problems, fmt.Sprintf("%s: %d attempts count as lost, %d processes were killed and %d stopped in order (F45)",
			r.name, r.lostAttempts, killed, len(kills)-killed))
	}
	return problems, err
}

// stopsAndKills draws how the processes of a mixed round end; fewer are killed than
// lost_limit allows.
func (r *round) stopsAndKills() []bool {
	kills := []bool{true, true, false, false, false}
	r.rng.Shuffle(len(kills), func(i, j int) { kills[i], kills[j] = kills[j], kills[i] })
	return kills
}

// untilWaiting lets a run continue until it waits, and stops the process then.
func (r *round) untilWaiting(p *process) error {
	for l := range p.lines {
		if l.Type == "node.waiting" {
			p.signal(syscall.SIGTERM)
		}
	}
	return nil
}

// checkExit checks the exit code of a command that was not killed.
func (r *round) checkExit(p *process, code int) string {
	switch code {
	case -1, 0, exitFailed, exitLocked, exitUnreachable, 130:
		return ""
	}
	return fmt.Sprintf("%s: `%s` ended with exit code %d:\n%s", r.name, strings.Join(p.cmd.Args[1:], " "), code, p.stderr())
}

// restarted records how soon a restarted process served.
func (r *round) restarted(took time.Duration) {
	if took == 0 {
		return
	}
	r.restarts.Add(1)
	r.restarting.Add(int64(took))
	for old := r.slowest.Load(); int64(took) > old && !r.slowest.CompareAndSwap(old, int64(took)); old = r.slowest.Load() {
	}
	switch {
	case took <= r.servingLimit:
	case busy():
		r.late.Add(1)
	default:
		r.slow = append(r.slow, fmt.Sprintf("%s: a restarted process showed its first event after %s (F01 wants %s)", r.name, took, r.servingLimit))
	}
}

// busy reports whether the load exceeds twice the number of processors, so that
// lateness is explained by a lack of processor time. It works on Linux only.
func busy() bool {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return false
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		return false
	}
	return load > 2*float64(runtime.NumCPU())
}

// sendRequests sends runs the signal they wait for and grants credits, from separate
// processes while another holds the directory. It records what was acknowledged.
func (r *round) sendRequests() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	delay := time.Duration(r.rng.IntN(200)) * time.Millisecond
	go func() {
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-time.After(delay):
			}
			if err := r.grantAgain(fmt.Sprint("key ", n%3)); err != nil {
				done <- err
				return
			}
			runs, err := r.waiting()
			if err != nil {
				done <- err
				return
			}
			for _, run := range runs {
				_, _, code, err := r.c.output("runs", "signal", run, "go", "--payload", `{"said":"yes"}`)
				if err != nil {
					done <- err
					return
				}
				if code == 0 {
					r.c.mu.Lock()
					r.c.signalled[run] = true
					err := r.c.note(fmt.Sprintf(`{"signalled":%q}`, run), true)
					r.c.mu.Unlock()
					if err != nil {
						done <- err
						return
					}
				}
			}
			delay = 100 * time.Millisecond
		}
	}()
	return func() error { cancel(); return <-done }
}

// waiting are the runs that may wait for a signal and have not got one.
func (r *round) waiting() (ids []string, err error) {
	if !slices.Contains(slices.Collect(maps.Values(r.tags)), "gate") {
		return nil, nil
	}
	out, _, code, err := r.c.output("runs", "list", "--recipe", "gate", "--limit", "500", "-o", "json")
	if err != nil || code != 0 {
		return nil, err // the process that holds the directory is being killed
	}
	var runs []listed
	if err := json.Unmarshal([]byte(out), &runs); err != nil {
		return nil, err
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	for _, run := range runs {
		if run.EndedAt == "" && !r.c.signalled[run.ID] {
			ids = append(ids, run.ID)
		}
	}
	return ids, nil
}

// listed is a run as `roux runs list` prints it.
type listed struct {
	ID         string `json:"id"`
	Recipe     string `json:"recipe"`
	Status     string `json:"status"`
	EndedAt    string `json:"endedAt"`
	Quarantine string `json:"quarantined"`
}

func (r *round) list() (runs []listed, err error) {
	return runs, r.ask(&runs, "runs", "list", "--limit", "500")
}

// parents are the recipes whose runs have child runs.
var parents = []string{"nested", "middle", "mosaic", "sheet", "resumed", "broken"}

// below lists the child runs of a run, and theirs.
func (r *round) below(run *listed) (runs []listed, err error) {
	if !slices.Contains(parents, run.Recipe) {
		return nil, nil
	}
	if err := r.ask(&runs, "runs", "list", "--limit", "500", "--children", run.ID); err != nil {
		return nil, err
	}
	for i := range runs {
		more, err := r.below(&runs[i])
		if err != nil {
			return nil, err
		}
		runs = append(runs, more...)
	}
	return runs, nil
}

// release releases runs that were quarantined because the process died three times
// while loading one of them alone. again reports whether there is anything to resume.
func (r *round) release() (again bool, err error) {
	runs, err := r.list()
	if err != nil {
		return false, err
	}
	for _, run := range slices.Clone(runs) {
		if run.EndedAt == "" {
			again = true
			more, err := r.below(&run)
			if err != nil {
				return false, err
			}
			runs = append(runs, more...)
		}
	}
	for _, run := range runs {
		if run.Quarantine == "" {
			continue
		}
		_, talk, code, err := r.c.output("runs", "release", run.ID)
		if err != nil {
			return false, err
		}
		if code != 0 {
			return false, fmt.Errorf("%s: release %s: exit code %d\n%s", r.name, run.ID, code, talk)
		}
		r.released.Add(1)
		again = true
	}
	return again, nil
}
