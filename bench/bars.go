// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
)

// A bar is the required value of a figure, and the value we aim for.
type bar struct {
	shape  string
	n      int // 0 = any size
	figure string
	least  bool // the figure must be at least this; otherwise at most
	want   float64
	aim    float64 // 0 = none
	what   string
	zero   bool // the figure must be zero
}

// bars are for two cores and a durable disk.
var bars = []bar{
	{shape: "chain", figure: "over_store_us", want: 60, what: "p50 of a step minus the store's, µs"},
	{shape: "chain", figure: "store_over_append", want: 1.3, what: "the store's p50 ÷ append and sync"},
	{shape: "chain", figure: "syncs_per_step", want: 1, what: "syncs per step"},
	{shape: "transforms", n: 100, figure: "p50_us", want: 1_000, what: "100 transforms in a row, µs"},
	{shape: "fan", n: 1_000, figure: "p50_us", want: 6_000, aim: 2_000, what: "1,000 parallel steps and their join, µs"},
	{shape: "fan", n: 10_000, figure: "p50_us", want: 40_000, aim: 10_000, what: "10,000 parallel steps and their join, µs"},
	{shape: "children", n: 100, figure: "over_flat", want: 2, what: "100 child runs in a row ÷ a chain of 100 steps"},
	{shape: "children", n: 1_000, figure: "over_flat", want: 4, what: "1,000 child runs at once ÷ 1,000 parallel steps"},
	{shape: "towers", figure: "cpu_over_flat", want: 1.3, what: "processor time of 10 levels of child runs ÷ of as many side by side"},
	{shape: "many", figure: "steps_per_s", least: true, want: 100_000, aim: 300_000, what: "steps/s"},
	{shape: "many", figure: "cpu_us_per_step", want: 20, aim: 5, what: "CPU time per step, µs"},
	{shape: "slow", figure: "steps_per_s", least: true, want: 50_000, what: "steps/s with syncs that take 2 ms longer"},
	{shape: "steady", figure: "steps_per_s", least: true, want: 50_000, aim: 120_000, what: "steps/s for a minute"},
	{shape: "steady", figure: "seconds", least: true, want: 60, what: "duration, s"},
	{shape: "steady", figure: "trims", least: true, want: 3, what: "times the journal was trimmed"},
	{shape: "submit", figure: "p50_us", want: 500, what: "time until the first step, µs"},
	{shape: "idle", n: 100_000, figure: "rss_mb", want: 200, what: "100,000 waiting runs, MiB"},
	{shape: "idle", n: 1_000_000, figure: "rss_mb", want: 1_024, what: "1,000,000 waiting runs, MiB"},
	{shape: "idle", figure: "syncs_per_s", zero: true, what: "syncs/s while all wait"},
	{shape: "recover", n: 100_000, figure: "seconds", want: 0.6, what: "from process start to the step after a signal, s"},
	{shape: "wide", figure: "growth", want: 1.5, what: "cost of a step in a run of 10,000 ÷ in a run of 10"},
	{shape: "lanes", n: 100_000, figure: "seconds", want: 2, what: "100,000 steps in 100 lanes, s"},
	{shape: "books", figure: "us_per_run", want: 60, what: "proving the credits of a run from its journal, µs"},
	{shape: "execute", figure: "steps_per_s", least: true, want: 3_000, aim: 8_000, what: "starts of three steps over HTTP, accepted and durable, /s"},
	{shape: "execute", figure: "p99_us", want: 60_000, what: "such a start, p99, µs"},
	{shape: "get", figure: "steps_per_s", least: true, want: 15_000, what: "runs read over HTTP, /s"},
	{shape: "get-large", figure: "p50_us", want: 5_000, what: "a run of 100,000 events read over HTTP, µs"},
	{shape: "ready", figure: "p50_us", want: 300_000, what: "from the start of roux serve to /readyz, µs"},
	{shape: "subscribers", n: 10_000, figure: "rss_mb", want: 400, what: "10,000 silent streams, MiB"},
	{shape: "readers", figure: "writers_kept", least: true, want: 0.9, what: "starts at half of the peak beside streams that catch up ÷ alone"},
	{shape: "overload", figure: "goodput", least: true, want: 0.9, what: "starts accepted with four times the clients ÷ the peak"},
	{shape: "overload", figure: "other_p99_ratio", want: 2, what: "p99 of another account then ÷ at the peak"},
	{shape: "overload", figure: "lost", zero: true, what: "accepted runs that were not carried out"},
	{shape: "remote", figure: "steps_per_s", least: true, want: 15_000, aim: 30_000, what: "steps of a remote worker, /s"},
	{shape: "remote", figure: "p50_us", want: 2_000, what: "from one remote step to the next, µs"},
	{shape: "jobs", n: 1_000_000, figure: "seconds", want: 300, what: "submitting 1,000,000 jobs, s"},
	{shape: "jobs", n: 1_000_000, figure: "rss_mb", want: 1_024, what: "1,000,000 waiting jobs, MiB"},
	{shape: "jobs", figure: "goroutines", want: 200, what: "goroutines while all wait"},
	{shape: "jobs", figure: "runs_read_by_polls", zero: true, what: "runs read by polls"},
	{shape: "jobs", figure: "polls_over_budget", zero: true, what: "polls beyond what a service may be asked"},
	{shape: "jobs", figure: "restart_s", want: 5, what: "from the start of the process until all jobs are known, s"},
	{shape: "jobs", figure: "p50_us", want: 5_000, what: "from a webhook to the next step of a suspended run, µs"},
	{shape: "jobs", figure: "loaded_p50_us", want: 5_000, what: "the same of a run in memory, µs"},
	{shape: "streams", n: modelStreams, figure: "p50_us", want: 120_000, what: "200 streams of 50 tokens/s: how late a client has a token, µs"},
	{shape: "streams", n: modelStreams, figure: "cpu_share", want: 0.25, what: "processor time of the server, of a core"},
	{shape: "streams", n: modelStreams, figure: "most_events_per_s", want: 12, what: "events of a stream in the journal, /s"},
	{shape: "streams", figure: "wrong", zero: true, what: "clients with another text than the result"},
	{shape: "streams-anthropic", n: modelStreams, figure: "p50_us", want: 120_000, what: "the same by Anthropic's protocol, µs"},
	{shape: "streams-anthropic", n: modelStreams, figure: "cpu_share", want: 0.25, what: "processor time of the server, of a core"},
	{shape: "streams-anthropic", n: modelStreams, figure: "most_events_per_s", want: 12, what: "events of a stream in the journal, /s"},
	{shape: "streams-anthropic", figure: "wrong", zero: true, what: "clients with another text than the result"},
	{shape: "streams-killed", n: modelStreams, figure: "again", least: true, want: modelStreams, what: "streams that began again after a kill"},
	{shape: "streams-killed", figure: "wrong", zero: true, what: "clients with another text than the result"},
	{shape: "fairness", figure: "worst_in_tasks", want: 2, what: "the longest wait, in tasks"},
}

