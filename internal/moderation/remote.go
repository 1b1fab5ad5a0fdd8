// SPDX-License-Identifier: Apache-2.0

package moderation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
)

const (
	maxRequest  = 4 << 20   // bytes; a value that is larger gets no verdict
	maxResponse = 256 << 10 // bytes
)

// remote asks a service over HTTP.
type remote struct {
	Config
	name    string
	address string
	host    string // for messages
	timeout time.Duration
	out     *egress.Client
	getenv  func(string) string
}

func newRemote(name string, c *Config, out *egress.Client, getenv func(string) string) (*remote, error) {
	r := &remote{Config: *c, name: name, out: out, getenv: getenv, timeout: defaultTimeout}
	switch {
	case c.Kind == OpenAI && c.URL == "":
		r.URL = "https://api.openai.com/v1"
	case c.URL == "":
		return nil, fmt.Errorf("want url: where its verdicts are asked for")
	}
	if c.Kind == HTTP && (c.Model != "" || c.Thresholds != nil) {
		return nil, fmt.Errorf("model and thresholds belong to the kind %s", OpenAI)
	}
	u, err := egress.ParseURL(r.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %s", fault.Message(err))
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("url: want an address without a query or a password")
	}
	r.host = u.Hostname()
	if c.Kind == OpenAI {
		u = u.JoinPath("moderations")
	}
	r.address = u.String()
	if r.Model == "" {
		r.Model = "omni-moderation-latest"
	}
	if c.KeyEnv != "" && !envForm.MatchString(c.KeyEnv) {
		return nil, fmt.Errorf("key_env: want the name of a variable that begins with ROUX_MODERATION_, ROUX_MODEL_ or ROUX_PROVIDER_; the key itself is not written into files")
	}
	if c.Timeout != "" {
		if r.timeout, err = time.ParseDuration(c.Timeout); err != nil || r.timeout < 10*time.Millisecond || r.timeout > 5*time.Minute {
			return nil, fmt.Errorf("timeout %.20q: want a duration from 10ms to 5m", c.Timeout)
		}
	}
	for _, category := range slices.Sorted(maps.Keys(c.Thresholds)) {
		if least := c.Thresholds[category]; !(least > 0 && least <= 1) {
			return nil, fmt.Errorf("thresholds: %.60q: want a score above 0, up to 1", category)
		}
	}
	return r, nil
}

// Check implements action.ModerationGateway.
func (r *remote) Check(ctx context.Context, m *action.Moderation) (action.Verdict, error) {
	if len(m.Texts) == 0 && r.Kind == OpenAI {
		return action.Verdict{}, nil // the API has no verdict on nothing
	}
	var body any = question{m.Phase, m.Account, m.Run, m.Step, m.Attempt, m.Action, m.Value, m.Texts}
	if r.Kind == OpenAI {
		body = map[string]any{"model": r.Model, "input": m.Texts}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return action.Verdict{}, err
	}
	if len(data) > maxRequest {
		return action.Verdict{}, fault.New(fault.ValueTooLarge, "the %s has %d bytes: a moderator is sent at most %d", m.Phase, len(data), maxRequest)
	}
	answer, err := r.post(ctx, data)
	if err != nil {
		return action.Verdict{}, err
	}
	if r.Kind == OpenAI {
		return r.scores(answer, len(m.Texts))
	}
	return r.read(answer)
}

// question is what a moderator of the kind http is sent.
type question struct {
	Phase   string          `json:"phase"`
	Account string          `json:"account"`
	Run     string          `json:"run"`
	Step    string          `json:"step"`
	Attempt int             `json:"attempt"`
	Action  string          `json:"action"`
	Value   json.RawMessage `json:"value"`
	Texts   []string        `json:"texts"`
}

// post sends a request and returns the body of a successful answer.
func (r *remote) post(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.KeyEnv != "" {
		key := r.getenv(r.KeyEnv)
		if key == "" {
			return nil, fault.New(fault.ProviderNotConfigured, "moderation.%s takes its key from the variable %s, which is not set", r.name, r.KeyEnv)
		}
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := r.out.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		e := fault.New(fault.ServiceUnavailable, "%s answers with status %d", r.host, resp.StatusCode)
		e.RetryAfterMS = egress.RetryAfter(resp.Header.Get("Retry-After"), time.Now())
		return nil, e
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, fault.New(fault.ServiceUnavailable, "the answer of %s broke off: %s", r.host, egress.Reason(err))
	case len(answer) > maxResponse:
		return nil, fault.New(fault.ProviderError, "the answer of %s has more than %d bytes", r.host, maxResponse)
	}
	return answer, nil
}

// read reads the verdict of a moderator of the kind http.
func (r *remote) read(answer []byte) (action.Verdict, error) {
	var v struct {
		Flagged    *bool    `json:"flagged"`
		Categories []string `json:"categories"`
		Reason     string   `json:"reason"`
	}
	if err := json.Unmarshal(answer, &v); err != nil || v.Flagged == nil {
		return action.Verdict{}, fault.New(fault.ProviderError, `%s answers with no verdict: want {"flagged": true or false}`, r.host)
	}
	return action.Verdict{Flagged: *v.Flagged, Categories: v.Categories, Reason: v.Reason}, nil
}

// scores reads an answer of OpenAI's moderation API to a number of texts.
func (r *remote) scores(answer []byte, texts int) (action.Verdict, error) {
	var v struct {
		Results []struct {
			Flagged    *bool              `json:"flagged"`
			Categories map[string]bool    `json:"categories"`
			Scores     map[string]float64 `json:"category_scores"`
		} `json:"results"`
	}
	if err := json.Unmarshal(answer, &v); err != nil || len(v.Results) != texts {
		return action.Verdict{}, fault.New(fault.ProviderError, "%s answers with %d results for %d texts", r.host, len(v.Results), texts)
	}
	found := map[string]bool{}
	flagged := false
	for i := range v.Results {
		one := &v.Results[i]
		switch {
		case r.Thresholds == nil && one.Flagged == nil, r.Thresholds != nil && one.Scores == nil:
			return action.Verdict{}, fault.New(fault.ProviderError, "%s answers with a result that has no verdict", r.host)
		case r.Thresholds == nil && *one.Flagged:
			flagged = true
			for category, is := range one.Categories {
				if is {
					found[category] = true
				}
			}
		}
		for category, least := range r.Thresholds {
			score, known := one.Scores[category]
			if !known {
				return action.Verdict{}, fault.New(fault.ProviderError, "%s has no score for %.60q, which moderation.%s.thresholds names", r.host, category, r.name)
			}
			if score >= least {
				flagged, found[category] = true, true
			}
		}
	}
	return action.Verdict{Flagged: flagged, Categories: slices.Sorted(maps.Keys(found))}, nil
}
