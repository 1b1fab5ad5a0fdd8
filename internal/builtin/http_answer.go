// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/jsonx"
)

// answer turns a response that the step accepts into its output.
func (in *httpInput) answer(ctx context.Context, task *action.Task, resp *http.Response, start time.Time) (action.Result, error) {
	from := egress.Show(resp.Request.URL)
	code, remedy := fault.OutputTooLarge, "raise maxBytes, or give it a name with saveAs to get a file"
	if in.saveAs != "" {
		code, remedy = fault.FileTooLarge, "raise maxBytes"
	}
	full := fault.New(code, "%s: the body has more than %d bytes: %s", from, in.maxBytes, remedy)
	if resp.ContentLength > in.maxBytes && in.method != http.MethodHead {
		return action.Result{}, full
	}
	r := &body{ctx: ctx, from: resp.Body, left: in.maxBytes, full: full, url: from}
	contentType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		contentType = ""
	}
	out := map[string]any{
		"status": int64(resp.StatusCode), "headers": answerHeaders(resp.Header, in.keepHeaders), "contentType": contentType,
		"url": from, "body": nil,
	}
	if in.saveAs != "" {
		r.say = progress(report(task), resp.ContentLength)
		if err := storeBody(ctx, task, out, r, in.name, contentType); err != nil {
			return action.Result{}, err
		}
	} else {
		data, err := io.ReadAll(r)
		if err != nil {
			return action.Result{}, err
		}
		out["sizeBytes"] = int64(len(data))
		if v, ok := bodyValue(data, contentType); ok {
			out["body"] = v
		} else if err := storeBody(ctx, task, out, bytes.NewReader(data), cmp.Or(in.name, lastSegment(resp)), contentType); err != nil {
			return action.Result{}, err
		}
	}
	out["durationMs"] = time.Since(start).Milliseconds()
	return action.Result{Output: out}, nil
}

// storeBody makes a body a file of the run, without holding it in memory.
func storeBody(ctx context.Context, task *action.Task, out map[string]any, r io.Reader, name, contentType string) error {
	info, err := task.Files.Put(ctx, r, name, contentType)
	if err != nil {
		return err
	}
	out["file"], out["name"], out["mimeType"], out["sizeBytes"] = info.Hash, info.Name, info.MimeType, info.Size
	return nil
}

// bodyValue is what a body becomes in an output: nil when it is empty, the value
// of JSON, else text. A body that is neither has no value (ok is false).
func bodyValue(data []byte, contentType string) (v any, ok bool) {
	if len(data) == 0 {
		return nil, true
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if contentType == "application/json" || contentType == "text/json" || strings.HasSuffix(contentType, "+json") {
		if v, err := jsonx.Decode(data, jsonx.Limits{Bytes: len(data) + 1}); err == nil {
			return v, true
		}
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, false
	}
	return string(data), true
}

// maskedHeader stands for a value that is not kept.
const maskedHeader = "[masked]"

// harmlessHeaders are kept with their values. What a server calls its tokens
// nobody can list, so the others are masked: an output is journaled.
var harmlessHeaders = []string{
	"accept-ranges", "age", "allow", "cache-control", "connection", "content-disposition", "content-encoding", "content-language",
	"content-length", "content-location", "content-md5", "content-range", "content-type", "date", "deprecation", "digest", "etag",
	"expires", "keep-alive", "last-modified", "link", "location", "pragma", "repr-digest", "retry-after", "server", "sunset",
	"traceparent", "trailer", "transfer-encoding", "upgrade", "vary", "via", "warning",
	"x-cache", "x-content-type-options", "x-correlation-id", "x-next-page", "x-page", "x-per-page", "x-powered-by", "x-prev-page",
	"x-request-id", "x-total", "x-total-count", "x-total-pages",
}

// harmless says that the value of a header, named in small letters, is kept.
func harmless(key string, keep []string) bool {
	_, found := slices.BinarySearch(harmlessHeaders, key)
	return found || strings.HasPrefix(key, "ratelimit") || strings.HasPrefix(key, "x-ratelimit-") || slices.Contains(keep, key)
}

// answerHeaders keeps at most 64 headers of 16 KiB together, and masks those that
// may hold a credential, unless the step says that it needs them. Cookies stay out.
func answerHeaders(h http.Header, keep []string) map[string]any {
	kept, left := map[string]any{}, 16<<10
	for _, name := range slices.Sorted(maps.Keys(h)) {
		key := strings.ToLower(name)
		if key == "set-cookie" || key == "set-cookie2" {
			continue
		}
		value := maskedHeader
		if harmless(key, keep) {
			value = strings.ToValidUTF8(strings.Join(h[name], ", "), "\ufffd")
		}
		if left -= len(key) + len(value); left < 0 || len(kept) == 64 {
			break
		}
		kept[key] = value
	}
	return kept
}

// lastSegment names a file after the URL it came from.
func lastSegment(resp *http.Response) string {
	if base := path.Base(resp.Request.URL.Path); base != "/" && base != "." {
		return base
	}
	return "body"
}

// progress reports a download at every twentieth of it; one of unknown length
// says nothing.
func progress(to action.Reporter, total int64) func(int) {
	if total <= 0 {
		return nil
	}
	read, next := int64(0), total/20
	return func(n int) {
		if read += int64(n); n > 0 && (read >= next || read == total) {
			next = read + total/20
			to.Progress(float64(read)/float64(total), "receiving the body")
		}
	}
}
