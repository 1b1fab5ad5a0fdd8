// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // the documented SQLite driver
)

// dbosPeer is DBOS Transact. Its workflows run in the process that submits them, which is
// its fastest mode; queues are for distributing work over processes.
type dbosPeer struct {
	shapes
	postgres bool
	database string
	ctx      dbos.Context
}

// dbosInput is the input of a workflow.
type dbosInput struct {
	ID string
	N  int
}

func (p *dbosPeer) Open(ctx context.Context, e env) error {
	url := "sqlite:" + filepath.Join(e.Dir, "dbos.db")
	if p.postgres {
		url = e.Postgres + "&pool_max_conns=40"
	}
	c, err := dbos.NewContext(context.Background(), dbos.Config{
		AppName: "peers", DatabaseURL: url, ApplicationVersion: "1", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	p.ctx, p.marks, p.starters, p.database = c, e.Marks, 64, e.Postgres
	dbos.RegisterWorkflow(c, p.chainOf, dbos.WithWorkflowName("chain"))
	dbos.RegisterWorkflow(c, p.fanOf, dbos.WithWorkflowName("fan"))
	dbos.RegisterWorkflow(c, p.waitFor, dbos.WithWorkflowName("wait"))
	workflows := map[kind]dbos.Workflow[dbosInput, int]{kindChain: p.chainOf, kindFan: p.fanOf, kindWait: p.waitFor}
	p.start = func(_ context.Context, k kind, id string, n int) error {
		_, err := dbos.RunWorkflow(c, workflows[k], dbosInput{id, n}, dbos.WithWorkflowID(id))
		return err
	}
	p.signal = func(_ context.Context, address string) error { return dbos.Send(c, address, "", "go") }
	if e.Ingress {
		if _, err := dbos.RegisterQueue(c, dbosQueue); err != nil {
			return err
		}
	}
	return dbos.Launch(c) // it recovers the executions of an earlier process of the same version
}

// dbosQueue is where clients in other processes put executions.
const dbosQueue = "peers"

// Address returns the URL of the database, which is where clients start executions.
func (p *dbosPeer) Address() string { return p.database }

// dialDBOS connects a client that has n connections to the database.
func dialDBOS(ctx context.Context, address string, n int) ([]starter, func(), error) {
	c, err := dbos.NewClient(ctx, dbos.ClientConfig{
		AppName: "peers", DatabaseURL: fmt.Sprintf("%s&pool_max_conns=%d", address, n), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, nil, err
	}
	start := func(_ context.Context, id string) error {
		_, err := dbos.Enqueue[int](c, dbosQueue, string(kindChain), dbosInput{id, ingressSteps}, dbos.WithEnqueueWorkflowID(id))
		return err
	}
	return slices.Repeat([]starter{start}, n), func() {}, nil // its connections end with the process
}

func (p *dbosPeer) step(context.Context) (int, error) {
	p.marks.step()
	return 0, nil
}

func (p *dbosPeer) chainOf(ctx dbos.Context, in dbosInput) (int, error) {
	for range in.N {
		if _, err := dbos.RunAsStep(ctx, p.step); err != nil {
			p.marks.failed(err)
			return 0, err
		}
	}
	p.marks.reached(in.ID)
	return in.N, nil
}

func (p *dbosPeer) fanOf(ctx dbos.Context, in dbosInput) (int, error) {
	outcomes := make([]<-chan dbos.StepOutcome[int], in.N)
	for i := range outcomes {
		var err error
		if outcomes[i], err = dbos.Go(ctx, p.step); err != nil {
			p.marks.failed(err)
			return 0, err
		}
	}
	for _, o := range outcomes {
		if outcome := <-o; outcome.Err != nil {
			p.marks.failed(outcome.Err)
			return 0, outcome.Err
		}
	}
	p.marks.reached(in.ID)
	return in.N, nil
}

func (p *dbosPeer) waitFor(ctx dbos.Context, in dbosInput) (int, error) {
	p.marks.waits(in.ID, in.ID)
	if _, err := dbos.Recv[string](ctx, "go", 24*time.Hour); err != nil {
		return 0, err
	}
	return dbos.RunAsStep(ctx, p.step)
}

func (p *dbosPeer) Close() error {
	return dbos.Shutdown(p.ctx, time.Second)
}
