// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/provider/jobapi"
	"github.com/roux-engine/roux/internal/sse"
)

// JobAPI is the kind of a service that carries out jobs by an API that the configuration describes.
const JobAPI = "jobs"

// JobPrefix begins the name of the action of a service that carries out jobs.
const JobPrefix = "job-"

// JobConfig is what the table `providers` says only of services that carry out jobs.
type JobConfig struct {
	API *jobapi.API `json:"api"` // of the kind JobAPI
	// WebhookSecretEnv is the variable with the secret of webhooks. Default: that of the API.
	WebhookSecretEnv string `json:"webhook_secret_env"`
	// WebhookKeys is where a service of the kind fal publishes its keys. Default: where fal does.
	WebhookKeys string `json:"webhook_keys"`
	// Description and InputSchema are those of the action. Default: that of any service, and
	// any object.
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	// TTL is how long a job may take. Default 24h.
	TTL string `json:"ttl"`
	// MaxSeconds is the most seconds that are charged for a job, where its seconds have a price.
	MaxSeconds int64 `json:"max_seconds"`
}

func (c *JobConfig) given() bool {
	return c.API != nil || c.WebhookSecretEnv != "" || c.WebhookKeys != "" || c.Description != "" || c.InputSchema != nil || c.TTL != "" || c.MaxSeconds != 0
}

// maxTTL bounds the time of a job.
const maxTTL = 30 * 24 * time.Hour

// readAPI finds the API of a service that carries out jobs.
func (s *service) readAPI() error {
	api, home := jobapi.Known(s.Kind)
	switch {
	case s.Kind == JobAPI && s.API == nil:
		return errors.New("api: it has to be described: see docs/jobs.md")
	case s.Kind == JobAPI && s.URL == "":
		return errors.New("url: is missing")
	case s.Kind == JobAPI:
		api = s.API
	case api == nil:
		return fmt.Errorf("kind %.40q: want %s or %s (any service that speaks the protocol of OpenAI) for models, and %s, %s, %s or %s (any service, by `api`) for jobs",
			s.Kind, Anthropic, OpenAI, jobapi.Replicate, jobapi.FalQueue, jobapi.OpenAI, JobAPI)
	case s.API != nil:
		return fmt.Errorf("api: that of the kind %s is known", s.Kind)
	}
	if !catalogue.IsActionName(JobPrefix + s.name) {
		return fmt.Errorf("the action of this service would be %s%.60s: want a name of up to 59 lower-case letters, digits and '-'", JobPrefix, s.name)
	}
	if s.InputSchema != nil {
		if _, err := jsonschema.Compile(s.InputSchema); err != nil {
			return fmt.Errorf("input_schema: %s", fault.Message(err))
		}
	}
	s.URL = or(s.URL, home)
	if w := api.Webhook; w != nil {
		w.SecretEnv, w.Keys = or(s.WebhookSecretEnv, w.SecretEnv), or(s.WebhookKeys, w.Keys)
	}
	if s.TTL == "" {
		s.TTL = "24h"
	}
	ttl, err := time.ParseDuration(s.TTL)
	if err != nil || ttl < time.Second || ttl > maxTTL {
		return fmt.Errorf("ttl %.20q: want a duration from 1s to %dh", s.TTL, maxTTL/time.Hour)
	}
	s.ttl = ttl
	if s.MaxSeconds < 0 || s.MaxSeconds > maxTTL.Microseconds()/1e6 {
		return fmt.Errorf("max_seconds is %d: want 1 to %d", s.MaxSeconds, maxTTL/time.Second)
	}
	if s.api, err = api.Compile(); err != nil {
		return fmt.Errorf("api: %w", err)
	}
	return nil
}

// UseAddress sets where services reach this server, such as https://roux.example.com. Before it
// they are asked, and do not report by themselves.
func (s *Set) UseAddress(url string) {
	if s != nil && url != "" {
		url = strings.TrimSuffix(url, "/")
		s.address.Store(&url)
	}
}

