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

// A request is a request of a user who waits for the answer.
type request struct {
	m     *engine.Message
	kind  requestKind
	key   store.Key
	req   *engine.StartRequest // of a requestStart
	entry string               // key of the entry that a requestGrant or requestVoid makes
}

type requestKind uint8

const (
	requestStart requestKind = iota
	requestCancel
	requestRetry
	requestSignal
	requestRelease
	requestSync
	requestGrant
	requestVoid
	requestPause
)

var requestNames = [...]string{"start", "cancel", "retry", "signal", "release", "sync", "grant", "void", "pause"}

// userAction lets an impatient user do something.
func (p *process) userAction() {
	w := p.w
	t := w.anyRun()
	if t == nil {
		return
	}
	key := t.key
	if w.dice.IntN(30) == 0 {
		key.Account = stranger
		p.probeForeign(key)
	}
	if p.dead {
		return
	}
	switch w.dice.IntN(12) {
	case 0, 1:
		m, err := p.stage.Cancel(key, "impatience")
		p.send(&request{m: m, kind: requestCancel, key: key}, err)
	case 2, 3, 4:
		var edits map[string]any
		from := ""
		if n := len(w.c.Edits); n > 0 && w.dice.IntN(3) == 0 {
			edits = w.c.Edits[w.dice.IntN(n)]
		}
		if n := len(w.c.From); n > 0 && w.dice.IntN(2) == 0 {
			from = w.c.From[w.dice.IntN(n)]
		}
		if retriesInside(w.seed) {
			from = t.inside(w.dice)
		}
		req := engine.RetryRequest{From: from, Edits: edits}
		if w.seed%3 == 0 {
			req.Limits.TotalSteps = t.replica.Plan().Limits.TotalSteps + int64(w.seed%50)
		}
		m, err := p.stage.Retry(key, req)
		p.send(&request{m: m, kind: requestRetry, key: key}, err)
	case 5, 6, 7, 8:
		p.signal(key)
	case 9:
		m, err := p.stage.Release(key)
		p.send(&request{m: m, kind: requestRelease, key: key}, err)
	case 10:
		m, err := p.stage.Sync()
		p.send(&request{m: m, kind: requestSync}, err)
	default:
		if n := len(w.repeats); n > 0 {
			p.start(w.repeats[w.dice.IntN(n)])
		}
	}
}

// pauses reports whether users pause runs and let them go on. Like maxTurn it depends on
// the seed alone.
func pauses(seed uint64) bool { return seed%6 == 4 }

// pauseAction pauses a run, or lets it go on.
func (p *process) pauseAction() {
	w := p.w
	if !pauses(w.seed) || p.dead || w.pauseDice.IntN(6) > 0 || len(w.checker.all) == 0 {
		return
	}
	t := w.checker.all[w.pauseDice.IntN(len(w.checker.all))]
	p.pause(t, w.pauseDice.IntN(2) == 0)
}

func (p *process) pause(t *runRecord, pause bool) {
	m, err := p.stage.Pause(t.key, pause)
	p.send(&request{m: m, kind: requestPause, key: t.key}, err)
}

// unpauseAll lets all runs go on.
func (p *process) unpauseAll() (moved bool) {
	if p.w.unpaused == p.w.mono {
		return false // asked at this time already: a run that is still paused refused, or a late request paused it again
	}
	p.w.unpaused = p.w.mono
	for _, t := range p.w.checker.all {
		if !t.deleted && t.replica.Paused() {
			p.pause(t, false)
			moved = true
		}
	}
	return moved
}

// inside returns a step instance of a run to retry from; most are in inner scopes.
func (t *runRecord) inside(dice *rand.Rand) string {
	if len(t.events) == 0 {
		return ""
	}
	for range 8 {
		if ev := &t.events[dice.IntN(len(t.events))]; ev.Step >= 0 && (ev.Path != "" || dice.IntN(4) == 0) {
			return journal.StepPath(t.replica.Plan(), ev.Ref())
		}
	}
	return ""
}

