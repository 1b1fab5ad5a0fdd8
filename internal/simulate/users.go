// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// An ask is a request that somebody waits for.
type ask struct {
	m    *engine.Message
	kind askKind
	key  store.Key
	req  *engine.StartRequest // askStart
}

type askKind uint8

const (
	askStart askKind = iota
	askCancel
	askRetry
	askSignal
	askRelease
	askSync
)

var askNames = [...]string{"start", "cancel", "retry", "signal", "release", "sync"}

// bother lets an impatient user do something.
func (p *process) bother() {
	w := p.w
	t := w.anyRun()
	if t == nil {
		return
	}
	key := t.key
	if w.dice.IntN(30) == 0 {
		key.Account = stranger
		p.pry(key)
	}
	if p.dead {
		return
	}
	switch w.dice.IntN(12) {
	case 0, 1:
		m, err := p.stage.Cancel(key, "impatience")
		p.ask(&ask{m: m, kind: askCancel, key: key}, err)
	case 2, 3, 4:
		var edits map[string]any
		from := ""
		if n := len(w.c.Edits); n > 0 && w.dice.IntN(3) == 0 {
			edits = w.c.Edits[w.dice.IntN(n)]
		}
		if n := len(w.c.From); n > 0 && w.dice.IntN(2) == 0 {
			from = w.c.From[w.dice.IntN(n)]
		}
		if delving(w.seed) {
			from = t.inside(w.dice)
		}
		req := engine.RetryRequest{From: from, Edits: edits}
		if w.seed%3 == 0 {
			req.Limits.TotalSteps = t.shadow.Plan().Limits.TotalSteps + int64(w.seed%50)
		}
		m, err := p.stage.Retry(key, req)
		p.ask(&ask{m: m, kind: askRetry, key: key}, err)
	case 5, 6, 7, 8:
		p.signal(key)
	case 9:
		m, err := p.stage.Release(key)
		p.ask(&ask{m: m, kind: askRelease, key: key}, err)
	case 10:
		m, err := p.stage.Sync()
		p.ask(&ask{m: m, kind: askSync}, err)
	default:
		if n := len(w.repeats); n > 0 {
			p.start(w.repeats[w.dice.IntN(n)])
		}
	}
}

// inside names a step instance to retry from, anywhere in a run: most are in scopes.
func (t *runRecord) inside(dice *rand.Rand) string {
	if len(t.events) == 0 {
		return ""
	}
	for range 8 {
		if ev := &t.events[dice.IntN(len(t.events))]; ev.Step >= 0 && (ev.Path != "" || dice.IntN(4) == 0) {
			return journal.StepPath(t.shadow.Plan(), ev.Ref())
		}
	}
	return ""
}

// A stranger is an account that has no runs: every id is one that it does not know.
const stranger = "stranger"

// pry asserts that a stranger sees nothing of a run (I17).
func (p *process) pry(key store.Key) {
	var err error
	p.guard(func() { _, err = p.stage.Watch(key, 0, func(feed.Event) {}) })
	if !p.dead {
		p.w.foreign("watch", key, err)
	}
}

// foreign asserts that a stranger is told what it would be told of a run that does
// not exist.
func (w *World) foreign(what string, key store.Key, err error) {
	switch code := fault.CodeOf(err); code {
	case fault.RunNotFound, fault.Stopping, fault.StoreFull, fault.StoreFailed, fault.StaleEpoch, fault.ServiceUnavailable:
	default:
		w.broken("I17: a stranger's %s of run %s is answered %s %v", what, key.Run, code, err)
	}
}

func (w *World) anyRun() *runRecord {
	if len(w.judge.all) == 0 {
		return nil
	}
	return w.judge.all[w.dice.IntN(len(w.judge.all))]
}

func (p *process) signal(key store.Key) {
	w := p.w
	name := "go"
	if n := len(w.c.Signals); n > 0 {
		name = w.c.Signals[w.dice.IntN(n)]
	}
	var m *engine.Message
	var err error
	payload := any(map[string]any{"yes": int64(w.dice.IntN(3))})
	if given, ok := w.c.Payloads[name]; ok {
		payload = given
	}
	p.guard(func() { m, err = p.stage.Signal(key, name, payload) })
	p.ask(&ask{m: m, kind: askSignal, key: key}, err)
}

// newStart is a request for another run.
func (w *World) newStart() *engine.StartRequest {
	w.started++
	req := &engine.StartRequest{
		Account: pick(w.dice, "ann", "bob"), Plan: w.c.Plan, Recipe: w.c.Name, Parameters: w.c.Parameters, Files: w.files,
	}
	if w.dice.IntN(3) == 0 {
		req.IdempotencyKey = fmt.Sprint("key ", w.started)
	}
	return req
}

