// SPDX-License-Identifier: Apache-2.0

// Command kill kills the real binary again and again, and compares independent records
// of what happened.
//
//	go run ./sim/kill -kills 2000 [-seed 1] [-http] [-workers 100] [-backups 12] [-failpoints] [-faults]
//	go run ./sim/kill -kills 0 -deaths 100 -jobs 10000
//	go run ./sim/kill -kills 0 -limit
//
// Three processes keep three records: the journal (Roux's own), the effects (a
// recorder that syncs each before it answers), and what a client was shown. A round
// has a new data directory. In it the command line runs recipes, is killed at random
// moments, and resumes until all runs have ended. With -http it is a server that is killed,
// while clients start runs, follow them over connections that are cut at random bytes, and
// repeat what was not answered. Then the bench checks:
//   - everything that was shown is in the journal
//   - every effect belongs to an attempt that had begun in the journal
//   - an effect is repeated only with the same key and after an attempt whose outcome was unknown
//   - a completed step had its effect, and no step settled twice
//   - a parent and its child runs agree on how these ended
//   - in rounds that pay, what a tree of runs was charged was settled once, nothing is held, and every grant that was shown is in the ledger
//   - over HTTP, one idempotency key has started one run, and what each client was sent over all its connections is the journal, the feed and the ledger as they are stored, without gap or duplicate
//   - the content of every file fits its name
//   - no workspace is left, and no file beside the workspaces has changed
//   - replay and doctor find nothing
//
// In one more round remote workers carry out the effects, and a provider of jobs keeps books of its
// own: server and workers are killed and stopped, and what connects them is cut or held. With -workers
// there are more faults of that kind. With -deaths a task kills each worker that gets it, and with
// -jobs a provider carries out many jobs, of which three in ten go wrong.
//
// With -limit steps of the server, of workers and of a provider share limits while the first two are
// killed, and a meter judges from outside whether the limits are kept, and how much of them is used.
//
// With -backups a server that is not killed is copied again and again, and the copies are
// restored and checked.
//
// The bench decides what is a violation and never repairs one: it exits 1 and keeps
// the directory. It uses Roux from the outside only, with one exception: for retention
// it makes runs that are two days old through the engine, with another clock.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/sim/effects"
)

