// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/wire"
)

// A step of kind recipe has a child run as its attempt. The step asks for it as an action
// step asks for a slot; the grant is the start of the child, and the child's end is the
// result. What the child may use is a share of what this run may use.

// childRun is the child run of a step, in its composite.
type childRun struct {
	run   string
	share journal.Share
	retry bool // it is ended as a failed attempt, which may be tried again
}

// A ChildTask is what a step says of the child run that it asks for.
type ChildTask struct {
	Ref plan.ChildRef
	// Definition is what the expression of the step gave, if it has one, and Ref what that is pinned under.
	Definition *Definition
	Child      *plan.Child
	Input      []byte // a canonical JSON object
	InputHash  []byte
	Files      []journal.File
	// Last is the last child run of the step, which has ended without completing and may go on
	// ([Run.Resumable]); "" = there is none, or another try is another child run.
	Last      string
	Inherited []byte // what it has of this run's context, see [journal.Start]; nil = nothing
	Depth     int64  // of the child run
	MaxDepth  int64  // of the child run and those below it
}

// ChildTask renders the input of the child run that a queued step asks for.
func (r *Run) ChildTask(ref journal.Ref) (*ChildTask, *Failure) {
	s, i := r.at(ref)
	if s == nil || s.steps[i].status != journal.Queued && s.steps[i].status != journal.Blocked {
		return nil, &Failure{Code: fault.InternalError, Msg: "the step does not ask for a child run"}
	}
	step, code := s.step(r.plan, i), r.prog.code(ref.Step)
	t := Task{Ref: ref, step: step, code: code}
	t.resolve(r.env(s, i, step, nil))
	child := &ChildTask{Ref: r.plan.Children[step.Child.Ref], Child: step.Child, Last: s.lastRuns[i]}
	child.Depth, child.MaxDepth = r.childDepth(step)
	fail := r.define(s, i, child)
	if fail != nil {
		return nil, fail
	}
	if child.Input, child.InputHash, fail = t.Render(); fail != nil {
		return nil, fail
	}
	if child.Inherited, fail = r.env(s, i, step, nil).captureAll(step.Child.Captures); fail != nil {
		return nil, fail
	}
	if code.expr == nil {
		return child, nil
	}
	v, err := code.expr.Eval(r.env(s, i, step, step.Expr.Vars))
	if err != nil {
		return nil, failureOf(err, fault.TemplateError)
	}
	child.Files, fail = r.childFiles(step, v)
	return child, fail
}

// childFiles are the files that a step gives to its child run.
func (r *Run) childFiles(step *plan.Step, v any) ([]journal.File, *Failure) {
	list, ok := v.([]any)
	if !ok {
		return nil, &Failure{Code: fault.TemplateError, Msg: fmt.Sprintf("%q gives %s, want a list of files", step.Expr.Src, typeName(v))}
	}
	files := make([]journal.File, 0, len(list))
	for k, v := range list {
		hash := fileHash(v)
		if hash == "" {
			return nil, &Failure{Code: fault.TemplateError, Msg: fmt.Sprintf("item %d of %q is %s, want a file", k, step.Expr.Src, typeName(v))}
		}
		files = append(files, r.fileOf(hash, v))
	}
	return files, nil
}

// fileOf describes a file: as the run was given it, or as the value says.
func (r *Run) fileOf(hash string, v any) journal.File {
	for _, f := range r.start.Files {
		if f.Hash == hash {
			return f
		}
	}
	f := journal.File{Hash: hash}
	m, _ := v.(map[string]any)
	f.Name, _ = m["name"].(string)
	f.MimeType, _ = m["mimeType"].(string)
	f.Size, _ = m["sizeBytes"].(int64)
	if extended, ok := m["extended"].(map[string]any); ok {
		f.Extended, _ = jsonx.Canonical(extended)
	}
	return f
}

// childDepth is the depth of a child run of the step, and the deepest that it and those
// below it may have.
func (r *Run) childDepth(step *plan.Step) (depth, most int64) {
	most = r.plan.Limits.ChildDepth
	if most == 0 {
		most = plan.DefaultChildDepth
	}
	depth = 1
	if c := r.start.Child; c != nil {
		depth, most = c.Depth+1, c.MaxDepth
	}
	if step.Child.Depth > 0 {
		most = min(most, step.Child.Depth)
	}
	return depth, most
}

