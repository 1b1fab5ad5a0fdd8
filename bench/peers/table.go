// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// A row is one peer with the medians of its runs.
type row struct {
	*spec
	version string
	with    string // its settings in that run
	missing string
	median  map[string]line   // by shape
	failed  map[string]string // shapes without a figure, and why
	syncsOf float64
}

// A table has the results of all peers.
type table struct {
	shapes []string
	rows   []row
	runs   int
}

// table computes the medians, figure by figure.
func (s *session) table() *table {
	t := &table{shapes: s.shapes, runs: s.runs}
	for _, name := range s.peers {
		r := row{spec: specOf(name), version: specOf(name).version(), with: specOf(name).with(""), missing: s.missing[name], median: map[string]line{}, failed: map[string]string{}}
		for _, shape := range append([]string{syncShape}, s.shapes...) {
			var got []line
			for _, l := range s.lines {
				switch {
				case l.Peer != name || l.Shape != shape:
				case l.Error != "":
					r.failed[shape] = l.Error
				default:
					got, r.version = append(got, l), l.Version
					if shape != ingressShape {
						r.with = cmp.Or(l.Settings, r.with)
					}
				}
			}
			if len(got) > 0 {
				delete(r.failed, shape)
				r.median[shape] = medianOf(got)
			}
		}
		r.syncsOf = r.median[syncShape].SyncsPer
		if name == rouxName {
			r.syncsOf = r.median["chain"].SyncsPer
		}
		t.rows = append(t.rows, r)
	}
	return t
}

func medianOf(lines []line) line {
	m := lines[0]
	for _, f := range []func(*line) *float64{
		func(l *line) *float64 { return &l.Seconds },
		func(l *line) *float64 { return &l.P50 },
		func(l *line) *float64 { return &l.P99 },
		func(l *line) *float64 { return &l.StepsPerS },
		func(l *line) *float64 { return &l.CPUPerStep },
		func(l *line) *float64 { return &l.RSSMB },
		func(l *line) *float64 { return &l.CPUNarrow },
		func(l *line) *float64 { return &l.Growth },
		func(l *line) *float64 { return &l.BytesPerRun },
		func(l *line) *float64 { return &l.SyncsPer },
		func(l *line) *float64 { return &l.AcceptedPerS },
		func(l *line) *float64 { return &l.DrainS },
		func(l *line) *float64 { return &l.CarriedPerS },
		func(l *line) *float64 { return &l.CPUClient },
	} {
		var values []float64
		for i := range lines {
			values = append(values, *f(&lines[i]))
		}
		slices.Sort(values)
		*f(&m) = values[len(values)/2]
	}
	for _, l := range lines[1:] { // these are counts of all runs
		m.Accepted, m.Completed = m.Accepted+l.Accepted, m.Completed+l.Completed
	}
	return m
}

// A criterion is the figure by which a shape is compared.
type criterion struct {
	shape, head string
	of          func(line) float64
	more        bool // larger is better
	plain       bool // a ratio already, which is not compared with Roux's
	text        func(line) string
}

var judged = []criterion{
	{"chain", "chain, a step p50 / p99 µs", func(l line) float64 { return l.P50 }, false, false,
		func(l line) string { return fmt.Sprintf("%s / %s", digits(l.P50), digits(l.P99)) }},
	{"fan", "fan, ms", func(l line) float64 { return l.Seconds }, false, false,
		func(l line) string { return digits(l.Seconds * 1000) }},
	{"many", "many, steps/s", func(l line) float64 { return l.StepsPerS }, true, false,
		func(l line) string { return digits(l.StepsPerS) }},
	{"submit", "submit p50 / p99 ms", func(l line) float64 { return l.P50 }, false, false,
		func(l line) string { return fmt.Sprintf("%s / %s", digits(l.P50/1000), digits(l.P99/1000)) }},
	{"idle", "idle, MB with 10,000 waiting (bytes each added)", func(l line) float64 { return l.RSSMB }, false, false,
		func(l line) string { return fmt.Sprintf("%s (%s)", digits(l.RSSMB), digits(l.BytesPerRun)) }},
	{"recover", "recover, ms with 1,000 waiting", func(l line) float64 { return l.Seconds }, false, false,
		func(l line) string { return digits(l.Seconds * 1000) }},
	{"wide", "wide, cost of a step at 1,000 over 10", func(l line) float64 { return l.Growth }, false, true,
		func(l line) string { return digits(l.Growth) }},
}

