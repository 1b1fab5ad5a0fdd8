// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
	"github.com/roux-engine/roux/internal/store/sqlite/marks"
)

// headPlaces are the destinations of the columns of the text headColumns.
func headPlaces(h *headRow) []any {
	return []any{
		&h.Account, &h.Run, &h.Recipe, &h.Version, &h.PlanHash, &h.Status, &h.Created, &h.Updated, &h.Ended,
		&h.Code, &h.Message, &h.Used, &h.failures, &h.Quarantine, &h.owes, &h.Root, &h.Parent, &h.startSum, &h.headSum, &h.mark,
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
	find := func() (bool, error) { return s.lookup(ctx, headPlaces(&h), s.q.head, key.Account, key.Run) }
	found, err := find()
	if err == nil && !found {
		var head store.Head
		var deferred bool
		if head, deferred, err = s.headOfDeferred(ctx, key); deferred {
			return head, err
		}
		if err == nil {
			found, err = find() // its row may have been written meanwhile
		}
	}
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
	most := q.Cap()
	for {
		page, next, err := s.Search(ctx, q)
		if heads = append(heads, page...); err != nil || next == "" || len(heads) == most {
			return heads, err
		}
		q.After, q.Limit = next, most-len(heads)
	}
}

// Search implements store.Store.
func (s *Store) Search(ctx context.Context, q store.Query) (heads []store.Head, next string, err error) {
	ready := s.isOpen
	if !q.Roots() {
		ready = s.flushDeferred
	}
	if err := ready(ctx); err != nil {
		return nil, "", err
	}
	seen, last := 0, ""
	visit := func(h *store.Head) error {
		if len(heads) == q.Cap() || seen == store.MaxScan {
			next = last
			return conn.ErrEnough
		}
		seen, last = seen+1, h.Run
		if strings.HasPrefix(h.Run, q.Prefix) && q.Match(h) {
			heads = append(heads, *h)
		}
		return nil
	}
	if marks.Finds(&q) {
		err = s.eachMarked(ctx, &q, visit)
	} else {
		err = s.eachListed(ctx, &q, visit)
	}
	if errors.Is(err, conn.ErrEnough) {
		return heads, next, nil
	}
	_, err = s.explain(err)
	return heads, "", err
}

// eachListed calls fn for the heads that a query selects by their places.
func (s *Store) eachListed(ctx context.Context, q *store.Query, fn func(*store.Head) error) error {
	l, err := s.compose(ctx, q)
	if err != nil {
		return err
	}
	rows, err := s.read.QueryContext(ctx, l.text.String(), l.args...)
	if err != nil {
		return err
	}
	return conn.EachRow(rows, func() error {
		var h headRow
		if err := rows.Scan(headPlaces(&h)...); err != nil {
			return err
		}
		head := h.orDamage()
		return fn(&head)
	})
}

// eachMarked is eachListed for runs that are found by their marks.
func (s *Store) eachMarked(ctx context.Context, q *store.Query, fn func(*store.Head) error) error {
	before, err := s.before(ctx, q)
	if err != nil {
		return err
	}
	runs, err := s.marks.Runs(ctx, q, before, store.MaxScan+1)
	if err != nil {
		return err
	}
	for _, run := range runs {
		var h headRow
		found, err := s.lookup(ctx, headPlaces(&h), s.q.head, q.Account, run)
		if err != nil {
			return err
		}
		head := h.orDamage()
		if !found { // it was removed meanwhile
			continue
		}
		if err := fn(&head); err != nil {
			return err
		}
	}
	return nil
}

// before returns the place before which the roots are that a query selects.
func (s *Store) before(ctx context.Context, q *store.Query) (store.Place, error) {
	if q.After == "" {
		return q.Before(store.Last), nil
	}
	created, err := s.position(ctx, store.Key{Account: q.Account, Run: q.After})
	return q.Before(store.Place{Created: created, Run: q.After}), err
}

// A listing is the query of List while it is composed.
type listing struct {
	text  strings.Builder
	args  []any
	spans bool // it reads the spans of a recipe
}

func (l *listing) add(text string, values ...any) {
	l.text.WriteString("\n" + text)
	l.args = append(l.args, values...)
}

// fewUnended is up to how many runs of an account that have not ended are sorted for a list.
const fewUnended = 10_000

// compose makes the query of a list.
func (s *Store) compose(ctx context.Context, q *store.Query) (*listing, error) {
	l := &listing{args: []any{q.Account}}
	first, few := s.t.listRuns, false
	if q.Roots() && q.OnlyUnended() {
		var n int
		if err := s.read.QueryRowContext(ctx, s.t.countUnended, q.Account, fewUnended+1).Scan(&n); err != nil {
			return nil, err
		}
		few = n <= fewUnended
	}
	switch {
	case few:
		first = s.t.listUnended
	case marks.InSpans(q):
		first, l.spans = s.t.listOfRecipe, true
		l.args = append(l.args, q.Recipe)
	}
	l.text.WriteString(first)
	order, err := s.selectRuns(ctx, l, q)
	if err != nil {
		return nil, err
	}
	if q.Prefix != "" {
		l.add(s.t.listFrom, q.Prefix)
		if end := store.PrefixEnd(q.Prefix); end != "" {
			l.add(s.t.listBelow, end)
		}
	}
	if q.Since != 0 && !l.spans {
		l.add(s.t.listSince, q.Since)
	}
	l.add(order, store.MaxScan+1)
	return l, nil
}

// selectRuns adds the conditions of the fields Parent, Root, All and After, and returns the
// order of the list.
func (s *Store) selectRuns(ctx context.Context, l *listing, q *store.Query) (order string, err error) {
	after := store.Key{Account: q.Account, Run: q.After}
	switch {
	case q.All:
		l.add(s.t.listAfterId, q.After)
		return s.t.byId, nil
	case q.Root != "" || q.Parent != "":
		root, err := s.rootOf(ctx, store.Key{Account: q.Account, Run: cmp.Or(q.Root, q.Parent)})
		if err != nil {
			return "", err
		}
		if q.Root != "" {
			l.add(s.t.listTree, q.Root)
		} else {
			l.add(s.t.listTree, root)
			l.add(s.t.listChildren, q.Parent)
		}
		if q.After != "" {
			parent, created, err := s.positionInTree(ctx, cmp.Or(q.Root, root), after)
			if err == nil && q.Root == "" && parent != q.Parent {
				err = notFound(after)
			}
			if err != nil {
				return "", err
			}
			l.add(s.t.listAfterInTree, parent, created, q.After)
		}
		return s.t.oldestFirst, nil
	}
	l.add(s.t.listRoots)
	before, err := s.before(ctx, q)
	if err != nil {
		return "", err
	}
	if l.spans {
		l.add(s.t.listSpans, marks.Span(q.Since), q.Since, marks.Span(before.Created), before.Created, before.Run)
		return s.t.newestSpanFirst, nil
	}
	if before != store.Last {
		l.add(s.t.listAfter, before.Created, before.Run)
	}
	if q.OnlyFailed() {
		l.add(s.t.listFailed)
	}
	return s.t.newestFirst, nil
}

// rootOf returns the root of the tree that a run belongs to: of a root, the run itself.
func (s *Store) rootOf(ctx context.Context, key store.Key) (root string, err error) {
	return root, s.found(key, s.read.QueryRowContext(ctx, s.t.rootOf, key.Account, key.Run).Scan(&root))
}

// positionInTree returns the parent of a run and its time of creation as the index of
// trees has them.
func (s *Store) positionInTree(ctx context.Context, root string, key store.Key) (parent string, created int64, err error) {
	row := s.read.QueryRowContext(ctx, s.t.positionInTree, key.Account, root, key.Run)
	return parent, created, s.found(key, row.Scan(&parent, &created))
}

// found explains the error of a query for one row of a run.
func (s *Store) found(key store.Key, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return notFound(key)
	}
	_, err = s.explain(err)
	return err
}

