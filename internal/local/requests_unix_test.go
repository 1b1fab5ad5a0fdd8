// SPDX-License-Identifier: Apache-2.0

//go:build unix

package local

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// shortened sets a variable until the test ends.
func shortened[T any](t *testing.T, bound *T, to T) {
	t.Helper()
	old := *bound
	*bound = to
	t.Cleanup(func() { *bound = old })
}

// speaking serves fn at the socket of a new directory and returns a client that is connected to
// it. Without fn, connections are taken and never served, as by a process that was stopped.
func speaking(t *testing.T, fn http.HandlerFunc) *http.Client {
	t.Helper()
	dir := shortDir(t)
	ln, err := net.Listen("unix", filepath.Join(dir, datadir.Socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	if fn != nil {
		server := &http.Server{Handler: fn, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(ln) }()
		t.Cleanup(func() { _ = server.Close() })
	}
	h := Find(t.Context(), dir)
	if h == nil {
		t.Fatal("nobody listens")
	}
	return &http.Client{Transport: h.Requests(func(*http.Request) bool { return false })}
}

// send sends a request and reads the whole answer.
func send(ctx context.Context, c *http.Client, body io.Reader) (string, error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://roux/x", body)
	if err != nil {
		return "", err
	}
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

// trickle sends a space every 5 ms until the client goes.
func trickle(w http.ResponseWriter, r *http.Request) {
	for {
		if _, err := io.WriteString(w, " "); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// The process that holds the directory may be broken, stopped, or another program, so the time
// for its answers is bounded. The bounds are short here, because no answer completes.
func TestAnswersEndInTime(t *testing.T) {
	shortened(t, &answerTime, 100*time.Millisecond)
	shortened(t, &streamTime, 100*time.Millisecond)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for _, tt := range []struct {
		name string
		fn   http.HandlerFunc
		body io.Reader
	}{
		{"it takes the connection and is silent", nil, nil},
		{"it never answers", func(http.ResponseWriter, *http.Request) { <-release }, nil},
		{"its answer trickles", trickle, nil},
		{"its refusal trickles", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusConflict)
			trickle(w, r)
		}, nil},
		{"it takes no upload", func(http.ResponseWriter, *http.Request) { <-release }, io.LimitReader(zeros{}, 1<<30)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := send(ctx, speaking(t, tt.fn), tt.body)
			if !errors.Is(err, fault.ServerUnreachable) || ctx.Err() != nil {
				t.Errorf("%v, want SERVER_UNREACHABLE in time", err)
			}
			if errors.Is(err, ErrMayHaveArrived) != (tt.body != nil) {
				t.Errorf("%v: only a request that changes something may have changed something", err)
			}
		})
	}
}

// pausing stands for a user who is slow.
type pausing struct {
	r io.Reader
	d time.Duration
}

func (p *pausing) Read(b []byte) (int, error) {
	<-time.After(p.d)
	return p.r.Read(b)
}

// Only the time of the process counts: a user may pipe a file in or read it out at any pace.
func TestSlowUsersAreWaitedFor(t *testing.T) {
	shortened(t, &streamTime, 20*time.Millisecond)
	c := speaking(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://roux/x", &pausing{iotest.OneByteReader(strings.NewReader("abc")), 5 * streamTime})
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(&pausing{iotest.OneByteReader(res.Body), 5 * streamTime}); err != nil || string(text) != "abc" {
		t.Errorf("%q, %v", text, err)
	}
}

// Lines of progress keep an answer alive for as long as they come, and a stream of events may be
// silent.
func TestAnswersThatTakeLong(t *testing.T) {
	shortened(t, &streamTime, 400*time.Millisecond)
	for _, tt := range []struct {
		kind  string
		pause time.Duration
		parts int
	}{{"application/x-ndjson", streamTime / 4, 8}, {"text/event-stream", 2 * streamTime, 2}} {
		c := speaking(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tt.kind)
			for range tt.parts {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				<-time.After(tt.pause)
			}
		})
		if text, err := send(t.Context(), c, nil); err != nil || text != strings.Repeat("x", tt.parts) {
			t.Errorf("%s: %q, %v", tt.kind, text, err)
		}
	}
}

// The error of a body that cannot be read is that of its source.
func TestTheSourceFails(t *testing.T) {
	broken := errors.New("the disk under the source is bad")
	c := speaking(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	_, err := send(t.Context(), c, io.MultiReader(strings.NewReader("begin"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || errors.Is(err, fault.ServerUnreachable) {
		t.Errorf("%v", err)
	}
}
