// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
)

// Limits of one exchange.
const (
	httpInline     = 1 << 20   // of a body that becomes a value; default of maxBytes
	httpInlineMost = 4 << 20   // largest maxBytes for such a body
	httpFile       = 256 << 20 // of a body that becomes a file
	httpFileMost   = 4 << 30
)

// httpRequest returns the action http. It sends a request through egress, which
// checks the address (A17, A18), and turns the response into a value or a file.
func httpRequest(out *egress.Client) action.Action {
	return action.Action{
		Name:        "http",
		Aliases:     []string{"call_external_service"},
		Version:     "1.0.0",
		Description: "Sends an HTTP request and gives the answer as JSON, text or a file.",
		Cost:        1,
		Input:       schema(httpInputSchema),
		Output:      schema(httpOutputSchema),
		Metadata: action.Metadata{
			InputTypes: []action.TypeDefinition{
				{Name: "request", MimeTypes: []string{"application/json", "text/plain"}, Description: "A URL, and for some methods a body."},
				{Name: "bodyFile", MimeTypes: []string{"*/*"}, Description: "Any file, sent as it is."},
			},
			OutputTypes: []action.TypeDefinition{
				{Name: "answer", MimeTypes: []string{"application/json", "text/*"}, Description: "The answer, its body as a value or text."},
				{Name: "file", MimeTypes: []string{"*/*"}, Description: "The body as a file, with saveAs or when it is neither JSON nor text."},
			},
			BranchConditions: []action.BranchCondition{
				{Name: "is-ok", Expression: `output.status >= 200 && output.status < 300`, Description: "The status says success."},
				{Name: "is-not-found", Expression: `output.status == 404 || output.status == 410`, Description: "There is nothing at the URL; expectStatus has to accept that."},
				{Name: "is-json", Expression: `output.contentType == "application/json" || output.contentType.endsWith("+json")`, Description: "The answer says it is JSON."},
				{Name: "is-file", Expression: `has(output.file)`, Description: "The body is in file and not in body."},
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "20ms", Max: "1m"},
		},
		Limits: []string{
			"A body up to 1 MiB, or maxBytes up to 4 MiB; with saveAs up to 256 MiB, or maxBytes up to 4 GiB.",
			"Bytes are counted after unpacking.",
			"Public addresses only, unless the operator opens others with ROUX_EGRESS_ALLOW.",
			"Ports 80, 443 and from 1024 up, without those that belong to other protocols.",
			"Up to 5 redirects.",
			"Of the statuses that expectStatus does not name, 429 is RATE_LIMITED, 408, 425 and 503 are SERVICE_UNAVAILABLE and all other from 500 on PROVIDER_ERROR; a retryPolicy tries these again. Any other is HTTP_STATUS, which it has to name.",
			"POST and PATCH carry the effect key as Idempotency-Key, unless headers set one: it stays the same while the outcome of a try is unknown, so a service that honours it sees one effect.",
			"The outcome is unknown if the connection broke after a POST, PUT, PATCH or DELETE was sent, if its answer was not complete or could not be kept, after 502 and 504, and after a timeout. Such a request is sent once per try.",
			"A traced run sends its trace context as traceparent, unless headers set one.",
			"Response headers up to 64 KiB, of which 64 headers and 16 KiB are kept.",
		},
		Faults: []fault.Code{
			fault.EgressRefused, fault.HTTPStatus, fault.RateLimited, fault.ServiceUnavailable, fault.ProviderError,
			fault.OutputTooLarge, fault.FileTooLarge, fault.FileNotFound,
		},
		Examples: []action.Example{
			{Title: "Read a JSON document.", Input: schema(`{"url": "https://api.example.com/v1/items", "query": {"limit": 10}}`)},
			{Title: "Send JSON, and accept that it was there already.", Input: schema(`{"url": "https://api.example.com/v1/items", "method": "POST", "body": {"name": "Ada"}, "expectStatus": ["2xx", 409]}`)},
			{Title: "Download a file.", Input: schema(`{"url": "https://example.com/report.pdf", "saveAs": "report.pdf", "timeout": "2m"}`)},
		},
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			return sendHTTP(ctx, task, out)
		},
	}
}

