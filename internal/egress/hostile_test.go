// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// hostile returns notations of addresses of this machine or its networks, and other URLs
// that are not public HTTP services. PORT is a port that listens on every address of this
// machine. The action, its alias, the embedded engine and the command line are tested
// with the same list.
func hostile(t *testing.T, port string) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/hostile.txt")
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(list) < 40 {
		t.Fatalf("%d forms", len(list))
	}
	for i := range list {
		list[i] = strings.ReplaceAll(list[i], "PORT", port)
	}
	return list
}

// A17: none of them reaches this machine, whether a step names it or a redirect from an
// allowed server leads there. Every name resolves to loopback.
func TestA17_HostileURLs(t *testing.T) {
	inside := serve(t, ":0", func(http.ResponseWriter, *http.Request) {})
	dns := names(t, map[string][][]string{"*": {{"127.0.0.1", "::1"}}})

	var location string
	redirector := serve(t, "127.0.0.9:0", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Location"] = []string{location}
		w.WriteHeader(http.StatusFound)
	})
	refusal := func(t *testing.T, how string, err error) {
		t.Helper()
		code := fault.CodeOf(err)
		if err == nil || code != fault.EgressRefused && code != fault.InputInvalid && code != fault.HTTPStatus {
			t.Errorf("%s: %v", how, err)
		}
		if row, ok := fault.Lookup(code); !ok || row.Retryable {
			t.Errorf("%s: %s would be tried again", how, code)
		}
	}
	direct := client(t, Config{Resolver: dns.resolver()})
	through := client(t, Config{Resolver: dns.resolver(), Allow: opened(t, "127.0.0.9")})
	for _, text := range hostile(t, inside.port()) {
		t.Run(text, func(t *testing.T) {
			_, _, err := get(t, direct, text)
			refusal(t, "direct", err)

			location = text
			if strings.HasPrefix(text, "127.") || text == "//127.0.0.1:"+inside.port()+"/" || strings.HasPrefix(text, "http:127") || strings.HasPrefix(text, "http:\\") {
				return // as a Location it means something else; TestA18_Redirects has its own
			}
			_, _, err = get(t, through, "http://"+redirector.Addr().String()+"/")
			refusal(t, "redirect", err)
		})
	}
	if n := inside.count(); n != 0 {
		t.Errorf("%d connections reached this machine", n)
	}
}

// The same URLs are refused if the client is the transport of an http.Client.
func TestA17_AsTransport(t *testing.T) {
	inside := serve(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) {})
	hc := http.Client{Transport: client(t, Config{})}
	for _, u := range []string{"http://" + inside.Addr().String(), "http://[::1]:" + inside.port(), "http://localhost:" + inside.port(),
		"http://me:secret@" + inside.Addr().String(), "http://0x7f.1:" + inside.port(), "gopher://" + inside.Addr().String()} {
		resp, err := hc.Post(u, "text/plain", strings.NewReader("x"))
		if err == nil {
			_ = resp.Body.Close()
		}
		if !errors.Is(err, fault.EgressRefused) {
			t.Errorf("%s: %v", u, err)
		}
	}
	if n := inside.count(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// A17: proxy settings (set by TestMain) are ignored, because a proxy would connect
// without the check. The name matters, because a proxy is never used for loopback.
func TestA17_NoProxy(t *testing.T) {
	dns := names(t, map[string][][]string{"service.example.": {{"127.0.0.1"}}})
	there := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("there")) })
	c := client(t, Config{Resolver: dns.resolver(), Allow: opened(t, "127.0.0.1")})
	if _, body, err := get(t, c, "http://service.example:"+there.port()+"/"); err != nil || body != "there" {
		t.Errorf("%q, %v", body, err)
	}
}

// A18: a name that first resolves to an allowed address, and then to one that is not
// allowed. 127.0.0.2 stands for a public address.
func TestA18_Rebinding(t *testing.T) {
	good := serve(t, "127.0.0.2:0", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("good")) })
	bad := serve(t, net.JoinHostPort("127.0.0.1", good.port()), func(http.ResponseWriter, *http.Request) {})
	dns := names(t, map[string][][]string{
		"rebind.example.": {{"127.0.0.2"}, {"127.0.0.1"}},
		"both.example.":   {{"127.0.0.2", "127.0.0.1"}},
		"inside.example.": {{"127.0.0.1"}},
	})
	c := client(t, Config{Resolver: dns.resolver(), Allow: opened(t, "127.0.0.2")})
	url := "http://rebind.example:" + good.port() + "/"

	if _, body, err := get(t, c, url); err != nil || body != "good" {
		t.Fatalf("%q, %v", body, err)
	}
	if n := dns.questions("rebind.example."); n != 1 {
		t.Errorf("%d questions for one connection: what was checked is not what was used", n)
	}
	// An open connection still goes to the address that was checked.
	if _, body, err := get(t, c, url); err != nil || body != "good" || good.count() != 1 {
		t.Errorf("kept alive: %q, %v, %d connections", body, err, good.count())
	}
	c.Close()
	if _, _, err := get(t, c, url); !errors.Is(err, fault.EgressRefused) || !strings.Contains(err.Error(), "127.0.0.1:"+good.port()) {
		t.Errorf("after the name moved: %v", err)
	}
	// A connection to one name is not reused for another.
	if _, _, err := get(t, c, "http://inside.example:"+good.port()+"/"); !errors.Is(err, fault.EgressRefused) {
		t.Errorf("inside: %v", err)
	}
	_ = good.Close()
	c.Close()
	// The allowed address does not answer; the next one is refused.
	if _, _, err := get(t, c, "http://both.example:"+good.port()+"/"); err == nil {
		t.Error("both: no error")
	}
	if n := bad.count(); n != 0 {
		t.Errorf("%d connections reached what was refused", n)
	}
}

// A message says which address was refused and how an operator opens it.
func TestA17_Message(t *testing.T) {
	_, _, err := get(t, client(t, Config{}), "http://169.254.169.254/latest?token=abc123")
	want := "EGRESS_REFUSED: http://169.254.169.254/latest?token=…: 169.254.169.254:80 is refused: 169.254.169.254 is no public address; " +
		"the operator can open its range, for example with ROUX_EGRESS_ALLOW=169.254.169.254/32"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
