// SPDX-License-Identifier: Apache-2.0

// Package jobapi knows the APIs of outside services that carry out jobs: those of Replicate, fal
// and OpenAI, and any that a configuration describes.
//
// It decides what a request asks, what a response says about a job, and whether a webhook comes
// from the service. All APIs are descriptions of the same form, so that they have the same rules.
//
// It sends nothing, knows no key of a service, and never decides when a service is asked.
package jobapi

import "encoding/json"

// An API describes how jobs are submitted, asked about and cancelled, over HTTP with JSON.
//
// The texts of requests are templates that know `model` and `job`, the id of the job. Those of a
// submission know `input` (what the step gives), `webhook` (where the service is to report; null
// if it cannot reach us), `effectKey`, and `maxTokens` of the configuration in place of `job`. What is read of a response is an
// expression that knows `body`, `model` and `job`.
type API struct {
	// Auth is how the key is sent. Default: Authorization: Bearer KEY.
	Auth    Auth              `json:"auth"`
	Headers map[string]string `json:"headers"` // of every request

	Submit Submit `json:"submit"`
	Poll   Call   `json:"poll"`
	// Result is asked for the output of a job that has succeeded; the statuses 400, 422 and 499 say
	// that it has failed. nil = the poll has the output.
	Result *Call `json:"result"`
	// Cancel is sent when nobody waits for a job any more. nil = that cannot be said.
	Cancel *Call `json:"cancel"`

	// State is how a job stands, a text. It has succeeded or failed when that is one of those;
	// any other text means that it goes on.
	State     string   `json:"state"`
	Succeeded []string `json:"succeeded"`
	Failed    []string `json:"failed"`
	Output    string   `json:"output"` // of a job that has succeeded. Default: body
	Error     string   `json:"error"`  // of one that has failed. Default: none
	// Preview is what a job that goes on has made so far, which is shown; null = nothing yet.
	// Default: none.
	Preview string `json:"preview"`
	// Stream is how a job that goes on is followed. nil = it is only asked about.
	Stream *Stream `json:"stream"`
	// Usage is what a job has used, in tokens or seconds. nil = only jobs have prices.
	Usage   *Usage   `json:"usage"`
	Webhook *Webhook `json:"webhook"`
}

// Auth is the header that has the key, behind a prefix.
type Auth struct {
	Header string `json:"header"`
	Prefix string `json:"prefix"`
}

// A Call is a request.
type Call struct {
	// Method is by default GET, of a submission POST, of a cancellation DELETE.
	Method string            `json:"method"`
	Path   string            `json:"path"`  // behind the address of the service, such as /jobs/{{ job }}
	Query  map[string]string `json:"query"` // what is null is left out
}

// Submit is the request that submits a job.
type Submit struct {
	Call
	// Body is a JSON object whose texts may be templates; fields of it that are null are left out.
	// With Merge the fields of the input are fields of it, too, but for those that it has itself.
	Body  json.RawMessage `json:"body"`
	Merge bool            `json:"merge"`
	Job   string          `json:"job"` // the id of the job in the response; it does not know `job`
}

// Stream is the request for what a job makes, as server-sent events with JSON in their data: the text
// that it adds, and how it ends. Templates know `after` too, the number of the last event that was
// read; null = from the beginning. The response to a submission may be such a stream, too: then `job`
// of the submission is read of its first event. What is read of an event is an expression that knows
// what those of responses do.
type Stream struct {
	Call
	Number string `json:"number"` // of an event; later events have greater ones
	Text   string `json:"text"`   // that an event adds; null = none
	Ended  string `json:"ended"`  // of the event that says how the job has ended, what a poll would be answered with; null = it goes on
}

// Usage says where a response has the counts of tokens, and the seconds that a job has taken. The
// tokens of Input include the Cached ones.
type Usage struct {
	Input   string `json:"input"`
	Cached  string `json:"cached"`
	Output  string `json:"output"`
	Seconds string `json:"seconds"`
}

// Webhook is what the service says by itself about a job. It is asked all the same.
type Webhook struct {
	Job string `json:"job"` // the id of the job; it knows `body` only
	// Whole says that the body is what a poll would be answered with. Otherwise a webhook only
	// means that the service is to be asked.
	Whole bool `json:"whole"`

	Signature string `json:"signature"` // Standard, HMAC or Fal
	// Header, Prefix and Encoding (hex or base64; default hex) are those of HMAC.
	Header   string `json:"header"`
	Prefix   string `json:"prefix"`
	Encoding string `json:"encoding"`
	// SecretEnv is the variable of the environment that has the secret of Standard or HMAC.
	SecretEnv string `json:"secret_env"`
	// Keys is where the service publishes its keys (JWKS), for Fal.
	Keys string `json:"keys"`
}