// JobServices returns the services that carry out jobs, by name.
func (s *Set) JobServices() map[string]action.Service {
	all := map[string]action.Service{}
	if s != nil {
		for name, one := range s.jobs {
			all[name] = one.keeps()
		}
	}
	return all
}

// JobActions returns an action for each service that carries out jobs, sorted by name.
func (s *Set) JobActions() (list []action.Action) {
	if s == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.jobs)) {
		list = append(list, s.jobs[name].action())
	}
	return list
}

// A jobService is a service that carries out jobs. It implements action.Service.
type jobService struct {
	*service
	set  *Set
	keys published
}

// A handle is what is kept of a job beside its id.
type handle struct {
	Model string `json:"model"`
}

// action returns the declaration (X128).
func (j *jobService) action() action.Action {
	input := `{"type": "object", "description": "What the service is given."}`
	if j.InputSchema != nil {
		input = string(j.InputSchema)
	}
	models := slices.Sorted(maps.Keys(j.prices))
	names, _ := json.Marshal(models) // they are texts
	return action.Action{
		Name: JobPrefix + j.name, Version: "1.0.0", Revision: j.revision(),
		Description: cmp.Or(j.Description, "Submits a job to "+j.name+", and waits for it without holding a worker."),
		Input: json.RawMessage(`{"type": "object", "additionalProperties": false, "required": ["input"], "properties": {
			"model": {"enum": ` + string(names) + `, "description": "Default: that of the configuration."}, "input": ` + input + `}}`),
		Output: json.RawMessage(`{"type": "object", "required": ["output", "job", "model", "provider"], "properties": {
			"output": {"description": "What the job made."}, "job": {"type": "string", "description": "Its id at the service."},
			"model": {"type": "string"}, "provider": {"type": "string"}}}`),
		Metadata: action.Metadata{InputTypes: []action.TypeDefinition{}, OutputTypes: []action.TypeDefinition{}},
		Price:    j.ceiling().String(), Provider: j.name, Slots: j.Slots,
		Limits: []string{
			fmt.Sprintf("%d at once; a job that waits holds no worker.", j.Slots),
			fmt.Sprintf("A job that has not ended after %s is %s.", j.TTL, fault.JobExpired),
			"The effect key goes along as Idempotency-Key, which not every service honours.",
			"The answers of the service have up to 2 MiB, and what it made 1 MiB: large things are addresses of files.",
		},
		Faults: []fault.Code{
			fault.ProviderNotConfigured, fault.PriceUnknown, fault.SecretNotFound, fault.RateLimited, fault.ServiceUnavailable, fault.ProviderError, fault.HTTPStatus,
			fault.StepTimeout, fault.OutputTooLarge, fault.EgressRefused, fault.JobExpired,
		},
		Examples: []action.Example{{Title: "A job.", Input: json.RawMessage(`{"input": {"prompt": "A lighthouse at night."}}`)}},
		Run:      j.submit,
	}
}

// ceiling is the most that a job costs.
func (j *jobService) ceiling() (most ledger.Amount) {
	for _, p := range j.prices {
		p.input = max(p.input, p.cached)
		most = max(most, p.ofJob(Usage{Input: j.MaxInputTokens, Output: j.MaxTokens}, j.MaxSeconds*million))
	}
	return most
}

