// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/roux-engine/roux/fault"
)

func TestHTMLToMarkdown(t *testing.T) {
	r := New(Config{})
	for _, tt := range []struct{ name, html, base, want string }{
		{"headings, marks and lists", "<h1>Ferry &amp; sea</h1><p>It <b>sails</b> <em>daily</em>, not <del>weekly</del>.</p><ul><li>one</li><li>two</li></ul>", "",
			"# Ferry & sea\n\nIt **sails** *daily*, not ~~weekly~~.\n\n- one\n- two\n"},
		{"a table", "<table><tr><th>Quarter</th><th>Trips</th></tr><tr><td>Q1</td><td>12</td></tr></table>", "",
			"| Quarter | Trips |\n|---------|-------|\n| Q1      | 12    |\n"},
		{"scripts, styles and comments go", "<head><title>t</title><style>p{}</style></head><p>a<script>alert(1)</script>b<!-- c --></p><noscript>n</noscript>", "", "ab\n"},
		{"links that run code go", `<a href="javascript:alert(1)">x</a> <a href=" java` + "\t" + `script:alert(1)">y</a> <a href="vbscript:a">z</a> <a href="data:text/html,a">w</a> <a href="JAVASCRIPT:a">v</a> <a href="https://a.example/b">u</a>`, "",
			"x y z w v [u](https://a.example/b)\n"},
		{"an image that carries its data goes", `<p>a<img src="data:image/png;base64,AAAA" alt="dot">b</p>`, "", "ab\n"},
		{"addresses become absolute", `<a href="../b?c=d#e">x</a> <a href="#top">t</a> <img src="i.png" alt="i">`, "https://a.example/x/y/z",
			"[x](https://a.example/x/b?c=d#e) [t](#top) ![i](https://a.example/x/y/i.png)\n"},
		{"Markdown's own marks are escaped", "<p># 1. *a* _b_ [c](d) `e`</p>", "", "\\# 1. \\*a* \\_b_ \\[c](d) \\`e\\`\n"},
		{"a cell that claims to span millions", "<table><tr><th>a</th></tr><tr><td colspan=99999999999999999999 rowspan=65534>x</td></tr></table>", "",
			"| a |" + strings.Repeat("   |", 99) + "\n|---|" + strings.Repeat("---|", 99) + "\n| x |" + strings.Repeat("   |", 99) + "\n"},
		{"nothing", "", "", "\n"},
		{"no HTML at all", "just text\nof two lines", "", "just text of two lines\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := r.HTMLToMarkdown(context.Background(), strings.NewReader(tt.html), HTMLOptions{Base: tt.base})
			if err != nil || got != tt.want {
				t.Errorf("got  %q, %v\nwant %q", got, err, tt.want)
			}
		})
	}
}

func TestMarkdownToHTML(t *testing.T) {
	r := New(Config{})
	for _, tt := range []struct {
		name, text string
		opts       MarkdownOptions
		want       string
	}{
		{"headings, marks and lists", "# Ferry & sea\n\nIt **sails** *daily*, not ~~weekly~~.\n\n- one\n- [x] two", MarkdownOptions{},
			"<h1>Ferry &amp; sea</h1>\n<p>It <strong>sails</strong> <em>daily</em>, not <del>weekly</del>.</p>\n<ul>\n<li>one</li>\n<li><input checked=\"\" disabled=\"\" type=\"checkbox\"> two</li>\n</ul>\n"},
		{"a table", "| a | b |\n| - | -: |\n| 1 | 2 |", MarkdownOptions{},
			"<table>\n<thead>\n<tr>\n<th>a</th>\n<th style=\"text-align:right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td style=\"text-align:right\">2</td>\n</tr>\n</tbody>\n</table>\n"},
		{"HTML is shown as text", "a <b onclick=x>b</b>\n\n<script>alert(1)</script>\n", MarkdownOptions{},
			"<p>a &lt;b onclick=x&gt;b&lt;/b&gt;</p>\n<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>\n"},
		{"HTML is left out when asked", "a <b>b</b>\n\n<div>c</div>\n", MarkdownOptions{RawHTML: RawOmit}, "<p>a b</p>\n"},
		{"HTML is kept when asked", "a <b>b</b>\n\n<div>c</div>\n", MarkdownOptions{RawHTML: RawKeep}, "<p>a <b>b</b></p>\n<div>c</div>\n"},
		{"links that run code lose their address, also where HTML is kept", "[x](javascript:alert(1)) <javascript:alert(1)> ![y](vbscript:a) [z](JaVaScRiPt:a) [u](https://a.example)", MarkdownOptions{RawHTML: RawKeep},
			"<p><a href=\"\">x</a> <a href=\"\">javascript:alert(1)</a> <img src=\"\" alt=\"y\"> <a href=\"\">z</a> <a href=\"https://a.example\">u</a></p>\n"},
		{"a whole page", "hello", MarkdownOptions{Document: true, Title: `<A> & "B"`, Language: "en"},
			"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>&lt;A&gt; &amp; &#34;B&#34;</title>\n</head>\n<body>\n<p>hello</p>\n</body>\n</html>\n"},
		{"nothing", "", MarkdownOptions{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := r.MarkdownToHTML(context.Background(), strings.NewReader(tt.text), tt.opts)
			if err != nil || got != tt.want {
				t.Errorf("got  %q, %v\nwant %q", got, err, tt.want)
			}
		})
	}
}