// A stranger is an account without runs. The answer to it must be the same as for an
// unknown id.
const stranger = "stranger"

// probeForeign asserts that a stranger sees nothing of a run (I17).
func (p *process) probeForeign(key store.Key) {
	var err error
	p.call(func() { _, err = p.stage.Watch(key, 0, func(feed.Event) {}) })
	if !p.dead {
		p.w.checkForeign("watch", key, err)
	}
}

// checkForeign asserts that a stranger gets the answer for a run that does not exist.
func (w *World) checkForeign(what string, key store.Key, err error) {
	switch code := fault.CodeOf(err); code {
	case fault.RunNotFound, fault.Stopping, fault.StoreFull, fault.StoreFailed, fault.StaleEpoch, fault.ServiceUnavailable:
	default:
		w.fail("I17: a stranger's %s of run %s is answered %s %v", what, key.Run, code, err)
	}
}

func (w *World) anyRun() *runRecord {
	if len(w.checker.all) == 0 {
		return nil
	}
	return w.checker.all[w.dice.IntN(len(w.checker.all))]
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
	p.call(func() { m, err = p.stage.Signal(key, name, payload) })
	p.send(&request{m: m, kind: requestSignal, key: key}, err)
}

// newStart is a request to start another run.
func (w *World) newStart() *engine.StartRequest {
	w.started++
	root, others := w.registry.plans()
	req := &engine.StartRequest{
		Account: pick(w.dice, accounts[:]...), Plan: root, Recipe: w.c.Name, Parameters: w.c.Parameters, Files: w.files,
		MaxCredits: w.bank.limit(), Key: w.bank.key(),
	}
	req.NoCache = w.cachedResults.dice.IntN(4) == 0
	if n := len(others); n > 0 && w.dice.IntN(3) == 0 {
		req.Plan = others[w.dice.IntN(n)]
	}
	if w.dice.IntN(3) == 0 {
		req.IdempotencyKey = fmt.Sprint("key ", w.started)
	}
	return req
}

// start requests a start.
func (p *process) start(req *engine.StartRequest) {
	var m *engine.Message
	var err error
	p.call(func() { m, err = p.stage.Start(req) })
	p.w.registry.start(m, req)
	a := &request{m: m, kind: requestStart, req: req}
	if m != nil {
		a.key = m.Key()
		if p.w.poison != noPoison && p.w.poisoned.Run == "" {
			p.w.poisoned = a.key
		}
		if req.IdempotencyKey != "" {
			p.w.keyed[a.key] = req
		}
	}
	p.send(a, err)
}

// send sends a request, unless it was refused already.
func (p *process) send(a *request, err error) {
	if p.dead {
		return
	}
	p.w.stats.Requests++
	if err != nil {
		p.w.checkRefusal(a, err)
		return
	}
	p.requests = append(p.requests, a)
	p.inbox = append(p.inbox, a.m)
}

// collectAnswers handles the answers that have arrived.
func (p *process) collectAnswers() {
	if p.dead {
		return
	}
	p.requests = slices.DeleteFunc(p.requests, func(a *request) bool {
		out, told := a.m.Answer()
		if !told {
			return false
		}
		p.w.checkAnswer(a, out)
		return true
	})
}