// submit submits a job.
func (j *jobService) submit(ctx context.Context, task *action.Task) (action.Result, error) {
	var in struct {
		Model string          `json:"model"`
		Input json.RawMessage `json:"input"`
	}
	if err := task.Decode(&in); err != nil {
		return action.Result{}, fault.New(fault.InputInvalid, "%v", err)
	}
	model := cmp.Or(in.Model, j.Model)
	if _, ok := j.prices[model]; !ok {
		return action.Result{}, fault.New(fault.PriceUnknown, "the model %.80q has no price: set providers.%s.prices.%q. Nothing was sent", model, j.name, model)
	}
	webhook := ""
	if at := j.set.address.Load(); at != nil && j.receives() {
		webhook = *at + "/v1/providers/" + j.name + "/webhook"
	}
	req, err := j.api.Submission(jobapi.Submission{Model: model, Input: in.Input, Webhook: webhook, EffectKey: task.EffectKey, MaxTokens: j.MaxTokens})
	if err != nil {
		return action.Result{}, err
	}
	ctx = sending(ctx, &Request{EffectKey: task.EffectKey, TraceParent: task.TraceParent})
	body, _, err := j.send(ctx, task.Account, req)
	if err != nil {
		return action.Result{}, err
	}
	id, err := j.api.JobID(model, body)
	if err != nil {
		return action.Result{}, fault.Unsure(err) // the service has the job
	}
	kept, err := json.Marshal(handle{model})
	return action.Result{Job: &action.Job{Provider: j.name, ID: id, Handle: kept, TTL: j.ttl}}, err
}

// receives reports whether webhooks of the service can be checked.
func (j *jobService) receives() bool {
	w, ok := j.api.Hooks()
	return ok && (w.Signature == jobapi.Fal || j.secret(&w) != "")
}

// secret returns the secret of webhooks.
func (j *jobService) secret(w *jobapi.Webhook) string {
	return strings.TrimSpace(j.set.getenv(w.SecretEnv))
}

// send sends a request with the key for an account, and returns the body of the response; of a
// stream, the data of its first event. The error of a status that is no success comes with that status.
func (j *jobService) send(ctx context.Context, account string, r *jobapi.Request) (body []byte, status int, err error) {
	resp, c, err := j.open(ctx, account, r)
	if err != nil {
		return c.refusal, c.status, err
	}
	defer func() { _ = resp.Body.Close() }()
	if isStream(resp) {
		ev, err := sse.NewReader(resp.Body, 0).Next()
		if errors.Is(err, io.EOF) {
			err = endedEarly()
		}
		return ev.Data, resp.StatusCode, err
	}
	body, err = io.ReadAll(resp.Body)
	return body, resp.StatusCode, err
}

// open sends a request as send does, and returns a response that is a success.
func (j *jobService) open(ctx context.Context, account string, r *jobapi.Request) (*http.Response, *caller, error) {
	c := &caller{service: j.service, out: j.set.out, rounds: &j.set.rounds}
	var err error
	if c.key, err = j.set.key(ctx, j.service, account); err != nil {
		return nil, c, err
	}
	req, err := newRequest(ctx, strings.TrimSuffix(j.URL, "/"), r)
	if err != nil {
		return nil, c, err
	}
	if c.key != "" {
		name, value := j.api.Auth(c.key)
		req.Header.Set(name, value)
	}
	resp, err := c.Do(req)
	return resp, c, err
}

// isStream reports whether the body of a response is a stream of events.
func isStream(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
}

// jobOf is a job as its API knows it. What a remote worker says of one that it has submitted becomes
// part of requests, so it is checked as what the service answers is.
func (j *jobService) jobOf(of *action.SubmittedJob) (jobapi.Job, error) {
	h := handle{j.Model}
	if len(of.Handle) > 0 {
		if err := json.Unmarshal(of.Handle, &h); err != nil {
			return jobapi.Job{}, fault.New(fault.ProviderError, `the handle of job %.60q of providers.%s cannot be read: want {"model": NAME}, or none`, of.ID, j.name)
		}
	}
	if !jobapi.CheckJob(of.ID) || h.Model != "" && !jobapi.CheckModel(h.Model) {
		return jobapi.Job{}, fault.New(fault.ProviderError, "providers.%s has no job %.60q of a model %.60q: these are no names", j.name, of.ID, h.Model)
	}
	return jobapi.Job{Model: h.Model, ID: of.ID}, nil
}

