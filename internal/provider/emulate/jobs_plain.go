// SPDX-License-Identifier: Apache-2.0

package emulate

import (
	"encoding/json"
	"net/http"
)

// plain is a protocol of no service, as many have it.
type plain struct{ standardWebhooks }

func (plain) name() string     { return "plain" }
func (plain) scheme() string   { return "Bearer" }
func (plain) idempotent() bool { return true }

func (plain) failed(_ int, message string) object {
	return object{"error": object{"message": message}}
}

func (plain) read(_ *http.Request, body []byte) (*job, error) {
	var in struct {
		Model    string          `json:"model"`
		Input    json.RawMessage `json:"input"`
		Callback string          `json:"callback"`
	}
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	if in.Input == nil {
		in.Input = json.RawMessage("null")
	}
	j, err := newJob(in.Model, in.Input, in.Callback, nil)
	if err != nil {
		return nil, err
	}
	j.id, j.onPreview = newID("job_"), true
	return j, nil
}

func (plain) show(j *job) object {
	o := object{"id": j.id, "status": j.state, "result": nil, "error": nil}
	if j.preview != nil && j.live() {
		o["preview"] = j.preview
	}
	if !j.live() {
		o["seconds"] = j.took()
	}
	switch j.state {
	case JobDone:
		o["result"] = j.echo()
	case JobFailed:
		o["error"] = object{"message": j.failure}
	}
	return o
}

func (plain) accepted(j *job) (int, object) {
	return http.StatusCreated, object{"id": j.id, "status": j.state}
}

func (p plain) polled(j *job) (int, object)            { return http.StatusOK, p.show(j) }
func (p plain) cancelled(j *job, _ bool) (int, object) { return http.StatusOK, p.show(j) }
func (p plain) event(j *job, _ string) object          { return p.show(j) }
