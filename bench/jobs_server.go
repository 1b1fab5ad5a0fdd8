// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/provider/jobapi"
	"github.com/roux-engine/roux/internal/service"
	"github.com/roux-engine/roux/internal/store"
)

// A jobsSetting is what a server that submits jobs is told first.
type jobsSetting struct {
	Dir      string
	Services string // where the services are
	Slots    int    // of each
	Profile  string // beginning of the names of profiles; "" = none
}

// A jobsOrder is what such a server is told to do.
type jobsOrder struct {
	Do string
	N  int
}

// A jobsMessage is what it says.
type jobsMessage struct {
	Address string  `json:",omitempty"` // where it listens
	Figures figures `json:",omitempty"` // after an order
	Called  string  `json:",omitempty"` // the job before the step that was called
	Error   string  `json:",omitempty"`
}

// A jobsNode is the server.
type jobsNode struct {
	*service.Service
	plans   [jobServices]*plan.Plan
	store   *countingStore
	profile string

	mu  sync.Mutex
	out *json.Encoder
}

func (n *jobsNode) say(m *jobsMessage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.out.Encode(m) // the reader has gone otherwise, and ends this process
}

// A countingStore counts the runs that are read.
type countingStore struct {
	node.Store
	loads atomic.Int64
}

func (s *countingStore) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	s.loads.Add(1)
	return s.Store.Load(ctx, key)
}

