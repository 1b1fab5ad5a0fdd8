// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/term"
)

// X218: what a person sees of a busy server on the dashboard, with names that could confuse a terminal.
func TestX218_TopText(t *testing.T) {
	now := time.Date(2026, 3, 1, 14, 2, 11, 0, time.UTC)
	v := &topView{ServerLoad: client.ServerLoad{
		Version: "1.2.3", Now: now, StartedAt: now.Add(-3*time.Hour - 12*time.Minute),
		Runs:     client.RunLoad{Live: 12, Queued: 3, States: map[string]int{"queued": 3, "running": 10, "waiting": 2}, Loaded: 14},
		Accounts: []client.AccountLoad{{Account: "acme", Live: 11, Queued: 3}, {Account: "rival", Live: 1}},
		Attempts: client.AttemptLoad{Running: 9, ByAction: map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "pdf\x1b[2J": 3}, Finished: 1204, PerSecond: 12.43},
		Limits:   []client.LimitLoad{{Of: "action", Name: "pdf", Slots: 3, Used: 3, Waiting: 7}, {Of: "engine", Slots: 1024, Used: 9}},
		Commits:  client.CommitLoad{Total: 10233, Failed: 1, PerSecond: 35.21, MedianMS: 3.12, P99MS: 9.81, SlowestMS: 12},
		Queues:   client.QueueLoad{Requests: 1, Inputs: 2},
		Memory:   client.MemoryLoad{HeapBytes: 48e6, TotalBytes: 96e6, Goroutines: 31},
		Store:    client.StoreLoad{JournalBytes: 3.1e6, LogBytes: 4.2e6},
		Failures: []client.RecentFailure{
			{At: now.Add(-time.Minute), Code: fault.StoreFailed},
			{At: now.Add(-time.Hour), Code: fault.StepFailed, Account: "acme", RunID: "run_1", Recipe: "bad\nname"},
		},
	}}
	top := &top{a: &app{now: func() time.Time { return now }}, of: "http://127.0.0.1:7420"}
	const want = `roux 1.2.3  http://127.0.0.1:7420  up 3 h 12 m  14:02:11 UTC
runs      12 live, 3 queued (10 running, 2 waiting), and more that are not counted; 14 in memory
attempts  9 running (3 pdf\x1b[2J, 1 a, 1 b, 1 c, 1 d, 2 other actions); 12.4 finished a second, 1204 since the start
slots     action pdf 3 of 3, 7 waiting; engine 9 of 1024
commits   35.2 a second, 10233 since the start; median 3.1 ms, p99 9.8 ms, slowest 12.0 ms; 1 failed
waiting   1 request for the disk, 2 inputs, 0 commits for watchers
memory    48 MB of values, 96 MB in all; 31 goroutines
store     journal 3.1 MB, write-ahead log 4.2 MB

ACCOUNT  LIVE  QUEUED
acme     11    3
rival    1     0

FAILED   CODE          ACCOUNT  RUN         RECIPE
1 m ago  STORE_FAILED           (a commit)
1 h ago  STEP_FAILED   acme     run_1       bad name
`
	var got strings.Builder
	for line := range strings.Lines(top.text(v)) {
		got.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// A server that is away for a while is looked for again, and the last state stays on the screen.
func TestTopSaysWhatIsWrong(t *testing.T) {
	var out bytes.Buffer
	a := &app{now: time.Now, getenv: func(string) string { return "" }, screen: term.NewScreen(&out, true, func(string) string { return "" })}
	top := &top{a: a, lines: []string{"the last state"}}
	top.frame = &term.Frame{Screen: a.screen}
	top.trouble(fault.New(fault.ServerUnreachable, "nobody answers"))
	if got := out.String(); !strings.Contains(got, "the last state") || !strings.Contains(got, "nobody answers; trying again") {
		t.Errorf("the screen shows %q", got)
	}
}
