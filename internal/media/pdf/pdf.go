// SPDX-License-Identifier: Apache-2.0

// Package pdf reads PDF files that nobody vouches for: their pages, title and
// author, and their text as Markdown.
//
// It decides what stands where on a page, in which order that is read, and which
// fault stands for a file that cannot be read. Objects, filters and decryption
// are those of pdfcpu. A hostile file may hang it, use much memory or make it
// panic, so package media calls it in a child process with limits; it knows
// nothing of that process.
package pdf

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
	"golang.org/x/text/encoding/charmap"

	"github.com/roux-engine/roux/fault"
)

// Bounds on the page tree: a sound one is shallow and has few inner nodes.
const (
	maxTreeDepth = 64
	maxTreeNodes = 100_000
)

// Large is the size from which on a file needs so much memory that a second look
// at its table of objects is left out.
const Large = 24 << 20

// MaxText bounds the text of one document, in bytes.
const MaxText = 32 << 20

// A Document is what a PDF file holds.
type Document struct {
	PageCount int    `json:"pageCount"`
	Title     string `json:"title,omitempty"`
	Author    string `json:"author,omitempty"`
	// Repaired says that the file was damaged and has been read all the same.
	Repaired bool `json:"repaired,omitempty"`
	// The following are set by Text only. Pages are not part of the JSON form,
	// because they travel one by one.
	Pages    []Page    `json:"-"`
	Headings []Heading `json:"headings,omitempty"`
}

// A Page is the text of one page.
type Page struct {
	Number   int    `json:"number"`
	Markdown string `json:"markdown"`
	Words    int    `json:"words"`
	// Problem says why text of this page may be missing; "" = none known.
	Problem string `json:"problem,omitempty"`
}

// A Heading is a line that stands out, with its level from 1.
type Heading struct {
	Level int    `json:"level"`
	Text  string `json:"text"`
	Page  int    `json:"page"`
}

// LastPage as the end of a PageRange means the end of the document.
const LastPage = 1<<31 - 1

// A PageRange names pages, counted from 1; both ends belong to it.
type PageRange struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Options shape the result of Text.
type Options struct {
	MaxPages int // a document that has more is FILE_TOO_LARGE
	// Pages are read, in the order of the document; nil = all. A page that the
	// document does not have is INPUT_INVALID.
	Pages []PageRange
	// Plain leaves out all marks: paragraphs only.
	Plain bool
	// Page is called with each page in order. Default: Document.Pages collects them.
	Page func(Page) error
	// Progress is called each time that a page has been looked at, which happens
	// twice. Optional. An error of either function ends Text and is returned.
	Progress func(done, total int) error
}

// Info returns the facts of a PDF file: its pages, its title and its author.
func Info(data []byte, maxPages int) (Document, error) {
	if err := checkHeader(data); err != nil {
		return Document{}, err
	}
	if doc, ok, err := glanceAt(data, maxPages); ok {
		return doc, err
	}
	_, _, doc, err := open(data, maxPages)
	return doc, err
}

// Text reads the text of a PDF file as Markdown, page by page.
func Text(data []byte, opts Options) (Document, error) {
	if err := checkHeader(data); err != nil {
		return Document{}, err
	}
	f, pages, doc, err := open(data, opts.MaxPages)
	if err != nil {
		return Document{}, err
	}
	wanted, err := chosen(opts.Pages, len(pages))
	if err != nil {
		return Document{}, err
	}
	emit := opts.Page
	if emit == nil {
		emit = func(p Page) error { doc.Pages = append(doc.Pages, p); return nil }
	}
	t := typesetter{in: newInterpreter(f, len(pages)), pages: pages, wanted: wanted, plain: opts.Plain, emit: emit, report: opts.Progress}
	doc.Headings, err = t.set()
	return doc, err
}

func checkHeader(data []byte) error {
	if !bytes.Contains(data[:min(len(data), 1024)], []byte("%PDF-")) {
		return fault.New(fault.FileInvalid, "the file is no PDF: it does not begin with %%PDF-")
	}
	return nil
}