// jobsRole is the main function of a server that submits jobs: a node with the interface over HTTP,
// as `roux serve` makes it.
func jobsRole(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := json.NewDecoder(stdin)
	n := &jobsNode{out: json.NewEncoder(stdout)}
	var set jobsSetting
	err := in.Decode(&set)
	if err == nil {
		n.profile = set.Profile
		err = n.profiled("open", func() error { return n.open(ctx, &set) })
	}
	for err == nil {
		var order jobsOrder
		if err = in.Decode(&order); err != nil {
			break // the reader has gone
		}
		f := figures{}
		if err = n.profiled(order.Do, func() error { return n.do(ctx, &order, f) }); err == nil && order.Do != "start" {
			n.say(&jobsMessage{Figures: f})
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	n.say(&jobsMessage{Error: err.Error()})
	return err
}

// profiled writes a profile of what fn does.
func (n *jobsNode) profiled(name string, fn func() error) error {
	if n.profile == "" || name == "start" || name == "count" {
		return fn()
	}
	stop, err := profiled(n.profile + ".jobs." + name)
	if err != nil {
		return err
	}
	return closing(stop, fn())
}

// jobAPI is the API of the services.
func jobAPI() *jobapi.API {
	return &jobapi.API{
		Submit: jobapi.Submit{
			Call: jobapi.Call{Path: "/v1/jobs"}, Job: "body.id",
			Body: json.RawMessage(`{"model": "{{ model }}", "input": "{{ input }}", "callback": "{{ webhook }}"}`),
		},
		Poll:  jobapi.Call{Path: "/v1/jobs/{{ job }}"},
		State: "body.status", Succeeded: []string{"done"}, Failed: []string{"failed"}, Output: "body.result",
		Webhook: &jobapi.Webhook{Job: "body.id", Whole: true, Signature: jobapi.Standard, SecretEnv: "ROUX_WEBHOOK_BENCH"},
	}
}

// open opens the node and serves it.
func (n *jobsNode) open(ctx context.Context, set *jobsSetting) error {
	all := map[string]provider.Config{}
	for i := range jobServices {
		all[serviceName(i)] = provider.Config{
			Kind: provider.JobAPI, URL: set.Services + "/" + serviceName(i), Model: "draft", Slots: set.Slots,
			Prices:    map[string]provider.ModelPrice{"draft": {Job: "0"}},
			JobConfig: provider.JobConfig{API: jobAPI()},
		}
	}
	getenv := func(name string) string {
		if name == "ROUX_WEBHOOK_BENCH" {
			return jobsSecret
		}
		return ""
	}
	actions, err := node.NewActionsWith([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, all, getenv, *noop(n.last))
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	actions.UseAddress("http://" + ln.Addr().String())
	st, err := node.OpenStore(ctx, set.Dir)
	if err != nil {
		return err
	}
	n.store = &countingStore{Store: st}
	n.Service, err = service.Open(ctx, n.store, service.Config{
		Node: node.Config{
			Dir: set.Dir, Actions: actions, Accounts: map[string]engine.AccountRules{account: {Unmetered: true}},
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		},
		Account: account, AdminToken: adminKey, MaxSource: 1 << 20, Release: "bench",
		Rate: -1, // one client asks again and again whether a job is known
	})
	if err != nil {
		return err
	}
	for i := range n.plans {
		if n.plans[i], err = jobPlan(i, actions.Catalogue); err != nil {
			return err
		}
	}
	if err := n.Serve(ln); err != nil {
		return err
	}
	n.say(&jobsMessage{Address: ln.Addr().String()})
	return nil
}

// jobPlan is a plan with a job of a service, and a step that gets its id.
func jobPlan(i int, actions catalogue.Actions) (*plan.Plan, error) {
	r := &recipe.Recipe{Head: recipe.Head{Name: "render"}, Steps: []*recipe.Step{
		{ID: "draw", Action: &recipe.Action{Name: provider.JobPrefix + serviceName(i), Parameters: map[string]json.RawMessage{
			"input": json.RawMessage(`{"prompt": "A lighthouse at night.", "width": 1024}`),
		}}},
		{ID: lastStep, Action: &recipe.Action{Name: actionName}, Common: recipe.Common{InputBindings: map[string]recipe.Binding{"job": {Expression: "steps.draw.output.job"}}}},
	}}
	p, diags := compile.Compile(r, nil, compile.Options{Actions: actions})
	if p == nil {
		return nil, fmt.Errorf("the recipe does not compile: %v", diags)
	}
	return p, nil
}

// last is the action of the step after a job.
func (n *jobsNode) last(_ context.Context, t *action.Task) (action.Result, error) {
	var in struct{ Job string }
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return action.Result{}, err
	}
	n.say(&jobsMessage{Called: in.Job})
	return action.Result{}, nil
}

// do carries out an order.
func (n *jobsNode) do(ctx context.Context, order *jobsOrder, f figures) error {
	switch order.Do {
	case "fill":
		return n.fill(ctx, order.N, f)
	case "start":
		return n.start(ctx, order.N)
	case "known":
		return n.known(ctx, order.N, f)
	case "look":
		return n.look(ctx, f)
	case "count":
		f["runs_read"], f["cpu_us"] = float64(n.store.loads.Load()), us(cpu())
		return nil
	}
	return fmt.Errorf("no order %q", order.Do)
}

// start starts a run.
func (n *jobsNode) start(ctx context.Context, i int) error {
	_, err := n.Node.Engine.Start(ctx, engine.StartRequest{Account: account, Plan: n.plans[i%jobServices], Recipe: "render"})
	return err
}

// beforehand is how many runs are started before their jobs are submitted: more of them would only
// wait in memory.
const beforehand = 4096

// callsAtOnce is how many jobs may not be planned to be asked about because they are being asked about.
const callsAtOnce = 32

// fill starts runs, and waits until all of them wait for their job.
func (n *jobsNode) fill(ctx context.Context, runs int, f figures) error {
	began, used := time.Now(), cpu()
	var next atomic.Int64
	err := together(64, func(int) error {
		for i := next.Add(1); i <= int64(runs); i = next.Add(1) {
			for i > int64(n.Node.Engine.Load().Finished)+beforehand {
				if err := n.pause(ctx); err != nil {
					return err
				}
			}
			if err := n.start(ctx, int(i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for {
		l := n.Node.Engine.Load()
		if jobs, _ := n.Node.Jobs.Planned(); l.Attempts == 0 && jobs >= runs-callsAtOnce {
			break
		}
		if err := n.pause(ctx); err != nil {
			return err
		}
	}
	if err := n.Node.Engine.Sync(ctx); err != nil {
		return err
	}
	f["seconds"], f["cpu_us"] = time.Since(began).Seconds(), us(cpu()-used)
	return nil
}

// pause waits a little.
func (n *jobsNode) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
	}
	return n.Node.Engine.Err()
}

// known waits until all jobs are known after a start.
func (n *jobsNode) known(ctx context.Context, jobs int, f figures) error {
	for {
		planned, all := n.Node.Jobs.Planned()
		if all && planned < jobs-callsAtOnce {
			return fmt.Errorf("%d jobs are known, want %d", planned, jobs)
		}
		if all {
			break
		}
		if err := n.pause(ctx); err != nil {
			return err
		}
	}
	for _, u := range n.Node.Engine.Slots() {
		if u.Of == "action" && strings.HasPrefix(u.Name, provider.JobPrefix) {
			f["slots"] += float64(u.InUse)
		}
	}
	return nil
}

// look measures the process when no run is in memory.
func (n *jobsNode) look(ctx context.Context, f figures) error {
	for n.Node.Engine.Load().Loaded > 0 {
		if err := n.pause(ctx); err != nil {
			return err
		}
	}
	f["rss_before_mb"] = rss()
	freeMemory()
	f["rss_mb"], f["goroutines"] = rss(), float64(runtime.NumGoroutine())
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f["heap_mb"] = float64(m.HeapAlloc) / (1 << 20)
	if n.profile == "" {
		return nil
	}
	err := writeHeap(n.profile + ".jobs.heap")
	stacks, serr := os.Create(n.profile + ".jobs.goroutines")
	if serr == nil {
		serr = errors.Join(pprof.Lookup("goroutine").WriteTo(stacks, 1), stacks.Close())
	}
	return errors.Join(err, serr)
}
