// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/action/actiontest"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
)

// The meaning of a status: for success by expectStatus, for retries by its
// code.
func TestF26_Statuses(t *testing.T) {
	const secret = "the answer's own words"
	o := server(t, func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Retry-After", r.FormValue("after"))
		w.WriteHeader(status)
		if status != 204 && status != 304 {
			_, _ = w.Write([]byte(secret))
		}
	})
	for _, tt := range []struct {
		status int
		expect any
		code   fault.Code // "" = it succeeds
	}{
		{200, nil, ""}, {204, nil, ""}, {299, nil, ""},
		{304, nil, fault.HTTPStatus}, {400, nil, fault.HTTPStatus}, {401, nil, fault.HTTPStatus}, {404, nil, fault.HTTPStatus}, {409, nil, fault.HTTPStatus},
		{408, nil, fault.ServiceUnavailable}, {425, nil, fault.ServiceUnavailable}, {429, nil, fault.RateLimited},
		{500, nil, fault.ProviderError}, {502, nil, fault.ProviderError}, {503, nil, fault.ServiceUnavailable}, {504, nil, fault.ProviderError}, {599, nil, fault.ProviderError},
		{404, int64(404), ""}, {200, int64(404), fault.HTTPStatus}, {404, "4xx", ""}, {503, []any{"2xx", int64(503)}, ""}, {201, []any{int64(200), "3xx"}, fault.HTTPStatus},
	} {
		in := map[string]any{}
		if tt.expect != nil {
			in["expectStatus"] = tt.expect
		}
		out, err := o.call(t, "/"+strconv.Itoa(tt.status)+"?after=7&key=secret", in)
		if tt.code == "" {
			if err != nil || out["status"] != int64(tt.status) {
				t.Errorf("%d, expecting %v: %v", tt.status, tt.expect, err)
			}
			continue
		}
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != tt.code {
			t.Errorf("%d, expecting %v: %v, want %s", tt.status, tt.expect, err, tt.code)
			continue
		}
		want := fmt.Sprintf("GET %s/%d?after=…&key=… answered %d %s", o.URL, tt.status, tt.status, http.StatusText(tt.status))
		if f.Msg != want || f.Err != nil {
			t.Errorf("%q, %v\nwant %q", f.Msg, f.Err, want)
		}
		if row, _ := fault.Lookup(tt.code); row.Retryable != (f.RetryAfterMS == 7000) {
			t.Errorf("%d: Retry-After is %d ms", tt.status, f.RetryAfterMS)
		}
	}
}

// F26: Retry-After in both forms, and invalid ones.
func TestF26_RetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	const hour = 3_600_000
	for value, want := range map[string]int64{
		"":                                  0,
		"0":                                 0,
		"1":                                 1000,
		"120":                               120_000,
		"3600":                              hour,
		"3601":                              hour,
		"99999999999999999999999999999":     hour,
		"-5":                                0,
		"1.5":                               0,
		"soon":                              0,
		"Wed, 02 Jan 2030 03:04:35 GMT":     30_000,
		"Wednesday, 02-Jan-30 03:04:35 GMT": 30_000,
		"Wed, 02 Jan 2030 03:04:00 GMT":     0,
		"Thu, 03 Jan 2030 03:04:05 GMT":     hour,
	} {
		if got := egress.RetryAfter(value, now); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
}

// F26: bodies that are too long, endless, or small only while compressed are
// cut off at the limit, whatever length they declare.
func TestF26_EndlessBodies(t *testing.T) {
	read := make(chan struct{}, 1)
	o := server(t, func(w http.ResponseWriter, r *http.Request) {
		line := bytes.Repeat([]byte("0123456789abcdef"), 256)
		switch r.URL.Path {
		case "/declared": // declares its length and never comes
			w.Header().Set("Content-Length", "1000000000")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			read <- struct{}{}
			return
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 1 << 12 { // 16 MiB in 20 KB
				_, _ = z.Write(line)
			}
			_ = z.Close()
			return
		}
		for { // until the other side closes the connection
			if _, err := w.Write(line); err != nil {
				read <- struct{}{}
				return
			}
		}
	})
	for _, path := range []string{"/endless", "/declared", "/gzip"} {
		for _, saveAs := range []string{"", "big.bin"} {
			in := map[string]any{"maxBytes": int64(1 << 20)}
			code := fault.OutputTooLarge
			if saveAs != "" {
				in["saveAs"], code = saveAs, fault.FileTooLarge
			}
			if _, err := o.call(t, path, in); !errors.Is(err, code) || !strings.Contains(err.Error(), "more than 1048576 bytes") {
				t.Errorf("%s %s: %v", path, saveAs, err)
			}
			if path != "/gzip" {
				<-read // the connection was closed
			}
		}
	}
	// The connection ends with the action, not only with the attempt's context.
	for url, code := range map[string]fault.Code{"/endless": fault.OutputTooLarge, "/missing": fault.HTTPStatus} {
		_, err := o.act.Run(t.Context(), &action.Task{Input: []byte(`{"url": "` + o.URL + url + `"}`)})
		if !errors.Is(err, code) {
			t.Errorf("%s without maxBytes: %v", url, err)
		}
		<-read
	}
}