// startRecipe makes a step of kind recipe ask for its child run.
func (r *Run) startRecipe(s *scope, i int32, step *plan.Step) {
	if depth, most := r.childDepth(step); depth > most && !mutation.Depth {
		r.finalFailure(s, i, &Failure{Code: fault.DepthExceeded, Msg: fmt.Sprintf(
			"Maximum nesting depth (%d) exceeded: recipe %s would run at depth %d; raise limits.max_depth, or end the recursion earlier with `when`",
			most, &r.plan.Children[step.Child.Ref], depth)}, nil)
		return
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvNodeQueued})
}

// A ChildGrant is what the engine found out about a child run that a step asked for.
type ChildGrant struct {
	Failure *Failure // why it cannot be started; nil = it can
	Share   journal.Share
	Resume  bool // ChildTask.Last goes on
}

// grantChild starts the child run of a step, or fails the step if that is impossible. The
// share is what the engine proposes, and no more than this run has left: the child asks
// for more when it needs more.
func (r *Run) grantChild(s *scope, i int32, in *Input) {
	r.emitRunning()
	if in.Child.Failure != nil {
		r.finalFailure(s, i, in.Child.Failure, in.InputHash)
		return
	}
	free := r.Free()
	share := journal.Share{
		Credits: min(in.Child.Share.Credits, free.Credits),
		Steps:   min(in.Child.Share.Steps, free.Steps),
		Memory:  min(in.Child.Share.Memory, free.Memory),
	}
	attempt := s.steps[i].attempt + 1
	ev := journal.Event{Kind: journal.EvChildStarted, Attempt: attempt, Data: journal.EncodeShare(share), Hash: in.InputHash}
	if last := s.lastRuns[i]; in.Child.Resume && last != "" {
		ev.Text, ev.Flag = last, 1
	} else {
		ev.Text = r.childID(s, i, attempt)
	}
	r.emitStep(s, i, ev)
}

// childID is the id of a child run: derived, so that an attempt never has two. Like that of
// a root run it begins with the time in milliseconds, 48 bits, because a store keeps what
// is started together side by side. Then come 24 bits of the number of the event and 56
// of a hash.
func (r *Run) childID(s *scope, i int32, attempt uint32) string {
	var buf [256]byte
	b := buf[:0]
	for _, f := range [...]string{r.start.Account, r.start.Run, string(s.path), s.step(r.plan, i).ID} {
		b = wire.AppendString(b, f)
	}
	b = binary.AppendUvarint(b, uint64(r.gen))
	b = binary.AppendUvarint(b, uint64(attempt))
	sum := sha256.Sum256(b)
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], uint64(r.clock/1000)<<16)
	binary.BigEndian.PutUint32(id[6:], uint32(r.last+1)<<8)
	copy(id[9:], sum[:])
	return journal.RunID(id)
}

// Asks reports whether a step waits for its child run to be started.
func (r *Run) Asks(ref journal.Ref) bool {
	s, i := r.at(ref)
	return s != nil && s.state == scopeOpen && (s.steps[i].status == journal.Queued || s.steps[i].status == journal.Blocked)
}

// ChildOf returns the child run of a step that has not ended.
func (r *Run) ChildOf(ref journal.Ref) (run string, share journal.Share, fence journal.Fence, ok bool) {
	s, i := r.at(ref)
	if s == nil {
		return "", share, fence, false
	}
	c := s.comps[i]
	if c == nil || c.child == nil || c.open == 0 {
		return "", share, fence, false
	}
	return c.child.run, c.child.share, journal.Fence{Gen: r.gen, Attempt: s.steps[i].attempt}, true
}

// Children calls fn with every child run that has not ended, in order.
func (r *Run) Children(fn func(ref journal.Ref, fence journal.Fence, run string)) {
	for _, s := range r.sortedScopes() {
		for _, c := range s.sortedComps() {
			if c.child != nil && c.open > 0 {
				fn(s.ref(c.step), journal.Fence{Gen: r.gen, Attempt: s.steps[c.step].attempt}, c.child.run)
			}
		}
	}
}

