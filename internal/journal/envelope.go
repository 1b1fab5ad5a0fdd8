// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
)

// An Envelope is the public form of an event (X179). It is a function of the
// event and the plan alone, so any part of a journal can be shown by itself.
type Envelope struct {
	EventID     uint64         `json:"eventId"`
	Sequence    uint64         `json:"sequence"`
	Type        string         `json:"type"`
	RunID       string         `json:"runId"`
	Timestamp   string         `json:"timestamp"`
	Correlation *Correlation   `json:"correlation,omitempty"`
	Payload     map[string]any `json:"payload"`
}

// Correlation places an event in the run.
type Correlation struct {
	Wave  int32  `json:"wave"`
	Phase string `json:"phase"`
}

// Time writes UTC µs as RFC 3339.
func Time(us int64) string {
	return time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
}

// Duration writes µs as ISO 8601 ("PT1.5S").
func Duration(us int64) string {
	return "PT" + strconv.FormatFloat(float64(us)/1e6, 'f', -1, 64) + "S"
}

// Render gives the public form of an event of a run.
func Render(p *plan.Plan, run string, ev *Event) Envelope {
	env := Envelope{EventID: ev.Seq, Sequence: ev.Seq, Type: ev.Name(), RunID: run, Timestamp: Time(ev.At)}
	payload := make(map[string]any, 6)
	env.Payload = payload
	if ev.Step >= 0 && int(ev.Step) < len(p.Steps) {
		step := &p.Steps[ev.Step]
		env.Correlation = &Correlation{Wave: step.Wave, Phase: "engine"}
		payload["step"] = StepPath(p, ev.Ref())
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
			if st.Correlation != "" {
				payload["correlationId"] = st.Correlation
			}
			putRaw(payload, "parameters", st.Parameters)
		}
		payload["status"] = RunDispatching.String()
	case EvRunStatus:
		payload["status"], payload["previous"] = RunStatus(ev.Flag).String(), RunStatus(ev.N).String()
	case EvRunEnding:
		payload["status"], payload["verdict"], payload["phase"] = RunRunning.String(), RunStatus(ev.Flag).String(), "ending"
		putError(payload, ev.Code, ev.Text)
	case EvRunCompleted:
		payload["status"], payload["creditsUsed"] = RunCompleted.String(), ev.N
		putRaw(payload, "outputs", ev.Data)
		if ev.Flag&1 != 0 {
			payload["hasFailures"] = true
			if ev.Text != "" {
				payload["failedSteps"] = strings.Split(ev.Text, ",")
			}
		}
	case EvRunFailed, EvRunCancelled, EvRunExpired:
		payload["status"] = ev.Kind.EndStatus().String()
		putError(payload, ev.Code, ev.Text)
		if ev.Flag&1 != 0 {
			payload["hasFailures"] = true
		}
		if ev.Kind == EvRunFailed && ev.N >= 0 && int(ev.N) < len(p.Steps) {
			payload["failedStep"] = p.Steps[ev.N].ID
		}
	case EvRunRecovered:
		payload["interruptedAttempts"] = ev.N
	case EvRunSignalled:
		payload["signal"] = ev.Text
		putRaw(payload, "payload", ev.Data)
	case EvRunContract:
		payload["phase"] = ev.Text
		putRaw(payload, "errors", ev.Data)
	case EvRunRetried:
		payload["generation"] = ev.N
		if ev.Text != "" {
			payload["from"] = ev.Text
		}
		putRaw(payload, "edited", ev.Data)
	case EvRunLimits:
		putRaw(payload, "limits", ev.Data)
	}
}

func renderStep(p *plan.Plan, step *plan.Step, ev *Event, payload map[string]any) {
	if ev.M > 0 && (ev.Kind == EvNodeCompleted || ev.Kind == EvNodeFailed || ev.Kind == EvNodeCancelled) {
		payload["durationMs"] = float64(ev.M) / 1000
	}
	switch ev.Kind {
	case EvNodeReady:
		payload["heldBackBy"] = "wave"
	case EvNodeBlocked:
		payload["reason"] = ev.Text
	case EvNodeOpened:
		renderOpened(step, ev, payload)
	case EvNodeItems:
		payload["phase"], payload["from"], payload["count"], payload["more"] = "items", ev.N, ev.M, ev.Flag != 0
	case EvNodeIteration:
		payload["phase"], payload["item"] = "iteration", ev.N
	case EvNodeProgress:
		payload["fraction"], payload["text"] = float64(ev.N)/1e6, ev.Text
	case EvNodeLog:
		payload["level"], payload["text"] = string(ev.Code), ev.Text
	case EvNodeDelta:
		payload["deltaIndex"], payload["text"] = ev.N, ev.Text
	case EvNodePreview:
		putRaw(payload, "output", ev.Data)
	case EvNodeWaiting:
		if ev.N > 0 {
			payload["until"] = Time(ev.N)
		}
		if ev.Text != "" {
			payload["signal"] = ev.Text
		}
	case EvNodeRetried:
		payload["cause"], payload["delayMs"], payload["due"] = fault.CauseOf(ev.Code), ev.M, Time(ev.N)
		putError(payload, ev.Code, ev.Text)
	case EvNodeLost:
		payload["cause"], payload["delayMs"] = fault.CauseLost, 0
		if ev.Flag&1 != 0 {
			payload["handedBack"] = true
		}
	case EvNodeFallback:
		payload["cause"], payload["fallback"] = fault.CauseOf(ev.Code), true
		putError(payload, ev.Code, ev.Text)
	case EvNodeCompleted:
		payload["status"] = Completed.String()
		if ev.N > 0 {
			payload["creditsUsed"] = ev.N
		}
		if ev.Flag&1 != 0 {
			payload["outputOf"] = "inner"
		}
		putRaw(payload, "output", ev.Data)
	case EvNodeFailed:
		payload["status"] = StepFailed.String()
		if ev.Flag&1 != 0 {
			payload["handled"] = true
		}
		putError(payload, ev.Code, ev.Text)
	case EvNodeSkipped:
		payload["status"], payload["reason"] = Skipped.String(), Reason(ev.Flag).String()
		putError(payload, ev.Code, ev.Text)
	case EvNodeCancelled:
		payload["status"], payload["reason"] = Cancelled.String(), Reason(ev.Flag).String()
	case EvNodeInvalidated:
		payload["previous"], payload["reopened"] = Status(ev.Flag).String(), ev.N == 1
	case EvNodeIgnored:
		payload["source"] = [...]string{"worker", "webhook", "poll"}[min(ev.Flag, 2)]
	case EvNodeCompensating:
		payload["phase"] = "compensating"
	case EvNodeCompensated:
		payload["ok"] = ev.Flag == 0
		putError(payload, ev.Code, ev.Text)
	case EvNodeAborting:
		payload["phase"] = "aborting"
		putError(payload, ev.Code, ev.Text)
	case EvContract:
		payload["phase"] = ev.Text
		putRaw(payload, "errors", ev.Data)
	}
}

func renderOpened(step *plan.Step, ev *Event, payload map[string]any) {
	switch step.Kind {
	case plan.Condition:
		payload["branch"] = [...]string{"none", "then", "else", "none"}[min(ev.Flag, 3)]
	case plan.Parallel:
		payload["branches"] = ev.N
	case plan.Loop:
		if ev.N >= 0 {
			payload["items"] = ev.N
		} else {
			payload["file"] = ev.Text
		}
	}
}
