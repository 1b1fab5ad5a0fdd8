// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// A17: an accepted URL has the same scheme, host and port when it is parsed again, so they
// cannot depend on the parser; and no message contains the URL.
func FuzzA17_ParseURL(f *testing.F) {
	text, err := os.ReadFile("testdata/hostile.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f.Add(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "PORT", "8080"))
	}
	f.Add("https://example.com/a?b=c#d")
	f.Add("https://me:hunter2secret@example.com/")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseURL(text)
		if err != nil {
			if code := fault.CodeOf(err); code != fault.EgressRefused && code != fault.InputInvalid {
				t.Errorf("%q: %v", text, err)
			}
			if len(err.Error()) > 500 || strings.Contains(text, "hunter2secret@") && strings.Contains(err.Error(), "hunter2secret") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := url.Parse(u.String())
		if err != nil || again.Scheme != u.Scheme || again.Host != u.Host || again.User != nil || u.User != nil || u.Hostname() == "" {
			t.Errorf("%q is %v, then %v (%v)", text, u, again, err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || strings.ContainsAny(u.Host, "@\\/ \t\r\n%") {
			t.Errorf("%q: scheme %q, host %q", text, u.Scheme, u.Host)
		}
		if shown := Show(u); len(shown) > 1200 || strings.ContainsAny(shown, "\r\n\x1b\x00") {
			t.Errorf("%q is shown as %q", text, shown)
		}
	})
}
