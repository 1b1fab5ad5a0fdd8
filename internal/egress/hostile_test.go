// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// hostile are ways to write an address of this machine or its networks, and
// other things that are no public HTTP service. PORT is one that listens on
// every address of this machine.
var hostile = []string{
	"http://127.0.0.1:PORT/",
	"http://127.1:PORT/",
	"http://127.0.1:PORT/",
	"http://127.0.0.1.:PORT/",
	"http://127.127.127.127:PORT/",
	"http://2130706433:PORT/",
	"http://0x7f000001:PORT/",
	"http://0X7F.0.0.1:PORT/",
	"http://0x7f.1:PORT/",
	"http://017700000001:PORT/",
	"http://0177.0.0.1:PORT/",
	"http://00000177.0.0.1:PORT/",
	"http://0:PORT/",
	"http://0.0.0.0:PORT/",
	"http://0x0:PORT/",
	"http://4294967296:PORT/",
	"http://1.2.3.4.5:PORT/",
	"http://...:PORT/",
	"http://[::]:PORT/",
	"http://[::1]:PORT/",
	"http://[0:0:0:0:0:0:0:1]:PORT/",
	"http://[::127.0.0.1]:PORT/",
	"http://[::ffff:127.0.0.1]:PORT/",
	"http://[::ffff:7f00:1]:PORT/",
	"http://[0:0:0:0:0:ffff:127.0.0.1]:PORT/",
	"http://[64:ff9b::7f00:1]:PORT/",
	"http://[2002:7f00:1::]:PORT/",
	"http://[2001:0:7f00:1::]:PORT/",
	"http://[fe80::1]:PORT/",
	"http://[fe80::1%25lo]:PORT/",
	"http://[::1%25lo]:PORT/",
	"http://[fd00:ec2::254]/",
	"http://[127.0.0.1]:PORT/",
	"http://100.64.0.1:PORT/",
	"http://169.254.169.254/latest/meta-data/",
	"http://10.0.0.1:PORT/",
	"http://192.168.0.1:PORT/",
	"http://172.16.0.1:PORT/",
	"http://224.0.0.1:PORT/",
	"http://255.255.255.255:PORT/",
	"http://user@127.0.0.1:PORT/",
	"http://example.com@127.0.0.1:PORT/",
	"http://example.com:80@127.0.0.1:PORT/",
	"http://127.0.0.1:PORT\\@example.com/",
	"http://example.com\\@127.0.0.1:PORT/",
	"http:\\\\127.0.0.1:PORT/",
	"http://127.0.0.1:PORT /",
	"http://127.0.0.1%00.example.com:PORT/",
	"http://127.0.0.1%2f:PORT/",
	"http://127。0。0。1:PORT/",
	"http://１２７.0.0.1:PORT/",
	"http://①②⑦.⓪.⓪.①:PORT/",
	"http://ⓛocalhost:PORT/",
	"http://localhost:PORT/",
	"http://LOCALHOST.:PORT/",
	"http://rebind.example:PORT/",
	"http://:PORT/",
	"http:127.0.0.1:PORT/",
	"http:///127.0.0.1:PORT/",
	"//127.0.0.1:PORT/",
	"127.0.0.1:PORT/",
	"http://127.0.0.1:0/",
	"http://127.0.0.1:65536/",
	"http://127.0.0.1:-1/",
	"http://93.184.215.14:22/",
	"http://93.184.215.14:6667/",
	"file:///etc/passwd",
	"FILE:///etc/passwd",
	"gopher://127.0.0.1:PORT/_GET",
	"ftp://127.0.0.1:PORT/",
	"unix:///var/run/docker.sock",
	"http+unix://%2Fvar%2Frun%2Fdocker.sock/info",
	"data:text/plain,hello",
	"jar:http://127.0.0.1:PORT/!/",
	"ws://127.0.0.1:PORT/",
	"",
	"http://",
	"https://127.0.0.1:PORT/",
}

// A17: none of them reaches this machine, whether a step names it or a redirect
// of a server that may be reached leads there. Every name resolves to loopback.
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
	for _, text := range hostile {
		text = strings.ReplaceAll(text, "PORT", inside.port())
		t.Run(text, func(t *testing.T) {
			_, _, err := get(t, direct, text)
			refusal(t, "direct", err)

			location = text
			if text == "" || strings.HasPrefix(text, "127.") || text == "//127.0.0.1:"+inside.port()+"/" || strings.HasPrefix(text, "http:127") || strings.HasPrefix(text, "http:\\") {
				return // as a Location it means something else; TestA18_Redirects has its own
			}
			_, _, err = get(t, through, "http://"+redirector.Addr().String()+"/")
			refusal(t, "redirect", err)
		})
	}
	if n := inside.count(); n != 0 {
		t.Errorf("%d connections reached this machine", n)
	}
	if len(hostile) < 40 {
		t.Errorf("%d forms", len(hostile))
	}
}

// The same refusals hold for a client as the transport of somebody else's
// http.Client.
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

// A17: proxy settings (TestMain made some) are not read: a proxy would connect
// for us, unchecked. The name matters: loopback is never asked of a proxy.
func TestA17_NoProxy(t *testing.T) {
	dns := names(t, map[string][][]string{"service.example.": {{"127.0.0.1"}}})
	there := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("there")) })
	c := client(t, Config{Resolver: dns.resolver(), Allow: opened(t, "127.0.0.1")})
	if _, body, err := get(t, c, "http://service.example:"+there.port()+"/"); err != nil || body != "there" {
		t.Errorf("%q, %v", body, err)
	}
}

// A18: a name that answers with an address that may be reached, and then with
// one that may not. 127.0.0.2 stands for a public address.
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
	if n := dns.asked["rebind.example."]; n != 1 {
		t.Errorf("%d questions for one connection: what was checked is not what was used", n)
	}
	// An open connection leads where it led when it was checked.
	if _, body, err := get(t, c, url); err != nil || body != "good" || good.count() != 1 {
		t.Errorf("kept alive: %q, %v, %d connections", body, err, good.count())
	}
	c.Close()
	if _, _, err := get(t, c, url); !errors.Is(err, fault.EgressRefused) || !strings.Contains(err.Error(), "127.0.0.1:"+good.port()) {
		t.Errorf("after the name moved: %v", err)
	}
	// A connection to one name is not lent to another.
	if _, _, err := get(t, c, "http://inside.example:"+good.port()+"/"); !errors.Is(err, fault.EgressRefused) {
		t.Errorf("inside: %v", err)
	}
	_ = good.Close()
	c.Close()
	// The address that may be reached does not answer; the next one is refused.
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
