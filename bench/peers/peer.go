// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"
)

// A peer is one engine on one store with one way of running steps.
//
// Steps do nothing and run in the process that opened the peer; each calls marks.step
// when it starts. Every method returns when the worker has done the work, so the
// polling of a client is not charged to an engine.
type peer interface {
	// Open starts the engine, with its server and its worker if it has them.
	Open(ctx context.Context, e env) error
	// Chain runs one execution of n steps in a row.
	Chain(ctx context.Context, n int) error
	// Fan starts runs executions at once, each of which starts steps steps at once and joins them.
	Fan(ctx context.Context, runs, steps int) error
	// Many starts runs executions at once, each a chain.
	Many(ctx context.Context, runs, steps int) error
	// Submit starts n executions of one step, each while nothing else runs.
	Submit(ctx context.Context, n int) error
	// Idle starts n executions that wait for an external event, and returns when
	// all wait.
	Idle(ctx context.Context, n int) error
	// Signal sends the event that an execution waits for, which then takes one
	// step. It may fail while the engine is not ready yet.
	Signal(ctx context.Context, address string) error
	Close() error
}

// An env is what a peer may use while it is open.
type env struct {
	Dir      string    // an empty directory on a disk
	Postgres string    // URL of an empty database, for peers that want one
	Ingress  bool      // a client in another process will start executions
	Again    bool      // Dir and Postgres are not empty: they hold the data of a killed process
	Restate  string    // path of restate-server, for the peer that wants it
	Log      io.Writer // where the peer's server may write
	Marks    *marks
}

// shapeNames are in the order of the table.
var shapeNames = []string{"chain", "fan", "many", "submit", "idle", "recover", "wide"}

// allShapes are those and the one with a table of its own.
func allShapes() []string { return append(slices.Clone(shapeNames), ingressShape) }

// stepsOfMany is the length of each execution of the shape many.
const stepsOfMany = 10

// narrow is the number of steps of the small executions of wide.
const narrow = 10

// defaultSizes are the sizes of Roux's bars; a slow peer has smaller ones, and its line
// shows them.
var defaultSizes = map[string]int{"chain": 100, "fan": 1000, "many": 1000, "submit": 100, "idle": 10_000, "recover": 1000, "wide": 1000, ingressShape: 64}

// firstOnly are the shapes for which one run is enough, because CPU time varies less than
// elapsed time and they take two minutes.
var firstOnly = []string{"wide"}

// A spec describes how to open a peer and what readers must know about it.
type spec struct {
	name     string
	engine   string
	modules  []string // whose versions are printed
	store    string
	needs    string // "postgres", "npm" or nothing
	syncs    bool   // every step is synced before the next one starts
	why      string // how that is known, in addition to the count
	settings string
	sizes    map[string]int
	settle   time.Duration // after which waiting executions have left its memory
	open     func() peer
	ingress  *entrance
}

// An entrance is how clients in other processes start executions; a library has none.
type entrance struct {
	what    string // what a client calls
	durable string // what is on stable storage when a start is answered
	with    string // settings, if they differ from those of the other shapes
	// dial returns a starter for each of n connections, and what closes them.
	dial func(ctx context.Context, address string, n int) ([]starter, func(), error)
}

// size returns the size of a shape for this peer; 0 means that it does not run.
func (s *spec) size(shape string, asked map[string]int) int {
	if shape == ingressShape && s.ingress == nil {
		return 0
	}
	if n, ok := asked[shape]; ok {
		return n
	}
	if n, ok := s.sizes[shape]; ok {
		return n
	}
	return defaultSizes[shape]
}

// with returns the settings of the peer and of its database for a shape.
func (s *spec) with(shape string) string {
	text := s.settings
	if shape == ingressShape && s.ingress != nil && s.ingress.with != "" {
		text = s.ingress.with
	}
	if s.needs != "postgres" {
		return text
	}
	return text + "; PostgreSQL with " + strings.Join(postgresSettings[:5], ", ")
}

const (
	rouxName      = "roux"
	goWorkflows   = "github.com/cschleiden/go-workflows"
	dbosModule    = "github.com/dbos-inc/dbos-transact-golang"
	durabletask   = "github.com/microsoft/durabletask-go"
	temporalMod   = "go.temporal.io/server"
	temporalSDK   = "go.temporal.io/sdk"
	restateModule = "github.com/restatedev/sdk-go"
)

