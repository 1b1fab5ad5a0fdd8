// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/roux-engine/roux/internal/jsonx"
)

// Workers are tasks that remote workers carry out. A [Worker] uses them.
type Workers struct{ c *Client }

// A LeaseRequest is what a worker asks for.
type LeaseRequest struct {
	Queue   string            `json:"queue"`
	Actions []string          `json:"actions,omitempty"` // names, or name@version; default: all of the queue
	Labels  map[string]string `json:"labels,omitempty"`  // that the worker has
	Max     int               `json:"max,omitempty"`     // tasks, up to 256; default 1
	WaitMS  int64             `json:"waitMs,omitempty"`  // for the first, up to 30000
}

// A WorkerTask is a task that a worker has got.
type WorkerTask struct {
	Lease       string          `json:"lease"` // shown with everything that the worker says of the task
	Action      string          `json:"action"`
	Version     string          `json:"version"`
	Input       json.RawMessage `json:"input"`
	Account     string          `json:"account"`
	Run         string          `json:"run"`
	Step        string          `json:"step"`
	Attempt     int             `json:"attempt"`
	EffectKey   string          `json:"effectKey"`
	TraceParent string          `json:"traceParent,omitempty"`
	LeaseMS     int64           `json:"leaseMs"` // how long the worker may be silent
	ExpiresAt   time.Time       `json:"expiresAt"`
}

// A WorkerReport is what a worker says of a task that goes on.
type WorkerReport struct {
	Lease string `json:"lease"`
	// Seq grows from report to report of a lease. One that is sent again is recognized by it; 0 = it
	// is not.
	Seq      int64           `json:"seq,omitempty"`
	Fraction *float64        `json:"fraction,omitempty"` // how much is done, 0 to 1
	Text     string          `json:"text,omitempty"`     // what is being done
	Level    string          `json:"level,omitempty"`    // of Log: debug, info, warn or error
	Log      string          `json:"log,omitempty"`
	Delta    string          `json:"delta,omitempty"` // a piece of a text that is streamed
	Preview  json.RawMessage `json:"preview,omitempty"`
}

// A WorkerResult is how a task has ended: with an output, an error, or a job as which it goes on.
type WorkerResult struct {
	Lease  string          `json:"lease"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  *WorkerFailure  `json:"error,omitempty"`
	// Submitted is a job that the worker has submitted to a service: the step waits for that.
	Submitted *WorkerJob `json:"submitted,omitempty"`
	Price     string     `json:"price,omitempty"` // what the call cost, of an action with a price
}

// A WorkerJob is a job that a worker has submitted.
type WorkerJob struct {
	Provider string          `json:"provider"` // its name in the configuration of the server
	JobID    string          `json:"jobId"`
	Handle   json.RawMessage `json:"handle,omitempty"` // what the provider needs to ask about it beyond the id
	TTLMS    int64           `json:"ttlMs,omitempty"`  // how long it may take; default 24 h
}

// A WorkerFailure is why a task failed.
type WorkerFailure struct {
	Code         string `json:"code,omitempty"` // default STEP_FAILED
	Message      string `json:"message"`
	RetryAfterMS int64  `json:"retryAfterMs,omitempty"`
	// OutcomeUnknown says that the effect may have happened although the task failed.
	OutcomeUnknown bool `json:"outcomeUnknown,omitempty"`
}

// The states of a WorkerOutcome.
const (
	OutcomeRecorded = "recorded" // it is durable
	OutcomeEnded    = "ended"    // the lease is over, and the result does not count
	OutcomeFailed   = "failed"   // it is to be sent again
)

// A WorkerOutcome is what became of a result.
type WorkerOutcome struct {
	Lease  string `json:"lease"`
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// Lease returns tasks of a queue, none if there were none for as long as the request waits.
func (w *Workers) Lease(ctx context.Context, req LeaseRequest) ([]WorkerTask, error) {
	cl, err := at(http.MethodPost, "v1", "workers", "lease").send(req)
	if err != nil {
		return nil, err
	}
	a, err := w.c.do(ctx, cl, nil)
	if err != nil {
		return nil, err
	}
	if list, ok := readTasks(a.body); ok {
		return list, nil
	}
	var out struct {
		Tasks []WorkerTask `json:"tasks"`
	}
	err = a.decode(cl, &out)
	return out.Tasks, err
}

// Heartbeat extends leases and passes reports on. It returns the leases that are over.
func (w *Workers) Heartbeat(ctx context.Context, leases []string, reports []WorkerReport) (ended []string, err error) {
	cl, err := at(http.MethodPost, "v1", "workers", "heartbeat").send(struct {
		Leases  []string       `json:"leases,omitempty"`
		Reports []WorkerReport `json:"reports,omitempty"`
	}{leases, reports})
	if err != nil {
		return nil, err
	}
	var out struct {
		Ended []string `json:"ended"`
	}
	_, err = w.c.do(ctx, cl, &out)
	return out.Ended, err
}

// Results says how tasks have ended. The outcomes are in the order of the results.
func (w *Workers) Results(ctx context.Context, results []WorkerResult) ([]WorkerOutcome, error) {
	cl, err := at(http.MethodPost, "v1", "workers", "results").send(struct {
		Results []WorkerResult `json:"results"`
	}{results})
	if err != nil {
		return nil, err
	}
	var out struct {
		Results []WorkerOutcome `json:"results"`
	}
	_, err = w.c.do(ctx, cl, &out)
	return out.Results, err
}

// readTasks reads the tasks of an answer as [encoding/json.Unmarshal] does, which takes a fifth of the
// processor time of a worker whose tasks are small. It is false for an answer that only Unmarshal can read.
func readTasks(answer []byte) (tasks []WorkerTask, ok bool) {
	ok = jsonx.Members(bytes.TrimSuffix(answer, []byte("\n")), func(name, list []byte) bool {
		return string(name) != "tasks" || jsonx.Elements(list, func(task []byte) bool {
			tasks = append(tasks, WorkerTask{})
			return jsonx.Members(task, tasks[len(tasks)-1].set)
		})
	})
	return tasks, ok
}

// set sets a member of a task. It returns false for a value that is not what [encoding/json] writes for it.
func (t *WorkerTask) set(name, value []byte) bool {
	var number int64
	var at string
	switch string(name) {
	case "lease":
		return text(value, &t.Lease)
	case "action":
		return text(value, &t.Action)
	case "version":
		return text(value, &t.Version)
	case "account":
		return text(value, &t.Account)
	case "run":
		return text(value, &t.Run)
	case "step":
		return text(value, &t.Step)
	case "effectKey":
		return text(value, &t.EffectKey)
	case "traceParent":
		return text(value, &t.TraceParent)
	case "leaseMs":
		return integer(value, &t.LeaseMS)
	case "attempt":
		ok := integer(value, &number)
		t.Attempt = int(number)
		return ok
	case "expiresAt":
		ok := text(value, &at)
		var err error
		t.ExpiresAt, err = time.Parse(time.RFC3339Nano, at)
		return ok && err == nil
	case "input":
		t.Input = bytes.Clone(value)
	}
	return true
}

// text reads a string without escapes.
func text(value []byte, to *string) bool {
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return false
	}
	*to = string(value[1 : len(value)-1])
	return true
}

func integer(value []byte, to *int64) bool {
	n, err := strconv.ParseInt(string(value), 10, 64)
	*to = n
	return err == nil
}