// times repeats s to about n bytes.
func times(s string, n int) string { return strings.Repeat(s, n/len(s)) }

// hostileHTML is HTML that is expensive for parsers. The test of builtin has no
// such cases, because the limits are here.
func hostileHTML(n int) map[string]string {
	attrs := strings.Builder{}
	for i := 0; attrs.Len() < n; i++ {
		fmt.Fprintf(&attrs, "a%d=b ", i)
	}
	return map[string]string{
		"a million nested elements": strings.Repeat("<div>", n), "formatting elements": times("<b><i><u>", n), "links in links": times("<a>", n),
		"tables in tables": times("<table><td>", n), "misplaced in a table": "<table>" + times("x<b>", n), "foreign elements": times("<svg><desc>", n),
		"attributes": "<p " + attrs.String() + ">", "one attribute again": "<p " + times("a=b ", n) + ">", "comments": times("<!--", n), "brackets": times("<", n),
		"a cell over everything": "<table><tr><td colspan=99999999999999999999 rowspan=65534>x</table>",
		"many wide cells":        "<table>" + times("<tr><td colspan=1000 rowspan=1000>x</td></tr>", n) + "</table>",
		"formatting around many": strings.Repeat("<b><i><u>", 50) + times("<p>x</p>", n), "spaces": times(" \n", n), "marks": times("*_`# ", n), "code": "<pre>" + times("`a\n", n) + "</pre>",
	}
}

// hostileMarkdown needs quadratic time in one parser or another.
func hostileMarkdown(n int) map[string]string {
	ticks, list := strings.Builder{}, strings.Builder{}
	for i := 1; ticks.Len() < n; i++ {
		ticks.WriteString(strings.Repeat("`", i) + " ")
	}
	for i := 0; list.Len() < n; i++ {
		list.WriteString(strings.Repeat("  ", i) + "- a\n")
	}
	return map[string]string{
		"nested brackets": times("[", n), "brackets that close": strings.Repeat("[", n/2) + strings.Repeat("]", n/2), "links in links": times("[a](", n),
		"images": times("![", n), "backticks": ticks.String(), "emphasis runs": times("*a_ ", n), "emphasis inside words": times("_a*", n), "strong": times("a**b", n),
		"quotes in quotes": times("> ", n), "lists in lists": list.String(), "angle links": times("[x](<", n), "strikes": times("~~a", n), "definitions": times("[a]: b\n", n),
		"open HTML": times("<a ", n), "comments": times("<!--", n), "pipes": "|a|\n|-|\n" + times("|", n),
	}
}

