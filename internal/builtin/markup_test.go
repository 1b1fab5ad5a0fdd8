// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"errors"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// The conversions are tested in media; this tests what the actions add.
func TestMarkup(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	s := store(t)
	page := upload(t, s, "times.html", []byte("\xef\xbb\xbf<h1>Ferry</h1><script>x</script><table><tr><th>a</th></tr><tr><td>1</td></tr></table><a href='/b'>c</a>"))
	out, err := call(t, s, "html-to-markdown", m{"file": page.Hash, "baseUrl": "https://a.example"})
	want := "# Ferry\n\n| a |\n|---|\n| 1 |\n\n[c](https://a.example/b)\n"
	if err != nil || out["text"] != want || out["sizeBytes"] != int64(len(want)) {
		t.Errorf("%q, %v", out["text"], err)
	}
	out, err = call(t, s, "html-to-markdown", m{"file": page.Hash, "output": "file"})
	if err != nil || !strings.HasPrefix(content(t, s, out["file"]), "# Ferry\n") || out["text"] != nil {
		t.Errorf("%v, %v", out, err)
	}
	f, err := s.Open(t.Context(), "acme", out["file"].(string))
	if err != nil || f.Info().Name != "times.md" {
		t.Errorf("%v, %v", f, err)
	}
	_ = f.Close()
	out, err = call(t, s, "markdown-to-html", m{"text": "# a\n\n<b>x</b> [l](javascript:y)"})
	if err != nil || out["text"] != "<h1>a</h1>\n<p>&lt;b&gt;x&lt;/b&gt; <a href=\"\">l</a></p>\n" {
		t.Errorf("%q, %v", out["text"], err)
	}
	notes := upload(t, s, "notes.md", []byte("hello"))
	out, err = call(t, s, "markdown-to-html", m{"file": notes.Hash, "document": true, "language": "de"})
	if err != nil || !strings.Contains(out["text"].(string), "<html lang=\"de\">") || !strings.Contains(out["text"].(string), "<title>notes</title>") {
		t.Errorf("%q, %v", out["text"], err)
	}
}

// I15, I16: a million nested elements and a megabyte of emphasis end in a
// fault, and the actions keep working.
func TestI15_I16_Markup(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	s := store(t)
	divs := upload(t, s, "deep.html", []byte(strings.Repeat("<div>", 1_000_000)))
	slow := upload(t, s, "slow.md", []byte(strings.Repeat("_a*", 1<<20/3)))
	latin := upload(t, s, "latin.html", []byte("<p>caf\xe9</p>"))
	for _, tt := range []struct {
		name, action string
		input        m
		code         fault.Code
		says         string
	}{
		{"a million elements", "html-to-markdown", m{"file": divs.Hash}, fault.FileInvalid, "nested more than 512 deep"},
		{"a megabyte of emphasis", "markdown-to-html", m{"file": slow.Hash}, fault.FileTooLarge, "takes more than 3s of computing"},
		{"another encoding", "html-to-markdown", m{"file": latin.Hash}, fault.FileInvalid, "latin.html is not valid UTF-8 at byte 6"},
		{"a base that is none", "html-to-markdown", m{"text": "a", "baseUrl": "a.example"}, fault.InputInvalid, "not absolute"},
		{"both", "markdown-to-html", m{"text": "a", "file": slow.Hash}, fault.InputInvalid, "both given"},
	} {
		_, err := call(t, s, tt.action, tt.input)
		if !errors.Is(err, tt.code) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s with %q", tt.name, err, tt.code, tt.says)
		}
	}
	if out, err := call(t, s, "markdown-to-html", m{"text": "fine"}); err != nil || out["text"] != "<p>fine</p>\n" {
		t.Errorf("afterwards: %v, %v", out, err)
	}
}
