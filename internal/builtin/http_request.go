// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/jsonx"
)

// An httpInput is the checked input of a step.
type httpInput struct {
	url         *url.URL
	method      string
	header      http.Header
	body        []byte
	contentType string // content type of body
	bodyFile    string
	saveAs      string
	name        string // of the resulting file; "" = that of saveAs, or of the URL
	maxBytes    int64
	limit       time.Duration // 0 = the step's
	follow      bool
	expect      []string // "200", "2xx"
	// keepHeaders are names of response headers, in lower case.
	keepHeaders []string
}

func readHTTPInput(task *action.Task) (*httpInput, error) {
	var raw struct {
		URL             string                     `json:"url"`
		Method          string                     `json:"method"`
		Headers         map[string]string          `json:"headers"`
		Query           map[string]json.RawMessage `json:"query"`
		Body            json.RawMessage            `json:"body"`
		BodyFile        string                     `json:"bodyFile"`
		SaveAs          string                     `json:"saveAs"`
		Name            string                     `json:"name"`
		MaxBytes        int64                      `json:"maxBytes"`
		Timeout         string                     `json:"timeout"`
		FollowRedirects *bool                      `json:"followRedirects"`
		ExpectStatus    json.RawMessage            `json:"expectStatus"`
		KeepHeaders     []string                   `json:"keepHeaders"`
	}
	if err := decode(task, &raw); err != nil {
		return nil, err
	}
	in := &httpInput{
		method: raw.Method, bodyFile: raw.BodyFile, saveAs: raw.SaveAs, name: cmp.Or(raw.Name, raw.SaveAs), maxBytes: raw.MaxBytes,
		follow: raw.FollowRedirects == nil || *raw.FollowRedirects,
	}
	if in.method == "" {
		in.method = http.MethodGet
	}
	var err error
	if in.url, err = requestURL(raw.URL, raw.Query); err != nil {
		return nil, err
	}
	if in.header, err = requestHeader(raw.Headers); err != nil {
		return nil, err
	}
	for _, name := range raw.KeepHeaders {
		in.keepHeaders = append(in.keepHeaders, strings.ToLower(name))
	}
	if err := in.setBody(raw.Body); err != nil {
		return nil, err
	}
	if raw.Timeout != "" {
		ms, err := recipe.ParseDuration(raw.Timeout)
		if err != nil || ms == 0 {
			return nil, fault.New(fault.InputInvalid, `timeout %q: want a duration such as "30s"`, raw.Timeout)
		}
		in.limit = time.Duration(ms) * time.Millisecond
	}
	if in.expect, err = expected(raw.ExpectStatus); err != nil {
		return nil, err
	}
	most := int64(httpInlineMost)
	if in.saveAs != "" {
		most = httpFileMost
	}
	switch {
	case in.maxBytes > most:
		return nil, fault.New(fault.InputInvalid, "maxBytes %d: want at most %d; with saveAs up to %d", in.maxBytes, most, int64(httpFileMost))
	case in.maxBytes > 0:
	case in.saveAs != "":
		in.maxBytes = httpFile
	default:
		in.maxBytes = httpInline
	}
	return in, nil
}

// requestURL returns the step's URL with its query.
func requestURL(text string, query map[string]json.RawMessage) (*url.URL, error) {
	u, err := egress.ParseURL(text)
	if err != nil {
		return nil, err
	}
	more := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		raw := query[name]
		v, err := jsonx.Decode(raw, jsonx.Limits{})
		if err != nil {
			return nil, fault.Wrap(fault.InputInvalid, err, "query %q: %v", name, err)
		}
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, item := range list {
			switch item := item.(type) {
			case nil:
			case string:
				more.Add(name, item)
			case float64:
				more.Add(name, strconv.FormatFloat(item, 'f', -1, 64))
			case int64, bool:
				more.Add(name, fmt.Sprint(item))
			default:
				return nil, fault.New(fault.InputInvalid, "query %q: want text, a number, true, false or a list of them", name)
			}
		}
	}
	if added := more.Encode(); added != "" {
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += added
	}
	if n := len(u.String()); n > egress.MaxURL {
		return nil, fault.New(fault.InputInvalid, "the URL with its query has %d bytes: want at most %d", n, egress.MaxURL)
	}
	return u, nil
}