// applyChild applies what a step of kind recipe says of its child run.
func (r *Run) applyChild(s *scope, i int32, ev *journal.Event) error {
	switch ev.Kind {
	case journal.EvChildStarted:
		return r.openChildRun(s, i, ev)
	case journal.EvChildExtended:
		return r.applyChildExtended(s, i, ev)
	default:
		return r.applyChildEnded(s, i, ev)
	}
}

// openChildRun applies EvChildStarted.
func (r *Run) openChildRun(s *scope, i int32, ev *journal.Event) error {
	share, err := ev.Share()
	if err != nil || s.step(r.plan, i).Kind != plan.Recipe {
		return errImpossible(ev, "the step starts no child run")
	}
	st := &s.steps[i]
	r.begin(s, i, journal.Running)
	st.attempt, st.due = ev.Attempt, 0
	st.flags &^= flagsIgnored | flagUnknown | flagUnfunded
	if ms := s.step(r.plan, i).TimeoutMS; ms > 0 {
		r.arm(s, i, ev.At+ms*1000)
	}
	c := r.newComposite(s, i, childRunComposite)
	c.child = &childRun{run: ev.Text, share: share}
	delete(s.lastRuns, i)
	c.open = 1
	s.openChildren++
	r.give(share, 1)
	r.refreshScope(s)
	r.refreshComposite(c)
	return nil
}

// give adds a share to those that open child runs have, or takes it back.
func (r *Run) give(share journal.Share, sign int64) {
	if mutation.Slice {
		return
	}
	r.given.Credits += sign * share.Credits
	r.given.Steps += sign * share.Steps
	r.given.Memory += sign * share.Memory
}

// childRunOf returns the composite of the open child run that an event is about.
func (s *scope) childRunOf(i int32, ev *journal.Event) (*composite, error) {
	c := s.comps[i]
	if c == nil || c.child == nil || c.open == 0 || s.steps[i].attempt != ev.Attempt {
		return nil, errImpossible(ev, "the step has no child run that goes on")
	}
	return c, nil
}

// applyChildExtended applies EvChildExtended.
func (r *Run) applyChildExtended(s *scope, i int32, ev *journal.Event) error {
	c, err := s.childRunOf(i, ev)
	if err != nil {
		return err
	}
	*ev.Resource().Of(&c.child.share) += ev.Added()
	*ev.Resource().Of(&r.given) += ev.Added()
	return nil
}

// applyChildEnded applies EvChildEnded: the share comes back, what the child used counts.
func (r *Run) applyChildEnded(s *scope, i int32, ev *journal.Event) error {
	c, err := s.childRunOf(i, ev)
	if err != nil {
		return err
	}
	c.open = 0
	s.openChildren--
	s.steps[i].due = 0
	r.give(c.child.share, -1)
	c.child.share = journal.Share{}
	r.used = r.used.Plus(ev.ChildUsed())
	r.belowSteps += ev.ChildSteps()
	c.cause = stepError{ev.Code, ev.Text}
	if ev.ChildStatus() != journal.RunCompleted && s.step(r.plan, i).Child.Resume {
		s.keepLastRun(i, c.child.run)
	}
	switch {
	case ev.ChildStatus() == journal.RunCompleted && ev.Code == "":
		c.inner = childOK
		r.replace(&c.out, newValue(ev.Seq, ev.Data))
	case ev.ChildStatus() == journal.RunCancelled:
		c.inner = childCancelled
	default:
		c.inner = childFailed
	}
	r.refreshComposite(c)
	r.refreshScope(s)
	return nil
}

// dropChildRun forgets the child run of a step, which has ended.
func (r *Run) dropChildRun(s *scope, i int32) {
	if c := s.comps[i]; c != nil && c.child != nil {
		r.dropComposite(s, i)
	}
}

// cancelChild notes that a child run is to be cancelled; Decide issues the command.
func (r *Run) cancelChild(c *composite) {
	if c.child != nil && c.open > 0 && r.turn != nil && !c.issued && !mutation.ChildCancel {
		c.issued = true
		r.cancels = append(r.cancels, c)
	}
}

