// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/ledongthuc/pdf"

	"github.com/roux-engine/roux/fault"
)

// Bounds on the page tree: a sound one is shallow and has few inner nodes.
const (
	maxTreeDepth = 64
	maxTreeNodes = 100_000
)

// readPDF parses a whole file. Sound files are read as they are; what the fast
// parser refuses is repaired and decrypted first, which is slower (see repair).
func readPDF(data []byte, req request, alive func(done, total int)) (Document, error) {
	if !bytes.Contains(data[:min(len(data), 1024)], []byte("%PDF-")) {
		return Document{}, fault.New(fault.FileInvalid, "the file is no PDF: it does not begin with %%PDF-")
	}
	doc, err := parsePDF(data, req, alive)
	if err == nil || errors.Is(err, fault.FileTooLarge) {
		return doc, err
	}
	wasEncrypted := errors.Is(err, fault.FileEncrypted)
	fixed, decrypted, rerr := repair(data)
	switch {
	case errors.Is(rerr, fault.FileEncrypted), rerr != nil && wasEncrypted:
		return Document{}, encrypted(rerr)
	case rerr == nil && !decrypted && (wasEncrypted || bytes.Contains(data, []byte("/Encrypt"))):
		// The second parser overlooks an encryption dictionary that stands in
		// the trailer itself; what it wrote is still unreadable.
		return Document{}, encrypted(err)
	case rerr != nil:
		return Document{}, fault.Wrap(fault.FileInvalid, errors.Join(err, rerr), "the PDF file is damaged beyond repair")
	}
	alive(0, 0)
	doc, err = parsePDF(fixed, req, alive)
	doc.Repaired = !decrypted
	return doc, err
}

func encrypted(err error) error {
	return fault.Wrap(fault.FileEncrypted, err, "the PDF file is protected by a password: remove the password and try again")
}

// parsePDF reads a file that is expected to be sound.
func parsePDF(data []byte, req request, alive func(done, total int)) (doc Document, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fault.Wrap(fault.FileInvalid, fmt.Errorf("panic: %v", v), "the PDF file is damaged beyond repair")
		}
	}()
	r, err := pdf.NewReader(bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, pdf.ErrInvalidPassword) {
		return Document{}, encrypted(err)
	}
	if err != nil {
		return Document{}, err
	}
	pages, err := pagesOf(r, req.MaxPages)
	if err != nil {
		return Document{}, err
	}
	info := r.Trailer().Key("Info")
	doc = Document{PageCount: len(pages), Title: oneLine(info.Key("Title").Text()), Author: oneLine(info.Key("Author").Text())}
	if req.Op == opInfo {
		return doc, nil
	}
	in := &interpreter{fonts: map[string]*font{}}
	sheets := make([]sheet, len(pages))
	for i, p := range pages {
		sheets[i] = in.page(p)
		if in.text > maxText {
			return Document{}, fault.New(fault.FileTooLarge, "the PDF file has more than %d MiB of text", maxText>>20)
		}
		alive(i+1, len(pages))
	}
	if in.shown == 0 && in.problems > 0 && in.problems == len(pages) {
		return Document{}, fault.New(fault.FileInvalid, "no page of the PDF file can be read: %s", sheets[0].problem)
	}
	doc.Pages, doc.Headings = compose(sheets, req.Plain)
	return doc, nil
}

var errOddTree = errors.New("the page tree is odd")

// pagesOf walks the page tree itself: counting by /Count trusts the file, and a
// tree that refers to its own parents never ends.
func pagesOf(r *pdf.Reader, limit int) ([]pdf.Page, error) {
	root := r.Trailer().Key("Root").Key("Pages")
	if root.Kind() != pdf.Dict {
		return nil, fault.New(fault.FileInvalid, "the PDF file has no pages")
	}
	w := &treeWalk{limit: limit, above: map[string]bool{}}
	if err := w.node(root, 0); err != nil {
		return nil, err
	}
	if len(w.pages) == 0 {
		return nil, fault.New(fault.FileInvalid, "the PDF file has no pages")
	}
	return w.pages, nil
}

type treeWalk struct {
	pages []pdf.Page
	limit int
	nodes int
	// above holds the object numbers on the path from the root to here.
	above map[string]bool
}

func (w *treeWalk) node(v pdf.Value, depth int) error {
	if w.nodes++; depth > maxTreeDepth || w.nodes > maxTreeNodes {
		return errOddTree
	}
	kids := v.Key("Kids")
	refs := references(kids)
	for i := range kids.Len() {
		ref := ""
		if i < len(refs) {
			ref = refs[i]
		}
		if w.above[ref] {
			// The way leads back to a node above. Readers show an empty page in
			// its place, and so the numbers of the others stay right.
			if err := w.add(pdf.Page{}); err != nil {
				return err
			}
			continue
		}
		kid := kids.Index(i)
		switch {
		case kid.Key("Kids").Kind() == pdf.Array:
			if ref != "" {
				w.above[ref] = true
			}
			if err := w.node(kid, depth+1); err != nil {
				return err
			}
			delete(w.above, ref)
		case kid.Kind() == pdf.Dict:
			if err := w.add(pdf.Page{V: kid}); err != nil {
				return err
			}
		default:
			return errOddTree // a reference to nothing: let repair have a look
		}
	}
	return nil
}

func (w *treeWalk) add(p pdf.Page) error {
	if len(w.pages) >= w.limit {
		return fault.New(fault.FileTooLarge, "the PDF file has more than %d pages", w.limit)
	}
	w.pages = append(w.pages, p)
	return nil
}

// references lists the object numbers in an array of references, in order. The
// library resolves elements when they are asked for, but prints them as they
// stand in the file: [3 0 R 4 0 R]. Nil when the array holds anything else.
func references(array pdf.Value) []string {
	if array.Kind() != pdf.Array || array.Len() > maxTreeNodes {
		return nil
	}
	fields := strings.Fields(strings.Trim(array.String(), "[]"))
	if len(fields) != 3*array.Len() {
		return nil
	}
	refs := make([]string, array.Len())
	for i := range refs {
		if fields[3*i+2] != "R" {
			return nil
		}
		refs[i] = fields[3*i] + " " + fields[3*i+1]
	}
	return refs
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