// fails is the state of a job of which nothing can be found out, however often it is asked about.
func fails(err error) action.JobState {
	return action.JobState{Result: func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, err }}
}

// Poll implements action.Service.
func (j *jobService) Poll(ctx context.Context, of *action.SubmittedJob) (action.JobState, error) {
	job, err := j.jobOf(of)
	if err != nil {
		return fails(err), nil
	}
	req, err := j.api.Poll(job)
	if err != nil {
		return action.JobState{}, err
	}
	body, _, err := j.send(ctx, of.Account, req)
	if err != nil {
		return action.JobState{}, err
	}
	st, err := j.api.State(job, body)
	return j.said(job, &st, err)
}

// said is what a state that was read, perhaps with an error, says of a job.
func (j *jobService) said(job jobapi.Job, st *jobapi.State, err error) (action.JobState, error) {
	if err != nil && (st.Phase != jobapi.Going || errors.Is(err, fault.OutputTooLarge)) {
		// Asking again would have the same answer.
		return fails(err), nil
	}
	return j.jobState(job, st), err
}

// Read implements action.Service.
func (j *jobService) Read(ctx context.Context, of *action.SubmittedJob, body []byte) (action.JobState, error) {
	job, err := j.jobOf(of)
	if err != nil {
		return fails(err), nil
	}
	if w, ok := j.api.Hooks(); ok && w.Whole {
		if st, err := j.api.State(job, body); err == nil {
			return j.jobState(job, &st), nil
		}
	}
	return j.Poll(ctx, of)
}

// jobState is a state as the keeper of jobs takes it.
func (j *jobService) jobState(job jobapi.Job, st *jobapi.State) action.JobState {
	switch st.Phase {
	case jobapi.Succeeded:
		if st.Usage.Micros < 0 && j.prices[job.Model].second > 0 {
			return action.JobState{Result: func(context.Context, *action.Task) (action.Result, error) {
				return action.Result{}, fault.New(fault.ProviderError, "providers.%s does not say how many seconds job %s has taken, and the configuration has a price for them", j.name, job.ID)
			}}
		}
		return action.JobState{Result: func(ctx context.Context, task *action.Task) (action.Result, error) {
			return j.result(ctx, task.Account, job, st)
		}}
	case jobapi.Failed:
		return action.JobState{Result: func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{Price: j.cost(job, st).String(), Tokens: st.Usage.Input + st.Usage.Output}, j.failed(job, st.Error)
		}}
	}
	return action.JobState{Preview: st.Preview}
}

// result is what a step gets of a job that has succeeded.
func (j *jobService) result(ctx context.Context, account string, job jobapi.Job, st *jobapi.State) (action.Result, error) {
	out := st.Output
	if j.api.HasResult() {
		req, err := j.api.Result(job)
		if err != nil {
			return action.Result{}, err
		}
		body, status, err := j.send(ctx, account, req)
		switch {
		case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity || status == clientClosed:
			return action.Result{}, j.failed(job, j.api.Why(job, body))
		case err != nil:
			return action.Result{}, fmt.Errorf("%w: %w", action.ErrUnsettled, err)
		}
		if out, err = j.api.Output(job, body); err != nil {
			return action.Result{}, err
		}
	}
	return action.Result{
		Output: map[string]any{"output": out, "job": job.ID, "model": job.Model, "provider": j.name},
		Price:  j.cost(job, st).String(), Tokens: st.Usage.Input + st.Usage.Output,
	}, nil
}

// clientClosed is the status of the result of a job that was cancelled at fal.
const clientClosed = 499

// cost is what a job has cost. Seconds beyond those that the run was told of are not charged.
func (j *jobService) cost(job jobapi.Job, st *jobapi.State) ledger.Amount {
	u := st.Usage
	return j.prices[job.Model].ofJob(Usage{Input: u.Input - u.Cached, Cached: u.Cached, Output: u.Output}, min(u.Micros, j.MaxSeconds*million))
}

