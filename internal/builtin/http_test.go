// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/action/actiontest"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/expr"
)

// outside is the action http with a server on loopback that it may reach, and
// the last request that the server received.
type outside struct {
	*httptest.Server
	files *blob.Store
	act   action.Action
	out   *egress.Client
	mu    sync.Mutex
	heard *http.Request
	text  string
}

func server(t *testing.T, handler http.HandlerFunc) *outside {
	t.Helper()
	o := &outside{files: store(t)}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		o.mu.Lock()
		o.heard, o.text = r, string(data)
		o.mu.Unlock()
		if err == nil {
			handler(w, r)
		}
	}))
	t.Cleanup(o.Close)
	o.out = egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	t.Cleanup(o.out.Close)
	o.act = httpRequest(o.out)
	return o
}

func (o *outside) request() (*http.Request, string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.heard, o.text
}

// call sends a request to a path of the server. in is the rest of the input.
func (o *outside) call(t *testing.T, path string, in map[string]any, opts ...actiontest.Option) (map[string]any, error) {
	t.Helper()
	out, err := actiontest.Call(t, o.act, with(in, "url", o.URL+path), append(opts, actiontest.WithFiles(o.files.Files("acme")))...)
	return out.Object(), err
}

// with returns a copy of an input with one more value.
func with(in map[string]any, name string, value any) map[string]any {
	out := map[string]any{name: value}
	maps.Copy(out, in)
	return out
}

func (o *outside) read(t *testing.T, hash any) string {
	t.Helper()
	f, err := o.files.Open(t.Context(), "acme", hash.(string))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The response: status, headers, and a body that is a value, text, a file or
// null.
func TestHTTP_Answers(t *testing.T) {
	big := strings.Repeat("x", 3000)
	o := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.FormValue("type"))
		w.Header().Set("Set-Cookie", "session=secret")
		w.Header().Add("X-Many", "a")
		w.Header().Add("X-Many", "b")
		body, err := hex.DecodeString(r.FormValue("body"))
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	})
	for _, tt := range []struct {
		name, contentType, body string
		want                    any
		condition               string // the branch condition that must hold
	}{
		{"an object", "application/json", `{"n": 9007199254740993}`, map[string]any{"n": int64(9007199254740993)}, "is-json"},
		{"with parameters", "application/JSON; charset=utf-8", `[1, 2.5]`, []any{int64(1), 2.5}, "is-json"},
		{"a problem", "application/problem+json", `{"a": null}`, map[string]any{"a": nil}, "is-json"},
		{"JSON that is none", "application/json", `{"a": 1`, `{"a": 1`, "is-json"},
		{"a name twice", "application/json", `{"a": 1, "a": 2}`, `{"a": 1, "a": 2}`, "is-json"},
		{"with a byte order mark", "application/json", "\xef\xbb\xbf7", int64(7), "is-json"},
		{"text", "text/plain", "grüße", "grüße", "is-ok"},
		{"JSON as text", "text/plain", `{"a": 1}`, `{"a": 1}`, "is-ok"},
		{"nothing", "application/json", "", nil, "is-ok"},
		{"long text", "text/plain", big, big, "is-ok"},
		{"bytes", "application/octet-stream", "\x00\x01\xff", nil, "is-file"},
		{"control bytes", "text/plain", "\x00\x01", nil, "is-file"},
		{"another encoding", "text/plain; charset=iso-8859-1", "gr\xfc\xdfe", nil, "is-file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := o.call(t, "/a/data.bin", map[string]any{"keepHeaders": []any{"X-Many"}, "query": map[string]any{"type": tt.contentType, "body": hex.EncodeToString([]byte(tt.body))}, "method": "GET"})
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(out["body"]) != fmt.Sprint(tt.want) || out["status"] != int64(200) || out["sizeBytes"] != int64(len(tt.body)) {
				t.Errorf("%v", out)
			}
			headers := out["headers"].(map[string]any)
			if headers["x-many"] != "a, b" || headers["set-cookie"] != nil {
				t.Errorf("headers %v", headers)
			}
			if tt.condition == "is-file" {
				if got := o.read(t, out["file"]); got != tt.body {
					t.Errorf("file holds %q", got)
				}
			}
			if url := out["url"].(string); !strings.HasSuffix(url, "/a/data.bin?body=…&type=…") {
				t.Errorf("url %s", url)
			}
			holds(t, o.act, tt.condition, out)
		})
	}
}