func main() {
	if asHelper() {
		return
	}
	var o options
	o.declare(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := work(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(1)
	}
}

// asHelper is the whole program if it was started as the recorder, or as a worker, and reports whether
// it was.
func asHelper() bool {
	file, server := os.Getenv(effects.Variable), os.Getenv(workerEnv)
	var err error
	switch {
	case file != "":
		err = effects.Record(file)
	case server != "":
		err = work9(server)
	default:
		return false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
	return true
}

type options struct {
	kills, parallel int
	reconnects      int64
	seed            uint64
	points, faults  bool
	http            bool
	dir, only, tags string
	serving         time.Duration
	backups         int
	workers, deaths int
	jobs            int
	limit           bool
	every           time.Duration
}

// declare defines the flags.
func (o *options) declare(set *flag.FlagSet) {
	set.IntVar(&o.kills, "kills", 50, "how many processes to kill at random moments")
	set.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "what decides who is killed when; the machine decides the rest")
	set.BoolVar(&o.points, "failpoints", false, "then inject each fault at every failpoint of a test build")
	set.BoolVar(&o.http, "http", false, "kill a server, with clients that repeat what was not answered and follow runs over cut connections")
	set.Int64Var(&o.reconnects, "reconnects", 0, "with -http, how many connections to streams, to sockets and to feeds must have read on after a cursor: fewer prove too little")
	set.IntVar(&o.workers, "workers", 0, "then that many faults of servers with remote workers and a provider of jobs")
	set.IntVar(&o.deaths, "deaths", 0, "then have a task kill that many workers")
	set.IntVar(&o.jobs, "jobs", 0, "then have a provider carry out that many jobs, of which three in ten go wrong")
	set.BoolVar(&o.limit, "limit", false, "then have 500 steps share a limit of three slots, and others limits of tokens, of a breaker and of retries, and measure what is used of them")
	set.IntVar(&o.backups, "backups", 0, "then make that many backups of a server under load, and restore and check each")
	set.DurationVar(&o.every, "every", 10*time.Second, "time between two backups")
	set.StringVar(&o.only, "only", "", "of the failpoints, or of the faults, those whose name begins so")
	set.StringVar(&o.tags, "tags", "", "build tags of the binary that is killed, such as one that leaves out a guard: then there must be violations")
	set.BoolVar(&o.faults, "faults", false, "then make system calls of the real binary fail (Linux, with strace)")
	set.IntVar(&o.parallel, "parallel", runtime.NumCPU(), "rounds at a time")
	set.StringVar(&o.dir, "dir", "", "where to work (default a new directory below the system's for temporary files)")
	set.DurationVar(&o.serving, "serving", servingLimit, "how soon a restarted process must serve")
}

// A summary is the last line that the bench prints.
type summary struct {
	Seed       uint64   `json:"seed"`
	Kills      int64    `json:"kills"`
	Stops      int64    `json:"orderly_stops"`
	Hits       int64    `json:"failpoint_hits"`
	Never      []string `json:"failpoints_never_passed,omitempty"`
	Faults     int      `json:"faults"`
	Skipped    []string `json:"faults_skipped,omitempty"`
	Runs       int64    `json:"runs"`
	Effects    int64    `json:"effects"`
	Repeats    int64    `json:"effects_repeated_with_their_key"`
	Files      int64    `json:"files_named_by_events"`
	Lost       int64    `json:"attempts_lost"`
	Children   int64    `json:"child_runs"`
	Compared   int64    `json:"disks_compared"`
	Links      int64    `json:"links_put_into_workspaces"`
	Paid       int64    `json:"credits_settled"`
	Released   int64    `json:"runs_released"`
	Unanswered int64    `json:"requests_unanswered,omitempty"`
	// Over HTTP, by what was followed: a stream, a socket, the feed, the ledger.
	Reconnects map[string]int64 `json:"reconnects,omitempty"`
	Frames     map[string]int64 `json:"frames_received,omitempty"`
	Sequences  int64            `json:"sequences_compared,omitempty"`
	Stalls     int64            `json:"processes_stopped_for_a_while,omitempty"`
	Partitions int64            `json:"partitions,omitempty"`
	Jobs       int64            `json:"jobs_charged,omitempty"`
	Again      int64            `json:"jobs_submitted_again_with_their_key,omitempty"`
	Deaths     int64            `json:"workers_killed_by_a_task,omitempty"`
	Backups    int64            `json:"backups_restored,omitempty"`
	Replays    int64            `json:"runs_replayed_in_backups,omitempty"`
	Restarts   int64            `json:"restarts"`
	ServingAvg float64          `json:"serving_avg_ms"`
	ServingMax float64          `json:"serving_max_ms"`
	Late       int64            `json:"serving_late_on_a_busy_machine"`
	Seconds    float64          `json:"seconds"`
	PerKill    float64          `json:"seconds_per_kill"`
	Violations int              `json:"violations"`
}

var errViolated = errors.New("there are violations; the directories named above are kept")

// work does everything that was requested.
func work(ctx context.Context, o *options) (err error) {
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "roux-kill-"); err != nil {
			return err
		}
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	began := time.Now()
	b, err := newBench(ctx, o.dir, o.tags, o.points)
	if err != nil {
		return err
	}
	b.servingLimit = o.serving
	fmt.Printf("seed %d, %d kills, %d rounds at a time, in %s (built in %.1fs)\n", o.seed, o.kills, o.parallel, o.dir, time.Since(began).Seconds())
	began = time.Now()
	problems, err := b.randomKills(ctx, o)
	spent := time.Since(began)
	kills := b.kills.Load()
	if err == nil && o.workers > 0 {
		var more []string
		more, err = b.withWorkers(ctx, o)
		problems = append(problems, more...)
	}
	if err == nil && o.deaths > 0 {
		var more []string
		more, err = b.killers(ctx, o.deaths)
		problems = append(problems, more...)
	}
	if err == nil && o.jobs > 0 {
		var more []string
		more, err = b.manyJobs(ctx, o.jobs, o.seed)
		problems = append(problems, more...)
	}
	if err == nil && o.limit {
		var more []string
		more, err = b.limited(ctx, limitLong, o.seed)
		problems = append(problems, more...)
		if err == nil {
			more, err = b.throttled(ctx, throttleLong, o.seed)
			problems = append(problems, more...)
		}
	}
	if err == nil && o.backups > 0 {
		var more []string
		more, err = b.backUp(ctx, o)
		problems = append(problems, more...)
	}
	if err == nil && o.points {
		var more []string
		more, err = b.everyPoint(ctx, o)
		problems = append(problems, more...)
	}
	var faults int
	var skipped []string
	if err == nil && o.faults {
		var more []string
		more, faults, skipped, err = b.everyFault(ctx, o.only)
		problems = append(problems, more...)
	}
	for _, v := range []way{byStream, bySocket, byFeed} {
		if n := b.reconnects[v].Load(); n < o.reconnects {
			err = errors.Join(err, fmt.Errorf("%d reconnects of the kind %s, want %d", n, v, o.reconnects))
		}
	}
	s := b.summary(o, spent, kills)
	s.Faults, s.Skipped = faults, skipped
	err = errors.Join(err, b.rec.Stop())
	for _, p := range problems {
		fmt.Printf("VIOLATION %s (below %s)\n", p, o.dir)
	}
	s.Violations, s.Seconds = len(problems), time.Since(began).Seconds()
	line, jerr := json.Marshal(s)
	fmt.Println(string(line))
	switch {
	case err != nil || jerr != nil:
		return errors.Join(err, jerr)
	case len(problems) > 0:
		return errViolated
	}
	return os.RemoveAll(o.dir)
}

