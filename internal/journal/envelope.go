// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
)

// An Envelope is the public form of an event (X179). [Render] makes one of the event and
// the plan alone, so that any part of a journal can be shown by itself. A [Renderer] adds
// what follows from earlier events: WorkflowID, TraceID and ParentEventID.
type Envelope struct {
	EventID     uint64         `json:"eventId"`
	Sequence    uint64         `json:"sequence"`
	Type        string         `json:"type"`
	RunID       string         `json:"runId"`
	WorkflowID  string         `json:"workflowId,omitempty"` // the recipe that the run executes
	Timestamp   string         `json:"timestamp"`
	Correlation *Correlation   `json:"correlation,omitempty"`
	Payload     map[string]any `json:"payload"`
}

// Correlation places an event in the run, and the run in what caused it.
type Correlation struct {
	TraceID       string `json:"traceId,omitempty"`       // 32 hexadecimal digits; see [TraceOf]
	ParentEventID uint64 `json:"parentEventId,omitempty"` // the event that caused this one; 0 = not known
	Wave          *int32 `json:"wave,omitempty"`          // of the step; nil for events of the run
	Phase         string `json:"phase"`                   // always "engine": a journal has no other events
}

// enginePhase is the part of the system that events of a journal come from.
const enginePhase = "engine"

// Time formats UTC µs as RFC 3339.
func Time(us int64) string {
	return time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
}

// Covers reports whether what a user asks for, a type of event or the beginning of some and
// "*", covers a type.
func Covers(want, name string) bool {
	group, all := strings.CutSuffix(want, "*")
	return want == name || all && strings.HasPrefix(name, group)
}

// Render returns the public form of an event of a run.
func Render(p *plan.Plan, run string, ev *Event) Envelope {
	env := Envelope{EventID: ev.Seq, Sequence: ev.Seq, Type: ev.Name(), RunID: run, Timestamp: Time(ev.At)}
	payload := make(map[string]any, 6)
	env.Payload = payload
	if ev.Step >= 0 && int(ev.Step) < len(p.Steps) {
		step := &p.Steps[ev.Step]
		wave := step.Wave
		env.Correlation = &Correlation{Wave: &wave, Phase: enginePhase}
		path := StepPath(p, ev.Ref())
		payload["step"], payload["nodeId"] = path, path
		payload["name"] = p.Label(ev.Step)
		payload["kind"] = step.Kind.String()
		renderStep(p, step, ev, payload)
	} else {
		renderRun(p, ev, payload)
	}
	if ev.Attempt > 0 {
		payload["attempt"] = ev.Attempt
	}
	if len(ev.Hash) > 0 {
		payload["inputHash"] = "sha256_" + hex.EncodeToString(ev.Hash)
	}
	return env
}

func putError(payload map[string]any, code fault.Code, msg string) {
	if code != "" {
		payload["error"] = map[string]any{"code": code, "message": msg, "cause": fault.CauseOf(code)}
	}
}

func putRaw(payload map[string]any, key string, raw []byte) {
	if len(raw) > 0 {
		payload[key] = json.RawMessage(raw)
	}
}

