// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/store"
)

// maxRefusal is the largest error of the other end.
const maxRefusal = 1 << 20

// What the holder of a directory is given. Tests shorten them.
var (
	// answerTime is how long it may take to answer, and to send the answer. It
	// answers from memory or after one commit: one that takes longer is stopped
	// or hangs, and whoever asks it must not hang too.
	answerTime = 15 * time.Second
	// maxAnswer is the largest answer but for a file: a snapshot, or a plan.
	maxAnswer int64 = 256 << 20
)

// remote is a store.Reader and a runControl at the other end of a socket.
type remote struct {
	client *http.Client
	dir    string
}

// dial reaches the process that holds dir; nil when none listens, or when it
// cannot be told that it is this user's.
func dial(ctx context.Context, dir string) *remote {
	path, err := socketOf(dir)
	if err != nil {
		return nil
	}
	conn := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return nil, err
		}
		// The socket may have been another one when it was looked at.
		if uid, ok := peerOf(c); ok && uid != os.Geteuid() {
			return nil, errors.Join(errors.New("it is another user's"), c.Close())
		}
		return c, nil
	}
	probe, err := conn(ctx, "", "")
	if err != nil {
		return nil
	}
	_ = probe.Close()
	return &remote{&http.Client{Transport: &http.Transport{
		DialContext: conn, DisableCompression: true, ResponseHeaderTimeout: answerTime,
	}}, dir}
}

func call[T any](ctx context.Context, r *remote, op string, in ask) (out T, err error) {
	return callWithin[T](ctx, r, answerTime, op, in)
}

// callWithin asks for an answer that begins within d and then comes without
// delay: it is made of bytes that are there already.
func callWithin[T any](ctx context.Context, r *remote, d time.Duration, op string, in ask) (out T, err error) {
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
func (r *remote) result(res *http.Response, out any) error {
	if err := r.refusal(res); err != nil {
		return err
	}
	body := &io.LimitedReader{R: res.Body, N: maxAnswer + 1}
	err := json.NewDecoder(body).Decode(out)
	if body.N <= 0 {
		err = fmt.Errorf("its answer is larger than %s", config.Size(maxAnswer).Text())
	}
	if err != nil {
		return r.unreachable(err)
	}
	// A connection whose answer was read to its end serves the next question.
	if _, err := io.Copy(io.Discard, body); err != nil {
		return r.unreachable(err)
	}
	return nil
}

// patient is the client for calls that are answered within d.
func (r *remote) patient(d time.Duration) *http.Client {
	t, ok := r.client.Transport.(*http.Transport)
	if !ok || d == t.ResponseHeaderTimeout {
		return r.client
	}
	t = t.Clone()
	t.ResponseHeaderTimeout = d
	// A client of one call keeps no connection behind.
	t.DisableKeepAlives = true
	return &http.Client{Transport: t}
}

func (r *remote) post(ctx context.Context, client *http.Client, op string, in ask) (*http.Response, error) {
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

// refusal is the error that an answer carries; nil when it carries a result.
func (r *remote) refusal(res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	var e errorObject
	err := json.NewDecoder(io.LimitReader(res.Body, maxRefusal)).Decode(&e)
	if _, known := fault.Lookup(e.Code); err != nil || !known {
		return r.unreachable(fmt.Errorf("it answered %s", res.Status))
	}
	return fault.New(e.Code, "%s", strings.ReplaceAll(e.Message, "\x00", ""))
}

func (r *remote) unreachable(err error) error {
	holder := "the process that holds it"
	if pid := holderOf(r.dir); pid != 0 {
		holder = fmt.Sprint("process ", pid)
	}
	return fault.Wrap(fault.ServerUnreachable, err, "the data directory %s: %s does not answer: %v", r.dir, holder, err)
}

// holderOf is the process that says it holds a directory; 0 when none does.
func holderOf(dir string) int {
	f, err := datadir.Open(filepath.Join(dir, datadir.Lock), os.O_RDONLY)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return max(pid, 0)
}

func (r *remote) Head(ctx context.Context, key store.Key) (store.Head, error) {
	return call[store.Head](ctx, r, "head", ask{Key: key})
}

func (r *remote) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	return call[[]store.Head](ctx, r, "list", ask{Query: q})
}

func (r *remote) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	return call[store.Page](ctx, r, "events", ask{Key: key, After: after, Max: maxBytes})
}

func (r *remote) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	return call[*store.Saved](ctx, r, "load", ask{Key: key})
}

func (r *remote) Plan(ctx context.Context, hash string) ([]byte, error) {
	return call[[]byte](ctx, r, "plan", ask{Hash: hash})
}

func (r *remote) Cancel(ctx context.Context, run, reason string) error {
	_, err := call[any](ctx, r, "cancel", ask{Key: store.Key{Account: account, Run: run}, Reason: reason})
	return err
}

func (r *remote) Retry(ctx context.Context, run string, req engine.RetryRequest) error {
	fields, err := json.Marshal(req.Edits)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	_, err = call[any](ctx, r, "retry", ask{Key: store.Key{Account: account, Run: run}, From: req.From, Set: fields, Limits: req.Limits})
	return err
}

func (r *remote) Signal(ctx context.Context, run, name string, data json.RawMessage) error {
	_, err := call[any](ctx, r, "signal", ask{Key: store.Key{Account: account, Run: run}, Name: name, Data: data})
	return err
}

func (r *remote) Release(ctx context.Context, run string) error {
	_, err := call[any](ctx, r, "release", ask{Key: store.Key{Account: account, Run: run}})
	return err
}