// position returns the time of creation of a run as the index of lists has it. A
// damaged row may have another, with which a list would repeat runs or never end.
func (s *Store) position(ctx context.Context, key store.Key) (created int64, err error) {
	head, err := s.Head(ctx, key)
	if err != nil && !errors.Is(err, fault.StoreCorrupt) {
		return 0, err
	}
	if head.Root != "" {
		return 0, notFound(key)
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

// UnendedStates counts the runs that Unended counts, of all accounts, by account and state:
// their status, or quarantined. It reads at most that many runs, child runs included; complete
// is false if there are more, which are then not counted.
func (s *Store) UnendedStates(ctx context.Context, most int) (states []store.UnendedState, complete bool, err error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, false, err
	}
	read := 0
	states, err = conn.List(ctx, s.read, func(rows *sql.Rows, u *store.UnendedState) error {
		var n int
		err := rows.Scan(&u.Account, &u.State, &u.Runs, &n)
		read += n
		return err
	}, s.t.unendedStates, most+1)
	_, err = s.explain(err)
	return slices.DeleteFunc(states, func(u store.UnendedState) bool { return u.Runs == 0 }), read <= most, err
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
	list, err = conn.List(ctx, s.read, func(rows *sql.Rows, w *store.Wake) error {
		return rows.Scan(&w.Account, &w.Run, &w.At, &w.Root)
	}, query, args...)
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