// holds evaluates a branch condition on an output (X12).
func holds(t *testing.T, a action.Action, name string, out map[string]any) {
	t.Helper()
	i := slices.IndexFunc(a.Metadata.BranchConditions, func(c action.BranchCondition) bool { return c.Name == name })
	p, err := expr.Compile(a.Metadata.BranchConditions[i].Expression)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := p.Eval(expr.MapVars{"output": out}); err != nil || v != true {
		t.Errorf("%s of %v: %v, %v", name, out, v, err)
	}
}

// X12: the conditions distinguish responses.
func TestX12_HTTPConditions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		output map[string]any
		want   bool
	}{
		{"is-ok", map[string]any{"status": int64(204)}, true},
		{"is-ok", map[string]any{"status": int64(304)}, false},
		{"is-not-found", map[string]any{"status": int64(404)}, true},
		{"is-not-found", map[string]any{"status": int64(403)}, false},
		{"is-json", map[string]any{"contentType": "application/ld+json"}, true},
		{"is-json", map[string]any{"contentType": "text/html"}, false},
		{"is-file", map[string]any{"body": nil}, false},
	} {
		a := find(t, "http")
		i := slices.IndexFunc(a.Metadata.BranchConditions, func(c action.BranchCondition) bool { return c.Name == tt.name })
		p, err := expr.Compile(a.Metadata.BranchConditions[i].Expression)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := p.Eval(expr.MapVars{"output": tt.output}); err != nil || v != tt.want {
			t.Errorf("%s of %v: %v, %v", tt.name, tt.output, v, err)
		}
	}
}

// A31: no control character gets into a header: no line feed, and no lone
// carriage return, which some servers take for a line end.
func TestA31_HeadersHoldNoControls(t *testing.T) {
	for r := range rune(0x80) {
		value := "a" + string(r) + "X-B: b"
		h, err := requestHeader(map[string]string{"X-A": value})
		if control := r < ' ' && r != '\t' || r == 0x7f; control != (fault.CodeOf(err) == fault.InputInvalid) {
			t.Errorf("%q: %v", value, err)
		} else if !control && h.Get("X-A") != value {
			t.Errorf("%q became %q", value, h.Get("X-A"))
		}
		name := "X" + string(r) + "A"
		_, err = requestHeader(map[string]string{name: "b"})
		if token := r > ' ' && r < 0x7f && !strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r); token != (err == nil) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

// The request: method, query, headers and the forms of a body.
func TestHTTP_Requests(t *testing.T) {
	o := server(t, func(http.ResponseWriter, *http.Request) {})
	counted := &countedFiles{Files: o.files.Files("acme")}
	file := upload(t, o.files, "scan.png", []byte("\x89PNG\r\n\x1a\nrest"))
	for _, tt := range []struct {
		name, path              string
		in                      map[string]any
		line, contentType, body string
	}{
		{"the least", "/", nil, "GET /", "", ""},
		{"query", "/q?a=1", map[string]any{"query": map[string]any{"b": []any{"x y", int64(2)}, "c": true, "d": nil, "e": 1.5, "n": int64(9007199254740993)}},
			"GET /q?a=1&b=x+y&b=2&c=true&e=1.5&n=9007199254740993", "", ""},
		{"JSON", "/", map[string]any{"method": "POST", "body": map[string]any{"n": int64(9007199254740993)}}, "POST /", "application/json", `{"n":9007199254740993}`},
		{"a list", "/", map[string]any{"method": "PUT", "body": []any{}}, "PUT /", "application/json", `[]`},
		{"false", "/", map[string]any{"method": "PATCH", "body": false}, "PATCH /", "application/json", `false`},
		{"text", "/", map[string]any{"method": "POST", "body": "<grüße>"}, "POST /", "text/plain; charset=utf-8", "<grüße>"},
		{"empty text", "/", map[string]any{"method": "POST", "body": ""}, "POST /", "text/plain; charset=utf-8", ""},
		{"null is no body", "/", map[string]any{"method": "GET", "body": nil}, "GET /", "", ""},
		{"its own type", "/", map[string]any{"method": "POST", "body": "a=1", "headers": map[string]any{"content-type": "application/x-www-form-urlencoded"}},
			"POST /", "application/x-www-form-urlencoded", "a=1"},
		{"a file", "/", map[string]any{"method": "PUT", "bodyFile": file.Hash}, "PUT /", "image/png", "\x89PNG\r\n\x1a\nrest"},
		{"a fragment", "/a#b", nil, "GET /a", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := actiontest.Call(t, o.act, with(tt.in, "url", o.URL+tt.path), actiontest.WithFiles(counted)); err != nil {
				t.Fatal(err)
			}
			r, text := o.request()
			if line := r.Method + " " + r.RequestURI; line != tt.line || r.Header.Get("Content-Type") != tt.contentType || text != tt.body {
				t.Errorf("%s, %q, %q", line, r.Header.Get("Content-Type"), text)
			}
			if r.Header.Get("User-Agent") != "roux" || r.ContentLength != int64(len(tt.body)) {
				t.Errorf("length %d, headers %v", r.ContentLength, r.Header)
			}
		})
	}
	if counted.opened != 1 || counted.closed != 1 {
		t.Errorf("%d files opened, %d closed", counted.opened, counted.closed)
	}
}

