// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// report converts JSON lines into the tables of docs/performance.md. If a shape has a
// line of medians, its single runs are omitted.
func report(r io.Reader, w io.Writer) error {
	lines, runs, err := read(r)
	if err != nil {
		return err
	}
	p := &page{w: w}
	p.where(lines[0].Set, runs)
	p.shapes(lines)
	p.floors(lines)
	p.others(lines)
	p.bars(lines)
	p.commits(lines)
	return p.err
}

func read(r io.Reader) (lines []Line, runs int, err error) {
	last := map[string]int{} // shape and size -> place in lines
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var l Line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return nil, 0, fmt.Errorf("line %q: %w", s.Text(), err)
		}
		if n, err := strconv.Atoi(l.Run); err == nil {
			runs = max(runs, n)
		}
		key := fmt.Sprint(l.Shape, l.N)
		if i, ok := last[key]; ok {
			lines[i] = l
			continue
		}
		last[key] = len(lines)
		lines = append(lines, l)
	}
	if err := s.Err(); err != nil {
		return nil, 0, err
	}
	if len(lines) == 0 {
		return nil, 0, fmt.Errorf("no line was read")
	}
	return lines, runs, nil
}

// A page is Markdown under construction.
type page struct {
	w   io.Writer
	err error
}

func (p *page) print(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *page) row(cells ...string) { p.print("| %s |\n", strings.Join(cells, " | ")) }

func (p *page) head(cells ...string) {
	p.row(cells...)
	p.row(slices.Repeat([]string{"---"}, len(cells))...)
}

// num writes a figure without an exponent, with groups of digits.
func num(v float64) string {
	if v == 0 {
		return "0"
	}
	whole, part, _ := strings.Cut(strconv.FormatFloat(short(v), 'f', -1, 64), ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if part != "" {
		whole += "." + part
	}
	return sign + whole
}

// or formats a figure, or returns "" if there is none.
func or(v float64) string {
	if v == 0 {
		return ""
	}
	return num(v)
}

func (p *page) where(set map[string]string, runs int) {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		all = append(all, k+" "+set[k])
	}
	p.print("Runs: %d. Settings: %s.\n\n", runs, strings.Join(all, " · "))
}

func (p *page) shapes(lines []Line) {
	p.head("shape", "n", "seconds", "steps/s", "p50 µs", "p99 µs", "CPU µs per step", "bytes per step", "RSS MiB")
	for i := range lines {
		l := &lines[i]
		p.row(l.Shape, num(float64(l.N)), num(l.Seconds), or(l.StepsPerS), or(l.P50US), or(l.P99US), or(l.CPUPerStepUS), or(l.BytesPerStep), or(l.RSSMB))
	}
}

// floors prints the floors of each shape.
func (p *page) floors(lines []Line) {
	p.print("\n")
	p.head("shape", "n", "append + sync p50 µs", "overwrite + sync p50 µs", "store p50 µs", "in memory, µs per step", "shape ÷ append", "shape ÷ store")
	for i := range lines {
		l := &lines[i]
		if l.FsyncP50US == 0 {
			continue
		}
		store := l.More["over_store"]
		if store == 0 {
			store = l.P50US / l.More["store_p50_us"]
		}
		p.row(l.Shape, num(float64(l.N)), num(l.FsyncP50US), num(l.More["overwrite_p50_us"]), num(l.More["store_p50_us"]),
			or(l.More["memory_us_per_step"]), num(l.Ratio), num(store))
	}
}

// others prints the figures that only some shapes have.
func (p *page) others(lines []Line) {
	p.print("\n")
	p.head("shape", "n", "other figures")
	shown := []string{"append_s", "overwrite_s", "store_s", "overwrite_p50_us", "store_p50_us", "memory_us_per_step", "over_store"}
	for i := range lines {
		l := &lines[i]
		var all []string
		for _, k := range slices.Sorted(maps.Keys(l.More)) {
			if !slices.Contains(shown, k) {
				all = append(all, fmt.Sprintf("`%s` %s", k, num(l.More[k])))
			}
		}
		if len(all) > 0 {
			p.row(l.Shape, num(float64(l.N)), strings.Join(all, ", "))
		}
	}
}

func (p *page) bars(lines []Line) {
	p.print("\n")
	p.head("bar", "n", "measured", "required", "aim", "")
	for _, v := range compareWithBars(lines) {
		state, sign, aim := "met", "≤ ", ""
		switch {
		case v.none:
			state = "not measured"
		case !v.met:
			state = "**missed**"
		}
		switch {
		case v.bar.zero:
			sign = ""
		case v.bar.least:
			sign = "≥ "
		}
		if v.bar.aim != 0 {
			aim = sign + num(v.bar.aim)
		}
		p.row(v.bar.shape+": "+v.bar.what, num(float64(v.n)), num(v.got), sign+num(v.bar.want), aim, state)
	}
}

// commits prints how many transitions shared a commit.
func (p *page) commits(lines []Line) {
	p.print("\n")
	p.head("shape", "n", "commits by number of transitions")
	for i := range lines {
		l := &lines[i]
		var sizes []int
		for k := range l.Hist {
			if n, err := strconv.Atoi(k); err == nil {
				sizes = append(sizes, n)
			}
		}
		slices.Sort(sizes)
		var all []string
		for _, n := range sizes {
			all = append(all, fmt.Sprintf("≤ %s: %s", num(float64(n)), num(l.Hist[strconv.Itoa(n)])))
		}
		if len(all) > 0 {
			p.row(l.Shape, num(float64(l.N)), strings.Join(all, ", "))
		}
	}
}
