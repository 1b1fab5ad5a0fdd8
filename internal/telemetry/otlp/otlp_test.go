// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/telemetry"
)

const account = "acme"

// open opens a node whose traces go to a collector.
func open(t *testing.T, endpoint string, timeout time.Duration, actions ...action.Action) *node.Node {
	t.Helper()
	e, err := New(t.Context(), endpoint, timeout)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	st, err := node.OpenStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(t.Context(), st, node.Config{
		Dir: dir, Actions: node.NewActions(nil, actions...), Observer: telemetry.New(telemetry.Config{Exporter: e, ExportTimeout: timeout, Version: "1.2.3"}),
		Accounts: map[string]engine.AccountRules{account: {Unmetered: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Observe(nil, nil)
	t.Cleanup(func() { _ = n.Stop(context.Background()) })
	return n
}

// run runs a recipe to its end.
func run(t *testing.T, n *node.Node, src string, actions ...action.Action) store.Head {
	t.Helper()
	r, text, diags := dialect.Parse("test.yaml", []byte(src), form.Options{})
	p, more := compile.Compile(r, text, compile.Options{Actions: node.Catalogue(actions)})
	if p == nil {
		t.Fatal(diags, more)
	}
	started, err := n.Engine.Start(t.Context(), engine.StartRequest{Account: account, Plan: p, Recipe: r.Name})
	if err != nil {
		t.Fatal(err)
	}
	head, err := n.Engine.Wait(t.Context(), account, started.Run)
	if err != nil {
		t.Fatal(err)
	}
	return head
}

func noop() action.Action {
	return action.Action{Name: "noop", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{}}, nil
	}}
}

// received keeps the spans that a collector has received, by name.
type received struct {
	mu       sync.Mutex
	path     string
	header   string
	resource map[string]string
	spans    map[string]*tracepb.Span
}

func (r *received) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	data, err := io.ReadAll(body)
	var msg collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &msg)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.path, r.header = req.URL.Path, req.Header.Get("Authorization")
	for _, of := range msg.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			r.resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans[s.GetName()] = s
			}
		}
	}
	out, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out)
}

// X226, X227: a collector gets one trace with the tree of a nested run.
func TestX226_X227_CollectorGetsTheTree(t *testing.T) {
	got := &received{spans: map[string]*tracepb.Span{}, resource: map[string]string{}}
	srv := httptest.NewServer(got)
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
	n := open(t, srv.URL, 5*time.Second, noop())
	head := run(t, n, `
name: outer
steps:
  - {id: first, action: {name: noop}}
  - {id: inner, recipe: {inline: {name: library, steps: [{id: read, action: {name: noop}}, {id: stop, fail: {code: EMPTY, message: none}}]}}}
`, noop())
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if got.path != "/v1/traces" || got.header != "Bearer abc" || got.resource["service.name"] != "roux" || got.resource["service.version"] != "1.2.3" {
		t.Errorf("it was sent to %s with %q, of %v", got.path, got.header, got.resource)
	}
	trace := journal.TraceOf("", head.Run)
	for name, above := range map[string]string{
		"outer": "", "first": "outer", "first attempt": "first", "inner": "outer", "inner attempt": "inner",
		"library": "inner attempt", "read": "library", "read attempt": "read", "stop": "library",
	} {
		s := got.spans[name]
		if s == nil {
			t.Errorf("there is no span %s", name)
			continue
		}
		if hex.EncodeToString(s.GetTraceId()) != hex.EncodeToString(trace.Trace[:]) {
			t.Errorf("%s is in the trace %x", name, s.GetTraceId())
		}
		if string(s.GetParentSpanId()) != string(got.spans[above].GetSpanId()) {
			t.Errorf("%s is not below %q", name, above)
		}
		if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%s ends before it begins", name)
		}
	}
	if len(got.spans) != 9 {
		t.Errorf("%d spans have arrived, want 9", len(got.spans))
	}
	if s := got.spans["stop"]; s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || s.GetStatus().GetMessage() != "EMPTY" {
		t.Errorf("the status of the step that failed is %v", s.GetStatus())
	}
	if s := got.spans["read"]; s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_OK {
		t.Errorf("the status of the step that completed is %v", s.GetStatus())
	}
}

