// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// sent is what a server received of a request.
type sent struct {
	method, path, body string
	header             http.Header
}

// recorder is a server that records requests and answers by path:
// /to?code=307&url=… redirects, everything else returns "here".
func recorder(t *testing.T, address string) (*host, *[]sent) {
	var got []sent
	h := serve(t, address, func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Header.Set("Host", r.Host)
		got = append(got, sent{r.Method, r.URL.Path, string(data), r.Header})
		if r.URL.Path != "/to" {
			_, _ = w.Write([]byte("here"))
			return
		}
		code := http.StatusFound
		if c := r.FormValue("code"); c != "" {
			_, _ = fmt.Sscan(c, &code)
		}
		w.Header()["Location"] = []string{r.FormValue("url")}
		w.WriteHeader(code)
	})
	return h, &got
}

// A18: the rules of RFC 9110 for method and body.
func TestA18_RedirectMethods(t *testing.T) {
	srv, got := recorder(t, "127.0.0.1:0")
	c := client(t, Config{Allow: opened(t, "127.0.0.1")})
	for _, tt := range []struct {
		method string
		code   int
		want   string // method and body of the second request
	}{
		{"GET", 301, "GET "}, {"GET", 302, "GET "}, {"GET", 303, "GET "}, {"GET", 307, "GET "}, {"GET", 308, "GET "},
		{"POST", 301, "GET "}, {"POST", 302, "GET "}, {"POST", 303, "GET "}, {"POST", 307, "POST text"}, {"POST", 308, "POST text"},
		{"PUT", 301, "PUT text"}, {"PUT", 302, "PUT text"}, {"PUT", 303, "GET "}, {"PUT", 307, "PUT text"}, {"PUT", 308, "PUT text"},
		{"DELETE", 302, "DELETE text"}, {"DELETE", 303, "GET "},
		{"HEAD", 302, "HEAD "}, {"HEAD", 303, "HEAD "}, {"HEAD", 307, "HEAD "},
	} {
		*got = nil
		var body io.Reader
		if tt.method != "GET" && tt.method != "HEAD" {
			body = strings.NewReader("text")
		}
		req, err := http.NewRequestWithContext(t.Context(), tt.method,
			fmt.Sprintf("http://%s/to?code=%d&url=%%2Fthere", srv.Addr(), tt.code), body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "text/plain")
		req.Header.Set("Idempotency-Key", "k")
		resp, _, err := send(t, c, req)
		if err != nil {
			t.Errorf("%s %d: %v", tt.method, tt.code, err)
			continue
		}
		second := (*got)[1]
		if s := second.method + " " + second.body; len(*got) != 2 || s != tt.want || second.path != "/there" || resp.Request.URL.Path != "/there" {
			t.Errorf("%s %d: %q to %s, want %q", tt.method, tt.code, s, second.path, tt.want)
		}
		carries := tt.method == second.method
		if (second.header.Get("Content-Type") != "") != carries || (second.header.Get("Idempotency-Key") != "") != carries {
			t.Errorf("%s %d: headers %v", tt.method, tt.code, second.header)
		}
	}
}

// A18: headers that may hold a secret are sent only to the original origin, and not again
// when a later hop leads back; and no hop learns the URL of another.
func TestA18_HeadersAcrossOrigins(t *testing.T) {
	first, atFirst := recorder(t, "127.0.0.1:0")
	other, atOther := recorder(t, "127.0.0.2:0")
	beside, atBeside := recorder(t, "127.0.0.1:0") // same host, another port
	c := client(t, Config{Allow: opened(t, "127.0.0.0/8")})
	to := func(h *host, url string) string {
		return "http://" + h.Addr().String() + "/to?url=" + strings.NewReplacer(":", "%3A", "/", "%2F", "?", "%3F", "=", "%3D", "&", "%26", "%", "%25").Replace(url)
	}
	at := func(h *host) string { return "http://" + h.Addr().String() + "/end" }
	secrets := []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key", "X-Custom", "X-lower-case"}
	ask := func(url string) {
		t.Helper()
		*atFirst, *atOther, *atBeside = nil, nil, nil
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range secrets {
			req.Header[name] = []string{"secret"}
		}
		req.Header.Set("Accept", "text/html")
		req.Header.Set("User-Agent", "test")
		if _, _, err := send(t, c, req); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, at *host, got []sent, n int, keeps bool) {
		t.Helper()
		if len(got) != n {
			t.Fatalf("%s heard %d requests, want %d", name, len(got), n)
		}
		h := got[n-1].header
		if h.Get("Host") != at.Addr().String() {
			t.Errorf("%s was asked for %s", name, h.Get("Host"))
		}
		for _, s := range secrets {
			if (h.Get(s) != "") != keeps {
				t.Errorf("%s: %s is %q", name, s, h.Get(s))
			}
		}
		if h.Get("Accept") != "text/html" || h.Get("User-Agent") != "test" || h.Get("Referer") != "" {
			t.Errorf("%s: headers %v", name, h)
		}
	}
	ask(to(first, at(first)))
	check("the same origin", first, *atFirst, 2, true)
	ask(to(first, at(other)))
	check("another host", other, *atOther, 1, false)
	ask(to(first, at(beside)))
	check("another port", beside, *atBeside, 1, false)
	ask(to(first, to(other, at(first))))
	check("back again", first, *atFirst, 2, false)
}