// countedFiles counts the open files.
type countedFiles struct {
	action.Files
	opened, closed int
}

type countedFile struct {
	action.File
	of *countedFiles
}

func (c *countedFiles) Open(ctx context.Context, hash string) (action.File, error) {
	f, err := c.Files.Open(ctx, hash)
	if err == nil {
		c.opened++
	}
	return &countedFile{f, c}, err
}

func (f *countedFile) Close() error {
	f.of.closed++
	return f.File.Close()
}

// The effect key is sent where a second request would be a second effect.
func TestI4_HTTPIdempotencyKey(t *testing.T) {
	o := server(t, func(http.ResponseWriter, *http.Request) {})
	key := actiontest.WithEffectKey("effect-1")
	for method, sends := range map[string]bool{"GET": false, "HEAD": false, "PUT": false, "DELETE": false, "OPTIONS": false, "POST": true, "PATCH": true} {
		if _, err := o.call(t, "/", map[string]any{"method": method}, key); err != nil {
			t.Fatal(err)
		}
		r, _ := o.request()
		if got := r.Header.Get("Idempotency-Key"); (got == "effect-1") != sends || !sends && got != "" {
			t.Errorf("%s: %q", method, got)
		}
	}
	own := map[string]any{"method": "POST", "headers": map[string]any{"idempotency-key": "own"}}
	if _, err := o.call(t, "/", own, key); err != nil {
		t.Fatal(err)
	}
	if r, _ := o.request(); r.Header.Get("Idempotency-Key") != "own" {
		t.Errorf("the step's own key: %v", r.Header)
	}
}

// X226: a traced run sends its trace context with every request; a header of the step wins.
func TestX226_HTTPTraceParent(t *testing.T) {
	o := server(t, func(http.ResponseWriter, *http.Request) {})
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct {
		input map[string]any
		opts  []actiontest.Option
		want  string
	}{
		{map[string]any{}, nil, ""},
		{map[string]any{}, []actiontest.Option{actiontest.WithTraceParent(parent)}, parent},
		{map[string]any{"method": "POST"}, []actiontest.Option{actiontest.WithTraceParent(parent)}, parent},
		{map[string]any{"headers": map[string]any{"TraceParent": "own"}}, []actiontest.Option{actiontest.WithTraceParent(parent)}, "own"},
	} {
		if _, err := o.call(t, "/", c.input, c.opts...); err != nil {
			t.Fatal(err)
		}
		if r, _ := o.request(); r.Header.Get("Traceparent") != c.want || len(r.Header.Values("Traceparent")) > 1 {
			t.Errorf("%v: %q", c.input, r.Header.Values("Traceparent"))
		}
	}
}

