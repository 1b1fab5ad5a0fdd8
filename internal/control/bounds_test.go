// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/store"
)

// shortened sets a variable until the test ends.
func shortened[T any](t *testing.T, bound *T, to T) {
	t.Helper()
	old := *bound
	*bound = to
	t.Cleanup(func() { *bound = old })
}

// speaking serves fn at the socket of a new directory and returns a client that is
// connected to it.
func speaking(t *testing.T, fn http.HandlerFunc) *Remote {
	t.Helper()
	dir, err := os.MkdirTemp("", "rx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, datadir.Socket))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: fn}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	r := Dial(t.Context(), dir, config.Account)
	if r == nil {
		t.Fatal("nobody listens")
	}
	return r
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

// endsWith runs fn, which must not go on for ever.
func endsWith(t *testing.T, what string, want fault.Code, fn func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		if fault.CodeOf(err) != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("%s: it goes on for ever", what)
	}
}

// The process that holds the directory may be broken or another program, so the time
// for its answers is bounded. The bounds are short here, because no answer in this test
// completes.
func TestAnswersEndInTime(t *testing.T) {
	shortened(t, &answerTime, 100*time.Millisecond)
	shortened(t, &streamTime, 100*time.Millisecond)
	drain := func(r *Remote) func() error {
		return func() error {
			f, err := r.ReadFile(t.Context(), "x", 0, -1)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(io.Discard, f)
			return err
		}
	}
	slow := speaking(t, trickle)
	endsWith(t, "an answer that trickles", fault.ServerUnreachable, listFrom(t, slow))
	endsWith(t, "a file that trickles", fault.ServerUnreachable, drain(slow))

	refusing := speaking(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusConflict)
		trickle(w, r)
	})
	endsWith(t, "a refusal that trickles", fault.ServerUnreachable, listFrom(t, refusing))
	endsWith(t, "a refusal of a file that trickles", fault.ServerUnreachable, drain(refusing))

	// An upload that nobody takes.
	release := make(chan struct{})
	still := speaking(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	endsWith(t, "an upload that nobody takes", fault.ServerUnreachable, func() error {
		_, err := still.PutFile(t.Context(), io.LimitReader(zeros{}, 1<<30), "x")
		return err
	})
}

