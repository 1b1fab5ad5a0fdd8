// SPDX-License-Identifier: Apache-2.0

package conform_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/conform"
)

// TestMain is the worker that is checked when the program has this argument.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asWorker {
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const asWorker = "as-worker"

// work is a worker with the actions that conform wants.
func work() error {
	c, err := client.New(client.Config{URL: os.Getenv("ROUX_SERVER"), Key: os.Getenv("ROUX_KEY")})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w := client.Worker{Client: c, Queue: os.Getenv("ROUX_QUEUE"), Concurrency: 8}
	for name, run := range map[string]func(context.Context, *action.Task) (any, error){
		"conform-echo": func(_ context.Context, t *action.Task) (any, error) { return t.Input, nil },
		"conform-fail": fail, "conform-progress": progress, "conform-slow": slow, "conform-file": file, "conform-big": big,
		"conform-submit": func(_ context.Context, t *action.Task) (any, error) {
			var in struct{ Job string }
			err := t.Decode(&in)
			return &action.Job{Provider: "conform", ID: in.Job, TTL: 10 * time.Minute}, err
		},
		"conform-key": func(_ context.Context, t *action.Task) (any, error) {
			return map[string]any{"effectKey": t.EffectKey, "attempt": t.Attempt, "account": t.Account, "run": t.Run, "step": t.Step}, nil
		},
	} {
		w.Actions = append(w.Actions, action.Action{Name: name, Run: func(ctx context.Context, t *action.Task) (action.Result, error) {
			out, err := run(ctx, t)
			if job, ok := out.(*action.Job); ok && err == nil {
				return action.Result{Job: job}, nil
			}
			return action.Result{Output: out}, err
		}})
	}
	return w.Run(ctx)
}

func fail(_ context.Context, t *action.Task) (any, error) {
	var in struct {
		Code, Message  string
		OutcomeUnknown bool
	}
	if err := t.Decode(&in); err != nil {
		return nil, err
	}
	if in.Code == "" {
		return nil, fmt.Errorf("%s", in.Message)
	}
	failure := fault.New(fault.Code(in.Code), "%s", in.Message)
	failure.OutcomeUnknown = in.OutcomeUnknown
	return nil, failure
}

func progress(_ context.Context, t *action.Task) (any, error) {
	t.Report.Progress(0.75, "three quarters")
	t.Report.Log("info", "a line of the log")
	t.Report.Delta("a")
	t.Report.Delta("b")
	t.Report.Preview(map[string]any{"so": "far"})
	time.Sleep(50 * time.Millisecond) // while the others are sent
	t.Report.Delta("c")
	return map[string]any{"done": true}, nil
}

func slow(ctx context.Context, t *action.Task) (any, error) {
	var in struct{ MS int64 }
	if err := t.Decode(&in); err != nil {
		return nil, err
	}
	begun := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(in.MS) * time.Millisecond):
	}
	return map[string]any{"slept": time.Since(begun).Milliseconds()}, nil
}

func file(ctx context.Context, t *action.Task) (any, error) {
	var in struct{ File string }
	if err := t.Decode(&in); err != nil {
		return nil, err
	}
	f, err := t.Files.Open(ctx, in.File)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	upper, err := t.Files.Put(ctx, strings.NewReader(strings.ToUpper(string(content))), "upper.txt", "text/plain")
	return map[string]any{"size": len(content), "upper": upper.Hash}, err
}

func big(_ context.Context, t *action.Task) (any, error) {
	var in struct{ Bytes int }
	err := t.Decode(&in)
	return map[string]any{"text": strings.Repeat("x", in.Bytes)}, err
}

// The worker of package client does all that a worker has to do.
func TestWorkerInGoConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs without -short")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := conform.Run(t.Context(), conform.Config{Command: []string{self, asWorker}, Output: t.Output()})
	if err != nil || len(cases) < 16 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		if !c.OK {
			t.Errorf("%s: want %s; %s", c.Name, c.Want, c.Got)
		}
	}
}