// A31: a header of a step cannot become another header or another request, and
// senseless inputs are refused with a remedy.
func TestA31_HTTPInputs(t *testing.T) {
	o := server(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	header := func(name, value string) map[string]any {
		return map[string]any{"headers": map[string]any{name: value}}
	}
	many := map[string]any{}
	for i := range 20 {
		many["X-"+strconv.Itoa(i)] = strings.Repeat("x", 2000)
	}
	for _, tt := range []struct {
		in   map[string]any
		want string
	}{
		{header("X-A", "a\r\nX-B: b"), `header "X-A": its value holds a line break or another control character`},
		{header("X-A", "a\nb"), `header "X-A": its value holds a line break or another control character`},
		{header("X-A", "a\x00"), `header "X-A": its value holds a line break or another control character`},
		{header("X-A: b\r\nX-B", "c"), `header "X-A: b\r\nX-B": want a name of letters, digits and - only`},
		{header("X A", "c"), `header "X A": want a name of letters, digits and - only`},
		{header("", "c"), `header "": want a name of letters, digits and - only`},
		{header("Grüße", "c"), `header "Grüße": want a name of letters, digits and - only`},
		{header("host", "internal"), `header "host" belongs to the connection and cannot be set`},
		{header("Content-Length", "0"), `header "Content-Length" belongs to the connection and cannot be set`},
		{header("transfer-encoding", "chunked"), `header "transfer-encoding" belongs to the connection and cannot be set`},
		{header("Connection", "close"), `header "Connection" belongs to the connection and cannot be set`},
		{header("Proxy-Authorization", "x"), `header "Proxy-Authorization" belongs to the connection and cannot be set`},
		{header("Upgrade", "h2c"), `header "Upgrade" belongs to the connection and cannot be set`},
		{map[string]any{"headers": map[string]any{"X-A": "1", "x-a": "2"}}, `header "x-a" is given twice: names that differ in case are one`},
		{map[string]any{"headers": many}, "the headers have more than 32 KiB"},
		{map[string]any{"body": "x"}, "a body needs a method such as POST: GET has none"},
		{map[string]any{"bodyFile": "sha256_" + strings.Repeat("0", 64), "method": "HEAD"}, "a body needs a method such as POST: HEAD has none"},
		{map[string]any{"body": "x", "bodyFile": "sha256_" + strings.Repeat("0", 64), "method": "PUT"}, "body and bodyFile are both given: want one of them"},
		{map[string]any{"timeout": "soon"}, `timeout "soon": want a duration such as "30s"`},
		{map[string]any{"timeout": "0s"}, `timeout "0s": want a duration such as "30s"`},
		{map[string]any{"maxBytes": int64(5 << 20)}, "maxBytes 5242880: want at most 4194304; with saveAs up to 4294967296"},
		{map[string]any{"query": map[string]any{"q": strings.Repeat("x", 9000)}}, "bytes: want at most 8192"},
	} {
		if _, err := o.call(t, "/", tt.in); !errors.Is(err, fault.InputInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.80v: %v\nwant %s", tt.in, err, tt.want)
		}
	}
	// Inputs that the schema refuses.
	for _, in := range []map[string]any{
		{"method": "CONNECT"}, {"method": "get"}, {"expectStatus": "ok"}, {"expectStatus": int64(100)}, {"expectStatus": []any{}},
		{"maxBytes": int64(0)}, {"header": map[string]any{}}, {"bodyFile": "../../etc/passwd"}, {"query": map[string]any{"a": map[string]any{}}},
	} {
		if _, err := o.call(t, "/", in); !errors.Is(err, fault.InputContractViolation) {
			t.Errorf("%v: %v", in, err)
		}
	}
}

// A18: the action forwards no secret, sends a file again where a redirect
// requires it, and does not follow redirects where the step forbids it.
func TestA18_HTTPRedirects(t *testing.T) {
	there := server(t, func(http.ResponseWriter, *http.Request) {})
	o := server(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, there.URL+"/end?token=secret", http.StatusPermanentRedirect)
	})
	file := upload(t, o.files, "a.txt", []byte("content"))
	out, err := o.call(t, "/", map[string]any{"method": "POST", "bodyFile": file.Hash,
		"headers": map[string]any{"Authorization": "Bearer secret", "X-Api-Key": "secret", "Accept": "text/html"}})
	if err != nil || out["url"] != there.URL+"/end?token=…" {
		t.Fatalf("%v, %v", out, err)
	}
	r, text := there.request()
	if r.Method != "POST" || text != "content" || r.Header.Get("Authorization")+r.Header.Get("X-Api-Key") != "" || r.Header.Get("Accept") != "text/html" {
		t.Errorf("%s %q %v", r.Method, text, r.Header)
	}
	in := map[string]any{"followRedirects": false, "expectStatus": "3xx"}
	if out, err = o.call(t, "/", in); err != nil || out["status"] != int64(308) || out["headers"].(map[string]any)["location"] != there.URL+"/end?token=secret" {
		t.Errorf("not followed: %v, %v", out, err)
	}
	if _, err = o.call(t, "/", map[string]any{"followRedirects": false}); !errors.Is(err, fault.HTTPStatus) {
		t.Errorf("not followed, not expected: %v", err)
	}
}