// The size of answers is bounded too, and an unknown error code in an answer is
// refused.
func TestAnswersHaveAnEnd(t *testing.T) {
	shortened(t, &maxAnswer, 1<<20)
	large := speaking(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `[{"Recipe":"`+strings.Repeat("a", 2<<20)+`"}]`)
	})
	if err := listFrom(t, large)(); fault.CodeOf(err) != fault.ServerUnreachable || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large answer: %v", err)
	}
	odd := speaking(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"code":"\u001b[31mMADE_UP","message":"x"}`)
	})
	endsWith(t, "a code that does not exist", fault.ServerUnreachable, listFrom(t, odd))
}

// listFrom returns a function that lists the runs of r.
func listFrom(t *testing.T, r *Remote) func() error {
	return func() error { _, err := r.List(t.Context(), store.Query{}); return err }
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// The timeout of a stream counts only the time of the server: a user may pipe a file in
// or read it out at any pace.
func TestSlowUsersAreWaitedFor(t *testing.T) {
	_, r := hosted(t)
	shortened(t, &streamTime, 20*time.Millisecond)
	slow := func(text string) io.Reader {
		return &pausing{iotest.OneByteReader(strings.NewReader(text)), 5 * streamTime}
	}
	info, err := r.PutFile(t.Context(), slow("abc"), "x")
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.ReadFile(t.Context(), info.Hash, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := io.ReadAll(&pausing{iotest.OneByteReader(f), 5 * streamTime}); err != nil || string(text) != "abc" {
		t.Errorf("%q, %v", text, err)
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

// The server closes the connection of a client that does not send what it announced, or
// does not read the file that it asked for.
func TestCallersHaveAnEnd(t *testing.T) {
	shortened(t, &callTime, 50*time.Millisecond)
	shortened(t, &idleTime, 50*time.Millisecond)
	h, _ := hosted(t)
	path, err := local.Socket(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := h.PutFile(t.Context(), io.LimitReader(zeros{}, 32<<20), "large")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"no head":      "POST /list HTTP/1.1\r\n",
		"no body":      "POST /list HTTP/1.1\r\nHost: roux\r\nContent-Length: 100\r\n\r\n{",
		"half a body":  "POST /list HTTP/1.1\r\nHost: roux\r\nContent-Length: 100\r\n\r\n{}",
		"no file":      "POST /file-put?name=x HTTP/1.1\r\nHost: roux\r\nContent-Length: 100\r\n\r\nabc",
		"no file body": "POST /file-get HTTP/1.1\r\nHost: roux\r\nContent-Length: 100\r\n\r\n{",
	} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if got, err := io.ReadAll(c); err != nil {
			t.Errorf("%s: it is waited for: %q, %v", name, got, err)
		}
		_ = c.Close()
	}
	// A client that asks for a file and does not read it gets only a part.
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"file":{"hash":"` + info.Hash + `","n":-1}}`
	_, _ = io.WriteString(c, "POST /file-get HTTP/1.1\r\nHost: roux\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
	in := bufio.NewReader(c)
	if _, err := in.Peek(1); err != nil {
		t.Fatal(err)
	}
	<-time.After(20 * idleTime)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err == nil || n >= 32<<20 {
		t.Errorf("a caller that stood still got %d bytes, %v", n, err)
	}
	if left, err := filepath.Glob(filepath.Join(h.dir, datadir.Files, "tmp", "*")); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// A slow answer is not cut off: the timeout for a request ends once the request has
// been read.
func TestSlowAnswersAreNotCutOff(t *testing.T) {
	shortened(t, &callTime, 30*time.Millisecond)
	h, _ := hosted(t)
	dir := secondDir(t)
	stop, err := Serve(dir, &recording{Reader: h, delay: 10 * callTime}, h.For, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := Dial(t.Context(), dir, config.Account).List(t.Context(), store.Query{}); err != nil {
		t.Errorf("List = %v", err)
	}
}

func secondDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// recording is a Reader that records the accounts and limits of its requests, and
// delays its answers.
type recording struct {
	Reader
	delay    time.Duration
	accounts []string
	limits   []int
}

func (r *recording) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	select {
	case <-time.After(r.delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.accounts, r.limits = append(r.accounts, q.Account), append(r.limits, q.Limit)
	return r.Reader.List(ctx, q)
}

func (r *recording) Events(ctx context.Context, key store.Key, after uint64, most int) (store.Page, error) {
	r.accounts, r.limits = append(r.accounts, key.Account), append(r.limits, most)
	return r.Reader.Events(ctx, key, after, most)
}

func (r *recording) Head(ctx context.Context, key store.Key) (store.Head, error) {
	r.accounts = append(r.accounts, key.Account)
	return r.Reader.Head(ctx, key)
}

func (r *recording) Changes(ctx context.Context, account string, after uint64, limit int) ([]store.Change, error) {
	r.accounts = append(r.accounts, account)
	r.limits = append(r.limits, limit)
	return r.Reader.Changes(ctx, account, after, limit)
}

func (r *recording) Newest(ctx context.Context, account string) (last, expired uint64, err error) {
	r.accounts = append(r.accounts, account)
	return r.Reader.Newest(ctx, account)
}

func (r *recording) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	r.accounts = append(r.accounts, key.Account)
	return r.Reader.Load(ctx, key)
}

// listing is a Service that records the limits of its requests.
type listing struct {
	Service
	limits []int
}

func (l *listing) ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error) {
	l.limits = append(l.limits, q.Limit)
	return l.Service.ListFiles(ctx, q)
}

// The server decides how much an answer may hold, and reads the runs of the account
// that the client names.
func TestAskedForTooMuch(t *testing.T) {
	h, _ := hosted(t)
	dir := secondDir(t)
	j, s := &recording{Reader: h}, &listing{Service: h}
	stop, err := Serve(dir, j, func(string) Service { return s }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	r := Dial(t.Context(), dir, config.Account)
	key := store.Key{Account: "somebody", Run: "run_1"}
	for _, n := range []int{-1 << 40, -1, 0, 1, 1 << 40} {
		in := request{Key: key, Query: store.Query{Account: "somebody", Limit: n}, Max: n, File: fileRequest{Query: blob.Query{Limit: n}}}
		for _, op := range []string{"head", "list", "events", "load", "changes", "newest", "file-list"} {
			_, err := call[any](t.Context(), r, op, in)
			if err != nil && fault.CodeOf(err) != fault.RunNotFound {
				t.Errorf("%s: %v", op, err)
			}
		}
	}
	if len(j.accounts) != 30 || slices.ContainsFunc(j.accounts, func(a string) bool { return a != "somebody" }) {
		t.Errorf("asked for the accounts %q", j.accounts)
	}
	if want := []int{50, 1, 1, 50, 1, 1, 50, 1, 1, 1, 1, 1, 500, store.PageBytes, maxChanges}; !slices.Equal(j.limits, want) {
		t.Errorf("asked for %v, want %v", j.limits, want)
	}
	if want := []int{0, 0, 0, 1, maxListed}; !slices.Equal(s.limits, want) {
		t.Errorf("asked for files %v, want %v", s.limits, want)
	}
}

// A stopped process accepts connections and does not answer. A request to it times out.
func TestHolderIsSilent(t *testing.T) {
	defer func(d time.Duration) { answerTime = d }(answerTime)
	answerTime = 50 * time.Millisecond
	r := Dial(t.Context(), silentDir(t), config.Account)
	if r == nil {
		t.Fatal("it did not take the connection")
	}
	done := make(chan error, 1)
	go func() {
		_, err := r.List(t.Context(), store.Query{})
		done <- err
	}()
	select {
	case err := <-done:
		if fault.CodeOf(err) != fault.ServerUnreachable {
			t.Errorf("List = %v, want SERVER_UNREACHABLE", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for ever")
	}
}

// A client distinguishes a stream that was cut off from one that is complete.
func TestStreamThatBreaksOff(t *testing.T) {
	dir, err := os.MkdirTemp("", "cut")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, datadir.Socket))
	if err != nil {
		t.Fatal(err)
	}
	whole := false
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if whole {
			w.Header().Set("Trailer", trailerDone)
		}
		_, _ = io.WriteString(w, "half of it")
		if whole {
			w.Header().Set(trailerDone, "yes")
		}
	})}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	for _, whole = range []bool{false, true} {
		f, err := Dial(t.Context(), dir, config.Account).ReadFile(t.Context(), "x", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		_ = f.Close()
		if string(data) != "half of it" || (err == nil) != whole || !whole && !errors.Is(err, fault.ServerUnreachable) {
			t.Errorf("whole %v: %q, %v", whole, data, err)
		}
	}
}

// silentDir is a directory whose holder never answers.
func silentDir(t *testing.T) string {
	t.Helper()
	dir := secondDir(t)
	ln, err := net.Listen("unix", filepath.Join(dir, datadir.Socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return dir
}

// A holder is a node that serves its data directory.
type holder struct {
	*Local
	dir string
}

// hosted returns a node that holds a new directory, and a client of it.
func hosted(t *testing.T) (*holder, *Remote) {
	t.Helper()
	dir := secondDir(t)
	st, err := node.OpenStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(t.Context(), st, node.Config{Dir: dir, Actions: node.NewActions(nil).Catalogue})
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{&Local{Reader: st, Node: n, AccountName: config.Account, Dir: dir}, dir}
	stop, err := Serve(dir, st, h.For, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = n.Stop(context.Background())
	})
	r := Dial(t.Context(), dir, config.Account)
	if r == nil {
		t.Fatal("nobody listens")
	}
	return h, r
}