func TestA18_SameOrigin(t *testing.T) {
	for pair, want := range map[string]bool{
		"https://a.example/x https://A.example:443/y":    true,
		"http://a.example/x http://a.example:80/y":       true,
		"http://a.example/x https://a.example/y":         true,
		"https://a.example/x http://a.example/y":         false,
		"https://a.example/x https://b.a.example/y":      false,
		"https://a.example/x https://a.example:8443/y":   false,
		"http://a.example:8080/x https://a.example/y":    false,
		"http://a.example:443/x http://a.example:443/y":  true,
		"http://a.example:80/x https://a.example:80/y":   false,
		"https://a.example:80/x http://a.example:443/y":  false,
		"https://a.example./x https://a.example/y":       false,
		"http://a.example:8080/ https://a.example:8443/": false,
	} {
		a, b, _ := strings.Cut(pair, " ")
		from, err1 := url.Parse(a)
		to, err2 := url.Parse(b)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if got := sameOrigin(from, to); got != want {
			t.Errorf("%s: %t", pair, got)
		}
	}
}

// A18: redirect loops end, invalid targets are errors, and other 3xx responses are
// returned as they are.
func TestA18_Redirects(t *testing.T) {
	srv, got := recorder(t, "127.0.0.1:0")
	c := client(t, Config{Allow: opened(t, "127.0.0.1")})
	base := "http://" + srv.Addr().String()

	circle := base + "/to?secret=1&url="
	_, _, err := get(t, c, circle)
	if err != nil {
		t.Errorf("a redirect without a Location is an answer: %v", err)
	}
	*got = nil
	loop := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		*got = append(*got, sent{})
		http.Redirect(w, r, "/again?secret=1", http.StatusMovedPermanently)
	})
	_, _, err = get(t, c, "http://"+loop.Addr().String())
	want := "HTTP_STATUS: http://" + loop.Addr().String() + "/again?secret=… redirects on after 5 redirects: it may lead in a circle"
	if err == nil || err.Error() != want || len(*got) != 1+MaxRedirects {
		t.Errorf("%v after %d requests", err, len(*got))
	}
	for location, code := range map[string]fault.Code{
		"http://me:secret@127.0.0.1/":        fault.EgressRefused,
		"ftp://127.0.0.1/":                   fault.EgressRefused,
		"javascript:alert(1)":                fault.EgressRefused,
		`\\evil.example\`:                    fault.HTTPStatus,
		"http://%zz/":                        fault.HTTPStatus,
		"/" + strings.Repeat("a", MaxURL):    fault.HTTPStatus,
		"http:///nowhere":                    fault.InputInvalid,
		"//127.0.0.2:1/":                     fault.EgressRefused,
		"http://127.0.0.1.nip.0x7f/":         fault.EgressRefused,
		"http://[::ffff:127.0.0.1]/?secret=": fault.EgressRefused,
	} {
		h := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Location"] = []string{location}
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		_, _, err := get(t, c, "http://"+h.Addr().String()+"/?secret=1")
		if !errors.Is(err, code) || strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), "secret=1") {
			t.Errorf("%.60q: %v, want %s", location, err, code)
		}
		if early := location != "//127.0.0.2:1/"; early && !strings.Contains(err.Error(), " redirects ") {
			t.Errorf("%.60q: %v does not say that a redirect led there", location, err)
		}
	}
	// 304, 300 and 305 are no redirects to follow.
	for _, code := range []int{300, 304, 305, 399} {
		h := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/again")
			w.WriteHeader(code)
		})
		resp, _, err := get(t, c, "http://"+h.Addr().String())
		if err != nil || resp.StatusCode != code {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// A body is repeated when the method is, but never from https to http, and a body that
// cannot be read twice is an error.
func TestA18_RedirectedBodies(t *testing.T) {
	srv, got := recorder(t, "127.0.0.1:0")
	c := client(t, Config{Allow: opened(t, "127.0.0.1")})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+srv.Addr().String()+"/to?code=308&url=/there", io.MultiReader(strings.NewReader("once")))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := send(t, c, req); !errors.Is(err, fault.HTTPStatus) || len(*got) != 1 {
		t.Errorf("%v after %d requests", err, len(*got))
	}
	from, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a.example/", strings.NewReader("secret"))
	if err != nil {
		t.Fatal(err)
	}
	down := &http.Response{StatusCode: http.StatusPermanentRedirect, Header: http.Header{"Location": {"http://a.example/"}}}
	if _, err := follow(from, down); !errors.Is(err, fault.EgressRefused) {
		t.Errorf("out of TLS: %v", err)
	}
}
