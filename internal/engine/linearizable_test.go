// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A bankCall is what a client asks of an account.
type bankCall struct {
	account string
	what    string // grant, start, cancel, read
	key     string // of a grant or a start; "" = none
	n       int64
	run     string // cancel
}

// A bankAnswer is what the client saw. lost means that it does not know whether the call
// was carried out.
type bankAnswer struct {
	lost      bool
	code      fault.Code
	run       string
	available int64
	held      int64
}

// bankState is an account as a client may know it. It is immutable.
type bankState struct {
	available, held int64
	grants          string // key=n; of each
	keys            string // key=n=run; of each start with a key
	holds           string // run=n; of each run that goes on
}

func entry(list, name string) (value string, ok bool) {
	for part := range strings.SplitSeq(list, ";") {
		if k, v, _ := strings.Cut(part, "="); k == name && name != "" {
			return v, true
		}
	}
	return "", false
}

func add(list, name, value string) string {
	parts := append(strings.FieldsFunc(list, func(r rune) bool { return r == ';' }), name+"="+value)
	slices.Sort(parts)
	return strings.Join(parts, ";")
}

func drop(list, name string) string {
	parts := slices.DeleteFunc(strings.Split(list, ";"), func(p string) bool { return strings.HasPrefix(p, name+"=") })
	return strings.Join(parts, ";")
}

// step says whether an account in a state may give an answer, and what state follows.
func (s bankState) step(c bankCall, a bankAnswer) (bool, bankState) {
	next, code, run := s, fault.Code(""), a.run
	switch c.what {
	case "grant":
		n, known := entry(s.grants, c.key)
		switch {
		case known && n != fmt.Sprint(c.n):
			code = fault.IdempotencyMismatch
		case !known:
			next.grants, next.available = add(s.grants, c.key, fmt.Sprint(c.n)), s.available+c.n
		}
	case "start":
		was, known := entry(s.keys, c.key)
		n, first, _ := strings.Cut(was, "=")
		switch {
		case known && n != fmt.Sprint(c.n):
			code = fault.IdempotencyMismatch
		case known && strings.HasPrefix(first, "lost:") && !a.lost: // here is its id
			next.keys = add(drop(s.keys, c.key), c.key, n+"="+a.run)
			if _, ok := entry(s.holds, first); ok {
				next.holds = add(drop(s.holds, first), a.run, n)
			}
		case known && first != a.run && !a.lost:
			return false, s
		case known:
		case s.available < c.n:
			code = fault.InsufficientCredits
		default:
			if a.lost {
				run = "lost:" + c.run // nobody knows its id
			}
			if c.key != "" {
				next.keys = add(s.keys, c.key, fmt.Sprint(c.n)+"="+run)
			}
			next.holds = add(s.holds, run, fmt.Sprint(c.n))
			next.available, next.held = s.available-c.n, s.held+c.n
		}
	case "cancel":
		n, known := entry(s.holds, c.run)
		if !known { // another cancel came first; this one may not have noticed
			return a.lost || a.code == "" || a.code == fault.TooLate, s
		}
		var credits int64
		_, _ = fmt.Sscan(n, &credits)
		next.holds, next.available, next.held = drop(s.holds, c.run), s.available+credits, s.held-credits
	case "read":
		return a.lost || a.available == s.available && a.held == s.held, s
	}
	if a.lost {
		return true, next
	}
	return a.code == code, next
}

