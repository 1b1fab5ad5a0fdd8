// SPDX-License-Identifier: Apache-2.0

//go:build !small

package triggers

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/inbound"
	"github.com/roux-engine/roux/internal/rest"
)

// registerChanges adds the operations by which triggers are tried, and get another secret.
func (h *inboundServer) registerChanges(start rest.Policy) {
	rotate := rest.Op("triggers-rotate", http.MethodPost, "/v1/triggers/{id}/rotate", "Give a trigger another secret; what is signed with the one before is taken for a while")
	rest.Handle(h.rest, rotate, start, h.rotate)
	rest.Handle(h.rest, rest.Op("triggers-test", http.MethodPost, "/v1/triggers/{id}/test", "Say what a delivery would do, and start nothing"), start, h.test)
}

// A NewTriggerSecret is what a request says of the secret that a trigger gets.
type NewTriggerSecret struct {
	Secret    string `json:"secret" maxLength:"64" doc:"The name of another secret of the account, which is set." example:"github-webhook-2"`
	KeepHours *int   `json:"keepHours,omitempty" minimum:"0" maximum:"720" doc:"How long what is signed with the secret before is taken as well. Default 24; 0 for a secret that somebody may have read."`
}

// A TriggerSample is a delivery that is not sent.
type TriggerSample struct {
	Body    json.RawMessage   `json:"body,omitempty" doc:"Default null."`
	Headers map[string]string `json:"headers,omitempty"`
	Query   map[string]string `json:"query,omitempty"`
}

// A TriggerTrial is what a delivery would do.
type TriggerTrial struct {
	Result     string          `json:"result" enum:"started,ignored,refused,delayed"`
	Delivery   string          `json:"delivery" doc:"The id that it would have."`
	Key        string          `json:"key,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	ErrorCode  string          `json:"errorCode,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Secret     string          `json:"secret" enum:"usable,missing,unusable" doc:"Whether deliveries can be verified."`
	Paused     bool            `json:"paused,omitempty" doc:"The trigger ignores what it gets."`
}

type triggerRotateIn struct {
	TriggerPath
	Body NewTriggerSecret
}

func (h *inboundServer) rotate(ctx context.Context, in *triggerRotateIn) (*triggerFound, error) {
	keep := inbound.DefaultKeep
	if in.Body.KeepHours != nil {
		keep = time.Duration(*in.Body.KeepHours) * time.Hour
	}
	return oneTrigger(h.triggers.Rotate(ctx, rest.Account(ctx), in.ID, in.Body.Secret, keep))
}

type triggerTestIn struct {
	TriggerPath
	Body TriggerSample
}

func (h *inboundServer) test(ctx context.Context, in *triggerTestIn) (*struct{ Body TriggerTrial }, error) {
	m := &inbound.Message{Header: http.Header{}, Body: in.Body.Body}
	if len(m.Body) == 0 {
		m.Body = []byte("null")
	}
	for name, value := range in.Body.Headers {
		m.Header.Set(name, value)
	}
	m.Header.Set("Content-Type", "application/json")
	query := url.Values{}
	for name, value := range in.Body.Query {
		query.Set(name, value)
	}
	m.Query = query.Encode()
	t, err := h.triggers.Try(ctx, rest.Account(ctx), in.ID, m)
	if err != nil {
		return nil, err
	}
	out := TriggerTrial{
		Result: string(t.Result), Delivery: t.Delivery, Key: t.Key, Parameters: t.Parameters, ErrorCode: string(t.Code), Reason: t.Reason,
		Secret: "usable", Paused: t.Paused,
	}
	if t.SecretErr != nil {
		if out.Secret = "unusable"; fault.CodeOf(t.SecretErr) == fault.SecretNotFound {
			out.Secret = "missing"
		}
	}
	return &struct{ Body TriggerTrial }{out}, nil
}
