// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
)

// A relay is the only server that git can reach: it listens on loopback, takes the requests of
// a fetch, and sends them to the repository through package egress. So the address is checked
// when it is connected to, the connection has TLS, and what comes is bounded. Git itself sees
// no other host.
type relay struct {
	http   *egress.Client
	source *Source
	ctx    context.Context
	secret string // in the path, so that no other program of this machine uses the relay
	addr   string
	server *http.Server
	ended  sync.WaitGroup

	mu   sync.Mutex
	left int64 // bytes that may still come
	err  error // the first failure
}

func newRelay(ctx context.Context, client *egress.Client, s *Source) (*relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fault.Wrap(fault.NotAvailable, err, "git needs a port on loopback: %v", err)
	}
	r := &relay{http: client, source: s, ctx: ctx, secret: rand.Text(), addr: ln.Addr().String(), left: MaxBytes}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	r.ended.Go(func() { _ = r.server.Serve(ln) })
	return r, nil
}

func (r *relay) close() {
	_ = r.server.Close()
	r.ended.Wait()
}

func (r *relay) url() string { return "http://" + r.addr + "/" + r.secret }

// hide puts the source in place of the address of the relay, which nobody knows.
func (r *relay) hide(err error) error {
	var e *fault.Error
	if errors.As(err, &e) {
		e.Msg = strings.ReplaceAll(e.Msg, r.url(), r.source.Show())
	}
	return err
}

func (r *relay) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *relay) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// The headers that are passed on, either way.
var relayed = []string{"Accept", "Content-Type", "Content-Encoding", "Git-Protocol"}

// ServeHTTP passes on the two requests that a fetch consists of.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	rest, ok := strings.CutPrefix(req.URL.Path, "/"+r.secret+"/")
	const service = "git-upload-pack"
	asks := req.Method == http.MethodGet && rest == "info/refs" && req.URL.RawQuery == "service="+service
	fetches := req.Method == http.MethodPost && rest == service && req.URL.RawQuery == ""
	if !ok || !asks && !fetches {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	to := strings.TrimSuffix(r.source.Where, "/") + "/" + rest
	var body io.Reader
	if asks {
		to += "?service=" + service
	} else {
		// It has a length then, which some servers want.
		wants, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
		if err != nil {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			return
		}
		body = bytes.NewReader(wants)
	}
	out, err := http.NewRequestWithContext(r.ctx, req.Method, to, body)
	if err != nil {
		r.fail(err)
		http.Error(w, "bad request", http.StatusBadGateway)
		return
	}
	for _, name := range relayed {
		if v := req.Header.Get(name); v != "" {
			out.Header.Set(name, v)
		}
	}
	out.Header.Set("User-Agent", "git/2 (roux)") // servers tell git by it
	resp, err := r.http.RoundTrip(out)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		err = r.refusal(resp.StatusCode)
	}
	if err != nil {
		r.fail(err)
		http.Error(w, "refused", http.StatusBadGateway)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	for _, name := range relayed {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	if _, err := io.Copy(w, r.counted(resp.Body)); err != nil {
		if r.reason() == nil && r.ctx.Err() == nil {
			r.fail(fault.Wrap(fault.ServiceUnavailable, err, "%s could not be read to its end", r.source.Show()))
		}
		panic(http.ErrAbortHandler) // git must not take a part for the whole
	}
}

func (r *relay) refusal(status int) error {
	switch {
	case status >= 300 && status < 400:
		return fault.New(fault.HTTPStatus, "%s has moved: it answers with %d; name its new address", r.source.Show(), status)
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound:
		return fault.New(fault.RecipeNotFound, "%s does not exist, or is not public: it answers with %d", r.source.Show(), status)
	}
	return fault.New(fault.HTTPStatus, "%s answered with %d", r.source.Show(), status)
}

// counted bounds the bytes of all answers together.
func (r *relay) counted(body io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := body.Read(p)
		r.mu.Lock()
		r.left -= int64(n)
		over := r.left < 0
		r.mu.Unlock()
		if over {
			err := tooLarge(r.source.Show())
			r.fail(err)
			return 0, err
		}
		return n, err
	})
}
