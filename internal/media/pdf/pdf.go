// SPDX-License-Identifier: Apache-2.0

// Package pdf reads untrusted PDF files: the number of pages, title and author,
// and the text as Markdown.
//
// It decides which text is where on a page, in which order it is read, and which
// fault describes a file that cannot be read. pdfcpu provides objects, filters
// and decryption. A hostile file may make this package hang, use much memory or
// panic, so package media calls it in a child process with limits. This package
// knows nothing of that process.
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

// Limits on the page tree. A real one is shallow and has few inner nodes.
const (
	maxTreeDepth = 64
	maxTreeNodes = 100_000
)

// Large is the size from which a file needs so much memory that its
// cross-reference table is not checked entry by entry.
const Large = 24 << 20

// MaxText limits the text of one document, in bytes.
const MaxText = 32 << 20

// A Document holds the facts of a PDF file.
type Document struct {
	PageCount int    `json:"pageCount"`
	Title     string `json:"title,omitempty"`
	Author    string `json:"author,omitempty"`
	// Repaired is set when the file was damaged and could be read all the same.
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
	// Problem is the reason why text of this page may be missing; "" = none known.
	Problem string `json:"problem,omitempty"`
}

// A Heading is a line that stands out. Levels start at 1.
type Heading struct {
	Level int    `json:"level"`
	Text  string `json:"text"`
	Page  int    `json:"page"`
}

// LastPage as the end of a PageRange means the end of the document.
const LastPage = 1<<31 - 1

// A PageRange is a range of page numbers, counted from 1 and inclusive.
type PageRange struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Options configure Text.
type Options struct {
	MaxPages int // a document that has more is FILE_TOO_LARGE
	// Pages selects the pages to read, in the order of the document; nil = all. A
	// page that the document does not have is INPUT_INVALID.
	Pages []PageRange
	// Plain leaves out all Markdown, so that the text is paragraphs only.
	Plain bool
	// Page is called with each page in order. Default: Document.Pages collects
	// them.
	Page func(Page) error
	// Progress is called after each visit of a page; each page is visited twice.
	// Optional. An error of either function ends Text and is returned.
	Progress func(done, total int) error
}

// Info returns the facts of a PDF file: number of pages, title and author.
func Info(data []byte, maxPages int) (Document, error) {
	if err := checkHeader(data); err != nil {
		return Document{}, err
	}
	if doc, ok, err := lazyInfo(data, maxPages); ok {
		return doc, err
	}
	_, _, doc, err := open(data, maxPages)
	return doc, err
}

// Text returns the text of a PDF file as Markdown, page by page.
func Text(data []byte, opts Options) (Document, error) {
	if err := checkHeader(data); err != nil {
		return Document{}, err
	}
	f, pages, doc, err := open(data, opts.MaxPages)
	if err != nil {
		return Document{}, err
	}
	wanted, err := selectPages(opts.Pages, len(pages))
	if err != nil {
		return Document{}, err
	}
	emit := opts.Page
	if emit == nil {
		emit = func(p Page) error { doc.Pages = append(doc.Pages, p); return nil }
	}
	t := composer{in: newInterpreter(f, len(pages)), pages: pages, wanted: wanted, plain: opts.Plain, emit: emit, report: opts.Progress}
	doc.Headings, err = t.compose()
	return doc, err
}

// checkHeader returns a fault when data is not a PDF file at all.
func checkHeader(data []byte) error {
	if !bytes.Contains(data[:min(len(data), 1024)], []byte("%PDF-")) {
		return fault.New(fault.FileInvalid, "the file is no PDF: it does not begin with %%PDF-")
	}
	return nil
}

// open parses a whole file.
func open(data []byte, maxPages int) (*file, []pageNode, Document, error) {
	f, pages, err := openOrRebuild(data, maxPages)
	if err != nil {
		return nil, nil, Document{}, err
	}
	info := f.dict(f.info())
	return f, pages, Document{
		PageCount: len(pages), Title: oneLine(f.text(info["Title"])), Author: oneLine(f.text(info["Author"])),
		Repaired: !f.encrypted && (f.rebuilt || !hasValidXRef(data)),
	}, nil
}

// info returns the document information dictionary, which has title and author.
func (f *file) info() types.Object {
	if f.xref.Info == nil {
		return nil
	}
	return *f.xref.Info
}

// startxref returns the offset of the cross-reference table that the end of a
// file states, or -1 when it states none.
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
	// Offsets count from the header. Some files have a few bytes before it.
	return min(at+max(0, bytes.Index(data[:min(len(data), 1024)], []byte("%PDF-"))), len(data))
}

// hasValidXRef reports whether the end of the file states a valid offset of the
// cross-reference table. If not, pdfcpu had to search for the objects.
func hasValidXRef(data []byte) bool {
	at := startxref(data)
	if at < 0 {
		return false
	}
	table := bytes.TrimLeft(data[at:min(len(data), at+64)], " \r\n\t\x00")
	return bytes.HasPrefix(table, []byte("xref")) || len(table) > 0 && table[0] >= '0' && table[0] <= '9' && bytes.Contains(table, []byte("obj"))
}

