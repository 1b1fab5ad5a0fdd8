// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/lens"
	"github.com/roux-engine/roux/internal/spell"
)

// docsURL is where the pages of the documentation are.
const docsURL = "https://github.com/roux-engine/roux/blob/main/docs/"

// check has a document checked. s.mu is held. Several changes before the check begins are one.
func (s *server) check(uri string) {
	s.due[uri] = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// checkDue checks documents until the context ends.
func (s *server) checkDue(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for d := s.nextDue(); d != nil && ctx.Err() == nil; d = s.nextDue() {
			var byFile map[string][]diagnostic
			if err := guarded(func() error {
				byFile = s.problems(d)
				return nil
			}); err != nil {
				s.log(fmt.Sprintf("%s: %v", d.file, err))
				continue
			}
			s.mu.Lock()
			if s.docs[d.uri] == d { // else a newer version is due, or it is closed
				s.publish(d.uri, byFile)
			}
			s.mu.Unlock()
		}
	}
}

// nextDue takes a document that must be checked; nil = there is none.
func (s *server) nextDue() *document {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uri := range slices.Sorted(maps.Keys(s.due)) {
		delete(s.due, uri)
		if d := s.docs[uri]; d != nil {
			return d
		}
	}
	return nil
}

// A published is what was published of the check of one document, by URI: the problems of the document, and
// of files that it includes and that are not open.
type published struct {
	version int
	byURI   map[string][]diagnostic
}

// publish publishes the problems of a document, or takes them back if it is closed. s.mu is held.
func (s *server) publish(uri string, byURI map[string][]diagnostic) {
	old := s.published[uri]
	d := s.docs[uri]
	if d == nil {
		delete(s.published, uri)
	} else {
		s.published[uri] = &published{d.version, byURI}
	}
	uris := map[string]bool{uri: true}
	for other := range byURI {
		uris[other] = true
	}
	if old != nil {
		for other := range old.byURI {
			uris[other] = true
		}
	}
	for _, at := range slices.Sorted(maps.Keys(uris)) {
		p := publishParams{URI: at, Diagnostics: []diagnostic{}}
		switch open := s.docs[at]; {
		case at == uri && d != nil:
			p.Version, p.Diagnostics = &d.version, append(p.Diagnostics, byURI[at]...)
		case open != nil:
			continue // its own check says what is wrong in it
		default:
			for _, from := range slices.Sorted(maps.Keys(s.published)) {
				p.Diagnostics = append(p.Diagnostics, s.published[from].byURI[at]...)
			}
		}
		s.conn.notify("textDocument/publishDiagnostics", p)
	}
}

// A kind is what a document is.
type kind uint8

const (
	foreign kind = iota // some other text in YAML or JSON
	aRecipe
	aLens
)

// is returns what a document is: a lens or a recipe if it has their fields, and a recipe if its name ends as
// those of `roux schema` do, or if it was one before a key was pressed.
func (d *document) is(ignore []string) kind {
	d.told.Do(func() { d.kind = d.tell(ignore) })
	return d.kind
}

func (d *document) tell(ignore []string) kind {
	base := filepath.Base(d.file)
	text := []byte(d.text)
	switch {
	case slices.Contains(ignore, base):
		return foreign
	case lens.Is(d.file, text):
		return aLens
	case d.known:
		return aRecipe
	}
	stem := strings.TrimSuffix(base, filepath.Ext(base))
	for _, l := range dialect.All() {
		if strings.HasSuffix(stem, "."+l.Name) {
			return aRecipe
		}
	}
	if tree, _ := form.Read(d.file, text, d.reads()); tree != nil {
		if _, ok := dialect.Tell(tree); ok {
			return aRecipe
		}
		return foreign
	}
	if dialect.Seems(text) {
		return aRecipe
	}
	return foreign
}

// problems returns what `roux validate` says of a document, by URI.
func (s *server) problems(d *document) map[string][]diagnostic {
	byURI := map[string][]diagnostic{}
	if d.lost != "" {
		byURI[d.uri] = []diagnostic{{Severity: 1, Code: string(fault.RecipeInvalid) + "/" + jsonx.RuleLimit, Source: "roux", Message: d.lost}}
		return byURI
	}
	if d.is(s.cfg.Ignore) == foreign {
		return byURI
	}
	diags, src := s.validate(d)
	for _, p := range diags {
		uri := d.uri
		if p.Pos.File != d.file && p.Pos.File != "" {
			uri = uriOf(p.Pos.File, s.cfg.Dir)
		}
		byURI[uri] = append(byURI[uri], s.diagnostic(d, src, p))
	}
	return byURI
}

// validate checks a document as `roux validate` does.
func (s *server) validate(d *document) ([]fault.Diagnostic, *form.Source) {
	text := []byte(d.text)
	if d.is(s.cfg.Ignore) == aLens {
		_, src, diags := lens.Parse(d.file, text)
		return diags, src
	}
	opt := s.cfg.Options(d.file)
	opt.Expressions, opt.YAML = s.cache, d.parts.Parse
	_, _, src, diags := compile.Source(d.file, text, opt)
	return diags, src.Source
}

func (s *server) diagnostic(d *document, src *form.Source, p fault.Diagnostic) diagnostic {
	out := diagnostic{
		Range: s.placeOf(d, src, p.Pos), Severity: 1, Code: string(p.Code) + "/" + p.Rule, Source: "roux", Message: p.Msg,
		CodeDescription: &codeLink{docsURL + "errors.md#" + strings.ToLower(string(p.Code))},
	}
	if p.Severity == fault.SeverityWarning {
		out.Severity = 2
	}
	if p.Hint != "" {
		out.Message += "\n" + p.Hint
	}
	for _, r := range p.Related {
		uri := d.uri
		if r.Pos.File != d.file && r.Pos.File != "" {
			uri = uriOf(r.Pos.File, s.cfg.Dir)
		}
		out.Related = append(out.Related, relatedPlace{location{uri, s.placeOf(d, src, r.Pos)}, r.Msg})
	}
	if from, to, is, ok := mend(d, src, p); ok {
		out.Data, _ = jsonx.Marshal(textEdit{d.rangeOf(from, to), is})
	}
	return out
}