// specs are all peers. Roux is the first; it has no open function, because it is measured
// through its own program.
var specs = []spec{
	{
		name: rouxName, engine: "Roux", store: "SQLite", syncs: true,
		why:      "WAL, synchronous=FULL",
		settings: "its defaults",
		ingress: &entrance{what: "HTTP, `POST /v1/recipes/{id}/execute` with an `Idempotency-Key`", durable: "the run with its input and the credits held for it: a commit of SQLite with synchronous=FULL, shared by all starts that wait",
			with: "its defaults, 64 accounts that pay, each with a key and a connection; steps are an action that joins texts"},
	},
	{
		name: "goworkflows-sqlite", engine: "go-workflows", modules: []string{goWorkflows}, store: "SQLite", syncs: true,
		why:      "WAL; sets no level, SQLite's default is FULL",
		settings: "monoprocess backend (signals instead of polling), single-worker mode, executor cache 20,000, 2+2 pollers, a worker name that outlives the process",
		sizes:    map[string]int{"many": 300},
		settle:   13 * time.Second, // its executor cache keeps what is idle for 10 s
		open:     func() peer { return &goWorkflowsPeer{} },
	},
	{
		name: "goworkflows-postgres", engine: "go-workflows", modules: []string{goWorkflows}, store: "PostgreSQL", needs: "postgres", syncs: true,
		why:      "fsync=on, synchronous_commit=on",
		settings: "monoprocess backend, single-worker mode, executor cache 20,000, 4+4 pollers, 16 connections, a worker name that outlives the process",
		sizes:    map[string]int{"many": 300, "idle": 4000},
		settle:   13 * time.Second, // its executor cache keeps what is idle for 10 s
		open:     func() peer { return &goWorkflowsPeer{postgres: true} },
	},
	{
		name: "dbos-sqlite", engine: "DBOS", modules: []string{dbosModule}, store: "SQLite",
		why:      "sets synchronous=NORMAL, which does not sync on commit",
		settings: "runs in the submitting process, dbos.Go for the fan",
		open:     func() peer { return &dbosPeer{} },
	},
	{
		name: "dbos-postgres", engine: "DBOS", modules: []string{dbosModule}, store: "PostgreSQL", needs: "postgres", syncs: true,
		why:      "fsync=on, synchronous_commit=on",
		settings: "runs in the submitting process, dbos.Go for the fan, 40 connections",
		open:     func() peer { return &dbosPeer{postgres: true} },
		ingress: &entrance{what: "PostgreSQL, `Client.Enqueue` with a workflow id", durable: "the row of the workflow with its input: a commit of PostgreSQL with synchronous_commit=on",
			with: "a worker with 40 connections and a queue with its defaults (polled every second, no limit of concurrency), a client with a connection for each caller", dial: dialDBOS},
	},
	{
		name: "durabletask-sqlite", engine: "durabletask-go", modules: []string{durabletask}, store: "SQLite", syncs: true,
		why:      "WAL, synchronous=FULL, asked for in the address (its own default is a rollback journal)",
		settings: "parallelism 16+16",
		sizes:    map[string]int{"many": 200, "submit": 50},
		open:     func() peer { return &durabletaskPeer{} },
	},
	{
		name: "temporal-sqlite", engine: "Temporal", modules: []string{temporalMod, temporalSDK}, store: "SQLite", syncs: true,
		why:      "WAL, synchronous=2 (FULL)",
		settings: "all services in the process, 1 history shard, 1 task-queue partition, rate limits lifted, 4+4 pollers, workflow cache 20,000",
		sizes:    map[string]int{"many": 100, "submit": 50, "idle": 1000, "recover": 200},
		open:     func() peer { return &temporalPeer{} },
		ingress:  &entrance{what: "gRPC, `StartWorkflowExecution` with a workflow id", durable: "the first event and the mutable state: a commit of SQLite with synchronous=2 (FULL)", dial: dialTemporals},
	},
	{
		name: "temporal-postgres", engine: "Temporal", modules: []string{temporalMod, temporalSDK}, store: "PostgreSQL", needs: "postgres", syncs: true,
		why:      "fsync=on, synchronous_commit=on",
		settings: "all services in the process, 4 history shards, 40 connections, 1 task-queue partition, rate limits lifted, 8+8 pollers, workflow cache 20,000",
		sizes:    map[string]int{"many": 100, "submit": 50, "idle": 1000, "recover": 200},
		open:     func() peer { return &temporalPeer{postgres: true} },
		ingress:  &entrance{what: "gRPC, `StartWorkflowExecution` with a workflow id", durable: "the first event and the mutable state: a commit of PostgreSQL with synchronous_commit=on", dial: dialTemporals},
	},
	{
		name: "temporal-local-sqlite", engine: "Temporal, local activities", modules: []string{temporalMod, temporalSDK}, store: "SQLite",
		why:      "results reach the server only with the workflow task",
		settings: "as temporal-sqlite, steps are local activities",
		sizes:    map[string]int{"many": 300, "submit": 50, "idle": 0, "recover": 0}, // it waits as temporal-sqlite does
		open:     func() peer { return &temporalPeer{local: true} },
	},
	{
		name: "restate", engine: "Restate", modules: []string{restateModule}, store: "its own (log and RocksDB)", needs: "npm", syncs: true,
		why:      "its log is flushed before a step is acknowledged",
		settings: "server " + restateVersion + ", single node, 4 partitions, replication 1, telemetry off, service over HTTP/2 on loopback, inactivity timeout 5 s for the waiting runs (default 60 s)",
		settle:   10 * time.Second,
		open:     func() peer { return &restatePeer{} },
		ingress:  &entrance{what: "HTTP, `POST /peers/chain/send` with an `idempotency-key`", durable: "the invocation in its log: 20 starts one after another made 20 fdatasync calls", dial: dialRestate},
	},
}

func peerNames() (names []string) {
	for _, s := range specs {
		names = append(names, s.name)
	}
	return names
}

func specOf(name string) *spec {
	return &specs[slices.IndexFunc(specs, func(s spec) bool { return s.name == name })]
}