// selectPages lists the pages in ranges, in the order of the document.
func selectPages(ranges []PageRange, count int) ([]int, error) {
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

// A pageNode is a page with the attributes it inherits.
type pageNode struct {
	dict      types.Dict
	resources types.Dict
	mediaBox  rect
}

// defaultMediaBox is the size of a page that has none: US Letter.
var defaultMediaBox = rect{0, 0, 612, 792}

// pages walks the page tree instead of trusting /Count. A tree that refers to
// its own ancestors would never end, so those are tracked.
func (f *file) pages(limit int) ([]pageNode, error) {
	root, err := f.catalog()
	if err != nil || root == nil {
		return nil, fault.Wrap(fault.FileInvalid, err, "the PDF file has no catalog of pages")
	}
	top := f.dict(root["Pages"])
	w := &treeWalk{f: f, limit: limit, ancestors: map[uintptr]bool{}}
	if top != nil {
		w.ancestors[identityOf(top)] = true
		if err := w.visit(top, pageNode{mediaBox: defaultMediaBox}, 0); err != nil {
			return nil, err
		}
	}
	if len(w.pages) == 0 && f.lazy == nil {
		if err := w.findLoosePages(); err != nil {
			return nil, err
		}
	}
	if len(w.pages) == 0 {
		return nil, fault.New(fault.FileInvalid, "the PDF file has no pages")
	}
	return w.pages, nil
}

// findLoosePages finds the pages of a file whose page tree has none: all
// objects of type Page, in the order of their numbers.
func (w *treeWalk) findLoosePages() error {
	for _, number := range slices.Sorted(maps.Keys(w.f.xref.Table)) {
		entry := w.f.xref.Table[number]
		if entry == nil || entry.Free {
			continue
		}
		if d, ok := entry.Object.(types.Dict); ok && w.f.name(d["Type"]) == "Page" {
			w.f.rebuilt = true
			if err := w.add(w.inherit(d, pageNode{mediaBox: defaultMediaBox})); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *file) catalog() (types.Dict, error) {
	if f.lazy != nil {
		return f.dict(f.lazy.root), nil
	}
	return f.xref.Catalog()
}

type treeWalk struct {
	f     *file
	pages []pageNode
	limit int
	nodes int
	// ancestors holds the nodes on the path from the root to the current node.
	ancestors map[uintptr]bool
}

func (w *treeWalk) visit(d types.Dict, from pageNode, depth int) error {
	if w.nodes++; depth > maxTreeDepth || w.nodes > maxTreeNodes {
		return fault.New(fault.FileInvalid, "the PDF file is damaged beyond repair: its tree of pages has no end")
	}
	here := w.inherit(d, from)
	for _, ref := range w.f.array(d["Kids"]) {
		kid := w.f.dict(ref)
		_, inner := w.f.get(kid["Kids"]).(types.Array)
		switch {
		case kid == nil || w.ancestors[identityOf(kid)]:
			// A missing node, or a reference to an ancestor. Other PDF readers show an
			// empty page in its place, which keeps the numbers of the other pages right.
			if err := w.add(pageNode{}); err != nil {
				return err
			}
		case inner:
			w.ancestors[identityOf(kid)] = true
			if err := w.visit(kid, here, depth+1); err != nil {
				return err
			}
			delete(w.ancestors, identityOf(kid))
		default:
			if err := w.add(w.inherit(kid, here)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *treeWalk) inherit(d types.Dict, from pageNode) pageNode {
	n := pageNode{dict: d, resources: from.resources, mediaBox: from.mediaBox}
	if w.f.lazy != nil {
		return n // only the number of pages is needed
	}
	if r := w.f.dict(d["Resources"]); r != nil {
		n.resources = r
	}
	if b, ok := w.f.box(d["MediaBox"]); ok && b[2]-b[0] > 1 && b[3]-b[1] > 1 {
		n.mediaBox = b
	}
	return n
}

func (w *treeWalk) add(n pageNode) error {
	if len(w.pages) >= w.limit {
		return fault.New(fault.FileTooLarge, "the PDF file has more than %d pages", w.limit)
	}
	w.pages = append(w.pages, n)
	return nil
}

// textString decodes a text string: UTF-16 or UTF-8 with a byte order mark,
// else an encoding close to Windows-1252.
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

// utf16Text decodes big-endian UTF-16. An odd byte at the end is dropped.
func utf16Text(b []byte) string {
	u := make([]uint16, 0, len(b)/2)
	for i := 0; i+1 < len(b); i += 2 {
		u = append(u, uint16(b[i])<<8|uint16(b[i+1]))
	}
	return string(utf16.Decode(u))
}

// oneLine makes a text from a file suitable as a title.
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