// placeOf returns the range of a place, also of one in another file, of which only the line and the column
// are known.
func (s *server) placeOf(d *document, src *form.Source, p fault.Pos) textRange {
	if p.File != "" && p.File != d.file {
		start := position{max(0, p.Line-1), max(0, p.Col-1)}
		return textRange{start, position{start.Line, start.Character + max(0, p.Len)}}
	}
	from, to := span(d, src, p)
	return d.rangeOf(from, to)
}

// mark is how a text may begin; the reader of recipes leaves it out.
const mark = "\ufeff"

// span returns where in a document a place is, in bytes.
func span(d *document, src *form.Source, p fault.Pos) (from, to int) {
	from, to = src.Offset(p.Line, p.Col), src.Offset(p.Line, p.Col+max(p.Len, 0))
	if from < 0 {
		return 0, 0
	}
	shift := 0
	if strings.HasPrefix(d.text, mark) {
		shift = len(mark)
	}
	return min(from+shift, len(d.text)), min(max(from, to)+shift, len(d.text))
}

var (
	meant  = regexp.MustCompile(`did you mean "([^"\n]{1,200})"`)
	quoted = regexp.MustCompile(`"([^"\n]{1,200})"`)
)

// mend returns the edit that a hint "did you mean" asks for: which part of the document becomes what.
func mend(d *document, src *form.Source, p fault.Diagnostic) (foundFrom, foundTo int, is string, ok bool) {
	hint := meant.FindStringSubmatch(p.Hint)
	if hint == nil || p.Pos.File != d.file {
		return 0, 0, "", false
	}
	from, to := span(d, src, p.Pos)
	was := d.text[from:to]
	if bare := strings.Trim(was, `"'`); bare != "" && strings.Contains(p.Msg, bare) && len(was)-len(bare) <= 2 {
		at := from + strings.Index(was, bare)
		return at, at + len(bare), hint[1], true
	}
	// The place is what encloses the word, or is before it: the message quotes the word.
	end := len(d.text)
	if line := strings.IndexByte(d.text[from:], '\n'); line >= 0 {
		end = max(to, from+line)
	}
	best := len(hint[1]) + 1
	for _, word := range quoted.FindAllStringSubmatch(p.Msg, 3) {
		at := wordIn(d.text[from:end], word[1])
		if away := spell.Distance(word[1], hint[1], best); at >= 0 && away > 0 && away < best {
			best, ok = away, true
			foundFrom, foundTo = from+at, from+at+len(word[1])
		}
	}
	return foundFrom, foundTo, hint[1], ok
}

// wordIn returns where a word is in a text, or -1.
func wordIn(text, word string) int {
	for at := 0; word != ""; {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return -1
		}
		at += i
		before, after := at == 0 || !nameByte(text[at-1]), at+len(word) == len(text) || !nameByte(text[at+len(word)])
		if before && after {
			return at
		}
		at++
	}
	return -1
}

func nameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// codeActions answers textDocument/codeAction: the edits of hints in a range.
func (s *server) codeActions(d *document, p *documentParams) (any, error) {
	s.mu.Lock()
	known := s.published[d.uri]
	s.mu.Unlock()
	var diags []diagnostic
	if known != nil && known.version == d.version {
		diags = known.byURI[d.uri]
	} else {
		diags = s.problems(d)[d.uri]
	}
	list := []codeAction{}
	for _, diag := range diags {
		var edit textEdit
		if diag.Data == nil || before(diag.Range.End, p.Range.Start) || before(p.Range.End, diag.Range.Start) {
			continue
		}
		if err := decode(diag.Data, &edit); err != nil {
			return nil, err
		}
		list = append(list, codeAction{
			Title: fmt.Sprintf("Change to %q", edit.NewText), Kind: "quickfix", Diagnostics: []diagnostic{diag}, IsPreferred: true,
			Edit: workspaceEdit{map[string][]textEdit{d.uri: {edit}}},
		})
	}
	return list, nil
}

func before(a, b position) bool {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Character, b.Character)) < 0
}

// format answers textDocument/formatting as `roux fmt` formats: the lines that change.
func (s *server) format(d *document, _ *documentParams) (any, error) {
	if d.is(s.cfg.Ignore) == aLens {
		return []textEdit{}, nil
	}
	out, diags := dialect.Format(filepath.ToSlash(d.file), []byte(d.text), int(s.cfg.Options(d.file).MaxSource))
	if diags != nil {
		return nil, failed(codeRequestFailed, "%s", diags[0].String())
	}
	return replaced(d, string(out)), nil
}

// replaced returns the edit that makes a document another text: of the lines from the first to the last that
// differ.
func replaced(d *document, is string) []textEdit {
	was := d.text
	if was == is {
		return []textEdit{}
	}
	same := 0
	for same < min(len(was), len(is)) && was[same] == is[same] {
		same++
	}
	from := strings.LastIndexByte(was[:same], '\n') + 1
	tail := 0
	for tail < min(len(was), len(is))-from && was[len(was)-1-tail] == is[len(is)-1-tail] {
		tail++
	}
	if line := strings.IndexByte(was[len(was)-tail:], '\n'); line >= 0 {
		tail -= line + 1
	} else {
		tail = 0
	}
	return []textEdit{{d.rangeOf(from, len(was)-tail), is[from : len(is)-tail]}}
}
