// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log"
	"path/filepath"

	"github.com/microsoft/durabletask-go/api"
	"github.com/microsoft/durabletask-go/backend"
	"github.com/microsoft/durabletask-go/backend/sqlite"
	"github.com/microsoft/durabletask-go/task"
)

// durabletaskPeer is durabletask-go embedded as its README shows.
type durabletaskPeer struct {
	shapes
	worker backend.TaskHubWorker
}

// durabletaskInput is the input of an orchestration.
type durabletaskInput struct {
	ID string
	N  int
}

func (p *durabletaskPeer) Open(ctx context.Context, e env) error {
	p.marks, p.starters = e.Marks, 4
	registry := task.NewTaskRegistry()
	for name, o := range map[kind]task.Orchestrator{kindChain: p.chainOf, kindFan: p.fanOf, kindWait: p.waitFor} {
		if err := registry.AddOrchestratorN(string(name), o); err != nil {
			return err
		}
	}
	if err := registry.AddActivityN("step", p.step); err != nil {
		return err
	}
	logger := errorsOnly{log.New(e.Log, "durabletask: ", log.LstdFlags)}
	file := "file:" + filepath.Join(e.Dir, "durabletask.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	store := sqlite.NewSqliteBackend(sqlite.NewSqliteOptions(file), logger)
	executor := task.NewTaskExecutor(registry)
	p.worker = backend.NewTaskHubWorker(store,
		backend.NewOrchestrationWorker(store, executor, logger, backend.WithMaxParallelism(16)),
		backend.NewActivityTaskWorker(store, executor, logger, backend.WithMaxParallelism(16)), logger)
	if err := p.worker.Start(context.Background()); err != nil {
		return err
	}
	client := backend.NewTaskHubClient(store)
	p.start = func(ctx context.Context, k kind, id string, n int) error {
		_, err := client.ScheduleNewOrchestration(ctx, string(k), api.WithInstanceID(api.InstanceID(id)), api.WithInput(durabletaskInput{id, n}))
		return err
	}
	p.signal = func(ctx context.Context, address string) error {
		return client.RaiseEvent(ctx, api.InstanceID(address), "go")
	}
	return nil
}

func (p *durabletaskPeer) step(task.ActivityContext) (any, error) {
	p.marks.step()
	return 0, nil
}

func (p *durabletaskPeer) chainOf(ctx *task.OrchestrationContext) (any, error) {
	var in durabletaskInput
	if err := ctx.GetInput(&in); err != nil {
		return nil, p.fail(err)
	}
	for range in.N {
		if err := ctx.CallActivity("step").Await(nil); err != nil {
			return nil, p.fail(err)
		}
	}
	p.marks.reached(in.ID)
	return in.N, nil
}

func (p *durabletaskPeer) fanOf(ctx *task.OrchestrationContext) (any, error) {
	var in durabletaskInput
	if err := ctx.GetInput(&in); err != nil {
		return nil, p.fail(err)
	}
	tasks := make([]task.Task, in.N)
	for i := range tasks {
		tasks[i] = ctx.CallActivity("step")
	}
	for _, t := range tasks {
		if err := t.Await(nil); err != nil {
			return nil, p.fail(err)
		}
	}
	p.marks.reached(in.ID)
	return in.N, nil
}

func (p *durabletaskPeer) waitFor(ctx *task.OrchestrationContext) (any, error) {
	var in durabletaskInput
	if err := ctx.GetInput(&in); err != nil {
		return nil, p.fail(err)
	}
	p.marks.waits(in.ID, in.ID)
	if err := ctx.WaitForSingleEvent("go", -1).Await(nil); err != nil {
		return nil, err
	}
	return nil, ctx.CallActivity("step").Await(nil)
}

// fail reports an error. (The engine itself panics to leave the orchestrator's code while
// it waits for a step, so an error here is a real one.)
func (p *durabletaskPeer) fail(err error) error {
	p.marks.failed(fmt.Errorf("orchestrator: %w", err))
	return err
}

func (p *durabletaskPeer) Close() error {
	return p.worker.Shutdown(context.Background())
}

// errorsOnly is a logger that logs only errors.
type errorsOnly struct{ out *log.Logger }

func (errorsOnly) Debug(...any)                     {}
func (errorsOnly) Debugf(string, ...any)            {}
func (errorsOnly) Info(...any)                      {}
func (errorsOnly) Infof(string, ...any)             {}
func (l errorsOnly) Warn(v ...any)                  { l.out.Print(v...) }
func (l errorsOnly) Warnf(format string, v ...any)  { l.out.Printf(format, v...) }
func (l errorsOnly) Error(v ...any)                 { l.out.Print(v...) }
func (l errorsOnly) Errorf(format string, v ...any) { l.out.Printf(format, v...) }
