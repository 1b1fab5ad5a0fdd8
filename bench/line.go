// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// A Line is what one shape measured in one run, or the median of its runs.
// docs/performance.md describes each field for each shape.
type Line struct {
	Shape        string  `json:"shape"`
	N            int     `json:"n"`
	Seconds      float64 `json:"seconds"`
	StepsPerS    float64 `json:"steps_per_s"`
	P50US        float64 `json:"p50_us"`
	P99US        float64 `json:"p99_us"`
	FsyncP50US   float64 `json:"fsync_p50_us"`
	Ratio        float64 `json:"ratio"`
	CPUPerStepUS float64 `json:"cpu_us_per_step"`
	BytesPerStep float64 `json:"bytes_per_step"`
	RSSMB        float64 `json:"rss_mb"`

	Run  string             `json:"run"`                    // "1", "2", …, "median"
	More map[string]float64 `json:"more,omitempty"`         // figures of this shape only
	Hist map[string]float64 `json:"commit_sizes,omitempty"` // transitions in a commit, at most -> commits
	Set  map[string]string  `json:"settings"`
}

// put adds a figure that only some shapes have.
func (l *Line) put(name string, v float64) {
	if l.More == nil {
		l.More = map[string]float64{}
	}
	l.More[name] = v
}

// figure finds a figure by its name in the JSON.
func (l *Line) figure(name string) (float64, bool) {
	for i, f := range fixed {
		if f.name == name {
			return *fixed[i].of(l), true
		}
	}
	v, ok := l.More[name]
	return v, ok
}

var fixed = []struct {
	name string
	of   func(*Line) *float64
}{
	{"seconds", func(l *Line) *float64 { return &l.Seconds }},
	{"steps_per_s", func(l *Line) *float64 { return &l.StepsPerS }},
	{"p50_us", func(l *Line) *float64 { return &l.P50US }},
	{"p99_us", func(l *Line) *float64 { return &l.P99US }},
	{"fsync_p50_us", func(l *Line) *float64 { return &l.FsyncP50US }},
	{"ratio", func(l *Line) *float64 { return &l.Ratio }},
	{"cpu_us_per_step", func(l *Line) *float64 { return &l.CPUPerStepUS }},
	{"bytes_per_step", func(l *Line) *float64 { return &l.BytesPerStep }},
	{"rss_mb", func(l *Line) *float64 { return &l.RSSMB }},
}

// write prints the line with rounded figures.
func (l Line) write(w io.Writer) error {
	for _, f := range fixed {
		*f.of(&l) = short(*f.of(&l))
	}
	l.More = maps.Clone(l.More)
	for k, v := range l.More {
		l.More[k] = short(v)
	}
	b, err := json.Marshal(l)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}

// short keeps four digits.
func short(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	s, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return s
}

// medianOf returns a line with the median of each figure over several runs.
func medianOf(runs []Line) Line {
	m := runs[0]
	m.Run = "median"
	pick := func(of func(*Line) (float64, bool)) float64 {
		var vs []float64
		for i := range runs {
			if v, ok := of(&runs[i]); ok {
				vs = append(vs, v)
			}
		}
		return quantile(vs, 0.5)
	}
	for _, f := range fixed {
		*f.of(&m) = pick(func(l *Line) (float64, bool) { return *f.of(l), true })
	}
	m.More = nil
	for k := range runs[0].More {
		m.put(k, pick(func(l *Line) (float64, bool) { v, ok := l.More[k]; return v, ok }))
	}
	m.Hist = map[string]float64{}
	for _, l := range runs {
		for k, v := range l.Hist {
			m.Hist[k] += v
		}
	}
	return m
}

// quantile sorts vs and returns its q-quantile.
func quantile[T cmp.Ordered](vs []T, q float64) T {
	if len(vs) == 0 {
		var none T
		return none
	}
	slices.Sort(vs)
	return vs[min(int(q*float64(len(vs))), len(vs)-1)]
}

// us converts a duration to microseconds.
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// spread fills in the latencies of a line.
func (l *Line) spread(times []time.Duration) {
	l.P50US, l.P99US = us(quantile(times, 0.5)), us(quantile(times, 0.99))
}

// tableHead prints the column names of the table for people.
func tableHead(w io.Writer) {
	fmt.Fprintf(w, "%-16s %8s %7s %9s %11s %9s %9s %9s %6s %8s %8s %8s\n",
		"shape", "n", "run", "seconds", "steps/s", "p50 µs", "p99 µs", "sync µs", "ratio", "cpu µs", "B/step", "RSS MB")
}

func (l *Line) table(w io.Writer) {
	fmt.Fprintf(w, "%-16s %8d %7s %9.4g %11.0f %9.4g %9.4g %9.4g %6.2f %8.4g %8.4g %8.1f", l.Shape, l.N, l.Run,
		l.Seconds, l.StepsPerS, l.P50US, l.P99US, l.FsyncP50US, l.Ratio, l.CPUPerStepUS, l.BytesPerStep, l.RSSMB)
	for _, k := range slices.Sorted(maps.Keys(l.More)) {
		fmt.Fprintf(w, " %s=%v", k, short(l.More[k]))
	}
	fmt.Fprintln(w)
}
