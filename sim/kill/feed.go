// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// followFeed follows the feed of the account until it has the end of every run.
func (w *watch) followFeed(ctx context.Context, q *sequence, started <-chan struct{}) error {
	ended := map[string]bool{}
	var p patience
	for {
		over := false
		select {
		case <-started:
			over = true
		default:
		}
		runs, _ := w.s.known()
		for _, id := range runs {
			over = over && ended[id]
		}
		if over {
			return nil
		}
		err := w.readFeed(ctx, q, &p, func(c *change) bool {
			before := len(ended)
			if c.Status == "completed" || c.Status == "failed" || c.Status == "cancelled" {
				ended[c.RunID] = true
			}
			return len(ended) == before // it may have been the last one
		})
		if err != nil {
			return err
		}
	}
}

// readFeed reads the feed over one connection, which is cut, until fn returns false.
func (w *watch) readFeed(ctx context.Context, q *sequence, p *patience, fn func(*change) bool) error {
	var failed error
	before := q.last()
	one, cancel := context.WithTimeout(ctx, p.time(50+w.draw(400)))
	defer cancel()
	_, err := w.read(one, p, "/v1/feed", q, func(f frame) bool {
		var c change
		if failed = w.add(q, f); failed == nil {
			failed = json.Unmarshal([]byte(f.text), &c)
		}
		return failed == nil && fn(&c)
	})
	p.brought(q.last() > before)
	if failed = cmp.Or(failed, err); failed == nil {
		failed = pause(ctx)
	}
	return failed
}

// catchUp follows feed and ledger to their ends, now that nothing changes any more.
func (w *watch) catchUp(ctx context.Context) error {
	var end struct{ Last uint64 }
	if ok, err := w.s.get(ctx, w.s.web, "/v1/changes?limit=0", &end); err != nil || !ok {
		return cmp.Or(err, fmt.Errorf("%s: the server does not say where the feed ends", w.s.name))
	}
	for _, q := range w.feeds {
		for p := (patience{}); q.last() < end.Last; {
			if err := w.readFeed(ctx, q, &p, func(*change) bool { return q.last() < end.Last }); err != nil {
				return err
			}
		}
	}
	for {
		if n, err := w.readPage(ctx, nil); err != nil || n == 0 {
			return err
		}
	}
}

// compareFeeds reads the feed over one connection, and compares it with what each client was
// sent over its connections, byte for byte.
func (w *watch) compareFeeds(ctx context.Context) error {
	whole := &sequence{way: byFeed}
	var failed error
	_, err := w.read(ctx, nil, "/v1/feed", whole, func(f frame) bool {
		failed = w.add(whole, f)
		return failed == nil && whole.last() < w.feeds[0].last()
	})
	for _, q := range w.feeds {
		q.compare(whole.frames, w.s.problem)
	}
	return cmp.Or(failed, err)
}

// A change is one of the feed, as the server and as the command line have it. Both have the
// same facts under different names.
type change struct {
	Number, ID           uint64
	Timestamp, At        time.Time
	RunID, Run           string
	Type, Recipe         string
	State, Status, Code  string
	CompletedAt, EndedAt time.Time
	Quarantined          bool
	Deleted, Hidden      bool
	Removed              bool
	Entry                json.RawMessage // a number, or an object
	Kind, LimitSource    string
	Limit, Amount        int64
	Notice               json.RawMessage
}

// facts describes what a change says, whoever says it.
func (c *change) facts() (string, error) {
	var e struct {
		Number uint64
		Kind   string
	}
	entry, kind := uint64(0), c.Kind
	if len(c.Entry) > 0 {
		into := any(&entry)
		if c.Entry[0] == '{' {
			into = &e
		}
		if err := json.Unmarshal(c.Entry, into); err != nil {
			return "", err
		}
		entry, kind = cmp.Or(entry, e.Number), cmp.Or(kind, e.Kind)
	}
	at := func(t, or time.Time) string {
		if t.IsZero() {
			t = or
		}
		return t.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano)
	}
	state, gone := cmp.Or(c.State, c.Status), c.Deleted || c.Hidden || c.Type == "run.deleted"
	if gone {
		state = "" // the server does not say
	}
	return fmt.Sprintf("%d at %s run=%s recipe=%s state=%s code=%s ended=%s quarantined=%v gone=%v removed=%v entry=%d kind=%s",
		cmp.Or(c.Number, c.ID), at(c.Timestamp, c.At), cmp.Or(c.RunID, c.Run), c.Recipe, state, c.Code,
		at(c.CompletedAt, c.EndedAt), c.Quarantined, gone, c.Removed || c.Deleted, entry, kind), nil
}

// changesOf returns the facts of changes in JSON.
func changesOf(list []string) (facts []string, err error) {
	for _, text := range list {
		var c change
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		f, err := c.facts()
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		facts = append(facts, f)
	}
	return facts, nil
}

// storedChanges returns the facts of the changes in the store, which no server holds.
func (r *round) storedChanges() ([]string, error) {
	out, talk, code, err := r.c.output("feed", "--after", "0", "--limit", "10000", "-o", "jsonl")
	if err != nil || code != 0 {
		return nil, cmp.Or(err, fmt.Errorf("%s: feed: exit code %d\n%s", r.name, code, talk))
	}
	var list []string
	for text := range strings.Lines(out) {
		list = append(list, text)
	}
	return changesOf(list)
}
