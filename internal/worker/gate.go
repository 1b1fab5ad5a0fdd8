// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Gate has moderators look at what an attempt gets and gives (X168).
type Gate struct {
	Moderator action.ModerationGateway
	Input     bool
	Output    bool
	// Hold keeps streamed text back until the whole output has passed. Otherwise it is passed on
	// sentence by sentence.
	Hold bool
	// Review has people decide on what was flagged, and returns the job of their decision; nil = it
	// fails the attempt.
	Review func(ctx context.Context, t *action.Task, f *Flagged) (*action.Job, error)
}

// A Flagged is what people are to decide on.
type Flagged struct {
	Phase   string
	Action  *action.Action
	Value   []byte // JSON; secrets are removed from it
	Verdict action.Verdict
	// Cost and Price are those of the call whose output it is.
	Cost  *int64
	Price string
}

// Reviewed is the output of the action of a settlement that people have decided about: the input or
// the output of its attempt passes because they say so, whatever moderators say.
type Reviewed struct {
	Phase    string
	By       string
	Decision string
	Output   any
}

// The phases of moderation.
const (
	inputPhase  = journal.InputPhase
	outputPhase = journal.OutputPhase
)

// The bounds of streamed text that moderators look at in pieces.
const (
	maxSentence = 2 << 10 // bytes; a longer sentence is cut
	maxBefore   = 256     // bytes of the text before a piece that are looked at with it
)

// gated is what an attempt with a gate has found out, and what it holds back.
//
// Reports are looked at in the goroutine that makes them, which waits for the verdict; mu keeps
// them in order. The limiter's lock is not held meanwhile, so a timeout does not wait.
type gated struct {
	*Gate
	verdicts []journal.Verdict
	output   []byte // that is or was looked at

	mu      sync.Mutex
	pending []byte   // streamed text that was not looked at yet
	before  []byte   // the end of what was
	held    []Report // what came after the pending text, or with Hold everything
	holding int      // bytes of held
	closed  bool     // the action has returned
	failed  error    // why nothing more is shown: a piece was flagged, or there is no verdict on it
	said    string   // the last text of a progress report that has passed
}

// errFlagged is why the context of an attempt ends whose stream was flagged.
var errFlagged = fault.New(fault.ModerationFlagged, "the output of the step was flagged while it was streamed")

func verdictOf(phase string, v action.Verdict) journal.Verdict {
	return journal.Verdict{Phase: phase, Flagged: v.Flagged, By: v.By, Categories: v.Categories, Reason: v.Reason}
}

// check asks the moderators. It returns a failure if there is no verdict, or if it is flagged.
func (a *attempt) check(phase string, value []byte) *fault.Error {
	v, err := a.verdict(phase, value)
	if err != nil {
		return err
	}
	a.gate.mu.Lock()
	a.gate.verdicts = append(a.gate.verdicts, verdictOf(phase, v))
	a.gate.mu.Unlock()
	if v.Flagged {
		return fault.New(fault.ModerationFlagged, "the %s of the step was flagged%s", phase, forCategories(v.Categories))
	}
	return nil
}

func forCategories(names []string) string {
	if len(names) == 0 {
		return ""
	}
	text := strings.Join(names[:min(len(names), 5)], ", ")
	return " for " + strings.ToValidUTF8(text[:min(len(text), 200)], "")
}

// verdict asks the moderators about a value, without the secrets that are known to be in it.
func (a *attempt) verdict(phase string, value []byte) (action.Verdict, *fault.Error) {
	t := &a.task
	if known := a.known(); known != nil {
		value = known.JSON(value, outputLimits(value))
	}
	v, err := jsonx.Decode(value, outputLimits(value))
	if err != nil {
		return action.Verdict{}, fault.Wrap(fault.ModerationUnavailable, err, "the %s of the step cannot be moderated: %v", phase, err)
	}
	verdict, err := a.gate.Moderator.Check(a, &action.Moderation{
		Phase: phase, Account: t.Task.Account, Run: t.Task.Run, Step: t.Task.Step, Attempt: t.Task.Attempt,
		Action: t.Action.Name, Value: slices.Clone(value), Texts: textsOf(nil, v),
	})
	if err == nil {
		return verdict, nil
	}
	if cause := a.cause(); cause != nil {
		return verdict, a.failed(cause)
	}
	a.pool.cfg.Logger.Warn("a moderator gave no verdict", "run", t.Task.Run, "step", t.Task.Step, "attempt", t.Task.Attempt, "phase", phase, "err", err)
	var f *fault.Error
	out := &fault.Error{Code: fault.ModerationUnavailable, Msg: "no moderator's verdict on the " + phase + " of the step", Err: err}
	if errors.As(err, &f) {
		if out.RetryAfterMS = f.RetryAfterMS; f.Code == fault.ProviderNotConfigured || f.Code == fault.ValueTooLarge {
			out.Code, out.Msg = f.Code, f.Msg
		}
	}
	return verdict, out
}