func (b *bench) summary(o *options, spent time.Duration, kills int64) *summary {
	s := &summary{
		Seed: o.seed, Kills: b.kills.Load(), Stops: b.stops.Load(), Hits: b.hits.Load(), Runs: b.runs.Load(), Effects: b.effects.Load(), Repeats: b.repeats.Load(),
		Files: b.named.Load(), Lost: b.lost.Load(), Children: b.children.Load(), Compared: b.compared.Load(), Links: b.links.Load(), Paid: b.paid.Load(), Released: b.released.Load(), Restarts: b.restarts.Load(), Late: b.late.Load(),
		Unanswered: b.unanswered.Load(), Reconnects: b.reconnects.counts(), Frames: b.frames.counts(), Sequences: b.sequences.Load(), Backups: b.backups.Load(), Replays: b.replays.Load(),
		Stalls: b.stalls.Load(), Partitions: b.partitions.Load(), Jobs: b.jobs.Load(), Again: b.resubmitted.Load(), Deaths: b.deaths.Load(),
		ServingMax: float64(b.slowest.Load()) / 1e6, ServingAvg: float64(b.restarting.Load()) / 1e6 / float64(max(b.restarts.Load(), 1)),
		PerKill: spent.Seconds() / float64(max(kills, 1)),
	}
	if o.points && o.only == "" {
		s.Never = b.points.unreached()
	}
	return s
}

