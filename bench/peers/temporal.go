// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// temporalPeer is a Temporal server and one worker in this process.
type temporalPeer struct {
	shapes
	postgres bool
	local    bool // steps are local activities, which the server does not record individually
	server   *temporalServer
	client   client.Client
	worker   worker.Worker
}

const temporalQueue = "peers"

func (p *temporalPeer) Open(ctx context.Context, e env) error {
	server, err := startTemporal(e, p.postgres)
	if err != nil {
		return err
	}
	p.server, p.marks, p.starters = server, e.Marks, 32
	logger := sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(e.Log, &slog.HandlerOptions{Level: slog.LevelError})))
	if p.client, err = dialTemporal(ctx, server.address, logger); err != nil {
		return err
	}
	worker.SetStickyWorkflowCacheSize(20_000)
	pollers := 4
	if p.postgres {
		pollers = 8
	}
	p.worker = worker.New(p.client, temporalQueue, worker.Options{
		MaxConcurrentWorkflowTaskPollers: pollers, MaxConcurrentActivityTaskPollers: pollers,
		MaxConcurrentWorkflowTaskExecutionSize: 1000, MaxConcurrentActivityExecutionSize: 1000, MaxConcurrentLocalActivityExecutionSize: 1000,
	})
	workflows := map[kind]any{kindChain: p.chainOf, kindFan: p.fanOf, kindWait: p.waitFor}
	for k, w := range workflows {
		p.worker.RegisterWorkflowWithOptions(w, workflow.RegisterOptions{Name: string(k)})
	}
	p.worker.RegisterActivity(p.Step)
	if err := p.worker.Start(); err != nil {
		return err
	}
	p.start = func(ctx context.Context, k kind, id string, n int) error {
		_, err := p.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: temporalQueue}, string(k), id, n)
		return err
	}
	p.signal = func(ctx context.Context, address string) error {
		return p.client.SignalWorkflow(ctx, address, "", "go", nil)
	}
	return nil
}

// Address returns host:port of the frontend.
func (p *temporalPeer) Address() string { return p.server.address }

// dialTemporals connects clients, each with a connection of its own.
func dialTemporals(ctx context.Context, address string, n int) (starters []starter, done func(), err error) {
	logger := sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
	var clients []client.Client
	done = func() {
		for _, c := range clients {
			c.Close()
		}
	}
	for range n {
		c, err := dialTemporal(ctx, address, logger)
		if err != nil {
			done()
			return nil, nil, err
		}
		clients = append(clients, c)
		starters = append(starters, func(ctx context.Context, id string) error {
			_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: temporalQueue}, string(kindChain), id, ingressSteps)
			return err
		})
	}
	return starters, done, nil
}

// dialTemporal waits until the server answers.
func dialTemporal(ctx context.Context, address string, logger sdklog.Logger) (c client.Client, err error) {
	err = eventually(ctx, func() error {
		c, err = client.DialContext(ctx, client.Options{HostPort: address, Namespace: temporalNamespace, Logger: logger})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the Temporal server does not answer: %w", err)
	}
	return c, nil
}

// Step is the activity that does nothing.
func (p *temporalPeer) Step(context.Context) (int, error) {
	p.marks.step()
	return 0, nil
}

// stepTimeout is the timeout of an attempt. On an overloaded machine a task may be lost
// between server and worker; Temporal retries it after the timeout.
const stepTimeout = 10 * time.Second

// begin starts one step, as an activity or a local activity.
func (p *temporalPeer) begin(ctx workflow.Context) workflow.Future {
	if p.local {
		return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
			StartToCloseTimeout: stepTimeout,
		}), p.Step)
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: stepTimeout,
	}), p.Step)
}

func (p *temporalPeer) chainOf(ctx workflow.Context, id string, n int) error {
	for range n {
		if err := p.begin(ctx).Get(ctx, nil); err != nil {
			p.marks.failed(err)
			return err
		}
	}
	p.marks.reached(id)
	return nil
}

func (p *temporalPeer) fanOf(ctx workflow.Context, id string, n int) error {
	futures := make([]workflow.Future, n)
	for i := range futures {
		futures[i] = p.begin(ctx)
	}
	for _, f := range futures {
		if err := f.Get(ctx, nil); err != nil {
			p.marks.failed(err)
			return err
		}
	}
	p.marks.reached(id)
	return nil
}

func (p *temporalPeer) waitFor(ctx workflow.Context, id string, _ int) error {
	p.marks.waits(id, id)
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
	return p.begin(ctx).Get(ctx, nil)
}

func (p *temporalPeer) Close() error {
	p.worker.Stop()
	p.client.Close()
	return p.server.Close()
}