// open parses a whole file.
func open(data []byte, maxPages int) (*file, []node, Document, error) {
	f, pages, err := openSound(data, maxPages)
	if err != nil {
		return nil, nil, Document{}, err
	}
	info := f.dict(f.info())
	return f, pages, Document{
		PageCount: len(pages), Title: oneLine(f.text(info["Title"])), Author: oneLine(f.text(info["Author"])),
		Repaired: !f.encrypted && (f.rebuilt || !soundTable(data)),
	}, nil
}

// info is the dictionary of title and author.
func (f *file) info() types.Object {
	if f.x.Info == nil {
		return nil
	}
	return *f.x.Info
}

// startxref is the place that the end of a file names for its table of objects,
// -1 when it names none.
func startxref(data []byte) int {
	end := data[max(0, len(data)-2048):]
	i := bytes.LastIndex(end, []byte("startxref"))
	if i < 0 {
		return -1
	}
	fields := bytes.Fields(end[i+len("startxref"):])
	if len(fields) == 0 {
		return -1
	}
	at, err := strconv.Atoi(string(fields[0][:min(len(fields[0]), 12)]))
	if err != nil || at <= 0 || at >= len(data) {
		return -1
	}
	// Offsets count from the header, before which some files have a few bytes.
	return min(at+max(0, bytes.Index(data[:min(len(data), 1024)], []byte("%PDF-"))), len(data))
}

// soundTable says whether the file ends as it should, with the place of its
// table of objects; otherwise the parser had to search for them.
func soundTable(data []byte) bool {
	at := startxref(data)
	if at < 0 {
		return false
	}
	table := bytes.TrimLeft(data[at:min(len(data), at+64)], " \r\n\t\x00")
	return bytes.HasPrefix(table, []byte("xref")) || len(table) > 0 && table[0] >= '0' && table[0] <= '9' && bytes.Contains(table, []byte("obj"))
}

// chosen lists the pages that ranges name, in the order of the document.
func chosen(ranges []PageRange, count int) ([]int, error) {
	var out []int
	for page := 1; page <= count; page++ {
		for _, r := range ranges {
			if page >= r.From && page <= r.To {
				out = append(out, page)
				break
			}
		}
		if len(ranges) == 0 {
			out = append(out, page)
		}
	}
	for _, r := range ranges {
		if r.From > count {
			return nil, fault.New(fault.InputInvalid, "pages asks for page %d: the document has %d", r.From, count)
		}
		if r.To > count && r.To != LastPage {
			return nil, fault.New(fault.InputInvalid, "pages asks for page %d: the document has %d", r.To, count)
		}
	}
	return out, nil
}

// A node is a page with what it inherits from those above it.
type node struct {
	dict      types.Dict
	resources types.Dict
	media     rect
}

// letter is the size of a page that has none.
var letter = rect{0, 0, 612, 792}

// pages walks the page tree itself: counting by /Count trusts the file, and a
// tree that refers to its own parents never ends.
func (f *file) pages(limit int) ([]node, error) {
	root, err := f.catalog()
	if err != nil || root == nil {
		return nil, fault.Wrap(fault.FileInvalid, err, "the PDF file has no catalog of pages")
	}
	top := f.dict(root["Pages"])
	w := &treeWalk{f: f, limit: limit, above: map[uintptr]bool{}}
	if top != nil {
		w.above[identityOf(top)] = true
		if err := w.node(top, node{media: letter}, 0); err != nil {
			return nil, err
		}
	}
	if len(w.pages) == 0 && f.glance == nil {
		if err := w.scattered(); err != nil {
			return nil, err
		}
	}
	if len(w.pages) == 0 {
		return nil, fault.New(fault.FileInvalid, "the PDF file has no pages")
	}
	return w.pages, nil
}