// cancels reports whether the child run of a step is to be cancelled and has not ended.
func (c *composite) cancels() bool { return c.child != nil && c.open > 0 && c.ended }

// Cancels reports whether a child run of a step is to be cancelled.
func (r *Run) Cancels(ref journal.Ref, run string) bool {
	s, i := r.at(ref)
	if s == nil {
		return false
	}
	c := s.comps[i]
	return c != nil && c.cancels() && c.child.run == run
}

// issueCancels issues the commands that cancel child runs, and those that cancel attempts
// beside them: such an attempt settles only after the child run, which may need the slot
// to end.
func (r *Run) issueCancels() {
	for _, c := range r.cancels {
		if c.open > 0 {
			r.command(c.childCommand(r.gen))
		}
	}
	for _, s := range r.swept {
		if s.openChildren > 0 {
			r.cancelAttempts(s)
		}
	}
	clear(r.cancels)
	clear(r.swept)
	r.cancels, r.swept = r.cancels[:0], r.swept[:0]
}

// cancelAttempts issues the commands that cancel the running attempts of a scope.
func (r *Run) cancelAttempts(s *scope) {
	for k := range s.steps {
		st, i := &s.steps[k], int32(k)
		if st.status == journal.Running && s.comps[i] == nil && s.step(r.plan, i).Kind == plan.Action {
			r.command(Command{Kind: CmdCancelTask, Ref: s.ref(i), Fence: journal.Fence{Gen: r.gen, Attempt: st.attempt}})
		}
	}
}

// childCommand is the command that an open child run stands for.
func (c *composite) childCommand(gen uint32) Command {
	kind := CmdChild
	if c.ended {
		kind = CmdCancelChild
	}
	return Command{Kind: kind, Ref: c.scope.ref(c.step), Fence: journal.Fence{Gen: gen, Attempt: c.scope.steps[c.step].attempt}, Child: c.child.run}
}

// childDue is what a child run costs its parent: what it used, or what its policy says of
// a failure, never more than its share. Only the root rounds.
func (r *Run) childDue(failed bool) ledger.Amount {
	terms := r.start.Credits
	if terms == nil {
		return r.unpaid()
	}
	return terms.Policy.CostOfTry(failed, r.used, r.funds.before, r.estimated(), r.funds.held)
}

// handleChildEnded takes the end of a child run.
func (r *Run) handleChildEnded(in *Input) {
	s, i := r.at(in.Ref)
	if s == nil {
		return
	}
	c, end := s.comps[i], in.End
	if c == nil || c.child == nil || c.open == 0 || r.stale(&s.steps[i], in) {
		return
	}
	ev := journal.Event{Kind: journal.EvChildEnded, Attempt: in.Fence.Attempt, Flag: uint8(end.Status),
		N: int64(end.Used), M: min(end.Steps, c.child.share.Steps), Code: end.Code, Text: end.message()}
	if end.Status == journal.RunCompleted {
		out, f := childOutput(s.step(r.plan, i), end)
		if f == nil {
			f = r.checkReturned(out, c.child.share.Memory)
		}
		if ev.Data = out; f != nil {
			ev.Data, ev.Code, ev.Text = nil, f.Code, f.Msg
		}
	}
	r.emitStep(s, i, ev)
}

// joinChildRun ends a step whose child run has ended, or tries it again.
func (r *Run) joinChildRun(s *scope, i int32, c *composite) {
	switch {
	case c.err != nil && c.child.retry:
		r.failStep(s, i, &Failure{Code: c.err.code, Msg: c.err.msg}, nil)
	case c.err != nil:
		r.finalFailure(s, i, &Failure{Code: c.err.code, Msg: c.err.msg}, nil)
	case c.inner == childOK:
		r.emitStep(s, i, journal.Event{Kind: journal.EvNodeCompleted, Flag: 1, Attempt: s.steps[i].attempt, M: r.clock - s.steps[i].at})
	default:
		r.failStep(s, i, &Failure{Code: c.cause.code, Msg: c.cause.msg}, nil)
	}
}