// httpInputSchema and httpOutputSchema are the contracts of the action http.
const (
	httpInputSchema = `{
		"type": "object",
		"properties": {
			"url": {"type": "string", "minLength": 1, "maxLength": 8192, "description": "http or https, without user and password."},
			"method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], "default": "GET"},
			"headers": {
				"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 8192},
				"description": "Sent with the request. Those that belong to the connection (Host, Content-Length, Transfer-Encoding, …) cannot be set."
			},
			"query": {
				"type": "object", "maxProperties": 256,
				"additionalProperties": {
					"type": ["string", "number", "boolean", "null", "array"],
					"items": {"type": ["string", "number", "boolean"]}
				},
				"description": "Added to the URL's query; a list gives its name once per item, null leaves it out."
			},
			"body": {"description": "Text is sent as text/plain, any other value as JSON, unless headers name a content type. For POST, PUT, PATCH, DELETE and OPTIONS."},
			"bodyFile": {
				"type": "string", "pattern": "^sha256_[0-9a-f]{64}$",
				"description": "Hash of a file to send in place of body. It has to be named: the run's only file is never sent by itself."
			},
			"saveAs": {"type": "string", "minLength": 1, "maxLength": 255, "description": "Makes the answer's body a file of this name."},
			"name": {"type": "string", "minLength": 1, "maxLength": 255, "description": "The name of the file, where the answer becomes one. Default: saveAs, else the last part of the address."},
			"maxBytes": {
				"type": "integer", "minimum": 1, "maximum": 4294967296,
				"description": "Most bytes of the answer's body, unpacked. Default 1 MiB and at most 4 MiB; with saveAs 256 MiB and at most 4 GiB."
			},
			"timeout": {"type": "string", "description": "How long the whole exchange may take, such as \"30s\". Default: the step's timeout, which bounds it in any case."},
			"keepHeaders": {
				"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 100}, "maxItems": 64,
				"description": "Response headers whose values are kept beside the harmless ones (content-type, etag, link, location, x-ratelimit-*, …). What is kept stands in the journal, so name none that holds a credential."
			},
			"followRedirects": {"type": "boolean", "default": true, "description": "Follows up to 5 redirects. Headers that may hold a secret do not go to another host."},
			"expectStatus": {
				"description": "The statuses that succeed: a number such as 200, a class such as \"2xx\", or a list of them. Default \"2xx\".",
				"anyOf": [
					{"$ref": "#/$defs/status"},
					{"type": "array", "minItems": 1, "maxItems": 100, "items": {"$ref": "#/$defs/status"}}
				]
			}
		},
		"required": ["url"],
		"additionalProperties": false,
		"$defs": {"status": {"anyOf": [{"type": "integer", "minimum": 200, "maximum": 599}, {"type": "string", "pattern": "^[2-5]xx$"}]}}
	}`

	httpOutputSchema = `{
		"type": "object",
		"properties": {
			"status": {"type": "integer", "minimum": 200, "maximum": 999},
			"headers": {
				"type": "object", "additionalProperties": {"type": "string"},
				"description": "Names in small letters; several of one name are joined by commas. Cookies are left out, and values that may be credentials are [masked] unless keepHeaders names the header."
			},
			"contentType": {"type": "string", "description": "Media type in small letters without parameters; empty when the answer names none."},
			"body": {"description": "The value of a JSON body, else its text; null when it is empty or in file."},
			"file": ` + fileSchema + `,
			"name": {"type": "string", "description": "Of file: the name asked for, else the last part of the address."},
			"mimeType": {"type": "string", "description": "Of file, told from the content."},
			"sizeBytes": {"type": "integer", "minimum": 0, "description": "Bytes of the body, unpacked."},
			"url": {"type": "string", "description": "Where the answer came from after redirects, without the values of its query."},
			"durationMs": {"type": "integer", "minimum": 0}
		},
		"required": ["status", "headers", "contentType", "body", "sizeBytes", "url", "durationMs"],
		"additionalProperties": false
	}`
)

// sendHTTP carries out the action http.
func sendHTTP(ctx context.Context, task *action.Task, out *egress.Client) (action.Result, error) {
	in, err := readHTTPInput(task)
	if err != nil {
		return action.Result{}, err
	}
	if in.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, in.limit, fault.New(fault.StepTimeout,
			"%s %s: no complete answer within %s", in.method, egress.Show(in.url), in.limit))
		defer cancel()
	}
	req, done, err := in.request(ctx, task)
	if err != nil {
		return action.Result{}, err
	}
	defer done()
	send := out.Do
	if !in.follow {
		send = out.RoundTrip
	}
	start := time.Now()
	resp, err := send(req)
	if err != nil {
		return action.Result{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if !in.expects(resp.StatusCode) {
		return action.Result{}, statusFault(resp, time.Now())
	}
	res, err := in.answer(ctx, task, resp, start)
	if err != nil { // the request was carried out, but what came of it is not known, or not kept
		err = egress.Broke(in.method, err)
	}
	return res, err
}

// statusFault returns the fault for a status that the step does not accept; its
// code decides about retries. The body of the response is left out of the
// message, because it may contain anything.
func statusFault(resp *http.Response, now time.Time) error {
	code := fault.HTTPStatus
	switch s := resp.StatusCode; {
	case s == http.StatusTooManyRequests:
		code = fault.RateLimited
	case s == http.StatusServiceUnavailable, s == http.StatusRequestTimeout, s == http.StatusTooEarly:
		code = fault.ServiceUnavailable
	case s >= 500:
		code = fault.ProviderError
	}
	err := fault.New(code, "%s %s answered %d %s", resp.Request.Method, egress.Show(resp.Request.URL), resp.StatusCode, http.StatusText(resp.StatusCode))
	if code != fault.HTTPStatus {
		err.RetryAfterMS = egress.RetryAfter(resp.Header.Get("Retry-After"), now)
	}
	if egress.Gateway(resp.StatusCode) {
		return egress.Broke(resp.Request.Method, err)
	}
	return err
}

// A limitedBody is the body of a response within the step's limit. Reading past
// the limit fails with the error full. An error of the connection becomes a
// fault with the code SERVICE_UNAVAILABLE.
type limitedBody struct {
	ctx  context.Context
	from io.Reader
	left int64
	full error
	say  func(read int)
	url  string
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.full
	}
	if b.say != nil {
		b.say(n)
	}
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case b.ctx.Err() != nil:
		return n, context.Cause(b.ctx)
	}
	return n, fault.New(fault.ServiceUnavailable, "%s: %s", b.url, egress.Reason(err))
}