// bank is what one account's answers must be, whatever order they were carried out in.
var bank = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byAccount := map[string]int{}
		for _, o := range history {
			account := o.Input.(bankCall).account
			i, ok := byAccount[account]
			if !ok {
				i = len(parts)
				byAccount[account], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		return parts
	},
	Init:              func() any { return bankState{} },
	Step:              func(state, in, out any) (bool, any) { return state.(bankState).step(in.(bankCall), out.(bankAnswer)) },
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

// A bankTest has clients that use accounts of an engine which crashes in between.
type bankTest struct {
	t       *testing.T
	mu      sync.Mutex
	e       *Engine
	st      *memory.Store
	clock   int64
	crashAt int // after so many calls
	history []porcupine.Operation
	runs    map[string][]string // by account
}

// call carries out one call and records it.
func (b *bankTest) call(client int, c bankCall) {
	b.mu.Lock()
	e, st := b.e, b.st
	b.clock++
	began := b.clock
	b.mu.Unlock()

	ctx := context.Background()
	var a bankAnswer
	var err error
	switch c.what {
	case "grant":
		_, err = e.Grant(ctx, GrantRequest{Account: c.account, Key: c.key, Amount: c.n, Terms: ledger.Terms{Source: ledger.Paid}})
	case "start":
		p := planOf(b.t, fmt.Sprintf("name: r\ncreditEstimation: {strategy: fixed, fixedCredits: %d}\nsteps: [{id: w, wait: {signal: go}}]\n", c.n))
		var s Started
		s, err = e.Start(ctx, StartRequest{Account: c.account, Plan: p, Recipe: "r", IdempotencyKey: c.key})
		a.run = s.Run
	case "cancel":
		err = e.Cancel(ctx, c.account, c.run, "")
	case "read":
		var account *ledger.Account
		if account, err = st.Account(ctx, c.account, maxTime); err == nil {
			balance := account.Balance(account.At())
			a.available, a.held = balance.Available, balance.Held
		}
	}
	if err != nil {
		a = bankAnswer{code: fault.CodeOf(err)}
		known := []fault.Code{fault.InsufficientCredits, fault.IdempotencyMismatch, fault.TooLate}
		a.lost = !slices.Contains(known, a.code)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.clock++
	o := porcupine.Operation{ClientId: client, Input: c, Call: began, Output: a, Return: b.clock}
	if a.lost {
		o.Return = 1 << 60 // it may be carried out at any time, or never
	}
	if a.lost && c.what == "read" {
		return
	}
	if a.run != "" {
		b.runs[c.account] = append(b.runs[c.account], a.run)
	}
	b.history = append(b.history, o)
	if b.crashAt--; b.crashAt == 0 {
		b.st = b.st.Crash(uint64(began))
		b.e = openEngine(b.t, b.st, Config{Accounts: paying})
	}
}

// unexplained lists the calls of a history in the longest order that the model allows, and
// then those that fit nowhere.
func unexplained(history []porcupine.Operation) string {
	var text strings.Builder
	show := func(o porcupine.Operation) {
		fmt.Fprintf(&text, "%d to %d: %+v -> %+v\n", o.Call, o.Return, o.Input, o.Output)
	}
	for _, part := range bank.Partition(history) {
		result, info := porcupine.CheckOperationsVerbose(bank, part, time.Minute)
		if result == porcupine.Ok {
			continue
		}
		orders := slices.MaxFunc(info.PartialLinearizations()[0], func(a, b []int) int { return cmp.Compare(len(a), len(b)) })
		for _, i := range orders {
			show(part[i])
		}
		text.WriteString("and not:\n")
		for i, o := range part {
			if !slices.Contains(orders, i) {
				show(o)
			}
		}
	}
	return text.String()
}

// Whatever clients see of an account's credits and idempotency keys while they use it at
// the same time, and while the engine crashes, has an order in which it could have been
// seen one after the other (F38, A26, I11, I13).
func TestF38_A26_AccountsAreLinearizable(t *testing.T) {
	for seed := range uint64(12) {
		b := &bankTest{t: t, st: memory.New(memory.Options{}), runs: map[string][]string{}, crashAt: 30 + int(seed)*7}
		b.e = openEngine(t, b.st, Config{Accounts: paying})
		var clients sync.WaitGroup
		for client := range 6 {
			clients.Go(func() {
				dice := rand.New(rand.NewPCG(seed, uint64(client)))
				for k := range 25 {
					b.call(client, b.draw(dice, client, k))
				}
			})
		}
		clients.Wait()
		lost := 0
		for _, o := range b.history {
			if o.Output.(bankAnswer).lost {
				lost++
			}
		}
		if result := porcupine.CheckOperationsTimeout(bank, b.history, time.Minute); result != porcupine.Ok {
			t.Fatalf("seed %d: %s; %d calls, %d of them lost:\n%s", seed, result, len(b.history), lost, unexplained(b.history))
		}
		t.Logf("seed %d: %d calls, %d of them lost", seed, len(b.history), lost)
	}
}

// draw makes a call that may interfere with those of other clients.
func (b *bankTest) draw(dice *rand.Rand, client, k int) bankCall {
	c := bankCall{account: fmt.Sprint("account", dice.IntN(3))}
	switch p := dice.IntN(10); {
	case p < 2:
		c.what, c.key, c.n = "grant", fmt.Sprint("grant", dice.IntN(5)), int64(50+50*dice.IntN(2))
	case p < 6:
		c.what, c.n = "start", int64(10+20*dice.IntN(2))
		c.run = fmt.Sprint(client, ".", k) // how the model names it until its id is known
		if dice.IntN(3) > 0 {
			c.key = fmt.Sprint("key", dice.IntN(8))
		}
	case p < 8:
		b.mu.Lock()
		defer b.mu.Unlock()
		if runs := b.runs[c.account]; len(runs) > 0 {
			c.what, c.run = "cancel", runs[dice.IntN(len(runs))]
			return c
		}
		c.what = "read"
	default:
		c.what = "read"
	}
	return c
}

// The check refuses a history in which a credit is spent twice, one in which a key starts
// two runs, and one whose balance is from nowhere.
func TestF38_TheModelRefuses(t *testing.T) {
	grant := bankCall{account: "a", what: "grant", key: "g", n: 10}
	start := func(key string) bankCall { return bankCall{account: "a", what: "start", key: key, n: 10} }
	for name, answers := range map[string][2]bankAnswer{
		"spent twice":   {{run: "r1"}, {run: "r2"}},
		"another state": {{run: "r1"}, {available: 10}},
	} {
		second := start("")
		if answers[1].run == "" {
			second = bankCall{account: "a", what: "read"}
		}
		history := []porcupine.Operation{
			{Input: grant, Output: bankAnswer{}, Call: 1, Return: 2},
			{Input: start(""), Output: answers[0], Call: 3, Return: 6},
			{Input: second, Output: answers[1], Call: 7, Return: 8},
		}
		if porcupine.CheckOperations(bank, history) {
			t.Errorf("%s: the model allows it", name)
		}
	}
	twice := []porcupine.Operation{
		{Input: bankCall{account: "a", what: "grant", key: "g", n: 50}, Output: bankAnswer{}, Call: 1, Return: 2},
		{Input: start("k"), Output: bankAnswer{run: "r1"}, Call: 3, Return: 6},
		{Input: start("k"), Output: bankAnswer{run: "r2"}, Call: 4, Return: 7},
	}
	if porcupine.CheckOperations(bank, twice) {
		t.Error("a key may start two runs")
	}
}
