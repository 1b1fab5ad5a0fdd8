// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

type evaluator func(expr.Vars) (any, error)

// failStep decides what follows from a failed attempt: another try by the retry
// policy, else onError and the failure strategy of the scope (design section 10).
func (r *Run) failStep(s *scope, i int32, f *Failure, hash []byte) {
	step, st := s.step(r.plan, i), &s.steps[i]
	r.emitViolation(s, i, f)
	n := int64(st.fails) + 1 // failures so far
	unknown := r.uncertain(s, i, f)
	if unknown && r.pin(r.brief(s, i)).Once {
		once := *f
		once.Msg += "; its outcome is unknown, and the action may be attempted only once"
		r.finalFailure(s, i, &once, hash)
		return
	}
	// Nothing is retried in a scope that has ended.
	if s.state == scopeOpen && retryable(&step.Retry, f) && n < step.Retry.Attempts {
		delay := r.backoff(s, i, &step.Retry, n, f.RetryAfterMS)
		due := r.clock + delay*1000
		total := st.at + step.TotalTimeoutMS*1000
		if step.TotalTimeoutMS == 0 || due < total {
			r.emitStep(s, i, journal.Event{Kind: journal.EvNodeRetried, Attempt: st.attempt, Code: f.Code, Text: f.Msg,
				N: due, M: delay, Hash: hash, Unknown: unknown && !fault.EndsUnknown(f.Code)})
			return
		}
	}
	r.finalFailure(s, i, f, hash)
}

// uncertain reports whether the effect of the attempt that a failure ends may have happened
// (I4): the failure says so, or one before it with the same effect key did, and this one has
// not been told better.
func (r *Run) uncertain(s *scope, i int32, f *Failure) bool {
	if !s.attemptOpen(i) {
		return false
	}
	return f.Unknown || fault.EndsUnknown(f.Code) || s.steps[i].flags&flagDoubt != 0 && !fault.Answers(f.Code)
}

// emitViolation records a violated contract, before the events that follow from it
// (X172).
func (r *Run) emitViolation(s *scope, i int32, f *Failure) {
	if f.Phase == "" {
		return
	}
	data, _ := json.Marshal(f.Violations)
	r.emitStep(s, i, journal.Event{Kind: journal.EvContract, Text: f.Phase, Data: data, Attempt: s.steps[i].attempt})
}

// finalFailure handles a failure that is not retried.
func (r *Run) finalFailure(s *scope, i int32, f *Failure, hash []byte) {
	step, st := s.step(r.plan, i), &s.steps[i]
	ev := journal.Event{Code: f.Code, Text: f.Msg, Hash: hash}
	if c := s.comps[i]; s.attemptOpen(i) && (c == nil || c.child != nil) {
		ev.Attempt = st.attempt // the failure ends an attempt
		ev.Unknown = r.uncertain(s, i, f) && !fault.EndsUnknown(f.Code)
	}
	if st.at > 0 {
		ev.M = r.clock - st.at
	}
	switch {
	case step.OnError == plan.OnErrorSkip:
		ev.Kind, ev.Flag = journal.EvNodeSkipped, uint8(journal.ByOnError)
	case step.OnError == plan.OnErrorFallback && s.state == scopeOpen && st.flags&flagFallback == 0 && !s.inCompensation():
		ev.Kind = journal.EvNodeFallback
	default:
		ev.Kind = journal.EvNodeFailed
		if step.ContinueOnError {
			ev.Flag = 1
		}
	}
	r.emitStep(s, i, ev)
}

// abortStep ends a step early. A composite first settles the scopes it owns.
func (r *Run) abortStep(s *scope, i int32, f *Failure) {
	if c := s.comps[i]; c != nil && c.open > 0 {
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeAborting, Code: f.Code, Text: f.Msg})
		return
	}
	r.finalFailure(s, i, f, nil)
}