// A body at the limit is accepted; one byte more is not.
func TestF21_HTTPBoundary(t *testing.T) {
	o := server(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(bytes.Repeat([]byte("x"), n))
	})
	for _, in := range []map[string]any{{"maxBytes": int64(1000)}, {"maxBytes": int64(1000), "saveAs": "x.txt"}} {
		for n, ok := range map[int]bool{999: true, 1000: true, 1001: false} {
			out, err := o.call(t, "/"+strconv.Itoa(n), in)
			if (err == nil) != ok || ok && out["sizeBytes"] != int64(n) {
				t.Errorf("%d bytes, %v: %v", n, in, err)
			}
		}
	}
}

// F26: a server that hangs before or after its headers, or sends slowly, is
// abandoned after the step's timeout, and nothing of the exchange remains.
func TestF26_SlowServers(t *testing.T) {
	before, still := openFiles(t), goleak.IgnoreCurrent()
	asked := make(chan struct{}, 1)
	var began, left atomic.Int64
	o := server(t, func(w http.ResponseWriter, r *http.Request) {
		began.Add(1)
		flush := http.NewResponseController(w).Flush
		switch r.URL.Path {
		case "/cancel":
			asked <- struct{}{}
		case "/stall", "/trickle":
			_, _ = w.Write([]byte("a"))
			_ = flush()
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-r.Context().Done():
				left.Add(1)
				return
			case <-tick.C:
				if r.URL.Path == "/trickle" {
					_, _ = w.Write([]byte("a"))
					_ = flush()
				}
			}
		}
	})
	for _, path := range []string{"/hang", "/stall", "/trickle"} {
		for _, saveAs := range []string{"", "slow.txt"} {
			in := map[string]any{"timeout": "100ms"}
			if saveAs != "" {
				in["saveAs"] = saveAs
			}
			_, err := o.call(t, path, in)
			if !errors.Is(err, fault.StepTimeout) || !strings.HasSuffix(err.Error(), "no complete answer within 100ms") {
				t.Errorf("%s %s: %v", path, saveAs, err)
			}
		}
	}
	// A cancelled step ends at once, with its own cause.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	_, err := o.act.Run(ctx, &action.Task{Input: []byte(`{"url": "` + o.URL + `/cancel"}`)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	o.Close() // waits for the handlers
	if b, l := began.Load(), left.Load(); b != l || b < 2 {
		t.Errorf("the server saw %d requests begin and %d end", b, l)
	}
	o.out.Close()
	if err := o.files.Close(); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, still)
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, before there were %d", after, before)
	}
}

// openFiles counts this process's open files, sockets among them.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // not on Linux; the test still checks for leaked goroutines
	}
	return len(entries)
}

// F26: a connection that is reset before or within the response is a try that
// may be repeated, and no part of a response is taken for the whole.
func TestF26_Reset(t *testing.T) {
	o := server(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		switch r.URL.Path {
		case "/within":
			_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"))
		case "/chunk":
			_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"))
		case "/reset":
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
		_ = conn.Close()
	})
	for _, path := range []string{"/reset", "/close", "/within", "/chunk"} {
		for _, in := range []map[string]any{nil, {"saveAs": "half.txt"}, {"method": "POST", "body": "x"}} {
			if _, err := o.call(t, path, in); !errors.Is(err, fault.ServiceUnavailable) {
				t.Errorf("%s %v: %v", path, in, err)
			}
		}
	}
}

// A body is streamed to a file: the memory needed does not grow with it.
func TestHTTP_StreamsToAFile(t *testing.T) {
	const size = 192 << 20
	o := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		block := make([]byte, 64<<10)
		for n := range size / len(block) {
			block[0] = byte(n)
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	var said actiontest.Reports
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := allocated()
	out, err := o.call(t, "/big", map[string]any{"saveAs": "big.bin"}, actiontest.Capture(&said))
	if err != nil || out["sizeBytes"] != int64(size) || out["mimeType"] != "application/octet-stream" || out["body"] != nil {
		t.Fatalf("%v, %v", out, err)
	}
	// All allocations so far, freed or not, on both sides.
	if used := allocated() - before; used > 16<<20 {
		t.Errorf("%d MiB were allocated for a body of %d MiB", used>>20, size>>20)
	}
	if n := len(said.Progress); n < 10 || n > 21 || said.Progress[n-1].Fraction != 1 {
		t.Errorf("progress: %v", said.Progress)
	}
	info, err := o.files.Open(t.Context(), "acme", out["file"].(string))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = info.Close() }()
	if info.Info().Name != "big.bin" || info.Info().Size != size {
		t.Errorf("%+v", info.Info())
	}
}

// A body above the inline size, on request of the step, is like any other large
// output: its text is stored as a file and referenced.
func TestF21_HTTPLargeBody(t *testing.T) {
	text := strings.Repeat("word ", 600_000)
	o := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte(text))
	})
	out, err := o.call(t, "/", map[string]any{"maxBytes": int64(4 << 20)})
	if err != nil || out["sizeBytes"] != int64(len(text)) {
		t.Fatalf("%v", err)
	}
	if _, inline := out["body"].(string); inline {
		t.Errorf("%d bytes are inline", len(text))
	}
}