func renderRun(p *plan.Plan, ev *Event, payload map[string]any) {
	switch ev.Kind {
	case EvRunStarted:
		var st startRecord
		if json.Unmarshal(ev.Data, &st) == nil {
			payload["recipe"], payload["version"] = st.Recipe, st.Version
			payload["planHash"], payload["account"] = st.PlanHash, st.Account
			payload["files"], payload["pins"] = st.Files, st.Pins
			if st.Credits != nil {
				payload["credits"] = st.Credits
			}
			if st.Child != nil {
				payload["parentRunId"], payload["rootRunId"], payload["depth"] = st.Child.Parent, st.Child.Root, st.Child.Depth
			}
			if st.NoCache {
				payload["noCache"] = true
			}
			if st.Stripped != nil {
				payload["stripped"] = st.Stripped
			}
			if st.Correlation != "" {
				payload["correlationId"] = st.Correlation
			}
			putRaw(payload, "parameters", st.Parameters)
		}
		payload["status"] = RunDispatching.String()
	case EvRunStatus:
		payload["status"], payload["previous"] = ev.Status().String(), ev.Previous().String()
	case EvRunEnding:
		payload["status"], payload["verdict"], payload["phase"] = RunRunning.String(), ev.Verdict().String(), "ending"
		putError(payload, ev.Code, ev.Text)
	case EvRunCompleted:
		payload["status"], payload["creditsUsed"] = RunCompleted.String(), ev.Cost()
		putRaw(payload, "outputs", ev.Data)
		if ev.HasFailures() {
			payload["hasFailures"] = true
			if ev.Text != "" {
				payload["failedSteps"] = strings.Split(ev.Text, ",")
			}
		}
	case EvRunFailed, EvRunCancelled, EvRunExpired:
		payload["status"] = ev.Kind.EndStatus().String()
		putError(payload, ev.Code, ev.Text)
		if ev.HasFailures() {
			payload["hasFailures"] = true
		}
		if step := ev.FailedStep(); ev.Kind == EvRunFailed && step >= 0 && int(step) < len(p.Steps) {
			payload["failedStep"] = p.Steps[step].ID
		}
	case EvRunRecovered:
		payload["interruptedAttempts"] = ev.Interrupted()
	case EvRunSignalled:
		payload["signal"] = ev.Text
		putRaw(payload, "payload", ev.Data)
	case EvRunContract:
		payload["phase"] = ev.Text
		putRaw(payload, "errors", ev.Data)
	case EvRunRetried:
		payload["generation"] = ev.Generation()
		if ev.Text != "" {
			payload["from"] = ev.Text
		}
		putRaw(payload, "edited", ev.Data)
	case EvRunPaused, EvRunUnpaused:
		if ev.Text != "" {
			payload["reason"] = ev.Text
		}
	case EvRunLimits:
		putRaw(payload, "limits", ev.Data)
	case EvRunResumed:
		payload["attempt"], payload["paidBefore"] = ev.Attempt, ev.PaidBefore()
		putRaw(payload, "share", ev.Data)
	case EvRunPinned:
		if ref, tree, err := ev.Pinned(); err == nil {
			found := tree.Recipe(ref)
			payload["reference"], payload["recipe"], payload["plan"] = ref, found.Name, plan.HashOf(found.Key)
			if found.Version != "" {
				payload["version"] = found.Version
			}
		}
	case EvRunExtended:
		payload["resource"], payload["added"] = ev.Resource().String(), ev.Added()
	case EvCreditsReserved:
		payload["credits"], payload["estimated"] = ev.Credits(), ev.Expected()
	case EvCreditsEstimated:
		payload["estimated"] = ev.Expected()
	case EvCreditsExtended:
		payload["credits"] = ev.Credits()
	case EvCreditsSettled:
		payload["credits"], payload["released"] = ev.Credits(), ev.Released()
	}
}

func renderStep(p *plan.Plan, step *plan.Step, ev *Event, payload map[string]any) {
	if ev.Micros() > 0 && (ev.Kind == EvNodeCompleted || ev.Kind == EvNodeFailed || ev.Kind == EvNodeCancelled) {
		payload["durationMs"] = float64(ev.Micros()) / 1000
	}
	if ev.OutcomeUnknown() {
		payload["outcomeUnknown"] = true
	}
	switch ev.Kind {
	case EvNodeReady:
		payload["heldBackBy"] = "wave"
	case EvNodeStarted:
		if ev.Unknown {
			payload["mayRepeat"] = true
		}
	case EvNodeBlocked:
		payload["reason"] = ev.Text
		if ev.LacksCredits() {
			payload["lacksCredits"] = true
		}
	case EvNodeOpened:
		renderOpened(step, ev, payload)
	case EvNodeItems:
		payload["phase"], payload["from"], payload["count"], payload["more"] = "items", ev.From(), ev.Count(), ev.More()
	case EvNodeIteration:
		payload["phase"], payload["item"] = "iteration", ev.Item()
	case EvNodeRound:
		renderRound(ev, payload)
	case EvNodeProgress:
		payload["fraction"], payload["text"] = ev.Fraction(), ev.Text
	case EvNodeLog:
		payload["level"], payload["text"] = string(ev.Code), ev.Text
	case EvNodeDelta:
		payload["deltaIndex"], payload["text"] = ev.DeltaIndex(), ev.Text
	case EvNodePreview:
		putRaw(payload, "output", ev.Data)
	case EvNodeWaiting:
		if ev.Due() > 0 {
			payload["until"] = Time(ev.Due())
		}
		if ev.Text != "" {
			payload["signal"] = ev.Text
		}
	case EvNodeSubmitted:
		payload["until"], payload["jobId"] = Time(ev.Due()), ev.Text
		putJob(payload, ev)
	case EvNodeCached:
		renderCached(ev, payload)
	case EvNodeRetried:
		payload["cause"], payload["delayMs"], payload["due"] = fault.CauseOf(ev.Code), ev.Delay().Milliseconds(), Time(ev.Due())
		putError(payload, ev.Code, ev.Text)
	case EvNodeLost:
		payload["cause"], payload["delayMs"] = fault.CauseLost, 0
		if ev.HandedBack() {
			payload["handedBack"] = true
		}
	case EvNodeFallback:
		payload["cause"], payload["fallback"] = fault.CauseOf(ev.Code), true
		putError(payload, ev.Code, ev.Text)
	case EvNodeCompleted:
		renderCompleted(ev, payload)
	case EvNodeCharged:
		payload["amount"], payload["charged"] = ev.Amount(), ev.Charged()
	case EvNodeFailed:
		payload["status"] = StepFailed.String()
		if ev.Handled() {
			payload["handled"] = true
		}
		putError(payload, ev.Code, ev.Text)
	case EvNodeSkipped:
		payload["status"], payload["reason"] = Skipped.String(), ev.Reason().String()
		putError(payload, ev.Code, ev.Text)
	case EvNodeCancelled:
		payload["status"], payload["reason"] = Cancelled.String(), ev.Reason().String()
	case EvNodeInvalidated:
		payload["previous"], payload["reopened"] = ev.Before().String(), ev.Reopened()
		if ev.Anew() {
			payload["anew"] = true
		}
		if seq := ev.BoundBefore(); seq != 0 {
			payload["boundBefore"] = seq
		}
	case EvNodeIgnored:
		payload["source"] = [...]string{"worker", "webhook", "poll", "stream"}[min(ev.Source(), FromStream)]
	case EvNodeCompensating:
		payload["phase"] = "compensating"
	case EvNodeCompensated:
		payload["ok"] = ev.CompensationOK()
		putError(payload, ev.Code, ev.Text)
	case EvNodeAborting:
		payload["phase"] = "aborting"
		putError(payload, ev.Code, ev.Text)
	case EvContract:
		payload["phase"] = ev.Text
		putRaw(payload, "errors", ev.Data)
	case EvModerationPassed, EvModerationFlagged:
		renderVerdict(ev, payload)
	case EvChildStarted, EvChildExtended, EvChildEnded:
		renderChild(ev, payload)
	}
}

