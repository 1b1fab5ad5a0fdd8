// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// maxRefusal bounds an error of the server.
const maxRefusal = 1 << 20

// The bounds of what the server may take and send. Tests shorten them.
var (
	// answerTime bounds the time until an answer begins, and the time to send it.
	// The server answers from memory or after one commit. One that takes longer is
	// stopped or hangs, and its client must not hang with it.
	answerTime = 15 * time.Second
	// maxAnswer bounds an answer other than a file. The largest are snapshots and
	// plans.
	maxAnswer int64 = 256 << 20
)

// A Remote reads and changes the runs, files and credits of the process that holds a
// data directory. What it changes belongs to one account.
type Remote struct {
	client  *http.Client
	holder  *local.Holder
	account string
}

// Dial connects to the process that holds dir, on behalf of an account. It returns nil
// when no process listens, or when that process may belong to another user.
func Dial(ctx context.Context, dir, account string) *Remote {
	h := local.Find(ctx, dir)
	if h == nil {
		return nil
	}
	return &Remote{&http.Client{Transport: h.Transport(answerTime)}, h, account}
}

func call[T any](ctx context.Context, r *Remote, op string, in request) (out T, err error) {
	return callWithin[T](ctx, r, answerTime, op, in)
}

// callWithin sends a request whose answer must begin within d and end answerTime
// later.
func callWithin[T any](ctx context.Context, r *Remote, d time.Duration, op string, in request) (out T, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d+answerTime, errStill)
	defer cancel()
	res, err := r.post(ctx, r.patient(d), op, in)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	return out, r.result(res, &out)
}

// result decodes an answer.
func (r *Remote) result(res *http.Response, out any) error {
	if err := r.refusal(res); err != nil {
		return err
	}
	body := &io.LimitedReader{R: res.Body, N: maxAnswer + 1}
	err := json.NewDecoder(body).Decode(out)
	if body.N <= 0 {
		err = fmt.Errorf("its answer is larger than %s", view.Bytes(maxAnswer))
	}
	if err != nil {
		return r.unreachable(err)
	}
	// A connection is used again only after its answer was read to the end.
	if _, err := io.Copy(io.Discard, body); err != nil {
		return r.unreachable(err)
	}
	return nil
}

// patient returns a client for requests that are answered within d.
func (r *Remote) patient(d time.Duration) *http.Client {
	t, ok := r.client.Transport.(*http.Transport)
	if !ok || d == t.ResponseHeaderTimeout {
		return r.client
	}
	t = t.Clone()
	t.ResponseHeaderTimeout = d
	// The client serves one request and keeps no connection.
	t.DisableKeepAlives = true
	return &http.Client{Transport: t}
}

func (r *Remote) post(ctx context.Context, client *http.Client, op string, in request) (*http.Response, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://roux/"+op, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, r.unreachable(err)
	}
	return res, nil
}

// refusal returns the error in an answer, or nil when it is a result.
func (r *Remote) refusal(res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	var e wireError
	err := json.NewDecoder(io.LimitReader(res.Body, maxRefusal)).Decode(&e)
	if _, known := fault.Lookup(e.Code); err != nil || !known {
		return r.unreachable(fmt.Errorf("it answered %s", res.Status))
	}
	text := func(s string) string { return strings.ReplaceAll(s, "\x00", "") }
	return &fault.Error{Code: e.Code, Msg: text(e.Message), Remedy: text(e.Remedy), Limit: e.Limit}
}

func (r *Remote) unreachable(err error) error { return r.holder.Unreachable(err) }

// Head implements store.Reader.
func (r *Remote) Head(ctx context.Context, key store.Key) (store.Head, error) {
	return call[store.Head](ctx, r, "head", request{Key: key})
}

// List implements store.Reader.
func (r *Remote) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	return call[[]store.Head](ctx, r, "list", request{Query: q})
}

// Events implements store.Reader.
func (r *Remote) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	return call[store.Page](ctx, r, "events", request{Key: key, After: after, Max: maxBytes})
}

// Load implements store.Reader.
func (r *Remote) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	return call[*store.Saved](ctx, r, "load", request{Key: key})
}

// Plan implements store.Reader.
func (r *Remote) Plan(ctx context.Context, hash string) ([]byte, error) {
	return call[[]byte](ctx, r, "plan", request{Hash: hash})
}

// key names a run of the account.
func (r *Remote) key(run string) store.Key { return store.Key{Account: r.account, Run: run} }

// Changes implements store.Feed. One answer has no more than maxChanges.
func (r *Remote) Changes(ctx context.Context, account string, after uint64, limit int) ([]store.Change, error) {
	if limit <= 0 {
		return nil, nil
	}
	return call[[]store.Change](ctx, r, "changes", request{Key: store.Key{Account: account}, After: after, Max: limit})
}

// Newest implements store.Feed.
func (r *Remote) Newest(ctx context.Context, account string) (last, expired uint64, err error) {
	n, err := call[newest](ctx, r, "newest", request{Key: store.Key{Account: account}})
	return n.Last, n.Expired, err
}
