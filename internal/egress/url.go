// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
)

// MaxURL is how many bytes a URL may have.
const MaxURL = 8 << 10

const wantURL = `want a URL such as "https://api.example.com/v1/items"`

// ParseURL parses the URL of a request: http or https, a host, no user or password. It
// refuses hosts that are unusual notations of IPv4 addresses, because programs read them
// differently. Names are resolved and checked when a connection is made. An error never
// contains the URL, because that may hold secrets.
func ParseURL(text string) (*url.URL, error) {
	if len(text) > MaxURL {
		return nil, fault.New(fault.InputInvalid, "the URL has %d bytes: want at most %d", len(text), MaxURL)
	}
	if strings.ContainsAny(text, "\\ \t\r\n") || !utf8.ValidString(text) {
		return nil, fault.New(fault.InputInvalid, `the URL holds a backslash, a space or what is no text: %s`, wantURL)
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fault.New(fault.InputInvalid, "the URL is not well formed: %s", wantURL)
	}
	if err := checkURL(u); err != nil {
		return nil, err
	}
	return u, nil
}

// checkURL refuses URLs that are never allowed, before anything is resolved.
func checkURL(u *url.URL) error {
	switch {
	case u.Scheme == "":
		return fault.New(fault.InputInvalid, "the URL has no scheme: %s", wantURL)
	case u.Scheme != "http" && u.Scheme != "https":
		return refused("a URL of the scheme %q is refused: only http and https are allowed", cut(u.Scheme, 20))
	case u.User != nil:
		return refused("a URL with a user or password before the host is refused: pass them in a header")
	case u.Opaque != "" || u.Hostname() == "":
		return fault.New(fault.InputInvalid, "the URL has no host: %s", wantURL)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return refused("port %s is refused: want a number from 1 to 65535", cut(p, 20))
		}
	}
	return checkHost(u.Hostname())
}

func checkHost(host string) error {
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
	case ip.Zone() != "":
		return refused("%s is refused: an address with a zone is one of this machine's own networks", host)
	case ip.Is4In6():
		return refused("%s is refused: write an IPv4 address in its own form, such as %s", host, ip.Unmap())
	default:
		return nil
	}
	if len(host) > 253 {
		return fault.New(fault.InputInvalid, "the URL's host is no name and no address: %s", wantURL)
	}
	for _, c := range strings.ToLower(host) {
		// Other scripts are left to the resolver; the address they resolve to is checked
		// like every other.
		if c < utf8.RuneSelf && !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-._", c) {
			return fault.New(fault.InputInvalid, "the URL's host holds %q: want letters, digits, - and dots", c)
		}
	}
	if last := lastLabel(host); isNumber(last) {
		return refused("%s is refused: it ends in a number and is no IPv4 address in its plain form, such as 192.0.2.1", host)
	}
	return nil
}

func lastLabel(host string) string {
	host = strings.TrimRight(host, ".")
	return host[strings.LastIndexByte(host, '.')+1:]
}

// isNumber reports whether some programs read a label as a part of an IPv4 address: a
// decimal, octal or hexadecimal number. No top-level domain is one.
func isNumber(label string) bool {
	if label == "" {
		return true // the host consists only of dots
	}
	digits, hex := strings.CutPrefix(strings.ToLower(label), "0x")
	known := "0123456789"
	if hex {
		known += "abcdef"
	}
	return strings.Trim(digits, known) == ""
}

// Show formats a URL for messages and outputs: without user and fragment, and with the
// names of the query but not its values, which may be secret.
func Show(u *url.URL) string {
	var b strings.Builder
	b.WriteString(u.Scheme + "://" + cut(u.Host, 253) + cut(u.EscapedPath(), 300))
	for i, pair := range strings.Split(u.RawQuery, "&") {
		name, _, valued := strings.Cut(pair, "=")
		switch {
		case pair == "":
			continue
		case b.Len() > 600:
			return b.String() + "&…"
		case i == 0:
			b.WriteByte('?')
		default:
			b.WriteByte('&')
		}
		if valued {
			b.WriteString(cut(url.QueryEscape(unescaped(name)), 60) + "=…")
		} else {
			b.WriteString("…") // it may be a value without a name
		}
	}
	return b.String()
}

func unescaped(name string) string {
	if s, err := url.QueryUnescape(name); err == nil {
		return s
	}
	return name
}

// cut shortens a text for a message.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