// I15, I16: a megabyte that parsers are slow at, or crash on, is converted or
// refused within the time and memory of the child, and the parent survives.
func TestI15_I16_HostileMarkup(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the work is done in child processes, one after the other")
	}
	defer goleak.VerifyNone(t)
	size := 1 << 20
	if testing.Short() {
		size = 1 << 17
	}
	convert := func(t *testing.T, name, kind string, f func(context.Context, *Reader) (string, error)) {
		t.Run(kind+"/"+name, func(t *testing.T) {
			t.Parallel()
			// Less than the default, to save time; the worst case is tested with the
			// default below.
			r := New(Config{Stall: 400 * time.Millisecond})
			var took time.Duration
			r.childEnded = func(s *os.ProcessState) { took = s.UserTime() + s.SystemTime() }
			out, err := f(context.Background(), r)
			if err != nil && !errors.Is(err, fault.FileTooLarge) && !errors.Is(err, fault.FileInvalid) {
				t.Errorf("error = %v", err)
			}
			if len(out) > maxText {
				t.Errorf("%d bytes came out", len(out))
			}
			// One second of CPU time of the child.
			if took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			t.Logf("%v, %d bytes out, %v", took.Round(time.Millisecond), len(out), err)
		})
	}
	t.Run("all", func(t *testing.T) { // ends when the parallel subtests have ended
		for name, text := range hostileHTML(size) {
			convert(t, name, "html", func(ctx context.Context, r *Reader) (string, error) {
				return r.HTMLToMarkdown(ctx, strings.NewReader(text), HTMLOptions{})
			})
		}
		for name, text := range hostileMarkdown(size) {
			convert(t, name, "markdown", func(ctx context.Context, r *Reader) (string, error) {
				return r.MarkdownToHTML(ctx, strings.NewReader(text), MarkdownOptions{})
			})
		}
	})
	r := New(Config{})
	var took time.Duration
	r.childEnded = func(s *os.ProcessState) { took = s.UserTime() + s.SystemTime() }
	_, err := r.MarkdownToHTML(context.Background(), strings.NewReader(times("_a*", 1<<20)), MarkdownOptions{})
	if !errors.Is(err, fault.FileTooLarge) || took > 20*time.Second {
		t.Errorf("by default after %v: %v", took, err)
	}
	if got, err := r.MarkdownToHTML(context.Background(), strings.NewReader("fine"), MarkdownOptions{}); err != nil || got != "<p>fine</p>\n" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

func TestMarkupRefusals(t *testing.T) {
	r := New(Config{})
	toMD := func(text, base string) error {
		_, err := r.HTMLToMarkdown(context.Background(), strings.NewReader(text), HTMLOptions{Base: base})
		return err
	}
	for _, tt := range []struct {
		name string
		err  error
		code fault.Code
		says string
	}{
		{"bad UTF-8", toMD("a\xffb", ""), fault.FileInvalid, "not valid UTF-8"},
		{"too many bytes", toMD(strings.Repeat("a", MaxMarkup+1), ""), fault.FileTooLarge, "the HTML has more than 8 MiB"},
		{"nested too deep", toMD(strings.Repeat("<div>", 513), ""), fault.FileInvalid, "more than 512 deep"},
		{"a base that is no address", toMD("a", "../x"), fault.InputInvalid, "not absolute"},
	} {
		if !errors.Is(tt.err, tt.code) || !strings.Contains(tt.err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s with %q", tt.name, tt.err, tt.code, tt.says)
		}
	}
}

// The same text always gives the same bytes.
func TestMarkupIsDeterministic(t *testing.T) {
	page := "<ul><li>a<table><tr><td>b</td></tr></table></li></ul>" + strings.Repeat(`<p class=a id=b>x <a href="/y">z</a></p>`, 50)
	req := request{Op: opHTML, MaxBytes: MaxMarkup, Markup: &markup{Base: "https://a.example"}}
	first, err := convertMarkup([]byte(page), req)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, err := convertMarkup([]byte(page), req); err != nil || again != first {
			t.Fatalf("%q, %v, want %q", again, err, first)
		}
	}
}

// Any bytes are converted without a panic. Inputs are short, because a fuzz
// target has no child to limit the time.
func FuzzHTML(f *testing.F) {
	f.Add([]byte(`<h1>a</h1><table><tr><td colspan=2>b</td></tr></table><a href="javascript:x">y</a>`))
	f.Add([]byte("<svg><math><template><select><frameset>"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4<<10 {
			t.Skip("long inputs are the child's")
		}
		text, err := convertMarkup(data, request{Op: opHTML, Markup: &markup{Base: "https://a.example/b"}})
		if err == nil && strings.Contains(strings.ToLower(text), "](javascript:") && !strings.Contains(strings.ToLower(string(data)), "](javascript:") {
			t.Errorf("a link runs code: %q", text)
		}
	})
}

func FuzzMarkdown(f *testing.F) {
	f.Add([]byte("# a\n\n|a|b|\n|-|-|\n|1|2|\n\n<b>c</b> [d](javascript:e) ```x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4<<10 {
			t.Skip("long inputs are the child's")
		}
		text, err := convertMarkup(data, request{Op: opMarkdown, Markup: &markup{RawHTML: RawEscape}})
		if err == nil && (strings.Contains(text, "<script") || strings.Contains(strings.ToLower(text), `href="javascript:`)) {
			t.Errorf("what runs code came through: %q", text)
		}
	})
}