// A17: both names of the action are protected.
func TestA17_HTTPIsGuarded(t *testing.T) {
	o := server(t, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	catalogue := map[string]action.Action{}
	for _, a := range Actions(Config{}) {
		for _, name := range append(a.Aliases, a.Name) {
			catalogue[name] = a
		}
	}
	for _, name := range []string{"http", "call_external_service"} {
		for _, in := range []map[string]any{
			{"url": o.URL}, {"url": o.URL, "method": "POST", "body": "x"}, {"url": o.URL, "saveAs": "x"}, {"url": o.URL, "followRedirects": false},
		} {
			_, err := actiontest.Call(t, catalogue[name], in)
			if !errors.Is(err, fault.EgressRefused) || !strings.Contains(err.Error(), "ROUX_EGRESS_ALLOW=127.0.0.1/32") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A17, A18: none of the URLs that egress lists reaches this machine through the
// action, its alias, or a redirect of an allowed server.
func TestA17_HostileURLsThroughHTTP(t *testing.T) {
	text, err := os.ReadFile("../egress/testdata/hostile.txt")
	if err != nil {
		t.Fatal(err)
	}
	var hits atomic.Int64
	inside := httptest.NewUnstartedServer(nil)
	inside.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			hits.Add(1)
		}
	}
	if err := inside.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	if inside.Listener, err = net.Listen("tcp", ":0"); err != nil {
		t.Fatal(err)
	}
	inside.Start()
	defer inside.Close()
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())

	// The redirector has an address of its own, and only that one is allowed.
	ln, err := net.Listen("tcp", "127.0.0.9:0")
	if err != nil {
		t.Skipf("this system has one loopback address: %v", err)
	}
	redirector := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Location"] = []string{r.FormValue("to")}
		w.WriteHeader(http.StatusTemporaryRedirect)
	})}
	go func() { _ = redirector.Serve(ln) }()
	defer func() { _ = redirector.Close() }()
	closed := httpRequest(egress.New(egress.Config{}))
	one := httpRequest(egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")}}))
	refused := []fault.Code{fault.EgressRefused, fault.InputInvalid, fault.HTTPStatus}
	n := 0
	for form := range strings.Lines(string(text)) {
		form = strings.ReplaceAll(strings.TrimSuffix(form, "\n"), "PORT", port)
		n++
		codes := refused
		if strings.Contains(form, "example") || strings.Contains(strings.ToLower(form), "localhost") {
			codes = append(slices.Clone(refused), fault.ServiceUnavailable) // this machine may be unable to resolve the name
		}
		if _, err := actiontest.Call(t, closed, map[string]any{"url": form}); !slices.Contains(codes, fault.CodeOf(err)) {
			t.Errorf("%s: %v", form, err)
		}
		if !strings.HasPrefix(form, "http://") {
			continue // in a Location header it may be a relative path
		}
		in := map[string]any{"url": "http://" + ln.Addr().String(), "query": map[string]any{"to": form}}
		if _, err := actiontest.Call(t, one, in); !slices.Contains(codes, fault.CodeOf(err)) {
			t.Errorf("redirect to %s: %v", form, err)
		}
	}
	if n < 40 || hits.Load() != 0 {
		t.Errorf("%d forms, %d connections", n, hits.Load())
	}
}

