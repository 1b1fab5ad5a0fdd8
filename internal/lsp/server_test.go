// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/fuzztest"
)

// TestProblemsAreThoseOfValidate: each problem of each text is published with its place, its code and its message.
func TestProblemsAreThoseOfValidate(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../examples/*.yaml", "../compile/*/testdata/*/*.yaml", "../compile/*/testdata/*/*.json"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	total := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cfg := config(filepath.Dir(file))
		name := filepath.Base(file)
		_, _, _, want := compile.Source(name, text, cfg.Options(name))
		s := &server{cfg: cfg, cache: expressions.NewLasting()}
		d := newDocument("file:///"+name, name, 1, string(text), false)
		d.known = true
		var got []diagnostic
		for _, list := range s.problems(d) {
			got = append(got, list...)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d problems, want %d", file, len(got), len(want))
			continue
		}
		for i, w := range want {
			total++
			g := got[i]
			message, _, _ := strings.Cut(g.Message, "\n")
			line := max(0, w.Pos.Line-1)
			if g.Code != string(w.Code)+"/"+w.Rule || !strings.HasPrefix(w.Msg, message) || g.Range.Start.Line != line || len(g.Related) != len(w.Related) {
				t.Errorf("%s: %v became %+v", file, w, g)
			}
		}
	}
	if total < 50 {
		t.Errorf("only %d problems were compared", total)
	}
	t.Logf("%d problems in %d texts", total, len(files))
}

// TestHints applies the edit of each hint "did you mean" and looks whether the problem is gone.
func TestHints(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"name: a\nstatus: draft\nsteps:\n  - {id: x, transform: {expression: '1'}}\noutput: {n: '1'}\n", "outputs: {"},
		{"dialect: recipe\nname: a\nstep:\n  - {id: x, transform: {expression: '1'}}\n", "steps:"},
		{"name: a\nsteps:\n  - {id: x, transform: {expression: '1', outputBinding: count}}\n  - {id: y, transform: {expression: cuont}}\n", "expression: count"},
		{"name: a\nsteps:\n  - {id: fetch, transform: {expression: '1'}}\n  - {id: y, transform: {expression: steps.fecth.output}}\n", "steps.fetch.output"},
		{"name: a\nsteps:\n  - {id: fetch, transform: {expression: '1'}}\n  - {id: y, transform: {expression: steps.fetch.ouput}}\n", "steps.fetch.output"},
		{"name: a\nstatus: activ\nsteps:\n  - {id: x, transform: {expression: '1'}}\n", "status: active"},
		{"name: a\nsteps:\n  - {id: x, action: {name: \"wordcount\", parameters: {text: a}}}\n", "\"word-count\""},
		{"name: a\nsteps:\n  - {id: x, action: {name: word-count, parameters: {txt: a}}}\n", "{text: a}"},
		{"name: a\nsteps:\n  - {id: x, transform: {expression: \"'a'.lowrAscii()\"}}\n", "lowerAscii()"},
		{"name: a\nsteps:\n  - {id: x, fail: {message: \"{{ 'a' | uper }}\"}}\n", "| upper"},
	} {
		c := newClient(t, config(t.TempDir()))
		c.open("file:///a.yaml", tt.text)
		if len(c.problems("file:///a.yaml", 1)) == 0 {
			t.Fatalf("no problem in\n%s", tt.text)
		}
		var list []codeAction
		all := textRange{position{}, position{1000, 0}}
		if err := c.call("textDocument/codeAction", map[string]any{"textDocument": map[string]any{"uri": "file:///a.yaml"}, "range": all}, &list); err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			t.Errorf("no edit for\n%s%v", tt.text, c.diags["file:///a.yaml"].Diagnostics)
			continue
		}
		if got := apply(t, tt.text, list[0].Edit.Changes["file:///a.yaml"]); !strings.Contains(got, tt.want) || len(got) > len(tt.text)+4 {
			t.Errorf("got\n%s\nwant %s in it", got, tt.want)
		}
	}
}

// TestNewestVersionWins: of many changes at once the last is checked, and no version is published after a newer one.
func TestNewestVersionWins(t *testing.T) {
	c := newClient(t, config(t.TempDir()))
	const uri = "file:///a.yaml"
	c.open(uri, longText("recipe", 300))
	go func() { // a client reads while it writes
		for v := 2; v <= 40; v++ {
			text := longText("recipe", 300)
			if v < 40 {
				text += fmt.Sprintf("  - {id: extra, when: nothing%d, transform: {expression: '1'}}\n", v)
			}
			c.notify("textDocument/didChange", map[string]any{"textDocument": map[string]any{"uri": uri, "version": v}, "contentChanges": []any{map[string]any{"text": text}}})
		}
	}()
	last := 0
	for last < 40 {
		msg := c.next()
		if msg.Method != "textDocument/publishDiagnostics" {
			continue
		}
		if v := *c.diags[uri].Version; v <= last {
			t.Fatalf("version %d was published after %d", v, last)
		} else {
			last = v
		}
	}
	for _, d := range c.diags[uri].Diagnostics {
		if d.Severity == 1 {
			t.Errorf("the last version has %s", d.Message)
		}
	}
}

// TestAPanicEndsOneRequest: what was asked is answered with an internal error, and the server lives.
func TestAPanicEndsOneRequest(t *testing.T) {
	cfg := config(t.TempDir())
	options := cfg.Options
	cfg.Options = func(file string) compile.Options {
		if strings.Contains(file, "panic") {
			panic("on purpose")
		}
		return options(file)
	}
	c := newClient(t, cfg)
	c.open("file:///panic.yaml", twoSteps)
	err := c.call("textDocument/formatting", at("file:///panic.yaml", position{}), nil)
	var e *rpcError
	if !errors.As(err, &e) || e.Code != codeInternal {
		t.Errorf("got %v, want an internal error", err)
	}
	c.open("file:///a.yaml", twoSteps)
	if got := c.problems("file:///a.yaml", 1); len(got) > 0 {
		t.Errorf("after it: %v", got)
	}
	if !slices.ContainsFunc(c.logs, func(line string) bool { return strings.Contains(line, "on purpose") }) {
		t.Errorf("nothing was logged: %q", c.logs)
	}
}

// TestCancel cancels a request that waits, and it is answered as cancelled.
func TestCancel(t *testing.T) {
	cfg := config(t.TempDir())
	options, reached, goOn := cfg.Options, make(chan bool, 8), make(chan bool)
	cfg.Options = func(file string) compile.Options {
		if strings.Contains(file, "slow") {
			reached <- true
			<-goOn
		}
		return options(file)
	}
	c := newClient(t, cfg)
	c.open("file:///slow.yaml", twoSteps)
	<-reached // the check
	id := json.RawMessage(`"format"`)
	params, _ := json.Marshal(at("file:///slow.yaml", position{}))
	c.conn.write(&message{ID: &id, Method: "textDocument/formatting", Params: params})
	<-reached
	c.notify("$/cancelRequest", map[string]any{"id": "format"})
	if err := c.call("textDocument/hover", at("file:///none.yaml", position{}), nil); err == nil { // the messages before it are carried out
		t.Error("a hover in a document that is not open was answered")
	}
	close(goOn)
	for {
		msg := c.next()
		if msg.ID == nil || string(*msg.ID) != `"format"` {
			continue
		}
		if msg.Error == nil || msg.Error.Code != codeCancelled {
			t.Errorf("got %+v, want that it was cancelled", msg)
		}
		return
	}
}

// TestLargeDocuments are refused with a message, and are no reason to end.
func TestLargeDocuments(t *testing.T) {
	c := newClient(t, config(t.TempDir()))
	text := twoSteps + strings.Repeat("# much\n", form.MaxBytes/7)
	c.open("file:///a.yaml", text)
	got := c.problems("file:///a.yaml", 1)
	if len(got) != 1 || !strings.Contains(got[0].Message, "the limit is 16777216") {
		t.Fatalf("got %+v", got)
	}
	if err := c.call("textDocument/hover", at("file:///a.yaml", position{}), nil); err == nil || !strings.Contains(err.Error(), "the limit is") {
		t.Errorf("got %v", err)
	}
	c.notify("textDocument/didChange", map[string]any{"textDocument": map[string]any{"uri": "file:///a.yaml", "version": 2}, "contentChanges": []any{map[string]any{"text": twoSteps}}})
	if got := c.problems("file:///a.yaml", 2); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestManyChanges makes changes one after the other in one message, and compares them with the same changes in
// a message each.
func TestManyChanges(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	words := []string{"", "a", "\n", "\r", "\r\n", "é", "😀", "one\ntwo", "\r\r\n\n", "a long line", "\nx\r"}
	for round := range 3000 {
		d := newDocument("file:///a.yaml", "a.yaml", 1, "first\r\nsecond\rthird\n", round%2 == 0)
		want := d
		var changes []contentChange
		for range 1 + dice.IntN(6) {
			at := func() position { return position{dice.IntN(7) - 1, dice.IntN(9) - 1} }
			c := contentChange{Range: &textRange{at(), at()}, Text: words[dice.IntN(len(words))]}
			if dice.IntN(12) == 0 {
				c.Range = nil
			}
			changes = append(changes, c)
			text := c.Text
			if c.Range != nil {
				from, to := want.offset(c.Range.Start), want.offset(c.Range.End)
				text = want.text[:min(from, to)] + c.Text + want.text[max(from, to):]
			}
			want = newDocument(d.uri, d.file, 2, text, d.utf8)
		}
		if got := d.changed(changes, 2); got.text != want.text || !slices.Equal(got.starts, want.starts) || got.lost != "" {
			t.Fatalf("round %d, %+v: %q, want %q", round, changes, got.text, want.text)
		}
	}
}

// TestChangesAreBounded: changes that would copy a long line again and again are refused, and many of a text with
// short lines are not.
func TestChangesAreBounded(t *testing.T) {
	const uri = "file:///a.yaml"
	c := newClient(t, config(t.TempDir()))
	changes := func(version, n, line int) {
		list := make([]any, n)
		for i := range list {
			list[i] = contentChange{Range: &textRange{position{line, 0}, position{line, 0}}, Text: "#"}
		}
		c.notify("textDocument/didChange", map[string]any{"textDocument": map[string]any{"uri": uri, "version": version}, "contentChanges": list})
	}
	c.open(uri, twoSteps+strings.Repeat("# much\n", 1<<17)+"# "+strings.Repeat("x", 8<<20))
	changes(2, 5000, strings.Count(twoSteps, "\n"))
	if got := c.problems(uri, 2); len(got) == 1 && strings.Contains(got[0].Message, "too many") {
		t.Fatalf("changes of a short line were refused: %v", got)
	}
	changes(3, 5000, 1<<20)
	if got := c.problems(uri, 3); len(got) != 1 || !strings.Contains(got[0].Message, "5000 changes of /a.yaml at once are too many") {
		t.Fatalf("got %v", got)
	}
	changes(4, 1, 0)
	if got := c.problems(uri, 4); len(got) != 1 || !strings.Contains(got[0].Message, "at once are too many") {
		t.Fatalf("a change of a text that is not known: %v", got)
	}
	c.notify("textDocument/didChange", map[string]any{"textDocument": map[string]any{"uri": uri, "version": 5}, "contentChanges": []any{map[string]any{"text": twoSteps}}})
	if got := c.problems(uri, 5); len(got) != 0 {
		t.Errorf("after the whole text: %v", got)
	}
}

// TestWaitingRequestsAreBounded: one more than may wait is refused, and those that wait are answered.
func TestWaitingRequestsAreBounded(t *testing.T) {
	cfg := config(t.TempDir())
	options, goOn := cfg.Options, make(chan bool)
	cfg.Options = func(file string) compile.Options {
		<-goOn
		return options(file)
	}
	c := newClient(t, cfg)
	c.open("file:///slow.yaml", twoSteps)
	params, err := json.Marshal(at("file:///slow.yaml", position{}))
	if err != nil {
		t.Fatal(err)
	}
	const more = 3
	go func() { // the server does not read on while nobody reads what it answers
		for i := range maxWaiting + more {
			id := json.RawMessage(fmt.Sprintf(`"w%d"`, i))
			c.conn.write(&message{ID: &id, Method: "textDocument/formatting", Params: params})
		}
	}()
	answered, refused := 0, 0
	for answered+refused < maxWaiting+more {
		msg := c.next()
		switch {
		case msg.ID == nil:
		case msg.Error == nil:
			answered++
		case strings.Contains(msg.Error.Message, "requests wait for their answers already"):
			if refused++; refused == more {
				close(goOn)
			}
		default:
			t.Fatal(msg.Error)
		}
	}
	if answered != maxWaiting {
		t.Errorf("%d requests were answered, want %d", answered, maxWaiting)
	}
}

// TestFrames are streams that are no messages, and messages that are none of ours.
func TestFrames(t *testing.T) {
	frame := func(body string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body) }
	for _, tt := range []struct{ name, in, err, out string }{
		{"nothing", "", ErrNoShutdown.Error(), ""},
		{"exit alone", frame(`{"jsonrpc":"2.0","method":"exit"}`), ErrNoShutdown.Error(), ""},
		{"no length", "Content-Type: x\r\n\r\n{}", "no Content-Length", ""},
		{"a length that is none", "Content-Length: -1\r\n\r\n{}", "malformed header", ""},
		{"a long header", strings.Repeat("x", 10_000), "more than 4096 bytes", ""},
		{"a body that ends", "Content-Length: 1000\r\n\r\n{}", "unexpected EOF", ""},
		{"no JSON", frame(`{"jsonrpc":`), ErrNoShutdown.Error(), "-32700"},
		{"another version", frame(`{"jsonrpc":"1.0","id":1,"method":"x"}`), ErrNoShutdown.Error(), "-32600"},
		{"before initialize", frame(`{"jsonrpc":"2.0","id":1,"method":"textDocument/hover"}`), ErrNoShutdown.Error(), "-32002"},
		{"an end in order", frame(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`) + frame(`{"jsonrpc":"2.0","id":2,"method":"shutdown"}`) + frame(`{"jsonrpc":"2.0","method":"exit"}`), "", "positionEncoding"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := Serve(t.Context(), config("/w"), strings.NewReader(tt.in), &out)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got the error %v, want %q", err, tt.err)
			}
			if !strings.Contains(out.String(), tt.out) {
				t.Errorf("got %.200q, want %q in it", out.String(), tt.out)
			}
		})
	}
}

// TestALongMessage is refused, and the next one is read.
func TestALongMessage(t *testing.T) {
	in := io.MultiReader(strings.NewReader(fmt.Sprintf("Content-Length: %d\r\n\r\n", maxMessage+1)), io.LimitReader(spaces{}, maxMessage+1),
		strings.NewReader("Content-Length: 58\r\n\r\n"+`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`))
	var out bytes.Buffer
	if err := Serve(t.Context(), config("/w"), in, &out); !errors.Is(err, ErrNoShutdown) {
		t.Error(err)
	}
	if got := out.String(); !strings.Contains(got, "the limit is") || !strings.Contains(got, "positionEncoding") {
		t.Errorf("got %.300q", got)
	}
}

// spaces is a stream of white space.
type spaces struct{}

// Read implements [io.Reader].
func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// probed are texts at whose places the server is asked.
var probed = []struct{ file, text string }{
	{"a.yaml", twoSteps},
	{"b.yaml", "nodes:\n  - {id: fetch-page, handler: word-count, config: {text: '{{ fetch-page.output }}'}}\n"},
	{"c.flow.json", `{"nodes": [{"id": "a", "lens_id": "x"}], "edges": [{"source_node_id": "a", "target_node_id": "a"}]}`},
	{"d.yaml", "steps: [{id: x, when: steps.x, fail: {message: \"{{ x | \"}}]\nlens: x\n"},
	{"e.yaml", "plan_definition:\n  steps:\n    - id: x\n      loop: {over: input.é, as: p, steps: [{id: y, transform: {expression: >-\n p['a'] }}]}\r\n"},
}

// FuzzServer feeds the server a document, a change and requests at a place in it; see probe.
func FuzzServer(f *testing.F) {
	for _, p := range probed {
		f.Add(p.file, p.text, uint16(40), "é😀\r", uint8(2))
	}
	for i, text := range fuzztest.Strings(fuzztest.Recipes(f)) {
		f.Add("a.yaml", text, uint16(len(text)/2+i), "x", uint8(1))
	}
	cfg := config("/w")
	f.Fuzz(func(t *testing.T, file, text string, place uint16, insert string, cut uint8) {
		if len(text) <= 10_000 && utf8.ValidString(text) && utf8.ValidString(insert) {
			probe(t, cfg, file, text, int(place), insert, int(cut))
		}
	})
}

// TestEveryPlace asks at every place of some texts, as they are and with a character too many or too few.
func TestEveryPlace(t *testing.T) {
	cfg := config("/w")
	for _, p := range probed {
		for place := 0; place <= len(p.text); place++ {
			insert, cut := []string{"", "", "{", "'", ".", "\n"}[place%6], place%2
			probe(t, cfg, p.file, p.text, place, insert, cut)
			if t.Failed() {
				t.Fatalf("at %d of %s", place, p.file)
			}
		}
	}
}

// probe changes a document and asks at a place in it. Every request must be answered, without a panic, and what is
// found must be in the document.
func probe(t *testing.T, cfg Config, file, text string, place int, insert string, cut int) {
	s := &server{cfg: cfg, cache: expressions.NewLasting()}
	d := newDocument("file:///w/"+file, fileOf("file:///w/"+file, "/w"), 1, text, place%2 == 0)
	p := d.position(place)
	from := d.offset(p)
	d = d.changed([]contentChange{{Range: &textRange{p, d.position(min(from+cut, len(text)))}, Text: insert}}, 2)
	d.known = true
	for i := 0; i <= len(d.text); i++ {
		if i < len(d.text) && !utf8.RuneStart(d.text[i]) || strings.HasSuffix(d.text[:i], "\r") && strings.HasPrefix(d.text[i:], "\n") {
			continue
		}
		if at := d.position(i); d.position(d.offset(at)) != at {
			t.Fatalf("the position %v of byte %d is another one: %v", at, i, d.position(d.offset(at)))
		}
	}
	params := &documentParams{Position: p, NewName: "renamed", Range: textRange{position{}, p}}
	for _, h := range []func(*document, *documentParams) (any, error){
		s.hover, s.complete, s.definition, s.references, s.prepareRename, s.symbols, s.format, s.codeActions, s.rename,
	} {
		var err error
		fuzztest.Bounded(t, "a request", func() { _, err = h(d, params) })
		var e *rpcError
		if err != nil && (!errors.As(err, &e) || e.Code == codeInternal) {
			t.Fatal(err)
		}
	}
	for _, o := range s.reading(d).occurs {
		if d.text[o.from:o.to] != o.sym.name {
			t.Fatalf("%q stands where %q should be", d.text[o.from:o.to], o.sym.name)
		}
	}
}

// FuzzFrames reads streams of any bytes.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("Content-Length: 2\r\n\r\n{}Content-Length: 0\n\n"))
	f.Add([]byte(`Content-Length: 46` + "\r\n\r\n" + `{"jsonrpc":"2.0","id":1,"method":"initialize"}`))
	cfg := config("/w")
	f.Fuzz(func(t *testing.T, in []byte) {
		_ = Serve(t.Context(), cfg, bytes.NewReader(in), io.Discard)
	})
}