// failed is the error of a job that has failed. What the service says of it is shown.
func (j *jobService) failed(job jobapi.Job, why string) error {
	if why == "" {
		why = "the service does not say why"
	}
	return fault.New(fault.ProviderError, "job %s of providers.%s failed: %s", job.ID, j.name, clean(why, ""))
}

// Cancel implements action.Service.
func (j *jobService) Cancel(ctx context.Context, of *action.SubmittedJob) error {
	if !j.api.Cancels() {
		return nil
	}
	job, err := j.jobOf(of)
	if err != nil {
		return nil // it was never asked about, either
	}
	req, err := j.api.Cancel(job)
	if err != nil {
		return err
	}
	_, status, err := j.send(ctx, of.Account, req)
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity:
		return nil // it has ended, or is not known any more
	}
	return err
}

// Receive implements action.Service.
func (j *jobService) Receive(header http.Header, body []byte) (action.Webhook, error) {
	w, ok := j.api.Hooks()
	if !ok {
		return action.Webhook{}, jobapi.ErrSignature
	}
	keys := jobapi.Keys{}
	if w.Signature == jobapi.Fal {
		keys.Public = j.keys.get(j, w.Keys)
	} else {
		keys.Secret = j.secret(&w)
	}
	job, id, err := j.api.Receive(header, body, &keys, time.Now())
	return action.Webhook{Job: job, ID: id}, err
}

// SignWebhook returns the headers of a webhook with an id and a time, as the service of that name
// would sign it: for those who try out what becomes of one.
func (s *Set) SignWebhook(name string, body []byte, id string, at time.Time) (http.Header, error) {
	var j *jobService
	if s != nil {
		j = s.jobs[name]
	}
	if j == nil {
		return nil, fault.New(fault.ProviderNotConfigured, "there is no provider %.70q that carries out jobs: `roux providers` lists those that are configured", name)
	}
	w, ok := j.api.Hooks()
	if !ok {
		return nil, fault.New(fault.ProviderNotConfigured, "providers.%s has no webhooks: its API names none", name)
	}
	header := http.Header{}
	if err := w.Sign(header, body, j.secret(&w), id, at); err != nil {
		return nil, fault.Wrap(fault.ProviderNotConfigured, err, "providers.%s: %v; its secret is the variable %s", name, err, w.SecretEnv)
	}
	return header, nil
}

// newRequest makes a request of one of an API.
func newRequest(ctx context.Context, base string, r *jobapi.Request) (*http.Request, error) {
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, base+r.Path, body)
	if err != nil {
		return nil, fault.New(fault.ConfigInvalid, "the address of the service cannot be used")
	}
	req.Header.Set("Accept", "application/json")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.Header {
		req.Header.Set(name, value)
	}
	return req, nil
}

// published are the keys with which a service signs its webhooks. They are kept for an hour, and
// asked for at most once a minute, whoever sends webhooks.
type published struct {
	mu    sync.Mutex
	keys  []ed25519.PublicKey
	asked time.Time
	read  time.Time
}

// get returns the keys that are published at an address; nil = they are not known.
func (p *published) get(j *jobService, at string) []ed25519.PublicKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.read) < time.Hour || now.Sub(p.asked) < time.Minute {
		return p.keys
	}
	p.asked = now
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := newRequest(ctx, at, &jobapi.Request{Method: http.MethodGet})
	if err != nil {
		return p.keys
	}
	c := &caller{service: j.service, out: j.set.out}
	resp, err := c.Do(req)
	if err != nil {
		return p.keys
	}
	defer func() { _ = resp.Body.Close() }()
	set, err := io.ReadAll(resp.Body)
	if err != nil {
		return p.keys
	}
	if keys, err := jobapi.ParseKeys(set); err == nil {
		p.keys, p.read = keys, now
	}
	return p.keys
}