// retryable reports whether the retry policy covers a failure. Without a list of
// causes it covers every transient cause. Expressions, definitions and inputs are
// never retried, because they would fail the same way (X36, X124, R13, R40).
func retryable(p *plan.Retry, f *Failure) bool {
	cause := fault.CauseOf(f.Code)
	switch cause {
	case fault.CauseExpression, fault.CauseUpstream, fault.CauseCancelled, fault.CauseDefinition, fault.CauseModeration:
		return false
	}
	switch f.Code {
	case fault.InputMissing, fault.InputContractViolation,
		fault.RecipeNotFound, fault.InsufficientCredits, fault.ExecutionExpired: // X124
		return false
	}
	if len(p.On) == 0 {
		switch cause {
		case fault.CauseTimeout, fault.CauseProvider, fault.CauseRateLimit, fault.CauseInternal, fault.CauseStorage:
			return true
		}
		return false
	}
	if slices.Contains(p.On, string(f.Code)) || slices.Contains(p.On, string(cause)) {
		return true
	}
	info, _ := fault.Lookup(f.Code)
	for _, alias := range info.Aliases {
		if slices.Contains(p.On, alias) {
			return true
		}
	}
	return false
}

// maxRetryAfterMS caps the delay that a provider may ask for (design section 10).
const maxRetryAfterMS = 3_600_000

// backoff is the delay in ms after the n-th definitive failure: min(max, initial ×
// multiplier^(n−1)) × (1 − jitter + jitter × u), and at least the delay that the
// provider asked for (R18, X111, X112). u is a hash of the run's seed, the step
// instance and the attempt, so replay gives the same delay.
func (r *Run) backoff(s *scope, i int32, p *plan.Retry, n int64, retryAfterMS int64) int64 {
	base := float64(p.InitialMS)
	limit := float64(p.MaxMS)
	if base > 0 && p.Multiplier > 1 { // otherwise the delay never grows, so the loop is not needed
		for k := int64(1); k < n && base < limit; k++ {
			base *= p.Multiplier
		}
	}
	base = min(base, limit)
	// The conversion keeps compilers from fusing the two operations, which rounds
	// differently: the delay is the same on every machine.
	delay := int64(base * (1 - p.Jitter + float64(p.Jitter*r.jitterFraction(s, i))))
	return max(delay, min(retryAfterMS, maxRetryAfterMS), 0)
}

// jitterFraction is a number in [0,1) that depends on the run's seed, the step
// instance and the attempt only.
func (r *Run) jitterFraction(s *scope, i int32) float64 {
	h := fnv.New64a()
	var b [8]byte
	put := func(v uint64) {
		for k := range b {
			b[k] = byte(v >> (8 * k))
		}
		h.Write(b[:])
	}
	put(r.start.Seed)
	h.Write([]byte(s.path))
	put(uint64(s.g.First + i))
	put(uint64(r.gen))
	put(uint64(s.steps[i].attempt))
	x := h.Sum64() // finish as splitmix64 does, because FNV alone mixes the high bits poorly
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}

// failureOf turns an evaluation error into a failure. Generic expression errors get
// the given code, which names the place where they happened.
func failureOf(err error, code fault.Code) *Failure {
	var fe *fault.Error
	if errors.As(err, &fe) {
		if fe.Code != fault.TemplateError {
			code = fe.Code
		}
		return &Failure{Code: code, Msg: fault.Message(err)}
	}
	return &Failure{Code: code, Msg: err.Error()}
}

func sizeText(n int64) string {
	switch {
	case n >= 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
	case n >= 1<<10:
		return strconv.FormatFloat(float64(n)/(1<<10), 'f', 1, 64) + " KiB"
	}
	return fmt.Sprintf("%d bytes", n)
}

// typeName describes a JSON value for a message.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return "the number " + strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		if len(v) > 40 {
			return "a text of " + strconv.Itoa(len(v)) + " bytes"
		}
		return strconv.Quote(v)
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case jsonx.Large:
		if v.List {
			return fmt.Sprintf("a list of %d in a file", v.Size)
		}
		return fmt.Sprintf("a text of %d characters in a file", v.Size)
	case map[string]any:
		return fmt.Sprintf("an object of %d fields", len(v))
	}
	return fmt.Sprintf("%T", v)
}

// messageText formats a value as a message.
func messageText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case jsonx.Large:
		return typeName(v)
	}
	raw, err := jsonx.Canonical(v)
	if err != nil {
		return typeName(v)
	}
	return string(raw)
}
