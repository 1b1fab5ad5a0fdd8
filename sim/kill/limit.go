// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/roux-engine/roux/sim/meter"
)

// A round with a limit of three slots: steps that are carried out by the server, by remote workers, and as
// jobs of a provider share it, while the server and the workers are killed. What is under way at once, and
// how much of the slots was used, is what the meter says that all of them call.

const (
	limitSlots   = 3
	limitWorkers = 3
	limitLease   = 3 * time.Second
	// limitShare is how much of the slots must be used, without the times of restarts and leases.
	limitShare = 0.9
)

// A limitSize is how large such a round is.
type limitSize struct {
	steps, kills, deaths int
	hold                 time.Duration // of a step
	exact                bool          // times count, too
}

var (
	limitLong  = limitSize{500, 8, 8, 500 * time.Millisecond, true}
	limitShort = limitSize{60, 2, 2, 150 * time.Millisecond, false}
)

// expected is how long the round takes with nothing but its steps.
func (z *limitSize) expected() time.Duration { return time.Duration(z.steps) * z.hold / limitSlots }

// singles are the recipes with one step of each kind.
var singles = []string{"held-local", "held-away", "held-job"}

// A crowd is the round.
type crowd struct {
	*server
	size     limitSize
	meter    *meter.Meter
	base     string
	workers  [limitWorkers]*exec.Cmd
	restarts []meter.Gap
}

// limited plays the round.
func (b *bench) limited(ctx context.Context, size limitSize, seed uint64) (problems []string, err error) {
	r, err := b.newRound(fmt.Sprintf("limit-%d", b.scenarios.Add(1)), seed, b.plainBinary)
	if err != nil {
		return nil, err
	}
	s, err := newServer(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("the round has not ended within 10 minutes (I6)"))
	defer cancel()
	s.end = cancel
	c := &crowd{server: s, size: size, meter: &meter.Meter{Hold: size.hold, Accept: 20 * time.Millisecond, Do: newWebClient().Do}}
	if c.meter.Secret, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookSecret, "whsec_")); err != nil {
		return nil, err
	}
	var stop func() error
	if c.base, stop, err = c.meter.Start(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop(), r.finish(problems, err)) }()
	const schema = `{"type":"object"}`
	s.env = append((&emulator{url: c.base}).env(100, s.url), fmt.Sprintf(`ROUX_WORKERS={"hold":{"lease":%q,"accounts":["*"],"input":%[2]s,"output":%[2]s}}`, limitLease, schema),
		fmt.Sprintf(`ROUX_LIMITS={"pool":{"key":"has(label.pool) ? label.pool : \"\"","concurrency":%d}}`, limitSlots))
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer c.killAll()
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	if problems = s.bad; len(problems) > 0 {
		return problems, nil
	}
	return c.judge(ctx)
}

