// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// entered reports whether a peer was measured through its ingress.
func (t *table) entered() bool {
	return slices.Contains(t.shapes, ingressShape) && slices.ContainsFunc(t.rows, func(r row) bool { return r.met(ingressShape) })
}

// ingress prints a row per peer with an ingress. A ratio is how many times more Roux accepts, or
// carries out, or how many times more processor time the peer takes; below one the peer is better.
func (t *table) ingress() string {
	var b strings.Builder
	heads := []string{"engine, version", "store", "a client calls", "durable when it is answered", "accepted/s", "answer p50 / p99 ms",
		"CPU µs each, carried out: engine and database", "CPU µs each: client", "completed / accepted", "s until the last has ended", "carried out/s", "settings"}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat(" --- |", len(heads)))
	var base *line
	if roux := t.roux(); roux != nil && roux.met(ingressShape) {
		l := roux.median[ingressShape]
		base = &l
	}
	var failures strings.Builder
	for _, r := range t.rows {
		if r.spec.ingress == nil {
			continue
		}
		cells := []string{r.engine + " " + r.version, r.store, r.ingress.what, r.ingress.durable}
		l, ok := r.median[ingressShape]
		switch {
		case r.missing != "":
			cells[0] = r.engine // its version is that of this program, not of the results
			cells = append(cells, "not run: "+inline(r.missing))
		case r.failed[ingressShape] != "":
			cells = append(cells, "failed, see below")
			fmt.Fprintf(&failures, "\n%s: %s\n", r.name, inline(r.failed[ingressShape]))
		case !ok:
			continue
		default:
			cells = append(cells, entryCells(&r, l, base)...)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String() + failures.String()
}

// entryCells are the figures of a row of the table of ingresses; base is the line of Roux.
func entryCells(r *row, l line, base *line) []string {
	rate, cpu, carried := digits(l.AcceptedPerS), digits(l.CPUPerStep), digits(l.CarriedPerS)
	if base != nil && r.name != rouxName {
		rate += fmt.Sprintf(" · %s×", digits(base.AcceptedPerS/l.AcceptedPerS))
		carried += fmt.Sprintf(" · %s×", digits(base.CarriedPerS/l.CarriedPerS))
		cpu += fmt.Sprintf(" · %s×", digits(l.CPUPerStep/base.CPUPerStep))
	}
	with := cmp.Or(l.Settings, r.spec.with(ingressShape))
	if n := defaultSizes[ingressShape]; l.N != n {
		with += fmt.Sprintf("; %d connections", l.N)
	}
	return []string{rate, fmt.Sprintf("%s / %s", digits(l.P50/1000), digits(l.P99/1000)), cpu, digits(l.CPUClient),
		fmt.Sprintf("%s / %s", whole(l.Completed), whole(l.Accepted)), digits(l.DrainS), carried, with}
}

// whole formats a count.
func whole(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return digits(float64(n))
}
