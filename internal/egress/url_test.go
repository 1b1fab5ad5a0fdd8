// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net/url"
	"strings"
	"testing"
)

// A17: URLs that are refused before anything is resolved; no message contains what may be
// secret.
func TestA17_ParseURL(t *testing.T) {
	const form = `want a URL such as "https://api.example.com/v1/items"`
	for text, want := range map[string]string{
		"https://example.com/a?b=c":              "",
		"http://example.com:8080":                "",
		"https://xn--bcher-kva.example/":         "",
		"https://bücher.example/":                "",
		"https://93.184.215.14/":                 "",
		"https://[2606:4700::1111]:8443/":        "",
		"https://a_b.example.com./":              "",
		"https://3com.example/":                  "",
		"https://0xface.example/":                "",
		"example.com/a":                          "INPUT_INVALID: the URL has no scheme: " + form,
		"https://me:hunter2@example.com/":        "EGRESS_REFUSED: a URL with a user or password before the host is refused: pass them in a header",
		"https://hunter2@example.com/":           "EGRESS_REFUSED: a URL with a user or password before the host is refused: pass them in a header",
		"ftp://example.com/":                     `EGRESS_REFUSED: a URL of the scheme "ftp" is refused: only http and https are allowed`,
		"https://example.com:hunter2/":           "INPUT_INVALID: the URL is not well formed: " + form,
		"https://me:hunter2@ex ample.com/":       "INPUT_INVALID: the URL holds a backslash, a space or what is no text: " + form,
		"https://exa\x00mple.com/":               "INPUT_INVALID: the URL is not well formed: " + form,
		"https://example.com/\xff":               "INPUT_INVALID: the URL holds a backslash, a space or what is no text: " + form,
		"https://example.com:70000/":             "EGRESS_REFUSED: port 70000 is refused: want a number from 1 to 65535",
		"https://example.com:0/":                 "EGRESS_REFUSED: port 0 is refused: want a number from 1 to 65535",
		"https://exa*mple.com/":                  "INPUT_INVALID: the URL's host holds '*': want letters, digits, - and dots",
		"https://0x7f.1/":                        "EGRESS_REFUSED: 0x7f.1 is refused: it ends in a number and is no IPv4 address in its plain form, such as 192.0.2.1",
		"https://example.0x/":                    "EGRESS_REFUSED: example.0x is refused: it ends in a number and is no IPv4 address in its plain form, such as 192.0.2.1",
		"https://[::ffff:93.184.215.14]/":        "EGRESS_REFUSED: ::ffff:93.184.215.14 is refused: write an IPv4 address in its own form, such as 93.184.215.14",
		"https://[fe80::1%25eth0]/":              "EGRESS_REFUSED: fe80::1%eth0 is refused: an address with a zone is one of this machine's own networks",
		"https://[93.184.215.14]/":               "INPUT_INVALID: the URL is not well formed: " + form,
		"https:example.com":                      "INPUT_INVALID: the URL has no host: " + form,
		"https://" + strings.Repeat("a", 254):    "INPUT_INVALID: the URL's host is no name and no address: " + form,
		"https://a/" + strings.Repeat("a", 8183): "INPUT_INVALID: the URL has 8193 bytes: want at most 8192",
	} {
		u, err := ParseURL(text)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want || (u == nil) != (want != "") {
			t.Errorf("%.60q: %s\nwant %s", text, got, want)
		}
		if strings.Contains(got, "hunter2") {
			t.Errorf("%q is told", got)
		}
	}
}

func TestA20_Show(t *testing.T) {
	for text, want := range map[string]string{
		"https://me:secret@example.com/a/b?key=secret&x=1&y=#secret": "https://example.com/a/b?key=…&x=…&y=…",
		"https://example.com?secret":                                 "https://example.com?…",
		"https://example.com/%0a%1b?a%0ab=1&&c":                      "https://example.com/%0a%1b?a%0Ab=…&…",
		"https://example.com/":                                       "https://example.com/",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Show(u); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
	long, err := url.Parse("https://example.com/" + strings.Repeat("é", 4000) + "?" + strings.Repeat("name=1&", 4000))
	if err != nil {
		t.Fatal(err)
	}
	if got := Show(long); len(got) > 900 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