// start asks for a run.
func (p *process) start(req *engine.StartRequest) {
	var m *engine.Message
	var err error
	p.guard(func() { m, err = p.stage.Start(req) })
	a := &ask{m: m, kind: askStart, req: req}
	if m != nil {
		a.key = m.Key()
		if p.w.poison != wholesome && p.w.poisoned.Run == "" {
			p.w.poisoned = a.key
		}
		if req.IdempotencyKey != "" {
			p.w.keyed[a.key] = req
		}
	}
	p.ask(a, err)
}

// ask sends a request, unless it was refused already.
func (p *process) ask(a *ask, err error) {
	if p.dead {
		return
	}
	p.w.stats.Requests++
	if err != nil {
		p.w.refused(a, err)
		return
	}
	p.asks = append(p.asks, a)
	p.inbox = append(p.inbox, a.m)
}

// listen hears the answers.
func (p *process) listen() {
	if p.dead {
		return
	}
	p.asks = slices.DeleteFunc(p.asks, func(a *ask) bool {
		out, told := a.m.Answer()
		if !told {
			return false
		}
		p.w.answered(a, out)
		return true
	})
}

// answered holds the engine to its word: what it says has happened is durable (I1).
func (w *World) answered(a *ask, out engine.Answer) {
	if w.trace != nil {
		w.say("%s of %s is answered %+v", askNames[a.kind], a.key.Run, out)
	}
	if out.Err != nil {
		w.refused(a, out.Err)
		return
	}
	if a.kind == askSync {
		return
	}
	key := a.key
	if key.Account == stranger {
		w.foreign(askNames[a.kind], key, nil)
	}
	if a.kind == askStart {
		key.Run = out.Run
		if a.req.IdempotencyKey != "" && w.happens(AnswerLost) {
			w.unheard(a)
		}
	}
	t := w.judge.runs[key]
	if t == nil || t.seen.Last() == 0 {
		w.broken("I1: %s of run %s was acknowledged, and the run is not durable", askNames[a.kind], key.Run)
		return
	}
	n := &t.asked
	switch a.kind {
	case askCancel:
		if n.cancels++; n.cancels > t.cancels {
			w.broken("I8: run %s was cancelled %d times by its users' knowledge, and %d times by its journal", key.Run, n.cancels, t.cancels)
		}
	case askRetry:
		if n.retries++; n.retries > int64(t.seen.Generation())-1 {
			w.broken("I1: %d retries of run %s were acknowledged, its generation is %d", n.retries, key.Run, t.seen.Generation())
		}
	case askSignal:
		if n.signals++; n.signals > t.seen.Signals() {
			w.broken("I1: %d signals to run %s were acknowledged, its journal has %d", n.signals, key.Run, t.seen.Signals())
		}
	}
}

// refused asserts that a refusal is one that users understand.
func (w *World) refused(a *ask, err error) {
	if a.key.Account == stranger {
		w.foreign(askNames[a.kind], a.key, err)
		return
	}
	switch code := fault.CodeOf(err); code {
	case fault.TooLate, fault.Conflict, fault.RunNotFound, fault.Quarantined, fault.StepNotFound, fault.Stopping, fault.StoreFull,
		fault.StoreFailed, fault.StaleEpoch, fault.ServiceUnavailable, fault.QuotaExceeded:
		// Who asked a process that was replaced may have asked before the run was durable.
		if code == fault.RunNotFound && a.kind != askStart && w.stats.Faults[TakenOver] == 0 {
			if t := w.judge.runs[a.key]; t != nil && t.seen.Last() > 0 && !t.deleted {
				w.broken("I1: run %s is durable, and its %s is answered %v", a.key.Run, askNames[a.kind], err)
			}
		}
		if a.kind == askCancel && code == fault.TooLate {
			if t := w.judge.runs[a.key]; t != nil && t.shadow.Status() == journal.RunPending {
				w.broken("I8: run %s has not begun, and it is too late to cancel it", a.key.Run)
			}
		}
	default:
		w.broken("%s of run %s is answered %s: %v", askNames[a.kind], a.key.Run, code, err)
	}
	if a.kind == askStart && a.req.IdempotencyKey != "" {
		w.unheard(a)
	}
}

// unheard is a request whose answer its user did not get: a start that can be
// asked again without harm is asked again.
func (w *World) unheard(a *ask) {
	if a.kind == askStart && a.req.IdempotencyKey != "" && len(w.repeats) < 10 {
		w.hit(AnswerLost)
		w.repeats = append(w.repeats, a.req)
	}
}
