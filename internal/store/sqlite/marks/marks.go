// SPDX-License-Identifier: Apache-2.0

// Package marks keeps what runs have beside their rows: labels, that a user deleted them, and
// the spans of time in which runs of a recipe were created.
//
// It decides how runs are found by them. For a run with neither label nor deletion nothing is
// written, unless it is the first of its recipe in a span. It never opens a transaction: the
// store does.
package marks

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// Marks has the marks of a store. Runs may be called at any time; all else belongs to the
// writer of the store.
type Marks struct {
	read             *sql.DB
	labelled, hidden string
	st               struct{ find, put, drop, putLabel, dropLabel, hide, dropHidden, putSpan, dropSpan *conn.Stmt }
	spans            map[recipe]int64 // the last that was written, or was there
}

// A recipe is one of an account.
type recipe struct{ account, name string }

// keptSpans bounds Marks.spans.
const keptSpans = 4096

// Span returns the span of a time in µs: it is about a second long. The table of spans has
// it, so it is the same in every release.
func Span(at int64) int64 { return at >> 20 }

// Open returns the marks of a store.
func Open(texts *catalog.Texts, w *conn.Writer, read *sql.DB) (*Marks, error) {
	m := &Marks{read: read, labelled: texts.Text("labelledRuns"), hidden: texts.Text("hiddenRuns"), spans: map[recipe]int64{}}
	var errs []error
	for _, q := range []struct {
		dst  **conn.Stmt
		name string
	}{
		{&m.st.find, "findMark"}, {&m.st.put, "putMark"}, {&m.st.drop, "dropMark"}, {&m.st.putLabel, "putLabel"},
		{&m.st.dropLabel, "dropLabel"}, {&m.st.hide, "hide"}, {&m.st.dropHidden, "dropHidden"},
		{&m.st.putSpan, "putSpan"}, {&m.st.dropSpan, "dropSpan"},
	} {
		st, err := w.Prepare(texts.Text(q.name))
		*q.dst = st
		errs = append(errs, err)
	}
	return m, errors.Join(append(errs, texts.Err())...)
}

// Start writes the marks of a run that begins, behind its row, and its span if it is the
// first run of the recipe in it.
func (m *Marks) Start(key store.Key, first *store.Head) error {
	if first.Root == "" {
		if err := m.putSpan(recipe{key.Account, first.Recipe}, Span(first.Created)); err != nil {
			return err
		}
	}
	if first.Labels == "" && first.Deleted == 0 {
		return nil
	}
	h := *first
	h.Key = key
	for key, value := range h.LabelsOf() {
		if _, err := m.st.putLabel.Exec(h.Account, key, value, h.Created, h.Run); err != nil {
			return err
		}
	}
	return m.put(&h)
}

func (m *Marks) putSpan(of recipe, span int64) error {
	if last, known := m.spans[of]; known && last == span {
		return nil
	}
	if _, err := m.st.putSpan.Exec(of.account, of.name, span); err != nil {
		return err
	}
	if len(m.spans) >= keptSpans {
		clear(m.spans)
	}
	m.spans[of] = span
	return nil
}

// Forget drops what is known of spans, after a transaction was rolled back.
func (m *Marks) Forget() { clear(m.spans) }

// dropSpan removes the span of a run whose row has been removed, if it was the last one of
// its recipe in it.
func (m *Marks) dropSpan(h *store.Head) error {
	of, span := recipe{h.Account, h.Recipe}, Span(h.Created)
	n, err := m.st.dropSpan.Exec(of.account, of.name, span)
	if n != 0 && m.spans[of] == span {
		delete(m.spans, of)
	}
	return err
}

// put writes the mark of a head, if it needs one.
func (m *Marks) put(h *store.Head) error {
	mark := format.EncodeMark(h)
	if mark == nil {
		return nil
	}
	_, err := m.st.put.Exec(h.Account, h.Run, mark)
	if err == nil && h.Deleted != 0 {
		_, err = m.st.hide.Exec(h.Account, h.Run)
	}
	return err
}

// Hide writes that a user deleted a run, whose labels are as they were.
func (m *Marks) Hide(h *store.Head) error {
	var v [1]driver.Value
	if _, err := m.st.find.Row(v[:], h.Account, h.Run); err != nil {
		return err
	}
	was := store.Head{Key: h.Key}
	old, _ := v[0].([]byte)
	if err := format.DecodeMark(old, &was); err != nil {
		was.Labels = h.Labels // whoever reads the mark is told
	}
	was.Deleted = h.Deleted
	return m.put(&was)
}

// Drop removes the marks of a run whose row has been removed.
func (m *Marks) Drop(h *store.Head) error {
	if h.Root == "" {
		if err := m.dropSpan(h); err != nil {
			return err
		}
	}
	if h.Deleted == 0 && h.Labels == "" {
		return nil
	}
	for key, value := range h.LabelsOf() {
		if _, err := m.st.dropLabel.Exec(h.Account, key, value, h.Created, h.Run); err != nil {
			return err
		}
	}
	if h.Deleted != 0 {
		if _, err := m.st.dropHidden.Exec(h.Account, h.Created, h.Run); err != nil {
			return err
		}
	}
	_, err := m.st.drop.Exec(h.Account, h.Run)
	return err
}

// Finds reports whether Runs finds the runs that a query selects.
func Finds(q *store.Query) bool { return q.Roots() && (q.Deleted || len(q.Labels) > 0) }

// InSpans reports whether the spans of a recipe lead to the runs that a query selects. Those
// that failed have an index of their own.
func InSpans(q *store.Query) bool { return q.Roots() && q.Recipe != "" && !q.OnlyFailed() }

// Runs returns root runs before a place, newest first, at most limit: those that users
// deleted or those with the first label of the query, and among them all that it selects.
func (m *Marks) Runs(ctx context.Context, q *store.Query, before store.Place, limit int) ([]string, error) {
	if q.Deleted {
		return conn.Texts(ctx, m.read, m.hidden, q.Account, q.Since, before.Created, before.Run, limit)
	}
	key := slices.Min(slices.Collect(maps.Keys(q.Labels)))
	return conn.Texts(ctx, m.read, m.labelled, q.Account, key, q.Labels[key], q.Since, before.Created, before.Run, limit)
}