// each calls work on several goroutines and collects the problems found.
func each(ctx context.Context, parallel int, next func() (work func() ([]string, error), more bool)) (problems []string, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for {
				mu.Lock()
				work, more := next()
				more = more && err == nil && ctx.Err() == nil
				mu.Unlock()
				if !more {
					return
				}
				found, werr := work()
				mu.Lock()
				problems, err = append(problems, found...), errors.Join(err, werr)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return problems, errors.Join(err, ctx.Err())
}

// killsARound is how many processes are killed in one directory before it is checked.
// One round in mixedEvery alternately stops and kills the processes of one attempt. One in workspacesEvery has
// runs with workspaces, and compares what is on the disk afterwards.
const (
	killsARound     = 10
	mixedEvery      = 8
	workspacesEvery = 3
)

func (b *bench) randomKills(ctx context.Context, o *options) ([]string, error) {
	began := time.Now()
	n := 0
	var said atomic.Int64
	return each(ctx, o.parallel, func() (func() ([]string, error), bool) {
		if n++; n == 1 && o.kills > 0 && !o.http {
			return func() ([]string, error) { return b.remoteRound(ctx, "w", o.seed, faultsShort) }, true
		}
		left := o.kills - int(b.kills.Load())
		name, seed, workspaces := fmt.Sprintf("r%d", n), o.seed+uint64(n), n%workspacesEvery == 2
		if o.http {
			name = fmt.Sprintf("h%d", n)
		}
		return func() ([]string, error) {
			r, err := b.newRound(name, seed, b.plainBinary)
			if err != nil {
				return nil, err
			}
			var problems []string
			if o.http {
				problems, err = r.overHTTP(ctx, min(left, killsARound))
			} else if seed%mixedEvery == 1 && !workspaces {
				problems, err = r.mixed(r.stopsAndKills())
			} else {
				problems, err = r.random(min(left, killsARound), workspaces)
			}
			err = r.finish(problems, err)
			if now := int64(time.Since(began).Seconds()) / 10; said.Swap(now) != now {
				fmt.Printf("%6.0fs %d kills, %d runs, %d effects, %d attempts lost\n",
					time.Since(began).Seconds(), b.kills.Load(), b.runs.Load(), b.effects.Load(), b.lost.Load())
			}
			return problems, err
		}, left > 0
	})
}

// How many faults a round with remote workers has: the one among the random kills, and the others.
const (
	faultsShort = 6
	faultsLong  = 20
)

// remoteRound is a round with remote workers.
func (b *bench) remoteRound(ctx context.Context, name string, seed uint64, faults int) ([]string, error) {
	r, err := b.newRound(name, seed, b.plainBinary)
	if err != nil {
		return nil, err
	}
	problems, err := r.remotely(ctx, faults)
	return problems, r.finish(problems, err)
}

// withWorkers plays rounds with remote workers.
func (b *bench) withWorkers(ctx context.Context, o *options) ([]string, error) {
	n := 0
	return each(ctx, o.parallel, func() (func() ([]string, error), bool) {
		first := n * faultsLong
		n++
		name, seed := fmt.Sprintf("w%d", n), o.seed+uint64(n)
		return func() ([]string, error) {
			return b.remoteRound(ctx, name, seed, min(o.workers-first, faultsLong))
		}, first < o.workers
	})
}

// everyPoint injects each kind of fault at each failpoint, and reports the points that
// were never reached, because those prove nothing.
func (b *bench) everyPoint(ctx context.Context, o *options) ([]string, error) {
	type one struct {
		point  failpoint.Point
		action string
	}
	var all []one
	for _, p := range failpoint.Points {
		for _, a := range actions(p.Fails) {
			if !strings.HasPrefix(string(p.Point), o.only) {
				continue
			}
			all = append(all, one{p.Point, a})
		}
	}
	n := 0
	problems, err := each(ctx, o.parallel, func() (func() ([]string, error), bool) {
		if n == len(all) {
			return nil, false
		}
		w := all[n]
		n++
		name, seed := fmt.Sprintf("p%d", n), o.seed+uint64(n)
		if n%20 == 0 {
			fmt.Printf("%d of %d failpoints and actions\n", n, len(all))
		}
		return func() ([]string, error) { return b.hit(name, seed, w.point, w.action) }, true
	})
	if never := b.points.unreached(); err == nil && len(never) > 0 && o.only == "" {
		slices.Sort(never)
		problems = append(problems, fmt.Sprintf("the failpoints %v were never reached", never))
	}
	return problems, err
}