// digits formats a number with a suitable number of digits.
func digits(f float64) string {
	switch a := max(f, -f); {
	case a >= 1000:
		text := fmt.Sprintf("%.0f", f)
		for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
			text = text[:at] + "," + text[at:]
		}
		return text
	case a >= 100:
		return fmt.Sprintf("%.0f", f)
	case a >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// markdown prints a row per peer. A ratio is how many times slower, or larger, the peer is
// than Roux.
func (t *table) markdown() string {
	var b strings.Builder
	heads := []string{"engine, version", "store", "syncs every step (how known)"}
	for _, m := range t.judged() {
		heads = append(heads, m.head)
	}
	heads = append(heads, "CPU µs a step: chain, fan, many (× Roux)", "peak MB (many)", "settings")
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat(" --- |", len(heads)))
	roux := t.roux()
	for _, r := range t.rows {
		cells := []string{r.engine + " " + r.version, r.store, r.synced()}
		if r.missing != "" {
			fmt.Fprintf(&b, "| %s | not run: %s |\n", strings.Join(cells, " | "), inline(r.missing))
			continue
		}
		for _, m := range t.judged() {
			cells = append(cells, r.cell(m, roux))
		}
		cpu := []string{}
		for _, shape := range []string{"chain", "fan", "many"} {
			if l, ok := r.median[shape]; ok {
				cpu = append(cpu, digits(l.CPUPerStep))
			} else {
				cpu = append(cpu, "-")
			}
		}
		if of, ok := r.median["many"]; ok && roux != nil && r.name != rouxName && roux.median["many"].CPUPerStep > 0 {
			cpu[2] += fmt.Sprintf(" (%s×)", digits(of.CPUPerStep/roux.median["many"].CPUPerStep))
		}
		peak := "-"
		if l, ok := r.median["many"]; ok {
			peak = digits(l.RSSMB)
		}
		cells = append(cells, strings.Join(cpu, ", "), peak, r.with)
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	for _, r := range t.rows {
		for _, shape := range slices.Sorted(maps.Keys(r.failed)) {
			fmt.Fprintf(&b, "\n%s, %s: %s\n", r.name, shape, inline(r.failed[shape]))
		}
	}
	return b.String()
}

func inline(text string) string { return strings.Join(strings.Fields(text), " ") }

// judged returns the shapes that were measured; older results lack some.
func (t *table) judged() (of []criterion) {
	for _, m := range judged {
		if slices.Contains(t.shapes, m.shape) && slices.ContainsFunc(t.rows, func(r row) bool { return r.met(m.shape) }) {
			of = append(of, m)
		}
	}
	return of
}

func (r *row) met(shape string) bool {
	_, ok := r.median[shape]
	return ok || r.failed[shape] != ""
}

func (t *table) roux() *row {
	for i := range t.rows {
		if t.rows[i].name == rouxName && t.rows[i].missing == "" {
			return &t.rows[i]
		}
	}
	return nil
}

// synced returns whether each step is synced, and how that is known.
func (r *row) synced() string {
	text := "**no**: " + r.why
	if r.strict() {
		text = "yes: " + r.why
	}
	if r.counted() {
		text += fmt.Sprintf("; %.2f syncs a step counted", r.syncsOf)
	}
	return text
}

func (r *row) counted() bool { return r.syncsOf > 0 || r.median[syncShape].Peer != "" }

// strict reports whether every step is synced: according to the engine's documentation,
// unless the count shows otherwise. (The last step of a chain may share its sync with
// what follows, which is not counted.)
func (r *row) strict() bool {
	return r.syncs && (!r.counted() || r.syncsOf > 0.95)
}

// cell formats a figure, the size if it differs from that of the bars, and the
// ratio.
func (r *row) cell(m criterion, roux *row) string {
	l, ok := r.median[m.shape]
	if !ok {
		if r.failed[m.shape] != "" {
			return "failed, see below"
		}
		return "-"
	}
	text := m.text(l)
	switch {
	case m.shape == "wide":
		if l.N != defaultSizes["wide"] {
			text += fmt.Sprintf(" [%d steps]", l.N)
		}
	case l.Runs > 1 && m.shape != "chain" && l.Runs != defaultSizes[m.shape]:
		text += fmt.Sprintf(" [%d runs]", l.Runs)
	}
	if roux != nil && r.name != rouxName && !m.plain {
		if base, ok := roux.median[m.shape]; ok {
			text += fmt.Sprintf(" · %s×", digits(ratio(m, l, base)))
		}
	}
	return text
}

// ratio returns how many times better Roux is.
func ratio(m criterion, peer, roux line) float64 {
	if m.more {
		return m.of(roux) / m.of(peer)
	}
	return m.of(peer) / m.of(roux)
}

// bars are Roux's required ratios to the best peer that syncs every step; for idle, to the
// best of all peers.
var bars = []struct {
	shape string
	least float64
}{{"many", 15}, {"fan", 30}, {"chain", 3}, {"idle", 1}}

// check compares the table with the bars.
func (t *table) check(w io.Writer) error {
	roux := t.roux()
	if roux == nil {
		return errors.New("-check: Roux itself was not measured")
	}
	var missed []error
	for _, bar := range bars {
		if !slices.Contains(t.shapes, bar.shape) {
			continue
		}
		m := judged[slices.IndexFunc(judged, func(m criterion) bool { return m.shape == bar.shape })]
		base, ok := roux.median[bar.shape]
		if !ok {
			missed = append(missed, fmt.Errorf("%s: Roux has no figure", bar.shape))
			continue
		}
		var rivals []row
		for _, r := range t.rows {
			if _, ok := r.median[bar.shape]; ok && r.name != rouxName && (r.strict() || bar.shape == "idle") {
				rivals = append(rivals, r)
			}
		}
		if len(rivals) == 0 {
			missed = append(missed, fmt.Errorf("%s: no peer has a figure", bar.shape))
			continue
		}
		best := slices.MinFunc(rivals, func(a, b row) int {
			return cmp.Compare(ratio(m, a.median[bar.shape], base), ratio(m, b.median[bar.shape], base))
		})
		got := ratio(m, best.median[bar.shape], base)
		verdict := "ok"
		if got < bar.least {
			verdict = "MISSED"
			missed = append(missed, fmt.Errorf("%s: %.2f × the best peer (%s), the bar is %.0f ×", bar.shape, got, best.name, bar.least))
		}
		fmt.Fprintf(w, "\n%s: %.1f × %s, the best peer; bar %.0f ×: %s", bar.shape, got, best.name, bar.least, verdict)
	}
	fmt.Fprintln(w)
	return errors.Join(missed...)
}
