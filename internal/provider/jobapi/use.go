// SPDX-License-Identifier: Apache-2.0

package jobapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Phase is how a job stands.
type Phase uint8

// The phases. Going is any state that is none of the others.
const (
	Going Phase = iota
	Succeeded
	Failed
)

// A Request is what is to be sent.
type Request struct {
	Method string
	Path   string // with the query, behind the address of the service
	Header map[string]string
	Body   []byte // JSON; nil = none
}

// A Job is one of a model. ID is "" before its submission.
type Job struct{ Model, ID string }

// CheckModel reports whether a name can be that of a model: it is part of paths.
func CheckModel(name string) bool {
	return modelForm.MatchString(name) && !strings.Contains(name, "..")
}

// CheckJob reports whether a text can be the id of a job: it is part of paths.
func CheckJob(id string) bool { return jobForm.MatchString(id) }

var (
	modelForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@+-]*(/[A-Za-z0-9._:@+-]+)*$`)
	jobForm   = regexp.MustCompile(`^[A-Za-z0-9_~:-][A-Za-z0-9._~:-]{0,199}$`)
	pathForm  = regexp.MustCompile(`^(/[A-Za-z0-9_~:@%+-][A-Za-z0-9._~:@%+-]*)+/?$`)
)

// Auth returns the header that has a key.
func (c *Compiled) Auth(key string) (header, value string) { return c.authHeader, c.authPrefix + key }

// Cancels reports whether a job can be cancelled.
func (c *Compiled) Cancels() bool { return c.cancel != nil }

// HasResult reports whether the output of a job is asked for by itself.
func (c *Compiled) HasResult() bool { return c.result != nil }

// Counts reports whether responses have the usage of jobs.
func (c *Compiled) Counts() bool { return c.usage[0] != nil }

// A Submission is a job that is to be submitted.
type Submission struct {
	Model     string
	Input     json.RawMessage // of an object
	Webhook   string          // "" = the service cannot reach us
	EffectKey string
	MaxTokens int64
}

// Submission is the request that submits a job. The error is the step's.
func (c *Compiled) Submission(s Submission) (*Request, error) {
	given, err := jsonx.Decode(s.Input, limits)
	if err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "input: %v", err)
	}
	vars := expr.MapVars{"model": s.Model, "input": given, "webhook": nil, "effectKey": s.EffectKey, "maxTokens": s.MaxTokens}
	if s.Webhook != "" {
		vars["webhook"] = s.Webhook
	}
	req, err := c.request(c.submit, s.Model, vars)
	if err != nil {
		return nil, err
	}
	body := map[string]any{}
	if fields, ok := given.(map[string]any); ok && c.merge {
		maps.Copy(body, fields)
	}
	if c.body != nil {
		own, err := c.body.Eval(vars)
		if err != nil {
			return nil, err
		}
		fields, _ := own.(map[string]any)
		for name, v := range fields {
			if body[name] = v; v == nil {
				delete(body, name)
			}
		}
	}
	req.Body, err = json.Marshal(body)
	return req, err
}

// Poll is the request that asks how a job stands.
func (c *Compiled) Poll(j Job) (*Request, error) { return c.about(c.poll, j) }

// Result is the request for the output of a job, see HasResult.
func (c *Compiled) Result(j Job) (*Request, error) { return c.about(c.result, j) }

// Cancel is the request that cancels a job, see Cancels.
func (c *Compiled) Cancel(j Job) (*Request, error) { return c.about(c.cancel, j) }

func (c *Compiled) about(to *call, j Job) (*Request, error) {
	return c.request(to, j.Model, expr.MapVars{"model": j.Model, "job": j.ID})
}

func (c *Compiled) request(to *call, model string, vars expr.MapVars) (*Request, error) {
	req := &Request{Method: to.method, Header: map[string]string{}}
	path, err := text(to.path, vars)
	if err != nil {
		return nil, err
	}
	// A path leads nowhere but where the description says, whatever the service has called a job.
	if !pathForm.MatchString(path) {
		return nil, fault.New(fault.ConfigInvalid, "the path %.100q is none: want /, and letters, digits and _ ~ : @ %% + - . between them", path)
	}
	query := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(to.query)) {
		v, err := to.query[name].Eval(vars)
		if err != nil {
			return nil, err
		}
		if v != nil && v != "" {
			query.Set(name, fmt.Sprint(v))
		}
	}
	if req.Path = path; len(query) > 0 {
		req.Path += "?" + query.Encode()
	}
	for name, p := range c.headers {
		if req.Header[name], err = text(p, expr.MapVars{"model": model}); err != nil {
			return nil, err
		}
		if strings.ContainsAny(req.Header[name], "\r\n") {
			return nil, fault.New(fault.ConfigInvalid, "the header %s has more than one line", name)
		}
	}
	return req, nil
}

// text is the value of a template.
func text(p *expr.Program, vars expr.MapVars) (string, error) {
	v, err := p.Eval(vars)
	if err != nil {
		return "", err
	}
	if s, ok := v.(string); ok {
		return s, nil
	}
	return fmt.Sprint(v), nil
}

// JobID is the id of a job that was submitted, by the response.
func (c *Compiled) JobID(model string, body []byte) (string, error) {
	vars, err := responseVars(body)
	if err != nil {
		return "", err
	}
	vars["model"] = model
	return idOf(c.job, vars)
}

// idOf reads the id of a job. Numbers are ids, too.
func idOf(p *expr.Program, vars expr.MapVars) (string, error) {
	v, err := p.Eval(vars)
	if err != nil {
		return "", fault.New(fault.ProviderError, "the service does not say which job it is: %s", fault.Message(err))
	}
	if n, ok := v.(int64); ok {
		v = fmt.Sprint(n)
	}
	id, ok := v.(string)
	if !ok || !jobForm.MatchString(id) {
		return "", fault.New(fault.ProviderError, "the service calls the job %.60q: want up to 200 letters, digits and . _ ~ : -", fmt.Sprint(v))
	}
	return id, nil
}

// limits bound the JSON of inputs and responses. An expression refers to no more than 1 MiB.
var limits = jsonx.Limits{Bytes: 2 << 20, Depth: 128}

func responseVars(body []byte) (expr.MapVars, error) {
	if len(body) > limits.Bytes {
		return nil, fault.New(fault.OutputTooLarge, "the service sent %d bytes: want at most %d, and addresses of what is large", len(body), limits.Bytes)
	}
	v, err := jsonx.Decode(body, limits)
	if err != nil {
		return nil, fault.New(fault.ProviderError, "the service sent what is no JSON")
	}
	return expr.MapVars{"body": v}, nil
}

// A State is what a response says of a job.
type State struct {
	Phase  Phase
	Output any    // of Succeeded, if there is no Result
	Error  string // of Failed; "" = it does not say why
	Usage  Counts // of both, if Counts
	// Preview is what a job has made so far, of Going; nil = nothing.
	Preview any
}

// Counts are tokens, and the time that a job has taken. Input includes the tokens that are Cached.
type Counts struct {
	Input, Cached, Output int64
	Micros                int64 // of a second; -1 = the service does not say it
}

// State reads how a job stands from the response to a poll, or from a webhook that is as one. With an
// error the response does not say it, or, if Phase is not Going, the job has ended and what it made or
// used cannot be read.
func (c *Compiled) State(j Job, body []byte) (State, error) {
	vars, err := c.response(j, body)
	if err != nil {
		return State{}, err
	}
	return c.stateOf(vars)
}

func (c *Compiled) stateOf(vars expr.MapVars) (State, error) {
	v, err := c.state.Eval(vars)
	if err != nil {
		return State{}, fault.New(fault.ProviderError, "the service does not say how the job stands: %s", fault.Message(err))
	}
	word, ok := v.(string)
	if !ok {
		return State{}, fault.New(fault.ProviderError, "the service does not say how the job stands: want a text")
	}
	switch st := (State{Phase: c.phases[word]}); st.Phase {
	case Succeeded:
		if st.Usage, err = c.counts(vars); err != nil || c.result != nil {
			return st, err
		}
		st.Output, err = c.outputOf(vars)
		return st, err
	case Failed:
		st.Usage, _ = c.counts(vars) // one that has failed may have none
		st.Error = c.why(vars)
		return st, nil
	}
	return State{Preview: c.soFar(vars)}, nil
}

// soFar reads what a job that goes on has made. An expression that reads what is not there yet reads
// nothing.
func (c *Compiled) soFar(vars expr.MapVars) any {
	if c.preview == nil {
		return nil
	}
	v, err := c.preview.Eval(vars)
	if err != nil {
		return nil
	}
	return v
}

// Output reads the output of a job from the response to Result.
func (c *Compiled) Output(j Job, body []byte) (any, error) {
	vars, err := c.response(j, body)
	if err != nil {
		return nil, err
	}
	return c.outputOf(vars)
}

// Why reads why a job has failed from a response; "" = it does not say.
func (c *Compiled) Why(j Job, body []byte) string {
	vars, err := c.response(j, body)
	if err != nil {
		return ""
	}
	return c.why(vars)
}

func (c *Compiled) response(j Job, body []byte) (expr.MapVars, error) {
	vars, err := responseVars(body)
	if err == nil {
		vars["model"], vars["job"] = j.Model, j.ID
	}
	return vars, err
}

func (c *Compiled) outputOf(vars expr.MapVars) (any, error) {
	if c.output == nil {
		return vars["body"], nil
	}
	v, err := c.output.Eval(vars)
	if err != nil {
		return nil, fault.New(fault.ProviderError, "the service does not say what the job made: %s", fault.Message(err))
	}
	return v, nil
}

func (c *Compiled) why(vars expr.MapVars) string {
	if c.failure == nil {
		return ""
	}
	v, err := c.failure.Eval(vars)
	if err != nil || v == nil {
		return ""
	}
	if s, ok := v.(string); ok {
		return s
	}
	raw, _ := json.Marshal(v) // it is JSON
	return string(raw)
}

// Times reports whether responses have the seconds that jobs have taken.
func (c *Compiled) Times() bool { return c.seconds != nil }

// micros reads the time that a job has taken; -1 = the response does not say it.
func (c *Compiled) micros(vars expr.MapVars) int64 {
	if c.seconds == nil {
		return -1
	}
	switch v, err := c.seconds.Eval(vars); v := v.(type) {
	case int64:
		if err == nil && v >= 0 && v <= mostSeconds {
			return v * 1e6
		}
	case float64:
		if err == nil && v >= 0 && v <= mostSeconds {
			return microsOf(v)
		}
	}
	return -1
}

// mostSeconds bounds the time that a service may claim, which is years.
const mostSeconds = 1e9

// microsOf is a number of seconds as the service has written it in millionths, rounded up.
func microsOf(seconds float64) int64 {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(seconds, 'f', -1, 64), ".")
	more := len(fraction) > 6
	fraction = (fraction + "000000")[:6]
	n, _ := strconv.ParseInt(whole+fraction, 10, 64) // digits of a bounded number
	if more {
		n++
	}
	return n
}

// counts reads the usage.
func (c *Compiled) counts(vars expr.MapVars) (n Counts, err error) {
	n.Micros = c.micros(vars)
	for i, into := range []*int64{&n.Input, &n.Cached, &n.Output} {
		if c.usage[i] == nil {
			continue
		}
		v, err := c.usage[i].Eval(vars)
		if err != nil && i == 1 {
			continue // not every service says what was cached
		}
		count, ok := v.(int64)
		if err != nil || !ok || count < 0 {
			return Counts{Micros: -1}, fault.New(fault.ProviderError, "the service does not say how many tokens the job has used")
		}
		*into = count
	}
	n.Cached = min(n.Cached, n.Input)
	return n, nil
}
