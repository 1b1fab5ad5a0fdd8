// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/monoprocess"
	"github.com/cschleiden/go-workflows/backend/postgres"
	"github.com/cschleiden/go-workflows/backend/sqlite"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
	_ "github.com/jackc/pgx/v5/stdlib" // the documented driver for the PostgreSQL backend
)

// goWorkflowsPeer is go-workflows, set up as in its own bench program: the monoprocess
// wrapper wakes the worker, so that nothing waits for a poll.
type goWorkflowsPeer struct {
	shapes
	postgres bool
	backend  backend.Backend
	db       *sql.DB
	cancel   context.CancelFunc
	worker   *worker.Worker
}

func (p *goWorkflowsPeer) Open(ctx context.Context, e env) error {
	options := worker.DefaultOptions
	options.SingleWorkerMode = true
	options.WorkflowExecutorCacheSize = 20_000
	backendOptions := []backend.BackendOption{
		backend.WithLogger(slog.New(slog.DiscardHandler)),
		// An execution is reserved for the worker that had it last until the sticky
		// timeout of 30 s has passed; with this name a new process is that worker.
		backend.WithWorkerName("peers"),
	}
	var store backend.Backend
	if p.postgres {
		db, err := sql.Open("pgx", e.Postgres)
		if err != nil {
			return err
		}
		db.SetMaxOpenConns(16)
		db.SetMaxIdleConns(16)
		p.db = db
		options.WorkflowPollers, options.ActivityPollers = 4, 4
		store = postgres.NewPostgresBackendWithDB(db, postgres.WithApplyMigrations(true), postgres.WithBackendOptions(backendOptions...))
	} else {
		store = sqlite.NewSqliteBackend(filepath.Join(e.Dir, "goworkflows.db"), sqlite.WithBackendOptions(backendOptions...))
	}
	p.backend = monoprocess.NewMonoprocessBackend(store)
	p.marks = e.Marks
	p.worker = worker.New(p.backend, &options)
	workflows := map[kind]workflow.Workflow{kindChain: p.ChainOf, kindFan: p.FanOf, kindWait: p.WaitFor}
	for _, w := range workflows {
		if err := p.worker.RegisterWorkflow(w); err != nil {
			return err
		}
	}
	if err := p.worker.RegisterActivity(p.Step); err != nil {
		return err
	}
	background, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	if err := p.worker.Start(background); err != nil {
		return err
	}
	c := client.New(p.backend)
	p.starters = 16
	p.start = func(ctx context.Context, k kind, id string, n int) error {
		_, err := c.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: id}, workflows[k], id, n)
		return err
	}
	p.signal = func(ctx context.Context, address string) error { return c.SignalWorkflow(ctx, address, "go", 0) }
	return nil
}

// Step is the activity that does nothing.
func (p *goWorkflowsPeer) Step(context.Context) (int, error) {
	p.marks.step()
	return 0, nil
}

// once are the options of an activity without retries, because nothing here
// fails.
var once = workflow.ActivityOptions{RetryOptions: workflow.RetryOptions{MaxAttempts: 1}}

// ChainOf is the workflow of n steps in a row.
func (p *goWorkflowsPeer) ChainOf(ctx workflow.Context, id string, n int) error {
	for range n {
		if _, err := workflow.ExecuteActivity[int](ctx, once, p.Step).Get(ctx); err != nil {
			p.marks.failed(err)
			return err
		}
	}
	p.marks.reached(id)
	return nil
}

// FanOf is the workflow of n steps at once.
func (p *goWorkflowsPeer) FanOf(ctx workflow.Context, id string, n int) error {
	futures := make([]workflow.Future[int], n)
	for i := range futures {
		futures[i] = workflow.ExecuteActivity[int](ctx, once, p.Step)
	}
	for _, f := range futures {
		if _, err := f.Get(ctx); err != nil {
			p.marks.failed(err)
			return err
		}
	}
	p.marks.reached(id)
	return nil
}

// WaitFor is the workflow that waits for a signal and then takes a step.
func (p *goWorkflowsPeer) WaitFor(ctx workflow.Context, id string, _ int) error {
	signals := workflow.NewSignalChannel[int](ctx, "go")
	p.marks.waits(id, id)
	signals.Receive(ctx)
	_, err := workflow.ExecuteActivity[int](ctx, once, p.Step).Get(ctx)
	return err
}

func (p *goWorkflowsPeer) Close() error {
	p.cancel()
	err := p.worker.WaitForCompletion()
	if p.db != nil {
		return errors.Join(err, p.db.Close())
	}
	return errors.Join(err, p.backend.Close())
}