// checkAnswer asserts that what an answer acknowledges is durable (I1).
func (w *World) checkAnswer(a *request, out engine.Answer) {
	if w.trace != nil {
		w.tracef("%s of %s is answered %+v", requestNames[a.kind], a.key.Run, out)
	}
	if out.Err != nil {
		w.checkRefusal(a, out.Err)
		return
	}
	switch a.kind {
	case requestSync:
		return
	case requestGrant, requestVoid:
		if e, _, err := w.mem.Entry(w.ctx(), a.key.Account, a.entry); e == nil {
			w.fail("I1: entry %s of account %s was acknowledged, and is not durable: %v", a.entry, a.key.Account, err)
		}
		return
	}
	key := a.key
	if key.Account == stranger {
		w.checkForeign(requestNames[a.kind], key, nil)
	}
	if a.kind == requestStart {
		key.Run = out.Run
		if a.req.IdempotencyKey != "" && w.happens(AnswerLost) {
			w.answerLost(a)
		}
	}
	t := w.checker.runs[key]
	if t == nil || t.journal.Last() == 0 {
		w.fail("I1: %s of run %s was acknowledged, and the run is not durable", requestNames[a.kind], key.Run)
		return
	}
	n := &t.acked
	switch a.kind {
	case requestCancel:
		if n.cancels++; n.cancels > t.cancels {
			w.fail("I8: run %s was cancelled %d times as its users were told, and %d times by its journal", key.Run, n.cancels, t.cancels)
		}
	case requestRetry:
		if n.retries++; n.retries > int64(t.journal.Generation())-1 {
			w.fail("I1: %d retries of run %s were acknowledged, its generation is %d", n.retries, key.Run, t.journal.Generation())
		}
	case requestSignal:
		if n.signals++; n.signals > t.journal.Signals() {
			w.fail("I1: %d signals to run %s were acknowledged, its journal has %d", n.signals, key.Run, t.journal.Signals())
		}
	}
}

// checkRefusal asserts that a refusal has an expected code.
func (w *World) checkRefusal(a *request, err error) {
	if a.key.Account == stranger {
		w.checkForeign(requestNames[a.kind], a.key, err)
		return
	}
	switch code := fault.CodeOf(err); code {
	case fault.TooLate, fault.Conflict, fault.RunNotFound, fault.Quarantined, fault.StepNotFound, fault.Stopping, fault.StoreFull,
		fault.StoreFailed, fault.StaleEpoch, fault.ServiceUnavailable, fault.QuotaExceeded:
		// A user of a process that was replaced may have asked before the run was
		// durable.
		if code == fault.RunNotFound && a.kind != requestStart && w.stats.Faults[TakenOver] == 0 {
			if t := w.checker.runs[a.key]; t != nil && t.journal.Last() > 0 && !t.deleted {
				w.fail("I1: run %s is durable, and its %s is answered %v", a.key.Run, requestNames[a.kind], err)
			}
		}
		if a.kind == requestCancel && code == fault.TooLate {
			if t := w.checker.runs[a.key]; t != nil && t.replica.Status() == journal.RunPending {
				w.fail("I8: run %s has not begun, and it is too late to cancel it", a.key.Run)
			}
		}
	case fault.MemoryLimit: // a child run gets no more while its parent is quarantined
		if t := w.checker.runs[a.key]; a.kind != requestSignal || t == nil || t.tree.self == nil {
			w.fail("%s of run %s is answered %v", requestNames[a.kind], a.key.Run, err)
		}
	case fault.InsufficientCredits, fault.InputInvalid:
		ofBank := a.kind == requestGrant || a.kind == requestVoid
		if w.bank == nil || ofBank != (code == fault.InputInvalid) {
			w.fail("%s of run %s is answered %s: %v", requestNames[a.kind], a.key.Run, code, err)
		}
	default:
		w.fail("%s of run %s is answered %s: %v", requestNames[a.kind], a.key.Run, code, err)
	}
	if a.kind == requestStart && a.req.IdempotencyKey != "" {
		w.answerLost(a)
	}
}

// answerLost handles a request whose answer did not reach its user. A start that is
// safe to repeat is repeated later.
func (w *World) answerLost(a *request) {
	if a.kind == requestStart && a.req.IdempotencyKey != "" && len(w.repeats) < 10 {
		w.countFault(AnswerLost)
		w.repeats = append(w.repeats, a.req)
	}
}
