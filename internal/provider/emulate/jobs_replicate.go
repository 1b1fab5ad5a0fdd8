// SPDX-License-Identifier: Apache-2.0

package emulate

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"
)

// replicate is the protocol of predictions of Replicate: https://replicate.com/docs/reference/http.
//
// A submission is answered at once, also with the header Prefer: wait.
type replicate struct{ standardWebhooks }

func (replicate) name() string     { return "replicate" }
func (replicate) scheme() string   { return "Bearer" }
func (replicate) idempotent() bool { return false }

func (replicate) failed(status int, message string) object {
	return object{"title": http.StatusText(status), "detail": message, "status": status}
}

func (replicate) read(r *http.Request, body []byte) (*job, error) {
	var in struct {
		Version string          `json:"version"`
		Input   json.RawMessage `json:"input"`
		Webhook string          `json:"webhook"`
		Events  []string        `json:"webhook_events_filter"`
	}
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	model := in.Version
	if owner := r.PathValue("owner"); owner != "" {
		model = owner + "/" + r.PathValue("name")
	}
	if model == "" {
		return nil, errors.New("version is required")
	}
	if in.Input == nil {
		return nil, errors.New("input is required")
	}
	j, err := newJob(model, in.Input, in.Webhook, nil)
	if err != nil {
		return nil, err
	}
	j.id, j.base = newID(""), "http://"+r.Host+"/replicate/v1/predictions/"
	// The emulated models have no logs.
	for _, event := range in.Events {
		if !slices.Contains([]string{"start", "output", "logs", "completed"}, event) {
			return nil, errors.New("webhook_events_filter: want start, output, logs and completed")
		}
	}
	if len(in.Events) > 0 {
		j.onStart, j.onEnd = slices.Contains(in.Events, "start"), slices.Contains(in.Events, "completed")
		j.onPreview = slices.Contains(in.Events, "output")
	}
	return j, nil
}

// replicateStates are the states as Replicate calls them.
var replicateStates = map[string]string{
	JobQueued: "starting", JobRunning: "processing", JobDone: "succeeded", JobFailed: "failed", JobCancelled: "canceled",
}

// show returns a prediction.
func (replicate) show(j *job) object {
	at := func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
	o := object{
		"id": j.id, "model": j.model, "version": j.model, "status": replicateStates[j.state], "input": j.input, "output": nil, "error": nil,
		"logs": "", "metrics": object{}, "data_removed": false, "created_at": at(j.created), "started_at": nil, "completed_at": nil,
		"urls": object{"get": j.base + j.id, "cancel": j.base + j.id + "/cancel"},
	}
	if j.state != JobQueued {
		o["started_at"] = at(j.started)
	}
	if !j.live() {
		o["completed_at"] = at(j.ended)
		o["metrics"] = object{"predict_time": j.took(), "total_time": j.ended.Sub(j.created).Seconds()}
	}
	switch j.state {
	case JobRunning:
		if j.preview != nil {
			o["output"] = j.preview
		}
	case JobDone:
		o["output"] = j.echo()
	case JobFailed:
		o["error"] = j.failure
	}
	return o
}

func (p replicate) accepted(j *job) (int, object)          { return http.StatusCreated, p.show(j) }
func (p replicate) polled(j *job) (int, object)            { return http.StatusOK, p.show(j) }
func (p replicate) cancelled(j *job, _ bool) (int, object) { return http.StatusOK, p.show(j) }
func (p replicate) event(j *job, _ string) object          { return p.show(j) }