// textsOf collects the texts of a value, names of fields included.
func textsOf(list []string, v any) []string {
	switch v := v.(type) {
	case string:
		if v != "" {
			list = append(list, v)
		}
	case []any:
		for _, item := range v {
			list = textsOf(list, item)
		}
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			list = textsOf(append(list, name), v[name])
		}
	}
	return list
}

// verdicts are those on the attempt, in order.
func (a *attempt) verdicts() []journal.Verdict {
	if a.gate == nil {
		return nil
	}
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	return a.gate.verdicts
}

// review has people decide on what was flagged: the input, or if that is nil the output of a call
// with that result. The job of their decision becomes the result. If there is none, the attempt has failed
// with err.
func (a *attempt) review(res *Result, err *fault.Error, input []byte, out *action.Result) {
	if a.gate == nil || a.gate.Review == nil || err.Code != fault.ModerationFlagged {
		res.Err = a.redacted(err)
		return
	}
	last := &a.gate.verdicts[len(a.gate.verdicts)-1] // the action has returned: nothing else adds to them
	f := &Flagged{Phase: last.Phase, Action: a.task.Action, Value: input, Verdict: action.Verdict{Flagged: true, By: last.By, Categories: last.Categories, Reason: last.Reason}, Cost: out.Cost, Price: out.Price}
	if input == nil {
		f.Value = a.gate.output
	}
	if known := a.known(); known != nil {
		f.Value = known.JSON(f.Value, outputLimits(f.Value))
	}
	t := a.task.Task
	job, none := a.gate.Review(a, &t, f)
	if none != nil {
		failed := *a.failed(none)
		failed.Msg = err.Msg + ", and nobody could be asked about it: " + failed.Msg
		res.Err = &failed
		return
	}
	last.Review = true
	res.Job = job
}

// reviewed takes what people have decided about an attempt out of the output of its settlement, which
// has a gate, and reports whether that is about the output.
func (a *attempt) reviewed(out *action.Result) (output bool) {
	r, ok := out.Output.(Reviewed)
	if !ok {
		return false
	}
	out.Output = r.Output
	a.gate.verdicts = append(a.gate.verdicts, journal.Verdict{Phase: r.Phase, By: []string{r.By}, Decision: r.Decision})
	return r.Phase == outputPhase
}

// moderateInput asks about the input of the attempt.
func (a *attempt) moderateInput() *fault.Error {
	switch {
	case a.gate == nil || !a.gate.Input:
		return nil
	case a.task.Task.Lists != nil:
		return fault.New(fault.ValueTooLarge, "the input has a list in a file, which moderators cannot look at: leave moderation of the input out, or pass a smaller list")
	}
	return a.check(inputPhase, a.task.Task.Input)
}

// moderateOutput asks about what was streamed and about the output, and then passes on what was
// held back. Nobody is asked about an output that people have reviewed.
func (a *attempt) moderateOutput(data []byte, reviewed bool) *fault.Error {
	if a.gate == nil || !a.gate.Output || reviewed {
		return nil
	}
	err := a.flush()
	a.gate.output = data
	if err == nil {
		if flagged := a.check(outputPhase, data); flagged != nil {
			return flagged
		}
		err = a.passHeld()
	}
	if err != nil {
		return a.failed(err)
	}
	return nil
}

// moderateFailure asks about the message of a failure, which may quote what the action has made.
func (a *attempt) moderateFailure(err *fault.Error) *fault.Error {
	switch {
	case a.gate == nil || !a.gate.Output || errors.Is(err, action.ErrUnsettled):
		return err
	case a.gate.flagged():
		flagged := a.failed(errFlagged)
		if err.OutcomeUnknown || err.Code == flagged.Code { // it was cut off because of that
			flagged = unsure(flagged)
		}
		return flagged
	case a.cause() != nil:
		return err // the reason why the attempt has ended
	}
	text, _ := json.Marshal(fault.Message(err))
	v, none := a.verdict(outputPhase, text)
	if none == nil && !v.Flagged {
		return err
	}
	return &fault.Error{Code: err.Code, Msg: "the action has failed; its message is not shown, because no moderator has passed it", RetryAfterMS: err.RetryAfterMS, OutcomeUnknown: err.OutcomeUnknown}
}

// flagged reports whether the stream was flagged.
func (g *gated) flagged() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Is(g.failed, errFlagged)
}