// X227: each nested run is a span with an id, its parent, where its pipeline is, its depth and its times, and says
// whether it has failed. The tree comes over a socket.
func TestX227_NestedSpans(t *testing.T) {
	got := &received{spans: map[string]*tracepb.Span{}, resource: map[string]string{}}
	srv := httptest.NewServer(got)
	defer srv.Close()
	n := open(t, srv.URL, 5*time.Second, noop())
	dir := t.TempDir()
	const root = `
name: root
steps:
  - {id: fine, recipe: {ref: helper}}
  - {id: phase, recipe: {file: ./parts/phase.yaml}, dependsOn: [fine]}
`
	for name, text := range map[string]string{
		"root.yaml": root, "helper.yaml": "name: helper\nsteps: [{id: help, action: {name: noop}}]\n",
		"parts/phase.yaml": "name: phase_one\nsteps: [{id: inner, recipe: {inline: {name: deepest, steps: [{id: stop, fail: {code: EMPTY, message: none}}]}}}]\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, _, _, diags := compile.Source(filepath.Join(dir, "root.yaml"), []byte(root), compile.Options{
		Actions: node.Catalogue([]action.Action{noop()}), Recipes: registry.NewFiles(registry.Config{Recipe: filepath.Join(dir, "root.yaml"), Dir: dir, MaxSource: 1 << 20}),
	})
	if p == nil {
		t.Fatal(diags)
	}
	started, err := n.Engine.Start(t.Context(), engine.StartRequest{Account: account, Plan: p, Recipe: "root"})
	if err != nil {
		t.Fatal(err)
	}
	if head, err := n.Engine.Wait(t.Context(), account, started.Run); err != nil || head.Status != "failed" {
		t.Fatal(head, err)
	}
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	ids := map[string]bool{}
	for _, one := range []struct {
		attempt, run    string // the spans
		below           string // the span of the step in the parent
		pipeline, depth string
		code            string // "" = success
	}{
		{"fine attempt", "helper", "fine", "helper", "1", ""},
		{"phase attempt", "phase_one", "phase", "parts/phase.yaml", "1", "EMPTY"},
		{"inner attempt", "deepest", "inner", "inline", "2", "EMPTY"},
	} {
		attempt, run, step := got.spans[one.attempt], got.spans[one.run], got.spans[one.below]
		if attempt == nil || run == nil || step == nil {
			t.Errorf("of %s there are %v, %v and %v", one.run, attempt, run, step)
			continue
		}
		if !bytes.Equal(attempt.GetParentSpanId(), step.GetSpanId()) || !bytes.Equal(run.GetParentSpanId(), attempt.GetSpanId()) || !bytes.Equal(run.GetTraceId(), step.GetTraceId()) {
			t.Errorf("%s is not below its step in one trace", one.run)
		}
		for _, s := range []*tracepb.Span{attempt, run} {
			if id := string(s.GetSpanId()); len(id) != 8 || ids[id] {
				t.Errorf("%s has the id %x", s.GetName(), id)
			} else {
				ids[id] = true
			}
			if s.GetStartTimeUnixNano() == 0 || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() || s.GetStartTimeUnixNano() < step.GetStartTimeUnixNano() {
				t.Errorf("%s is from %d to %d", s.GetName(), s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
			}
			want := tracepb.Status_STATUS_CODE_OK
			if one.code != "" {
				want = tracepb.Status_STATUS_CODE_ERROR
			}
			if s.GetStatus().GetCode() != want || value(s, "error.type") != one.code {
				t.Errorf("the status of %s is %v with the code %q", s.GetName(), s.GetStatus(), value(s, "error.type"))
			}
		}
		if value(attempt, "roux.child_run.pipeline") != one.pipeline || value(attempt, "roux.child_run.depth") != one.depth ||
			value(run, "roux.depth") != one.depth || value(run, "roux.run.id") != value(attempt, "roux.child_run.id") {
			t.Errorf("%s has %v and %v", one.run, attempt.GetAttributes(), run.GetAttributes())
		}
	}
}

// value is an attribute of a span as a text; "" = it has none.
func value(s *tracepb.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if v := a.GetValue(); a.GetKey() == key && v.GetStringValue() != "" {
			return v.GetStringValue()
		} else if a.GetKey() == key {
			return strconv.FormatInt(v.GetIntValue(), 10)
		}
	}
	return ""
}

