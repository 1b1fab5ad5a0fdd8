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

// answer turns an accepted response into the step's output.
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
	r := &limitedBody{ctx: ctx, from: resp.Body, left: in.maxBytes, full: full, url: from}
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

// storeBody stores a body as a file of the run, without holding it in memory.
func storeBody(ctx context.Context, task *action.Task, out map[string]any, r io.Reader, name, contentType string) error {
	info, err := task.Files.Put(ctx, r, name, contentType)
	if err != nil {
		return err
	}
	out["file"], out["name"], out["mimeType"], out["sizeBytes"] = info.Hash, info.Name, info.MimeType, info.Size
	return nil
}

// bodyValue returns the value of a body: nil when it is empty, the value of
// JSON, else text. ok is false for a body that is neither.
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

// maskedHeader replaces a value that is not kept.
const maskedHeader = "[masked]"

// unmaskedHeaders keep their values. The others are masked, because any header
// may hold a token and outputs are journaled.
var unmaskedHeaders = []string{
	"accept-ranges", "age", "allow", "cache-control", "connection", "content-disposition", "content-encoding", "content-language",
	"content-length", "content-location", "content-md5", "content-range", "content-type", "date", "deprecation", "digest", "etag",
	"expires", "keep-alive", "last-modified", "link", "location", "pragma", "repr-digest", "retry-after", "server", "sunset",
	"traceparent", "trailer", "transfer-encoding", "upgrade", "vary", "via", "warning",
	"x-cache", "x-content-type-options", "x-correlation-id", "x-next-page", "x-page", "x-per-page", "x-powered-by", "x-prev-page",
	"x-request-id", "x-total", "x-total-count", "x-total-pages",
}

// keepsValue reports whether the value of a header, named in lower case, is
// kept.
func keepsValue(key string, keep []string) bool {
	_, found := slices.BinarySearch(unmaskedHeaders, key)
	return found || strings.HasPrefix(key, "ratelimit") || strings.HasPrefix(key, "x-ratelimit-") || slices.Contains(keep, key)
}

// answerHeaders keeps at most 64 headers of 16 KiB in total. It masks those
// that may hold a credential, unless the step asks for them. Cookies are left
// out.
func answerHeaders(h http.Header, keep []string) map[string]any {
	kept, left := map[string]any{}, 16<<10
	for _, name := range slices.Sorted(maps.Keys(h)) {
		key := strings.ToLower(name)
		if key == "set-cookie" || key == "set-cookie2" {
			continue
		}
		value := maskedHeader
		if keepsValue(key, keep) {
			value = strings.ToValidUTF8(strings.Join(h[name], ", "), "\ufffd")
		}
		if left -= len(key) + len(value); left < 0 || len(kept) == 64 {
			break
		}
		kept[key] = value
	}
	return kept
}

// lastSegment returns a file name from the URL of the response.
func lastSegment(resp *http.Response) string {
	if base := path.Base(resp.Request.URL.Path); base != "/" && base != "." {
		return base
	}
	return "body"
}

// progress reports every twentieth of a download. A download of unknown length
// is not reported.
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