// The kinds of services whose APIs are known.
const (
	Replicate = "replicate"
	FalQueue  = "fal"
	OpenAI    = "openai-background"
)

// Known returns the API of a kind of service, and where it is.
func Known(kind string) (api *API, url string) {
	switch kind {
	case Replicate:
		return replicate(), "https://api.replicate.com/v1"
	case FalQueue:
		return fal(), "https://queue.fal.run"
	case OpenAI:
		return openAI(), "https://api.openai.com/v1"
	}
	return nil, ""
}

// replicate is https://replicate.com/docs/reference/http. A model is owner/name, or
// owner/name:version for one that is not official.
func replicate() *API {
	return &API{
		Submit: Submit{
			Call: Call{Path: `{{ model.contains(":") ? "/predictions" : "/models/" + model + "/predictions" }}`},
			Body: json.RawMessage(`{
				"version": "{{ model.contains(':') ? dyn(model.split(':')[1]) : null }}", "input": "{{ input }}",
				"webhook": "{{ webhook }}", "webhook_events_filter": "{{ webhook == null ? dyn(null) : ['completed'] }}"
			}`),
			Job: "body.id",
		},
		Poll:   Call{Path: "/predictions/{{ job }}"},
		Cancel: &Call{Method: "POST", Path: "/predictions/{{ job }}/cancel"},
		State:  "body.status", Succeeded: []string{"succeeded"}, Failed: []string{"failed", "canceled", "aborted"},
		Output: "body.output", Error: "body.error",
		Preview: "body.output", // of models that make one thing after the other
		Usage:   &Usage{Seconds: "body.metrics.predict_time"},
		Webhook: &Webhook{Job: "body.id", Whole: true, Signature: Standard, SecretEnv: "ROUX_WEBHOOK_REPLICATE"},
	}
}

// fal is https://docs.fal.ai/model-apis/model-endpoints/queue. A model is owner/alias, or
// owner/alias/path: its requests are those of owner/alias.
func fal() *API {
	const request = `/{{ model.split("/")[0] + "/" + model.split("/")[1] }}/requests/{{ job }}`
	return &API{
		Auth: Auth{Header: "Authorization", Prefix: "Key "},
		Submit: Submit{
			Call: Call{Path: "/{{ model }}", Query: map[string]string{"fal_webhook": "{{ webhook }}"}},
			Body: json.RawMessage(`{}`), Merge: true, Job: "body.request_id",
		},
		Poll:   Call{Path: request + "/status"},
		Result: &Call{Path: request},
		Cancel: &Call{Method: "PUT", Path: request + "/cancel"},
		State:  "body.status", Succeeded: []string{"COMPLETED"},
		Error:   `type(body.detail) == string ? body.detail : body.detail[0].msg`,
		Usage:   &Usage{Seconds: "body.metrics.inference_time"},
		Webhook: &Webhook{Job: "body.request_id", Signature: Fal, Keys: "https://rest.alpha.fal.ai/.well-known/jwks.json"},
	}
}

// openAI is https://platform.openai.com/docs/guides/background. Its webhooks are set up at the
// project, and say only which response has changed.
func openAI() *API {
	return &API{
		Submit: Submit{
			Call: Call{Path: "/responses"},
			Body: json.RawMessage(`{"model": "{{ model }}", "background": true, "store": true, "stream": true,
				"max_output_tokens": "{{ has(input.max_output_tokens) && input.max_output_tokens < maxTokens ? input.max_output_tokens : maxTokens }}"}`), Merge: true,
			Job: "has(body.response) ? body.response.id : body.id",
		},
		Poll:   Call{Path: "/responses/{{ job }}"},
		Cancel: &Call{Method: "POST", Path: "/responses/{{ job }}/cancel"},
		Stream: openAIStream(),
		State:  "body.status", Succeeded: []string{"completed", "incomplete"}, Failed: []string{"failed", "cancelled"},
		Error:   "body.error.message",
		Usage:   &Usage{Input: "body.usage.input_tokens", Cached: "body.usage.input_tokens_details.cached_tokens", Output: "body.usage.output_tokens"},
		Webhook: &Webhook{Job: "body.data.id", Signature: Standard, SecretEnv: "ROUX_WEBHOOK_OPENAI"},
	}
}