// A collector that accepts requests and never answers delays no run, and a stop by no more
// than two seconds.
func TestI15_HangingCollector(t *testing.T) {
	release := make(chan struct{})
	asked := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-release
	}))
	defer srv.Close()
	defer close(release)
	n := open(t, srv.URL, time.Hour, noop())
	const src = "name: a\nsteps: [{id: a, action: {name: noop}}]"
	run(t, n, src, noop())
	<-asked
	began := time.Now()
	for range 100 {
		if head := run(t, n, src, noop()); head.Status != "completed" {
			t.Fatalf("the run is %s", head.Status)
		}
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("100 runs took %s", took)
	}
	began = time.Now()
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the stop took %s", took)
	}
}

// A collector that refuses everything, or is not there, changes no run.
func TestCollectorThatRefuses(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	defer srv.Close()
	for _, url := range []string{srv.URL, gone.URL} {
		n := open(t, url, time.Second, noop())
		if head := run(t, n, "name: a\nsteps: [{id: a, action: {name: noop}}]", noop()); head.Status != "completed" {
			t.Errorf("%s: the run is %s", url, head.Status)
		}
		if err := n.Stop(context.Background()); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for url, ok := range map[string]bool{
		"http://localhost:4318": true, "https://collector.example.com/custom/path": true,
		"localhost:4318": false, "ftp://localhost": false, "http://user:pw@localhost": false, "": false,
	} {
		_, err := New(t.Context(), url, time.Second)
		if (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && (fault.CodeOf(err) != fault.ConfigInvalid || !strings.Contains(err.Error(), "trace.endpoint")) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// What a collector says of spans that it has not taken is an error, and so is an answer that is none.
func TestAnswers(t *testing.T) {
	partial := func(n int64, text string) []byte {
		data, err := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: n, ErrorMessage: text}})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, tt := range []struct {
		name, kind string
		status     int
		body       []byte
		want       string // "" = no error
	}{
		{"taken", "application/x-protobuf", 200, nil, ""},
		{"taken, with nothing to say", "application/x-protobuf", 200, partial(0, ""), ""},
		{"another kind", "text/plain", 200, partial(3, "full"), ""},
		{"not all", "application/x-protobuf", 200, partial(3, "full"), `not taken 3 spans: "full"`},
		{"a warning", "application/x-protobuf", 200, partial(0, "soon"), `not taken 0 spans: "soon"`},
		{"no message", "application/x-protobuf", 200, []byte{0x0a, 0xff}, ""},
		{"refused", "text/plain", 429, []byte("slower"), `429 Too Many Requests: "slower"`},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tt.kind)
			w.WriteHeader(tt.status)
			_, _ = w.Write(tt.body)
		}))
		c := &client{url: srv.URL, header: http.Header{}, http: srv.Client(), timeout: 5 * time.Second}
		err := c.UploadTraces(t.Context(), nil)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", tt.name, err)
		}
		srv.Close()
	}
}

// The variables that have headers are those of OpenTelemetry. A value that is wrong is not repeated.
func TestHeaders(t *testing.T) {
	for _, tt := range []struct{ traces, all, want string }{
		{"", "", ""},
		{"", "Authorization=Bearer%20abc, X-Team = a%2Cb ,", "Authorization: Bearer abc; X-Team: a,b"},
		{"a=1", "b=2", "A: 1"},
		{"", "hidden", "fault"},
		{"", "=hidden", "fault"},
		{"", "a b=hidden", "fault"},
		{"", "a=hidden%zz", "fault"},
		{"", "a=hidden%0d%0ab: c", "fault"},
	} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_TRACES_HEADERS": tt.traces, "OTEL_EXPORTER_OTLP_HEADERS": tt.all}
		h, err := headers(func(name string) string { return env[name] })
		var list []string
		for _, name := range slices.Sorted(maps.Keys(h)) {
			list = append(list, name+": "+h.Get(name))
		}
		got := strings.Join(list, "; ")
		if err != nil {
			if got = "fault"; strings.Contains(err.Error(), "hidden") || fault.CodeOf(err) != fault.ConfigInvalid {
				t.Errorf("%q: %v", tt.all, err)
			}
		}
		if got != tt.want {
			t.Errorf("%q, %q: %s, want %s", tt.traces, tt.all, got, tt.want)
		}
	}
}
