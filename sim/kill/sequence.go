// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// A way is how a client reads what happens.
type way int

const (
	byStream way = iota // server-sent events of one run
	bySocket            // many runs over one WebSocket
	byFeed              // server-sent events of the account
	byPages             // the ledger, page by page
	ways
)

// String implements fmt.Stringer.
func (v way) String() string { return [ways]string{"stream", "socket", "feed", "ledger"}[v] }

// A tally counts something for each way.
type tally [ways]atomic.Int64

// counts returns what was counted; nil if nothing was.
func (t *tally) counts() map[string]int64 {
	var m map[string]int64
	for v := range ways {
		if n := t[v].Load(); n > 0 {
			if m == nil {
				m = map[string]int64{}
			}
			m[v.String()] = n
		}
	}
	return m
}

// A sequence is what one client was sent of a run, or of the feed, over all its connections.
type sequence struct {
	way    way
	run    string   // "" = the feed
	frames []string // by number - 1
}

// sequenceOf returns a new sequence of a run, which is compared at the end.
func (w *watch) sequenceOf(v way, run string) *sequence {
	q := &sequence{way: v, run: run}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs = append(w.runs, q)
	return q
}

// last is the cursor of the client.
func (q *sequence) last() uint64 { return uint64(len(q.frames)) }

// String implements fmt.Stringer.
func (q *sequence) String() string {
	if q.run == "" {
		return "the " + q.way.String()
	}
	return fmt.Sprintf("the %s of run %s", q.way, q.run)
}

// add adds a frame, which must be the next one. After another one the client cannot read on.
func (w *watch) add(q *sequence, f frame) error {
	if f.id != q.last()+1 {
		w.s.problem("%s has number %d after number %d (I14)", q, f.id, q.last())
		return fmt.Errorf("%s: %s cannot be followed", w.s.name, q)
	}
	q.frames = append(q.frames, f.text)
	return nil
}

// compare compares what a client was sent with what is stored. It reports the first difference.
func (q *sequence) compare(stored []string, bad func(string, ...any)) {
	for i, text := range q.frames[:min(len(q.frames), len(stored))] {
		if text != stored[i] {
			bad("number %d of %s was sent as\n  %s\nand is stored as\n  %s (I14)", i+1, q, text, stored[i])
			return
		}
	}
	if len(q.frames) != len(stored) {
		bad("%s was sent up to number %d, and %d are stored (I14)", q, len(q.frames), len(stored))
	}
}

// checkSequences checks that each client was sent the journal of each run, byte for byte, and
// the changes and entries of the account as they are stored.
func (r *round) checkSequences(byID map[string]*history, bad func(string, ...any)) error {
	if r.watch == nil {
		return nil
	}
	for _, q := range r.watch.runs {
		if h := byID[q.run]; h != nil { // checkShown reports one that is missing
			q.compare(h.text, bad)
		}
		r.sequences.Add(1)
	}
	stored, err := r.storedChanges()
	if err != nil {
		return err
	}
	for _, q := range r.watch.feeds {
		seen, err := changesOf(q.frames)
		if err != nil {
			return err
		}
		(&sequence{way: q.way, frames: seen}).compare(stored, bad)
		r.sequences.Add(1)
	}
	entries, err := r.storedEntries()
	if err != nil {
		return err
	}
	seen := slices.Collect(texts(r.watch.ledger))
	(&sequence{way: byPages, frames: seen}).compare(slices.Collect(texts(entries)), bad)
	return nil
}
