// SPDX-License-Identifier: Apache-2.0

// Package marks keeps what few runs have beside their rows: labels, and that a user deleted
// them.
//
// It decides how runs are found by them. A run that has neither costs nothing: nothing is
// written for it. It never opens a transaction: the store does.
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
	st               struct{ find, put, drop, putLabel, dropLabel, hide, dropHidden *conn.Stmt }
}

// Open returns the marks of a store.
func Open(texts *catalog.Texts, w *conn.Writer, read *sql.DB) (*Marks, error) {
	m := &Marks{read: read, labelled: texts.Text("labelledRuns"), hidden: texts.Text("hiddenRuns")}
	var errs []error
	for _, q := range []struct {
		dst  **conn.Stmt
		name string
	}{
		{&m.st.find, "findMark"}, {&m.st.put, "putMark"}, {&m.st.drop, "dropMark"}, {&m.st.putLabel, "putLabel"},
		{&m.st.dropLabel, "dropLabel"}, {&m.st.hide, "hide"}, {&m.st.dropHidden, "dropHidden"},
	} {
		st, err := w.Prepare(texts.Text(q.name))
		*q.dst = st
		errs = append(errs, err)
	}
	return m, errors.Join(append(errs, texts.Err())...)
}

// Start writes the marks of a run that begins, behind its row.
func (m *Marks) Start(h *store.Head) error {
	for key, value := range h.LabelsOf() {
		if _, err := m.st.putLabel.Exec(h.Account, key, value, h.Created, h.Run); err != nil {
			return err
		}
	}
	return m.put(h)
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

// Drop removes the marks of a run that goes.
func (m *Marks) Drop(h *store.Head) error {
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

// Runs returns root runs before a place, newest first, at most limit: those that users
// deleted or those with the first label of the query, and among them all that it selects.
func (m *Marks) Runs(ctx context.Context, q *store.Query, before store.Place, limit int) ([]string, error) {
	if q.Deleted {
		return conn.Texts(ctx, m.read, m.hidden, q.Account, q.Since, before.Created, before.Run, limit)
	}
	key := slices.Min(slices.Collect(maps.Keys(q.Labels)))
	return conn.Texts(ctx, m.read, m.labelled, q.Account, key, q.Labels[key], q.Since, before.Created, before.Run, limit)
}
