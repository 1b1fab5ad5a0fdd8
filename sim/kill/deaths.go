// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/roux-engine/roux/action"
	remoteclient "github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/sim/meter"
)

// workerEnv makes this program a remote worker of the server that it names. Its action deadly kills
// it, its action steady does not, and hold calls a meter.
const workerEnv = "ROUX_BENCH_WORKER"

// workerTasksEnv is how many tasks it carries out at once. Default 1: the one that kills it is alone.
const workerTasksEnv = "ROUX_BENCH_WORKER_TASKS"

// work9 is the main function of such a worker.
func work9(server string) error {
	c, err := remoteclient.New(remoteclient.Config{URL: server, Key: operator})
	if err != nil {
		return err
	}
	tasks, err := strconv.Atoi(cmp.Or(os.Getenv(workerTasksEnv), "1"))
	if err != nil {
		return err
	}
	w := remoteclient.Worker{Client: c, Queue: "default", Concurrency: tasks, Actions: []action.Action{
		meter.Action(newWebClient().Do),
		{Name: "deadly", Run: func(context.Context, *action.Task) (action.Result, error) {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Signal(syscall.SIGKILL)
			}
			return action.Result{}, err
		}},
		{Name: "steady", Run: func(_ context.Context, t *action.Task) (action.Result, error) {
			return action.Result{Output: map[string]any{"n": t.Attempt}}, nil
		}},
	}}
	return w.Run(context.Background())
}

// deadlyRecipe has a step whose task kills its worker, as often as it is given to one.
const deadlyRecipe = `name: deadly
ttl: 2h
steps:
  - id: deadly
    action: {name: deadly}
    onError: {strategy: skip}
    retryPolicy: {maxAttempts: %d, initialDelay: 10ms, maxDelay: 10ms, retryableErrors: [INTERRUPTED]}
`

// steadyRecipe has tasks that workers carry out meanwhile.
const steadyRecipe = `name: steady
ttl: 2h
steps:
  - id: fan
    loop:
      over: input.numbers
      as: n
      maxConcurrency: 4
      steps:
        - id: steady
          action: {name: steady}
        - id: pause
          wait: {duration: 200ms}
inputSchema: {type: object, properties: {numbers: {type: array}}}
outputs: {count: size(steps.fan.output)}
`

// killers has a task kill its workers that many times, or one or two more: its attempts end INTERRUPTED after each
// lease.MaxLosses of them, and no other task is lost.
func (b *bench) killers(ctx context.Context, deaths int) (problems []string, err error) {
	r, err := b.newRound("deaths", 1, b.plainBinary)
	if err != nil {
		return nil, err
	}
	s, err := newServer(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Minute, errors.New("the round has not ended within 20 minutes (I6)"))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	const schema = `{"type":"object"}`
	s.env = []string{fmt.Sprintf(`ROUX_WORKERS={"deadly":{"lease":"1s","accounts":["*"],"input":%[1]s,"output":%[1]s},"steady":{"lease":"1s","accounts":["*"],"input":%[1]s,"output":%[1]s}}`, schema)}
	s.end = cancel
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.kill9(), r.finish(problems, err)) }()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	attempts := (deaths + lease.MaxLosses - 1) / lease.MaxLosses
	for _, text := range []string{fmt.Sprintf(deadlyRecipe, attempts), steadyRecipe} {
		if _, err := s.call(ctx, s.key, "/v1/recipes", "", []byte(text), nil, http.StatusCreated); err != nil {
			return nil, err
		}
	}
	working, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for range 2 {
		group.Go(func() {
			if err := b.respawn(working, s.url); err != nil {
				fail(fmt.Errorf("a worker does not live: %w", err))
			}
		})
	}
	numbers := make([]int, 8*attempts)
	for name, parameters := range map[string]map[string]any{"deadly": {}, "steady": {"numbers": numbers}} {
		var out struct{ ExecutionID string }
		if _, err := s.call(ctx, s.key, "/v1/recipes/"+name+"/execute", "", map[string]any{"parameters": parameters}, &out, http.StatusAccepted, http.StatusOK); err != nil {
			return nil, err
		}
		s.order = append(s.order, out.ExecutionID)
	}
	if err := s.untilEnded(ctx); err != nil {
		return nil, err
	}
	stop()
	group.Wait()
	bad := func(format string, args ...any) { problems = append(problems, "deaths: "+fmt.Sprintf(format, args...)) }
	var both []*history
	for _, run := range s.order {
		h, err := r.read(run, bad)
		if err != nil {
			return nil, err
		}
		both = append(both, h)
	}
	checkDeaths(both, attempts, int(b.deaths.Load()), len(numbers), bad)
	return problems, nil
}

// respawn keeps a worker alive until ctx ends, and counts its deaths by signals. Any other is an error.
func (b *bench) respawn(ctx context.Context, server string) error {
	self, err := os.Executable()
	for err == nil && ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), workerEnv+"="+server)
		err = cmd.Run()
		if ctx.Err() != nil {
			return nil
		}
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == -1 {
			b.deaths.Add(1)
			err = nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// checkDeaths checks the journals of the runs of killers.
func checkDeaths(runs []*history, attempts, deaths, steady int, bad func(string, ...any)) {
	interrupted, done := 0, 0
	for _, h := range runs {
		if h.status != "completed" {
			bad("run %s is %s %s", h.id, h.status, h.code)
		}
		for i, l := range h.events {
			switch step := l.Payload.Step; {
			case step == "deadly" && l.Type == "node.started":
				attempts--
			case step == "deadly" && (l.Type == "node.retried" || l.Type == "node.failed" || l.Type == "node.skipped"):
				if strings.Contains(h.text[i], "INTERRUPTED") {
					interrupted++
				}
			case strings.HasSuffix(step, ".steady") && l.Type == "node.completed":
				done++
			case strings.HasSuffix(step, ".steady") && l.Type == "node.retried":
				bad("step %s lost its attempt to the task that kills workers: %s", step, h.text[i])
			}
		}
	}
	if attempts != 0 || interrupted == 0 || deaths != interrupted*lease.MaxLosses {
		bad("the task has killed %d workers, and %d of its attempts were interrupted; %d attempts are missing", deaths, interrupted, attempts)
	}
	if done != steady {
		bad("%d of %d other tasks are done", done, steady)
	}
}