func renderChild(ev *Event, payload map[string]any) {
	switch ev.Kind {
	case EvChildStarted:
		payload["childRunId"] = ev.Text
		if ev.GoesOn() {
			payload["resumed"] = true
		}
		putRaw(payload, "share", ev.Data)
	case EvChildExtended:
		payload["resource"], payload["added"] = ev.Resource().String(), ev.Added()
	case EvChildEnded:
		payload["childStatus"], payload["amount"], payload["steps"] = ev.ChildStatus().String(), ev.ChildUsed(), ev.ChildSteps()
		putError(payload, ev.Code, ev.Text)
		putRaw(payload, "output", ev.Data)
	}
}

func renderVerdict(ev *Event, payload map[string]any) {
	v := ev.ModerationVerdict()
	payload["phase"], payload["by"] = v.Phase, v.By
	if v.Decision != "" {
		payload["decision"] = v.Decision
	}
	if v.Flagged {
		payload["review"] = v.Review
		payload["categories"] = v.Categories
		if v.Reason != "" {
			payload["reason"] = v.Reason
		}
	}
}

func renderCompleted(ev *Event, payload map[string]any) {
	payload["status"] = Completed.String()
	if ev.Cost() > 0 {
		payload["creditsUsed"] = ev.Cost()
	}
	if ev.FromInner() {
		payload["outputOf"] = "inner"
	}
	if ev.Cached() {
		payload["cached"] = true
	}
	putRaw(payload, "output", ev.Data)
}

func renderCached(ev *Event, payload map[string]any) {
	payload["key"] = ev.Text
	if from, err := ev.CachedFrom(); err == nil {
		payload["fromRun"], payload["fromStep"], payload["madeAt"] = from.Run, from.Step, Time(from.At)
	}
}

func renderOpened(step *plan.Step, ev *Event, payload map[string]any) {
	switch step.Kind {
	case plan.Condition:
		payload["branch"] = [...]string{"none", "then", "else", "none"}[min(ev.Side(), NoSide)]
	case plan.Parallel:
		payload["branches"] = ev.Branches()
	case plan.Loop:
		switch {
		case ev.Items() >= 0:
			payload["items"] = ev.Items()
		case step.Conditional():
			payload["maxIterations"] = step.Rounds.Max
		default:
			payload["file"] = ev.Text
		}
	}
}

func renderRound(ev *Event, payload map[string]any) {
	payload["phase"], payload["last"] = "round", ev.Last()
	if ev.Item() >= 0 {
		payload["item"] = ev.Item()
	}
	if len(ev.Data) > 0 {
		putRaw(payload, "accumulated", ev.Data)
	}
}

// putJob adds what is known of the job that a step waits for.
func putJob(payload map[string]any, ev *Event) {
	job, err := ev.Job()
	if err != nil {
		return
	}
	payload["provider"] = job.Provider
	if asked, ok := job.Asked(); ok {
		if delete(payload, "until"); asked.Due > 0 {
			payload["until"] = Time(asked.Due)
		}
	}
}