// handleChildExtended records that a child run was given more. The engine has let it have
// that because this run has it, or is given it now: what exceeds Room was refused below,
// so that within cannot fail here.
func (r *Run) handleChildExtended(in *Input) {
	s, i := r.at(in.Ref)
	if s == nil {
		return
	}
	if c := s.comps[i]; c == nil || c.child == nil || c.open == 0 || r.stale(&s.steps[i], in) {
		return
	}
	if in.Resource == journal.CreditsShare { // what is given must be held
		r.extendCredits(r.unpaid().Plus(r.openCeilings()).Ceil()+in.N-r.funds.settled-r.funds.held, in.Available)
	}
	r.emitStep(s, i, journal.Event{Kind: journal.EvChildExtended, Attempt: in.Fence.Attempt, Flag: uint8(in.Resource), N: in.N})
	switch in.Resource {
	case journal.StepsShare:
		r.within(journal.StepsShare, r.steps(), r.limits.TotalSteps)
	case journal.MemoryShare:
		r.within(journal.MemoryShare, r.memory(), r.limits.MemoryBytes)
	}
}

// steps is how many steps count against the limit of the run: those that it has begun,
// those of child runs that have ended, and the shares of the others.
func (r *Run) steps() int64 { return r.started + r.belowSteps + r.given.Steps }

// memory is Memory with the shares of child runs.
func (r *Run) memory() int64 { return r.Memory() + r.given.Memory }

// Free is what the run may use, or give to a child run, without asking for more. Credits
// are math.MaxInt64 for a run that no account pays for.
func (r *Run) Free() journal.Share {
	free := journal.Share{Credits: math.MaxInt64, Steps: r.limits.TotalSteps - r.steps(), Memory: r.limits.MemoryBytes - r.memory()}
	if r.metered() {
		free.Credits = max(0, r.funds.settled+r.funds.held-r.unpaid().Plus(r.openCeilings()).Ceil())
	}
	if r.start.Child != nil {
		free.Steps, free.Memory = r.share.Steps-r.steps(), r.share.Memory-r.memory()
	}
	free.Steps, free.Memory = max(0, free.Steps), max(0, free.Memory)
	return free
}

// Room is what its own limits let the run ask for beyond its share. A root run has steps
// and memory up to its limits without asking.
func (r *Run) Room() journal.Share {
	room := journal.Share{Credits: math.MaxInt64}
	if r.metered() {
		room.Credits = max(0, r.start.Credits.Most-r.paid()-r.funds.held)
	}
	if r.start.Child != nil {
		room.Steps, room.Memory = max(0, r.limits.TotalSteps-r.share.Steps), max(0, r.limits.MemoryBytes-r.share.Memory)
	}
	return room
}

// within makes sure that the run may use `total` of a resource: it is within the limit,
// and a child run has it in its share or gets it now. It asks for half as much again, so
// that a run that grows step by step asks a bounded number of times.
func (r *Run) within(res journal.Resource, total, limit int64) bool {
	if total > limit {
		return false
	}
	if r.start.Child == nil {
		return true
	}
	have, room := *res.Of(&r.share), res.Of(&r.room)
	short := total - have
	if short <= 0 {
		return true
	}
	n := min(max(short, have/2), *room, limit-have)
	if n < short {
		r.turn.Short = true
		return false
	}
	*room -= n
	r.emitRun(journal.Event{Kind: journal.EvRunExtended, Flag: uint8(res), N: n})
	return true
}

// extend adds to what a child run may use. Its credits are those that it holds.
func (r *Run) extend(more journal.Share) {
	r.funds.held += more.Credits
	r.share.Steps += more.Steps
	r.share.Memory += more.Memory
}

// treeText is added to the message of a limit that a child run shares with other runs.
func (r *Run) treeText() string {
	if r.start.Child == nil {
		return ""
	}
	return "; what its parent " + r.start.Child.Parent + " has left for it counts, too"
}

// setStart keeps the start of the run, and the limits that a child run has by it.
func (r *Run) setStart(st *journal.Start) {
	r.start, r.input = st, newInputs(st, r.plan)
	if c := st.Child; c != nil {
		if c.Most.Steps > 0 {
			r.limits.TotalSteps = min(r.limits.TotalSteps, c.Most.Steps)
		}
		if c.Most.Memory > 0 {
			r.limits.MemoryBytes = min(r.limits.MemoryBytes, c.Most.Memory)
		}
	}
}