// scattered finds the pages of a file whose tree leads to none: whatever says that it
// is a page, in the order of the objects.
func (w *treeWalk) scattered() error {
	for _, number := range slices.Sorted(maps.Keys(w.f.x.Table)) {
		entry := w.f.x.Table[number]
		if entry == nil || entry.Free {
			continue
		}
		if d, ok := entry.Object.(types.Dict); ok && w.f.name(d["Type"]) == "Page" {
			w.f.rebuilt = true
			if err := w.add(w.inherit(d, node{media: letter})); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *file) catalog() (types.Dict, error) {
	if f.glance != nil {
		return f.dict(f.glance.root), nil
	}
	return f.x.Catalog()
}

type treeWalk struct {
	f     *file
	pages []node
	limit int
	nodes int
	// above holds the nodes on the path from the root to here.
	above map[uintptr]bool
}

func (w *treeWalk) node(d types.Dict, from node, depth int) error {
	if w.nodes++; depth > maxTreeDepth || w.nodes > maxTreeNodes {
		return fault.New(fault.FileInvalid, "the PDF file is damaged beyond repair: its tree of pages has no end")
	}
	here := w.inherit(d, from)
	for _, ref := range w.f.array(d["Kids"]) {
		kid := w.f.dict(ref)
		_, inner := w.f.get(kid["Kids"]).(types.Array)
		switch {
		case kid == nil || w.above[identityOf(kid)]:
			// The way leads nowhere, or back to a node above. Readers show an
			// empty page in its place, and so the numbers of the others stay right.
			if err := w.add(node{}); err != nil {
				return err
			}
		case inner:
			w.above[identityOf(kid)] = true
			if err := w.node(kid, here, depth+1); err != nil {
				return err
			}
			delete(w.above, identityOf(kid))
		default:
			if err := w.add(w.inherit(kid, here)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *treeWalk) inherit(d types.Dict, from node) node {
	n := node{dict: d, resources: from.resources, media: from.media}
	if w.f.glance != nil {
		return n // the pages are counted, not set
	}
	if r := w.f.dict(d["Resources"]); r != nil {
		n.resources = r
	}
	if b, ok := w.f.box(d["MediaBox"]); ok && b[2]-b[0] > 1 && b[3]-b[1] > 1 {
		n.media = b
	}
	return n
}

func (w *treeWalk) add(n node) error {
	if len(w.pages) >= w.limit {
		return fault.New(fault.FileTooLarge, "the PDF file has more than %d pages", w.limit)
	}
	w.pages = append(w.pages, n)
	return nil
}

// textString decodes a string meant for people: UTF-16 or UTF-8 with a mark at
// its start, else an alphabet much like Windows' Latin one.
func textString(b []byte) string {
	switch {
	case len(b) >= 2 && b[0] == 0xFE && b[1] == 0xFF:
		return utf16Text(b[2:])
	case len(b) >= 2 && b[0] == 0xFF && b[1] == 0xFE:
		u := make([]uint16, 0, len(b)/2)
		for i := 2; i+1 < len(b); i += 2 {
			u = append(u, uint16(b[i+1])<<8|uint16(b[i]))
		}
		return string(utf16.Decode(u))
	case len(b) >= 3 && b[0] == 0xEF && b[1] == 0xBB && b[2] == 0xBF:
		return strings.ToValidUTF8(string(b[3:]), "")
	}
	out := make([]rune, 0, len(b))
	for _, c := range b {
		out = append(out, charmap.Windows1252.DecodeByte(c))
	}
	return string(out)
}

// utf16Text decodes big-endian UTF-16; half a unit at the end is left out.
func utf16Text(b []byte) string {
	u := make([]uint16, 0, len(b)/2)
	for i := 0; i+1 < len(b); i += 2 {
		u = append(u, uint16(b[i])<<8|uint16(b[i+1]))
	}
	return string(utf16.Decode(u))
}

// oneLine makes a text of a file fit for a title.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s, "")
	s = strings.Join(strings.Fields(strings.Map(printable, s)), " ")
	return clipRunes(s, 300)
}

func clipRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