// moderateReport takes a report of an attempt whose output is moderated, and passes it on once it
// has passed.
func (a *attempt) moderateReport(r Report) {
	g := a.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	size := reportBytes + len(r.Text) + len(r.Value)
	switch {
	case g.closed || g.failed != nil:
	case r.Kind == Progress && r.Text == g.said: // or there is none
		a.pass(r)
	case g.holding+len(g.pending)+size > MaxReported:
		a.drop()
	case g.Hold || r.Kind != Delta && len(g.pending) > 0:
		g.held = append(g.held, r)
		g.holding += size
	case r.Kind != Delta:
		a.passIfClean(r)
	default:
		g.pending = append(g.pending, r.Text...)
		for n := sentenceEnd(g.pending); n > 0 && a.lookAt(n); n = sentenceEnd(g.pending) {
		}
	}
}

// lookAt has the first n bytes of the pending text looked at, together with the end of the text
// before them, and passes them on, and after the last of them what came after. The caller holds
// the lock of the gate.
func (a *attempt) lookAt(n int) bool {
	g := a.gate
	value, _ := json.Marshal(validUTF8(string(g.before) + string(g.pending[:n])))
	if !a.clean(value) {
		return false
	}
	a.pass(Report{Kind: Delta, Text: validUTF8(string(g.pending[:n]))})
	g.before = lastOf(append(g.before, g.pending[:n]...))
	if g.pending = slices.Clone(g.pending[n:]); len(g.pending) == 0 {
		a.release()
	}
	return g.failed == nil
}

// lastOf returns the end of a text that moderators look at with what follows it.
func lastOf(text []byte) []byte { return slices.Clone(text[max(0, len(text)-maxBefore):]) }

// clean reports whether a piece of what the attempt reports has passed. If not, nothing more is
// shown, and if it was flagged, the attempt ends: what the action still makes is not needed. The
// caller holds the lock of the gate.
func (a *attempt) clean(value []byte) bool {
	g := a.gate
	v, err := a.verdict(outputPhase, value)
	switch {
	case err != nil:
		g.failed = err
	case v.Flagged:
		g.failed = errFlagged
		if g.verdicts = append(g.verdicts, verdictOf(outputPhase, v)); g.Review == nil {
			a.end(errFlagged)
		}
	default:
		return true
	}
	g.pending, g.held = nil, nil
	return false
}

// passIfClean passes a report on if it has passed. The caller holds the lock of the gate.
func (a *attempt) passIfClean(r Report) {
	value := r.Value
	if r.Kind != Preview {
		value, _ = json.Marshal(r.Text)
	}
	if !a.clean(value) {
		return
	}
	if a.pass(r); r.Kind == Progress {
		a.gate.said = r.Text
	}
}

// release passes on what was held back, except for text that was looked at. The caller holds the
// lock of the gate.
func (a *attempt) release() {
	g := a.gate
	held := g.held
	g.held, g.holding = nil, 0
	for _, r := range held {
		switch {
		case g.failed != nil:
			return
		case r.Kind == Delta:
			a.pass(r) // flush had it looked at
		default:
			a.passIfClean(r)
		}
	}
}

// flush takes no more reports, and has streamed text looked at that was not yet. The attempt has
// failed if any report was flagged, or got no verdict.
func (a *attempt) flush() error {
	g := a.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	switch {
	case g.failed != nil:
	case g.Hold:
		var text strings.Builder
		for _, r := range g.held {
			if r.Kind == Delta {
				text.WriteString(r.Text)
			}
		}
		if text.Len() > 0 {
			value, _ := json.Marshal(text.String())
			a.clean(value)
		}
	case len(g.pending) > 0:
		a.lookAt(len(g.pending))
	}
	return g.failed
}

// passHeld passes on what was held back until the output has passed.
func (a *attempt) passHeld() error {
	g := a.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	a.release()
	return g.failed
}

// sentenceEnd returns where the first sentence of a text ends that is followed by a space or a new
// line; 0 = it is not complete. A sentence that is too long is cut, between words if it has any.
func sentenceEnd(text []byte) int {
	for i, c := range text {
		if c == '\n' && i > 0 {
			return i + 1
		}
		if (c == '.' || c == '!' || c == '?') && i+1 < len(text) && (text[i+1] == ' ' || text[i+1] == '\n' || text[i+1] == '\t') {
			return i + 2
		}
	}
	for _, end := range [...]string{"。", "！", "？"} {
		if i := bytes.Index(text, []byte(end)); i >= 0 {
			return i + len(end)
		}
	}
	if len(text) <= maxSentence {
		return 0
	}
	for i := maxSentence; i > maxSentence/2; i-- {
		if unicode.IsSpace(rune(text[i])) {
			return i + 1
		}
	}
	n := maxSentence
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}
