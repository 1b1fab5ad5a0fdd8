// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"
)

// A testServer is a service for transcripts, whose path says how it behaves:
//
//	/json                  {"ok": true, "path": …}
//	/echo                  the request: method, query, headers, body
//	/status/503?after=1    a status, with Retry-After
//	/flaky?n=2&status=503  fails n times for each URL, then {"tries": n+1};
//	                       after=1 gives Retry-After
//	/slow                  begins an answer and never ends it
//	/file/1048576?type=…   that many bytes
//	/redirect?to=…         a redirect; status=307 for another than 302
//
// `server NAME` starts one and sets NAME to its URL; `hits NAME 3` checks how
// many connections it had. It ends with its transcript.
type testServer struct {
	*httptest.Server
	hits atomic.Int64

	mu    sync.Mutex
	tries map[string]int
}

func scriptServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: server NAME")
	}
	s := &testServer{tries: map[string]int{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.hits.Add(1)
		}
	}
	s.Start()
	ts.Defer(s.Close)
	ts.Setenv(args[0], s.URL)
	ts.Setenv(args[0]+"_PORT", s.URL[strings.LastIndexByte(s.URL, ':')+1:])
	servers.Store(s.URL, s)
	ts.Defer(func() { servers.Delete(s.URL) })
}

// servers are the running ones by URL: transcripts run beside each other.
var servers sync.Map

func scriptHits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: hits NAME COUNT")
	}
	s, ok := servers.Load(ts.Getenv(args[0]))
	if !ok {
		ts.Fatalf("there is no server %s", args[0])
	}
	if got := strconv.FormatInt(s.(*testServer).hits.Load(), 10); got != args[1] {
		ts.Fatalf("%s had %s connections, want %s", args[0], got, args[1])
	}
}

// scriptHostile is `hostile NAME FILE`: writes the input of a recipe, the URLs
// that reach no machine, with the server's port in them.
func scriptHostile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: hostile NAME FILE")
	}
	text, err := os.ReadFile(filepath.Join(ts.Getenv("ROOT"), "internal/egress/testdata/hostile.txt"))
	ts.Check(err)
	urls := strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(text), "PORT", ts.Getenv(args[0]+"_PORT")), "\n"), "\n")
	if len(urls) < 40 {
		ts.Fatalf("%d forms", len(urls))
	}
	data, err := json.Marshal(map[string]any{"urls": urls})
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), data, 0o600))
}

func (s *testServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	mode, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	number := func(text string, without int) int {
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
		return without
	}
	if after := r.FormValue("after"); after != "" && mode == "status" {
		w.Header().Set("Retry-After", after)
	}
	switch mode {
	case "json":
		answerJSON(w, map[string]any{"ok": true, "path": r.URL.Path})
	case "echo":
		answerJSON(w, map[string]any{"method": r.Method, "query": r.URL.RawQuery, "headers": r.Header, "body": string(body)})
	case "status":
		w.WriteHeader(number(rest, http.StatusInternalServerError))
		_, _ = fmt.Fprintf(w, "status %s\n", rest)
	case "flaky":
		s.mu.Lock()
		s.tries[r.RequestURI]++
		try := s.tries[r.RequestURI]
		s.mu.Unlock()
		if try <= number(r.FormValue("n"), 1) {
			if after := r.FormValue("after"); after != "" {
				w.Header().Set("Retry-After", after)
			}
			http.Error(w, "not yet", number(r.FormValue("status"), http.StatusServiceUnavailable))
			return
		}
		answerJSON(w, map[string]any{"tries": try})
	case "slow":
		_, _ = io.WriteString(w, "a moment")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case "file":
		size := int64(number(rest, 0))
		w.Header().Set("Content-Type", r.FormValue("type"))
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		block := slices.Repeat([]byte("roux and roux. "), 1<<12)
		for size > 0 {
			n, err := w.Write(block[:min(size, int64(len(block)))])
			if err != nil {
				return
			}
			size -= int64(n)
		}
	case "redirect":
		w.Header()["Location"] = []string{r.FormValue("to")}
		w.WriteHeader(number(r.FormValue("status"), http.StatusFound))
	default:
		http.NotFound(w, r)
	}
}

func answerJSON(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b.Bytes())
}