// A missing file is not sent as an empty one.
func TestHTTP_MissingFile(t *testing.T) {
	o := server(t, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	_, err := o.call(t, "/", map[string]any{"method": "PUT", "bodyFile": "sha256_" + strings.Repeat("0", 64)})
	if !errors.Is(err, fault.FileNotFound) {
		t.Error(err)
	}
}

// A credential in a response header is not journaled, whatever the header's
// name, unless the step asks for it.
func TestHTTP_HeadersAreMasked(t *testing.T) {
	if !slices.IsSorted(unmaskedHeaders) {
		t.Fatal("harmlessHeaders are not sorted")
	}
	o := server(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"X-Auth-Token", "Authorization", "Set-Cookie", "X-Amz-Security-Token", "X-Csrf", "Proxy-Authenticate", "X-Mine"} {
			w.Header().Set(name, "hush-"+name)
		}
		w.Header().Set("Etag", "tag")
		w.Header().Set("X-Ratelimit-Remaining", "7")
	})
	run := func(more map[string]any) map[string]any {
		out, err := o.call(t, "/", more)
		if err != nil {
			t.Fatal(err)
		}
		return out["headers"].(map[string]any)
	}
	got := run(map[string]any{})
	for name, value := range got {
		if strings.Contains(fmt.Sprint(value), "hush") {
			t.Errorf("%s is %v", name, value)
		}
	}
	if got["x-auth-token"] != maskedHeader || got["etag"] != "tag" || got["x-ratelimit-remaining"] != "7" || got["set-cookie"] != nil {
		t.Errorf("headers are %v", got)
	}
	got = run(map[string]any{"keepHeaders": []any{"X-Mine", "Set-Cookie"}})
	if got["x-mine"] != "hush-X-Mine" || got["x-auth-token"] != maskedHeader || got["set-cookie"] != nil {
		t.Errorf("with keepHeaders: %v", got)
	}
}

// A14, I15: response headers are kept within limits.
func TestHTTP_ManyHeaders(t *testing.T) {
	h := http.Header{"X-Bad": {"a\xff"}}
	for i := range 200 {
		h.Set(fmt.Sprintf("X-%03d", i), "v")
	}
	kept := answerHeaders(h, []string{"x-000"})
	if len(kept) != 64 || kept["x-000"] != "v" {
		t.Errorf("%d kept: %v", len(kept), kept)
	}
	if kept := answerHeaders(http.Header{"A": {"a\xff"}, "B": {strings.Repeat("x", 17<<10)}, "Set-Cookie": {"s"}}, []string{"a", "b"}); len(kept) != 1 || kept["a"] != "a\ufffd" {
		t.Errorf("%v", kept)
	}
}

// A31: for any names and values, the request on the wire has exactly these
// headers, or there is no request.
func TestA31_HeadersOnTheWire(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("aZ-:\r\n\t \x00\x7f\x1bé日;,\"")), 0, 12, -1)
	rapid.Check(t, func(t *rapid.T) {
		given := rapid.MapOfN(text, text, 0, 4).Draw(t, "headers")
		h, err := requestHeader(given)
		if err != nil {
			if !errors.Is(err, fault.InputInvalid) {
				t.Fatal(err)
			}
			return
		}
		req := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "example.com", Path: "/"}, Header: h}
		var wire bytes.Buffer
		if err := req.Write(&wire); err != nil {
			t.Fatal(err)
		}
		read, err := http.ReadRequest(bufio.NewReader(&wire))
		if err != nil {
			t.Fatalf("%q: %v", given, err)
		}
		if wire.Len() != 0 || len(read.Header) != len(h) {
			t.Fatalf("%q arrives as %q", given, read.Header)
		}
		for name, values := range h {
			if got := read.Header[name]; len(got) != 1 || got[0] != values[0] {
				t.Fatalf("%q: %s arrives as %q", given, name, got)
			}
		}
	})
}