// connectionHeaders control how a message is transmitted. A step cannot set
// them, because a second length or host allows request smuggling.
var connectionHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Expect", "Host", "Http2-Settings", "Keep-Alive",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// requestHeader checks names and values, so that no header can end early and
// start another one (A31).
func requestHeader(given map[string]string) (http.Header, error) {
	h := http.Header{"Accept": {"*/*"}, "User-Agent": {"roux"}}
	seen := map[string]bool{}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(given)) {
		key, value := http.CanonicalHeaderKey(name), given[name]
		switch {
		case name == "" || strings.ContainsFunc(name, notToken):
			return nil, fault.New(fault.InputInvalid, "header %q: want a name of letters, digits and - only", name)
		case slices.Contains(connectionHeaders, key) || strings.HasPrefix(key, "Proxy-"):
			return nil, fault.New(fault.InputInvalid, "header %q belongs to the connection and cannot be set", name)
		case seen[key]:
			return nil, fault.New(fault.InputInvalid, "header %q is given twice: names that differ in case are one", name)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return nil, fault.New(fault.InputInvalid, "header %q: its value holds a line break or another control character", name)
		}
		if size += len(name) + len(value); size > 32<<10 {
			return nil, fault.New(fault.InputInvalid, "the headers have more than 32 KiB")
		}
		seen[key] = true
		h.Set(key, strings.Trim(value, " \t"))
	}
	return h, nil
}

func notToken(r rune) bool {
	return r >= 0x7f || r <= ' ' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

func (in *httpInput) setBody(raw json.RawMessage) error {
	if string(raw) == "null" {
		raw = nil
	}
	switch {
	case raw == nil && in.bodyFile == "":
		return nil
	case raw != nil && in.bodyFile != "":
		return fault.New(fault.InputInvalid, "body and bodyFile are both given: want one of them")
	case in.method == http.MethodGet || in.method == http.MethodHead:
		return fault.New(fault.InputInvalid, "a body needs a method such as POST: %s has none", in.method)
	case raw == nil:
		return nil
	case raw[0] != '"':
		in.body, in.contentType = raw, "application/json"
		return nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fault.Wrap(fault.InputInvalid, err, "body: %v", err)
	}
	in.body, in.contentType = []byte(text), "text/plain; charset=utf-8"
	return nil
}

// expected reads expectStatus, whose schema allows only these forms.
func expected(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return []string{"2xx"}, nil
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{})
	if err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "expectStatus: %v", err)
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var expect []string
	for _, item := range list {
		expect = append(expect, fmt.Sprint(item))
	}
	return expect, nil
}

func (in *httpInput) expects(status int) bool {
	text := strconv.Itoa(status)
	return slices.Contains(in.expect, text) || slices.Contains(in.expect, text[:1]+"xx")
}

// request builds the request. done closes the file it sends.
func (in *httpInput) request(ctx context.Context, task *action.Task) (req *http.Request, done func(), err error) {
	done = func() {}
	req, err = http.NewRequestWithContext(ctx, in.method, in.url.String(), nil)
	if err != nil {
		return nil, done, fault.New(fault.InputInvalid, "the request cannot be made: check method and URL")
	}
	req.Header = in.header
	// POST and PATCH have an effect each time they are sent. The effect key is the
	// same for every try whose outcome is unknown, so a service that honours it
	// sees one effect (I4).
	if (in.method == http.MethodPost || in.method == http.MethodPatch) && task.EffectKey != "" && req.Header.Get("Idempotency-Key") == "" {
		req.Header.Set("Idempotency-Key", task.EffectKey)
	}
	if task.TraceParent != "" && req.Header.Get("Traceparent") == "" {
		req.Header.Set("Traceparent", task.TraceParent)
	}
	var open func() io.Reader
	typed := in.contentType
	switch {
	case in.bodyFile != "":
		file, err := task.Files.Open(ctx, in.bodyFile)
		if err != nil {
			return nil, done, err
		}
		done = func() { _ = file.Close() }
		info := file.Info()
		typed, req.ContentLength = info.MimeType, info.Size
		// Every redirect gets a reader of its own, because the previous one may still
		// be in use.
		open = func() io.Reader { return io.NewSectionReader(file, 0, info.Size) }
	case in.contentType != "":
		req.ContentLength = int64(len(in.body))
		open = func() io.Reader { return bytes.NewReader(in.body) }
	default:
		return req, done, nil
	}
	if req.ContentLength > 0 {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(open()), nil }
		req.Body = io.NopCloser(open())
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", typed)
	}
	return req, done, nil
}