// A verdict is the result of comparing a line with a bar.
type verdict struct {
	bar  bar
	n    int
	got  float64
	met  bool
	none bool // not measured, which counts as missed
}

func (v verdict) String() string {
	sign, state := "≤", "met"
	switch {
	case v.bar.zero:
		sign = "="
	case v.bar.least:
		sign = "≥"
	}
	switch {
	case v.none:
		state = "NOT MEASURED"
	case !v.met:
		state = "MISSED"
	}
	s := fmt.Sprintf("%-12s %-10s %8d  %s: %v, want %s %v", state, v.bar.shape, v.n, v.bar.what, short(v.got), sign, v.bar.want)
	if v.bar.aim != 0 {
		s += fmt.Sprintf(" (aim %v)", v.bar.aim)
	}
	return s
}

// compareWithBars compares lines with the bars that apply to them.
func compareWithBars(lines []Line) (all []verdict) {
	for _, b := range bars {
		for i := range lines {
			l := &lines[i]
			if l.Shape != b.shape || b.n != 0 && l.N != b.n {
				continue
			}
			v := verdict{bar: b, n: l.N}
			var ok bool
			v.got, ok = l.figure(b.figure)
			// A zero figure was not measured on this system.
			v.none = !ok || v.got == 0 && !b.zero && b.figure != "over_store_us"
			switch {
			case v.none:
			case b.zero:
				v.met = v.got == 0
			case b.least:
				v.met = v.got >= b.want
			default:
				v.met = v.got <= b.want
			}
			all = append(all, v)
		}
	}
	return all
}

// check prints the comparison of lines with bars and returns an error if one is
// missed.
func check(lines []Line, w io.Writer) error {
	var missed []string
	for _, v := range compareWithBars(lines) {
		fmt.Fprintln(w, v)
		if !v.met {
			missed = append(missed, fmt.Sprintf("%s %d: %s", v.bar.shape, v.n, v.bar.what))
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d bars missed:\n  %s", len(missed), strings.Join(missed, "\n  "))
	}
	return nil
}
