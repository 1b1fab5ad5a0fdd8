// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/ledger"
)

// TestI11_SecondModel lets the same random histories happen to the package and
// to the second model, and compares the two after every operation. The
// environment variable ROUX_LEDGER_HISTORIES is how many histories there are,
// and ROUX_LEDGER_SEED the only one to play.
func TestI11_SecondModel(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 2_000
	}
	n = environment(t, "ROUX_LEDGER_HISTORIES", n)
	if seed := environment(t, "ROUX_LEDGER_SEED", -1); seed >= 0 {
		play(t, uint64(seed))
		return
	}
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		t.Run(fmt.Sprintf("from%d", w), func(t *testing.T) {
			t.Parallel()
			for seed := w; seed < n; seed += workers {
				play(t, uint64(seed))
			}
		})
	}
}

// environment returns a number of the environment.
func environment(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// play plays one history to its end.
func play(t *testing.T, seed uint64) {
	t.Helper()
	defer func() {
		if v := recover(); v != nil {
			t.Errorf("history ROUX_LEDGER_SEED=%d", seed)
			panic(v)
		}
	}()
	h := newHistory(seed)
	err := h.play()
	if err == nil {
		return
	}
	var text strings.Builder
	for i, s := range h.steps {
		fmt.Fprintf(&text, "\n%4d. %v", i+1, s)
	}
	t.Fatalf("history ROUX_LEDGER_SEED=%d:%s\n%v", seed, &text, err)
}

// A history is a model and an account to which the same things happen.
type history struct {
	rand     *rand.Rand
	model    model
	account  *ledger.Account
	journal  []*ledger.Entry
	returned map[int]int64 // by adjustments of an entry
	steps    []step
	views    []ledger.Balance // as of time i+1, for the times that are over
	state    []byte
}

func newHistory(seed uint64) *history {
	return &history{
		rand:     rand.New(rand.NewPCG(seed, 0)),
		model:    model{now: 1},
		account:  ledger.NewAccount(),
		returned: make(map[int]int64),
	}
}

// draws is how often each operation is drawn.
var draws = strings.Fields("grant grant grant reserve reserve reserve extend extend extend settle settle settle " +
	"adjust adjust adjust void expire wait wait wait")

// draw draws the next step. Some are such that they must be refused.
func (h *history) draw() step {
	m, r := &h.model, h.rand
	s := step{do: h.operation(), now: m.now}
	if m.now == m.last && r.IntN(8) == 0 {
		s.now = max(1, s.now-r.Int64N(3)) // a clock that is late
	}
	switch s.do {
	case "wait":
		s.now = m.now + 1 + r.Int64N(4)
	case "grant":
		s.id, s.n = lotName(h.pick(len(m.lots), len(m.lots))), r.Int64N(13)
		s.terms = h.terms()
	case "reserve":
		s.id, s.n = holdName(h.pick(len(m.holds), len(m.holds))), h.amount(m.available(m.now))
	case "extend":
		s.id, s.n = h.openHold(), h.amount(m.available(m.now))
	case "settle":
		s.id = h.openHold()
		s.n = h.amount(int64(len(m.owned(placeHeld, m.hold(s.id)))))
	case "adjust":
		s.entry, s.n = r.IntN(len(h.journal)), 1
		if n := len(m.charges); n > 0 && r.IntN(8) > 0 {
			c := m.charges[r.IntN(n)]
			s.entry, s.n = c.entry, h.amount(c.left)
		}
	case "void":
		s.id = lotName(h.pick(r.IntN(len(m.lots)), len(m.lots)))
	}
	return s
}

// operation draws an operation. Most of those for which nothing is there give
// way to one that brings it about.
func (h *history) operation() string {
	m := &h.model
	do := draws[h.rand.IntN(len(draws))]
	if len(m.lots) == 0 {
		return "grant"
	}
	if h.rand.IntN(8) == 0 {
		return do
	}
	open := slices.ContainsFunc(m.holds, func(hold modelHold) bool { return hold.open })
	left := slices.ContainsFunc(m.charges, func(c modelCharge) bool { return c.left > 0 })
	if do == "adjust" && !left {
		do = "settle"
	}
	if (do == "settle" || do == "extend") && !open {
		do = "reserve"
	}
	if (do == "reserve" || do == "extend") && m.available(m.now) == 0 {
		do = "grant"
	}
	return do
}

// pick returns the usual number, and at times any up to n.
func (h *history) pick(usual, n int) int {
	if h.rand.IntN(12) == 0 {
		return h.rand.IntN(n + 1)
	}
	return usual
}

// openHold returns the name of a hold, most often of an open one.
func (h *history) openHold() string {
	var open []string
	for _, hold := range h.model.holds {
		if hold.open {
			open = append(open, hold.id)
		}
	}
	if len(open) == 0 || h.rand.IntN(12) == 0 {
		return holdName(h.rand.IntN(len(h.model.holds) + 1))
	}
	return open[h.rand.IntN(len(open))]
}

// amount returns an amount around the range from 1 to most, often within it.
func (h *history) amount(most int64) int64 {
	switch h.rand.IntN(12) {
	case 0:
		return most + 1 + h.rand.Int64N(2)
	case 1:
		return most
	case 2:
		return -h.rand.Int64N(2) // due may be 0
	}
	return h.rand.Int64N(max(1, min(most, 15))) + 1
}

func (h *history) terms() ledger.Terms {
	t := ledger.Terms{Source: ledger.Paid, Priority: h.rand.Int32N(3) - 1, Effective: h.model.now}
	if h.rand.IntN(2) == 0 {
		t.Source = ledger.Promotional
	}
	if h.rand.IntN(3) == 0 {
		t.Effective = max(1, t.Effective-2+h.rand.Int64N(8))
	}
	if h.rand.IntN(3) > 0 {
		t.Expires = max(1, t.Effective-1+h.rand.Int64N(12))
	}
	return t
}

var lotNames, holdNames, keyNames = names("lot"), names("hold"), names("key")

func names(prefix string) (list [32]string) {
	for i := range list {
		list[i] = prefix + strconv.Itoa(i)
	}
	return list
}

func lotName(i int) string  { return lotNames[i] }
func holdName(i int) string { return holdNames[i] }

func (h *history) play() error {
	for range 5 + h.rand.IntN(21) {
		s := h.draw()
		h.steps = append(h.steps, s)
		if s.do == "wait" {
			h.wait(s.now)
		} else if err := h.step(s); err != nil {
			return err
		}
		if err := h.compare(); err != nil {
			return err
		}
		if n := len(h.views); n > 0 {
			if _, err := h.compareViews(h.rand.IntN(n)); err != nil {
				return err
			}
		}
	}
	h.wait(h.model.now + 15)
	return h.compareAll()
}

// wait lets time pass and records what the model says at each time.
func (h *history) wait(until int64) {
	for ; h.model.now < until; h.model.now++ {
		h.views = append(h.views, h.model.balance(h.model.now))
	}
}

// step does a step in the model and in the account. What the model refuses the
// account must refuse too, and stay as it is.
func (h *history) step(s step) error {
	moves, no := h.model.apply(s)
	if no != "" {
		h.state = h.account.AppendState(h.state[:0])
	}
	entries, err := h.do(s)
	if no != "" {
		switch {
		case err == nil:
			return fmt.Errorf("the model refuses what the package does: %v", describe(entries))
		case no == short && !strings.HasPrefix(err.Error(), string(short)):
			return fmt.Errorf("%w: want %s", err, short)
		case !bytes.Equal(h.account.AppendState(nil), h.state):
			return fmt.Errorf("a refusal has changed the account: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("the package refuses what the model does: %w", err)
	}
	h.journal = append(h.journal, entries...)
	if len(entries) != len(moves) {
		return fmt.Errorf("entries %v, want %v", describe(entries), moves)
	}
	for _, want := range moves {
		if !slices.ContainsFunc(entries, want.matches) {
			return fmt.Errorf("entries %v, want %v", describe(entries), moves)
		}
	}
	return nil
}

// do does a step in the account.
func (h *history) do(s step) ([]*ledger.Entry, error) {
	one := func(e *ledger.Entry, err error) ([]*ledger.Entry, error) {
		return []*ledger.Entry{e}, err
	}
	key := keyNames[len(h.steps)]
	switch s.do {
	case "grant":
		return one(h.account.Grant(s.now, s.id, s.n, s.terms))
	case "reserve":
		return one(h.account.Reserve(s.now, key, s.id, "run", s.n, s.now+1))
	case "extend":
		return one(h.account.Extend(s.now, key, s.id, s.n))
	case "settle":
		return h.account.Settle(s.now, key, s.id, s.n)
	case "adjust":
		entries, err := h.account.Adjust(s.now, key, h.journal[s.entry], h.returned[s.entry], s.n, "")
		if err == nil {
			h.returned[s.entry] += s.n
		}
		return entries, err
	case "void":
		return one(h.account.Void(s.now, key, s.id, ""))
	}
	return h.account.Expire(s.now)
}

// matches reports whether an entry says what the model wants.
func (want move) matches(e *ledger.Entry) bool {
	return e.Kind == want.kind && e.At == want.at && slices.Equal(merged(e.Parts), want.parts)
}

// merged joins neighbours of the same lot.
func merged(parts []ledger.Part) []ledger.Part {
	var list []ledger.Part
	for _, p := range parts {
		if n := len(list); n > 0 && list[n-1].Lot == p.Lot {
			list[n-1].Amount += p.Amount
			continue
		}
		list = append(list, p)
	}
	return list
}

func describe(entries []*ledger.Entry) (moves []move) {
	for _, e := range entries {
		moves = append(moves, move{e.Kind, e.At, e.Parts})
	}
	return moves
}

// compare compares what the account has now with the model.
func (h *history) compare() error {
	m, a := &h.model, h.account
	for _, t := range [...]int64{m.now, m.now + 1 + h.rand.Int64N(8)} {
		got, want := a.Balance(t), m.balance(t)
		if got != want {
			return fmt.Errorf("balance at %d: %+v, want %+v", t, got, want)
		}
		sum := got.Pending + got.Available + got.Held + got.Spent + got.Expired + got.Voided
		if got.Granted != sum || got.Total() != got.Available+got.Held {
			return fmt.Errorf("balance at %d does not add up: %+v", t, got)
		}
		if n := a.Available(t); n != want.Available {
			return fmt.Errorf("available at %d: %d, want %d", t, n, want.Available)
		}
	}
	if a.Seq() != uint64(m.entries) || a.At() != m.last {
		return fmt.Errorf("%d entries until %d, want %d until %d", a.Seq(), a.At(), m.entries, m.last)
	}
	if err := h.compareLots(); err != nil {
		return err
	}
	return h.compareHolds()
}

func (h *history) compareLots() error {
	var counts [len(lotNames)][places]int64
	for _, c := range h.model.credits {
		counts[c.lot][c.place]++
	}
	for i := range h.model.lots {
		l, n := &h.model.lots[i], counts[i]
		got, ok := h.account.Lot(l.id)
		if !ok || n != [places]int64{got.Free, got.Held, got.Spent, got.Expired, got.Voided} ||
			got.Terms != l.terms || got.Created != l.created || got.VoidedAt != l.voided {
			return fmt.Errorf("lot %+v, want (free, held, spent, expired, voided) %v and %+v", got, n, *l)
		}
	}
	return nil
}

func (h *history) compareHolds() error {
	size := len(h.model.lots)
	for i := range h.model.holds {
		hold := &h.model.holds[i]
		if !hold.open {
			if h.model.hold(hold.id) < 0 {
				if got, ok := h.account.Hold(hold.id); ok {
					return fmt.Errorf("hold %+v, want none: it is settled", got)
				}
			}
			continue
		}
		size++
		got, ok := h.account.Hold(hold.id)
		want := h.model.parts(h.model.owned(placeHeld, i))
		if !ok || got.Created != hold.created || !slices.Equal(merged(got.Parts), want) {
			return fmt.Errorf("hold %+v, want %+v with %v", got, *hold, want)
		}
	}
	if got := h.account.Size(); got != size {
		return fmt.Errorf("%d lots and reservations, want %d", got, size)
	}
	return nil
}

// fold returns the account of the entries that are not later than t.
func (h *history) fold(t int64) (*ledger.Account, error) {
	a := ledger.NewAccount()
	for _, e := range h.journal {
		if e.At > t {
			continue
		}
		if err := a.Apply(e); err != nil {
			return nil, fmt.Errorf("the entries up to %d do not fit: %w", t, err)
		}
	}
	return a, nil
}

// compareViews compares earlier times, as the entries tell them now, with what
// the model said then. They begin at one, and end before there are other entries.
func (h *history) compareViews(from int) (next int, err error) {
	a, err := h.fold(int64(from) + 1)
	if err != nil {
		return 0, err
	}
	for i := from; i < len(h.views); i++ {
		t := int64(i) + 1
		if i > from && slices.ContainsFunc(h.journal, func(e *ledger.Entry) bool { return e.At == t }) {
			return i, nil
		}
		if got := a.Balance(t); got != h.views[i] {
			return 0, fmt.Errorf("balance as of %d: %+v, want %+v", t, got, h.views[i])
		}
	}
	return len(h.views), nil
}

// compareAll compares all earlier times, and the account with the fold of its
// entries, which must have different keys.
func (h *history) compareAll() error {
	keys := make(map[string]bool, len(h.journal))
	for _, e := range h.journal {
		if keys[e.Key] {
			return fmt.Errorf("two entries have the key %s", e.Key)
		}
		keys[e.Key] = true
	}
	for i := 0; i < len(h.views); {
		next, err := h.compareViews(i)
		if err != nil {
			return err
		}
		i = next
	}
	a, err := h.fold(h.model.now)
	if err != nil {
		return err
	}
	if !bytes.Equal(a.AppendState(nil), h.account.AppendState(nil)) {
		return fmt.Errorf("the fold of the entries is not the account")
	}
	return nil
}