// run starts the runs and the workers, kills some of them, and returns when all runs have ended.
func (c *crowd) run(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	for _, name := range append(singles, "held-all") {
		if err := c.register(ctx, name); err != nil {
			return err
		}
	}
	for i := range c.workers {
		if err := c.startWorker(i); err != nil {
			return err
		}
	}
	if err := c.startRuns(ctx); err != nil {
		return err
	}
	for n := range c.size.kills + c.size.deaths { // evenly in what the steps take, give or take a half
		d := c.size.expected() / time.Duration(c.size.kills+c.size.deaths+1)
		pauseFor(ctx, d/2+time.Duration(c.rng.Int64N(int64(d))))
		if err := c.hurt(ctx, n); err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
	return c.untilEnded(ctx)
}

// register registers a recipe, with what is filled in: what is replaced and by what, in turn.
func (s *server) register(ctx context.Context, name string, fill ...string) error {
	text, err := recipes.ReadFile(path.Join("recipes", name+".yaml"))
	if err == nil {
		_, err = s.call(ctx, s.key, "/v1/recipes", "", []byte(strings.NewReplacer(fill...).Replace(string(text))), nil, http.StatusCreated)
	}
	return err
}

// startRuns starts loops that have half of the steps, and runs of one step each that have the others.
func (c *crowd) startRuns(ctx context.Context) error {
	const loops = 3
	items := c.size.steps / 2 / 3 / loops
	numbers := make([]int, items)
	for i, left := 0, c.size.steps; left > 0; i++ {
		name := singles[i%3]
		if i < loops {
			name, left = "held-all", left-3*items
		} else {
			left--
		}
		tag := fmt.Sprintf("%s.%d.", name, i)
		var out struct{ ExecutionID string }
		body := map[string]any{"parameters": map[string]any{"base": c.base, "tag": tag, "numbers": numbers}, "labels": map[string]string{"pool": "shared"}}
		if _, err := c.call(ctx, c.key, "/v1/recipes/"+name+"/execute", tag, body, &out, http.StatusAccepted, http.StatusOK); err != nil {
			return err
		}
		c.order = append(c.order, out.ExecutionID)
	}
	return nil
}

// hurt kills the server or a worker, in turn, as long as either is to be killed.
func (c *crowd) hurt(ctx context.Context, n int) error {
	if deaths := (n + 1) / 2; n%2 == 1 && deaths <= c.size.deaths || n/2 >= c.size.kills {
		return c.killWorker(c.rng.IntN(limitWorkers))
	}
	g := meter.Gap{From: time.Now().UnixMicro()}
	if err := c.kill9(); err != nil {
		return err
	}
	c.kills.Add(1)
	pauseFor(ctx, time.Duration(c.rng.Int64N(int64(c.size.hold)))) // some steps end meanwhile
	if err := c.begin(); err != nil {
		return err
	}
	g.To = time.Now().UnixMicro()
	c.restarts = append(c.restarts, g)
	return nil
}

func (c *crowd) startWorker(i int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), workerEnv+"="+c.url, workerTasksEnv+"=4"), os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	c.workers[i] = cmd
	return nil
}

// killWorker kills a worker, and starts another one.
func (c *crowd) killWorker(i int) error {
	if err := c.endWorker(i); err != nil {
		return err
	}
	c.deaths.Add(1)
	return c.startWorker(i)
}

func (c *crowd) endWorker(i int) error {
	_ = c.workers[i].Process.Signal(syscall.SIGKILL)
	var exit *exec.ExitError
	if err := c.workers[i].Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// killAll ends what is left.
func (c *crowd) killAll() {
	for i, cmd := range c.workers {
		if cmd != nil {
			_ = c.endWorker(i)
		}
	}
	_ = c.kill9()
}

// judge compares what the meter has noted with the limit.
func (c *crowd) judge(ctx context.Context) (problems []string, err error) {
	bad := func(format string, args ...any) {
		problems = append(problems, c.name+": "+fmt.Sprintf(format, args...))
	}
	for _, run := range c.order {
		var out struct{ Status string }
		for ok := false; !ok; pauseFor(ctx, time.Millisecond) { // it may be asked to wait
			if ok, err = c.get(ctx, c.web, "/v1/recipe-executions/"+run, &out); err != nil || ctx.Err() != nil {
				return nil, errors.Join(err, context.Cause(ctx))
			}
		}
		if out.Status != "completed" {
			bad("run %s is %q", run, out.Status)
		}
	}
	most, what := c.meter.Most()
	if most > limitSlots {
		bad("%d steps were carried out at once, and the limit is %d (I22): %+v", most, limitSlots, what)
	}
	use, more := meter.Occupied(c.meter.Spans(), limitSlots, c.restarts, limitLease)
	fmt.Printf("limit of %d: %d at once at most, %d steps, %.1f%% of the slots used, %.2f of %.2f steps a second; %.1f s of restarts, and of slots %.1f s of leases and %.1f s of lost work\n",
		limitSlots, most, use.Steps, 100*use.Share, use.PerSecond, limitSlots/c.size.hold.Seconds(), use.Restart.Seconds(), use.Lease.Seconds(), use.Lost.Seconds())
	if use.Steps != c.size.steps {
		bad("%d steps were carried out, want %d", use.Steps, c.size.steps)
	}
	if !c.size.exact || busy() { // other work on the machine explains it
		return problems, nil
	}
	for _, p := range more {
		bad("%s", p)
	}
	if use.Share < limitShare {
		bad("%.1f%% of the slots were used, want %.0f%%", 100*use.Share, 100*limitShare)
	}
	return problems, nil
}
