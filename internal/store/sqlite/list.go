// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// headPlaces are the destinations of the columns of the text headColumns.
func headPlaces(h *headRow) []any {
	return []any{
		&h.Account, &h.Run, &h.Recipe, &h.Version, &h.PlanHash, &h.Status, &h.Created, &h.Updated, &h.Ended,
		&h.Code, &h.Message, &h.Used, &h.failures, &h.Quarantine, &h.owes, &h.startSum, &h.headSum,
	}
}

// lookup runs a query for one row. found is false when there is none.
func (s *Store) lookup(ctx context.Context, dst []any, query *sql.Stmt, args ...any) (found bool, _ error) {
	if err := s.isOpen(ctx); err != nil {
		return false, err
	}
	err := query.QueryRowContext(brief(ctx), args...).Scan(dst...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	_, err = s.explain(err)
	return err == nil, err
}

// Head implements store.Store.
func (s *Store) Head(ctx context.Context, key store.Key) (store.Head, error) {
	var h headRow
	found, err := s.lookup(ctx, headPlaces(&h), s.q.head, key.Account, key.Run)
	if err != nil {
		return store.Head{}, err
	}
	if !found {
		return store.Head{}, notFound(key)
	}
	if err := h.check(); err != nil {
		return store.Head{}, err
	}
	return h.Head, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, q store.Query) (heads []store.Head, err error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, err
	}
	var query strings.Builder
	query.WriteString(s.t.listRuns)
	args := []any{q.Account}
	add := func(text string, values ...any) {
		query.WriteString("\n" + text)
		args = append(args, values...)
	}
	if q.Status != "" {
		add(s.t.listStatus, q.Status)
	}
	if q.Recipe != "" {
		add(s.t.listRecipe, q.Recipe)
	}
	if q.Prefix != "" {
		add(s.t.listFrom, q.Prefix)
		if end := prefixEnd(q.Prefix); end != "" {
			add(s.t.listBelow, end)
		}
	}
	if q.Since != 0 {
		add(s.t.listSince, q.Since)
	}
	if q.After != "" {
		created, err := s.position(ctx, store.Key{Account: q.Account, Run: q.After})
		if err != nil {
			return nil, err
		}
		add(s.t.listAfter, created, q.After)
	}
	add(s.t.listOrder, q.Cap())
	rows, err := s.read.QueryContext(ctx, query.String(), args...)
	if err == nil {
		err = eachRow(rows, func() error {
			var h headRow
			if err := rows.Scan(headPlaces(&h)...); err != nil {
				return err
			}
			heads = append(heads, h.orDamage())
			return nil
		})
	}
	_, err = s.explain(err)
	return heads, err
}

// position returns the time of creation of a run as the index of lists has it. A
// damaged row may have another, with which a list would repeat runs or never end.
func (s *Store) position(ctx context.Context, key store.Key) (created int64, err error) {
	head, err := s.Head(ctx, key)
	if err != nil && !errors.Is(err, fault.StoreCorrupt) {
		return 0, err
	}
	found := s.read.QueryRowContext(ctx, s.t.positionAt, key.Account, key.Run, head.Created).Scan(&created)
	if errors.Is(found, sql.ErrNoRows) { // one of the two is damaged
		found = s.read.QueryRowContext(ctx, s.t.position, key.Account, key.Run).Scan(&created)
	}
	if errors.Is(found, sql.ErrNoRows) {
		return 0, cmp.Or(err, damagedHead(key, "place in lists"))
	}
	_, err = s.explain(found)
	return created, err
}

// prefixEnd returns the first string after all that begin with p, or "" when there is
// none. Text compares by bytes.
func prefixEnd(p string) string {
	b := []byte(p)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}

// Due implements store.Store.
func (s *Store) Due(ctx context.Context, until int64, limit int) ([]store.Wake, error) {
	return s.wakes(ctx, s.t.dueRuns, until, max(limit, 0))
}

// Unended implements store.Queue.
func (s *Store) Unended(ctx context.Context, account string) (n store.Unended, err error) {
	if err := s.isOpen(ctx); err != nil {
		return n, err
	}
	err = s.read.QueryRowContext(ctx, s.t.unendedRuns, account).Scan(&n.Live, &n.Queued)
	_, err = s.explain(err)
	return n, err
}

// Queued implements store.Queue.
func (s *Store) Queued(ctx context.Context, after store.Wake, limit int) ([]store.Wake, error) {
	return s.wakes(ctx, s.t.queuedRuns, after.Account, after.At, after.Run, max(limit, 0))
}

// wakes returns the runs and times that a query selects.
func (s *Store) wakes(ctx context.Context, query string, args ...any) (list []store.Wake, err error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, err
	}
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err == nil {
		err = eachRow(rows, func() error {
			var w store.Wake
			if err := rows.Scan(&w.Account, &w.Run, &w.At); err != nil {
				return err
			}
			list = append(list, w)
			return nil
		})
	}
	_, err = s.explain(err)
	return list, err
}

// Plan implements store.Store.
func (s *Store) Plan(ctx context.Context, hash string) ([]byte, error) {
	var data []byte
	var sum int64
	found, err := s.lookup(ctx, []any{&data, &sum}, s.q.plan, hash)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fault.New(fault.RecipeNotFound, "no plan %q", hash)
	}
	if sum != format.Sum(hash, data) {
		return nil, damagedRow(fmt.Sprintf("plan %q", hash), "plan")
	}
	return data, nil
}

// Note implements store.Store.
func (s *Store) Note(ctx context.Context, name string) ([]byte, error) {
	var value []byte
	var sum int64
	found, err := s.lookup(ctx, []any{&value, &sum}, s.q.note, name)
	if found && sum != format.Sum(name, value) {
		return nil, damagedRow(fmt.Sprintf("note %q", name), "value")
	}
	if found && value == nil {
		value = []byte{} // the driver reads an empty blob as nil, which means absent here
	}
	return value, err
}
