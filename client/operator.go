// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/roux-engine/roux/fault"
)

// An Operator looks after the server. Its operations need a key with the role admin.
type Operator struct{ c *Client }

// Plan returns a plan by its key, whichever run has it, as it is stored.
func (o *Operator) Plan(ctx context.Context, key string) (json.RawMessage, error) {
	a, err := o.c.do(ctx, at(http.MethodGet, "v1", "plans", key), nil)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}

// A ServerLoad is what a server is doing now.
type ServerLoad struct {
	Version   string          `json:"version"`
	Now       time.Time       `json:"now"` // by the clock of the server
	StartedAt time.Time       `json:"startedAt"`
	Runs      RunLoad         `json:"runs"`     // that have not ended, without those inside others
	Accounts  []AccountLoad   `json:"accounts"` // those with most such runs, at most ten
	Attempts  AttemptLoad     `json:"attempts"`
	Limits    []LimitLoad     `json:"limits"` // that are in use; the last one is that of the engine
	Commits   CommitLoad      `json:"commits"`
	Queues    QueueLoad       `json:"queues"`
	Memory    MemoryLoad      `json:"memory"`
	Store     StoreLoad       `json:"store"`
	Failures  []RecentFailure `json:"failures"` // since the start, at most eight, the newest first
}

// A RunLoad counts runs that have not ended.
type RunLoad struct {
	Live     int            `json:"live"`     // not queued
	Queued   int            `json:"queued"`   // their account has enough live ones
	States   map[string]int `json:"states"`   // by status, or quarantined
	Complete bool           `json:"complete"` // false = only the first 10,000 are counted
	Loaded   int            `json:"loaded"`   // in memory, with those inside others
}

// An AccountLoad counts runs of an account that have not ended.
type AccountLoad struct {
	Account string `json:"account"`
	Live    int    `json:"live"`
	Queued  int    `json:"queued"`
}

// An AttemptLoad is about attempts of steps.
type AttemptLoad struct {
	Running   int            `json:"running"`
	ByAction  map[string]int `json:"byAction"`  // those that run
	Finished  uint64         `json:"finished"`  // since the start
	PerSecond float64        `json:"perSecond"` // finished ones, over the last ten seconds
}

// A LimitLoad is how far a limit of attempts is used.
type LimitLoad struct {
	Of      string `json:"of"`             // engine, action, provider, limit, pause or retries
	Name    string `json:"name,omitempty"` // of the action, the provider or the limit
	Key     string `json:"key,omitempty"`  // of the limit; of a pause the account
	Slots   int    `json:"slots"`          // 0 = it limits when attempts begin
	Used    int    `json:"used"`
	Waiting int    `json:"waiting"`         // steps that wait there
	Until   string `json:"until,omitempty"` // until when nothing begins; "" = not known, or something does
}

// A CommitLoad is about commits. Rates and durations are those of the last ten seconds.
type CommitLoad struct {
	Total     uint64  `json:"total"`  // since the start
	Failed    uint64  `json:"failed"` // since the start
	PerSecond float64 `json:"perSecond"`
	MedianMS  float64 `json:"medianMs"`
	P99MS     float64 `json:"p99Ms"`
	SlowestMS float64 `json:"slowestMs"`
}

// A QueueLoad is what waits inside.
type QueueLoad struct {
	Requests int64 `json:"requests"` // that wait until they are durable
	Inputs   int64 `json:"inputs"`   // that have arrived and are not handled yet
	Feed     int   `json:"feed"`     // commits of runs that are not delivered to watchers yet
}

// A MemoryLoad is about the memory of the process.
type MemoryLoad struct {
	HeapBytes  uint64 `json:"heapBytes"`
	TotalBytes uint64 `json:"totalBytes"` // obtained from the system and not given back
	Goroutines int    `json:"goroutines"`
}

// A StoreLoad is about the store.
type StoreLoad struct {
	JournalBytes int64 `json:"journalBytes"`
	LogBytes     int64 `json:"logBytes"` // of the write-ahead log
}

// A RecentFailure is a run that has failed or was quarantined, or a commit that has failed.
type RecentFailure struct {
	At      time.Time  `json:"at"`
	Code    fault.Code `json:"code"`
	Account string     `json:"account,omitempty"` // "" = it was a commit
	RunID   string     `json:"runId,omitempty"`
	Recipe  string     `json:"recipe,omitempty"`
}

// Load returns what the server is doing now. Asking costs the server the same however many
// runs there are.
func (o *Operator) Load(ctx context.Context) (*ServerLoad, error) {
	out := new(ServerLoad)
	_, err := o.c.do(ctx, at(http.MethodGet, "v1", "server"), out)
	return result(out, err)
}

// Removed is what was removed, or what a dry run would remove.
type Removed struct {
	Runs            int      `json:"runs"` // those below them are not counted
	IdempotencyKeys int      `json:"idempotencyKeys"`
	Records         int      `json:"records"`
	Files           int      `json:"files"`
	Bytes           int64    `json:"bytes"`
	RunIDs          []string `json:"runIds"`     // the first 1,000
	FileHashes      []string `json:"fileHashes"` // the first 1,000
}

// Clean removes now what is no longer kept, of all accounts; a dry run removes nothing.
func (o *Operator) Clean(ctx context.Context, dryRun bool) (*Removed, error) {
	cl := at(http.MethodPost, "v1", "retention", "clean")
	if dryRun {
		cl.with("dryRun", "true")
	}
	out := new(Removed)
	_, err := o.c.do(ctx, cl, out)
	return result(out, err)
}

// A BackupProgress says how far a backup is.
type BackupProgress struct {
	What  string `json:"what"`  // what is being copied: files or database
	Done  int64  `json:"done"`  // bytes of files; of a database its share
	Total int64  `json:"total"` // 0: not known
}

// Backup makes a backup of the data directory in a directory of backups, an absolute path on
// the machine of the server, and returns the manifest of the backup. It works over the socket
// of a data directory only. progress is called now and then.
func (o *Operator) Backup(ctx context.Context, directory string, progress func(BackupProgress)) (json.RawMessage, error) {
	cl, err := at(http.MethodPost, "v1", "backups").send(map[string]string{"directory": directory})
	if err != nil {
		return nil, err
	}
	cl.once = true
	res, err := o.c.open(ctx, cl)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	for lines := json.NewDecoder(res.Body); ; {
		var line struct {
			Progress *BackupProgress `json:"progress"`
			Done     json.RawMessage `json:"done"`
			Error    *Problem        `json:"error"`
		}
		if err := lines.Decode(&line); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, unreachable(ctx, cl, err)
		}
		switch {
		case line.Error != nil:
			if _, known := fault.Lookup(line.Error.Code); !known {
				return nil, unreachable(ctx, cl, errors.New("it answered with an unknown error"))
			}
			return nil, line.Error.fault()
		case line.Done != nil:
			return line.Done, nil
		case line.Progress != nil:
			progress(*line.Progress)
		}
	}
}
