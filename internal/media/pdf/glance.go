// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/pdfcpu/pdfcpu/pkg/filter"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"github.com/roux-engine/roux/fault"
)

// Bounds on what a glance holds and does: bytes of object streams that are kept, bytes that
// are unpacked and parsed, and the entries of all tables.
const (
	maxStreamsKept = 32 << 20
	maxWork        = 256 << 20
	maxEntries     = 2 * maxObjects
	// maxGlanced is the longest object that a glance reads, but for streams.
	maxGlanced = 4 << 20
	maxTrailer = 64 << 10
)

// A glance reads of a file what tells its pages, its title and its author, and no
// other object: the parser reads them all before the first can be asked for, which
// takes seconds where there are many. It wants a sound file that is not encrypted.
// Whatever is unusual makes it lost, and the file is then for the parser to read.
type glance struct {
	data       []byte
	entries    []place // by object number
	counted    int     // entries of tables read so far
	root, info types.Object
	objects    map[int]types.Object // read so far
	streams    map[int]*objectStream
	kept       int // bytes of streams
	worked     int // bytes that were unpacked or parsed, in all
	read       int // objects read
	lost       bool
}

// An objectStream is one that was unpacked.
type objectStream struct {
	content          string
	numbers, offsets []int // of the objects in it
}

// A place is where an object is.
type place struct {
	at   int // in the file, or the number of the object stream
	kind placeKind
	nth  int32 // in the object stream
}

type placeKind uint8

const (
	unknownPlace placeKind = iota
	freePlace
	filePlace
	streamPlace
)

// glanceAt is what readPDF says of a file as a whole; ok is false when it takes the
// parser to tell.
func glanceAt(data []byte, maxPages int) (doc Document, ok bool, err error) {
	defer func() {
		if recover() != nil { // of the parser, for one object
			doc, ok, err = Document{}, false, nil
		}
	}()
	return glanced(data, maxPages)
}

func glanced(data []byte, maxPages int) (doc Document, ok bool, err error) {
	g := openGlance(data)
	if g == nil {
		return Document{}, false, nil
	}
	f := &file{glance: g, size: len(data)}
	pages, err := f.pages(maxPages)
	if g.lost || err != nil && fault.CodeOf(err) != fault.FileTooLarge {
		return Document{}, false, nil
	}
	if err != nil {
		return Document{}, true, err
	}
	info := f.dict(g.info)
	doc = Document{PageCount: len(pages), Title: oneLine(f.text(info["Title"])), Author: oneLine(f.text(info["Author"]))}
	return doc, !g.lost, nil
}

// openGlance reads the tables of objects; nil when the file is not for a glance.
func openGlance(data []byte) *glance {
	if !bytes.HasPrefix(data, []byte("%PDF-")) || bytes.Contains(data, []byte("/Encrypt")) || !soundTable(data) {
		return nil
	}
	g := &glance{data: data, objects: map[int]types.Object{}, streams: map[int]*objectStream{}}
	seen := map[int]bool{}
	for at := startxref(data); at > 0; {
		if seen[at] || len(seen) >= maxRevisions || at >= len(data) {
			return nil
		}
		seen[at] = true
		trailer := g.section(at)
		if trailer == nil || trailer["Encrypt"] != nil || hasEscape(trailer) {
			return nil
		}
		if g.root == nil {
			g.root = trailer["Root"]
		}
		if g.info == nil {
			g.info = trailer["Info"]
		}
		at = 0
		if prev, has := trailer["Prev"]; has {
			n, ok := prev.(types.Integer)
			if !ok || n <= 0 {
				return nil
			}
			at = int(n)
		}
	}
	if g.root == nil || len(data) <= Large && !g.matches() {
		return nil
	}
	return g
}

// hasEscape reports whether a name is written with #, which may hide Encrypt.
func hasEscape(d types.Dict) bool {
	for name := range d {
		if strings.Contains(name, "#") {
			return true
		}
	}
	return false
}

// section reads one table of objects and returns its trailer.
func (g *glance) section(at int) types.Dict {
	at = g.skipSpace(at)
	if !g.has(at, "xref") {
		return g.tableStream(at)
	}
	at += len("xref")
	for {
		if at = g.skipSpace(at); g.has(at, "trailer") {
			break
		}
		first, after, ok := g.integer(at)
		count, next, ok2 := g.integer(after)
		if !ok || !ok2 || !g.reserve(first, count) {
			return nil
		}
		at = next
		for n := first; n < first+count; n++ {
			offset, after, ok := g.integer(at)
			_, next, ok2 := g.integer(after)
			if next = g.skipSpace(next); !ok || !ok2 || next >= len(g.data) {
				return nil
			}
			switch g.data[next] {
			case 'n':
				if offset >= len("%PDF-1.0\n") {
					g.set(n, place{at: offset, kind: filePlace})
				}
			case 'f':
				g.set(n, place{kind: freePlace})
			default:
				return nil
			}
			at = next + 1
		}
	}
	o, _, _ := g.parse(at+len("trailer"), maxTrailer)
	trailer, _ := o.(types.Dict)
	if _, hybrid := trailer["XRefStm"]; hybrid {
		return nil
	}
	return trailer
}

// tableStream reads a table of objects that is a stream.
func (g *glance) tableStream(at int) types.Dict {
	d, content := g.stream(at, -1)
	if d == nil {
		return nil
	}
	var width [3]int
	w, _ := d["W"].(types.Array)
	if len(w) != 3 {
		return nil
	}
	for i := range w {
		n, ok := w[i].(types.Integer)
		if !ok || n < 0 || n > 7 {
			return nil
		}
		width[i] = int(n)
	}
	size, _ := d["Size"].(types.Integer)
	ranges, ok := d["Index"].(types.Array)
	if !ok {
		ranges = types.Array{types.Integer(0), size}
	}
	entry := width[0] + width[1] + width[2]
	for i := 0; i+1 < len(ranges); i += 2 {
		first, ok := ranges[i].(types.Integer)
		count, ok2 := ranges[i+1].(types.Integer)
		if !ok || !ok2 || entry == 0 || !g.reserve(int(first), int(count)) || int(count)*entry > len(content) {
			return nil
		}
		for n := range int(count) {
			g.setFields(int(first)+n, width, content[n*entry:])
		}
		content = content[int(count)*entry:]
	}
	return d
}

// setFields notes an entry of a table that is a stream.
func (g *glance) setFields(n int, width [3]int, b []byte) {
	field := func(w, without int) int {
		if w == 0 {
			return without
		}
		v := 0
		for _, c := range b[:w] {
			v = v<<8 | int(c)
		}
		b = b[w:]
		return v
	}
	kind, second, third := field(width[0], 1), field(width[1], 0), field(width[2], 0)
	switch kind {
	case 0:
		g.set(n, place{kind: freePlace})
	case 1:
		g.set(n, place{at: second, kind: filePlace})
	case 2:
		g.set(n, place{at: second, nth: int32(min(third, maxObjects)), kind: streamPlace})
	}
}

// reserve makes room for entries; false when there are too many.
func (g *glance) reserve(first, count int) bool {
	if first < 0 || count < 0 || first > maxObjects || count > maxObjects-first {
		return false
	}
	if g.counted += count; g.counted > maxEntries {
		return false
	}
	if more := first + count - len(g.entries); more > 0 {
		g.entries = append(g.entries, make([]place, more)...)
	}
	return true
}

// set notes where an object is, unless a newer table has said so.
func (g *glance) set(n int, p place) {
	if g.entries[n].kind == unknownPlace {
		g.entries[n] = p
	}
}

// matches says whether each entry leads to the object it names, and whether the table
// knows of object streams where there are any. What stands in those is compared when
// it is read.
func (g *glance) matches() bool {
	packed := !bytes.Contains(g.data, []byte("/ObjStm"))
	for n, p := range g.entries {
		switch p.kind {
		case streamPlace:
			packed = true
		case filePlace:
			if _, ok := g.head(p.at, n); !ok {
				return false
			}
		}
	}
	return packed
}

// head reads "12 0 obj" and returns what follows it. Any number will do for -1.
func (g *glance) head(at, number int) (after int, ok bool) {
	n, at, ok := g.integer(at)
	_, at, ok2 := g.integer(at)
	at = g.skipSpace(at)
	return at + len("obj"), ok && ok2 && (n == number || number < 0) && g.has(at, "obj")
}

// object is what a reference leads to; nil where there is none.
func (g *glance) object(n int) types.Object {
	if o, known := g.objects[n]; known {
		return o
	}
	if n < 0 || n >= len(g.entries) || g.lost {
		return nil
	}
	g.read++
	g.objects[n] = nil // a stream whose length stands in itself ends here
	o, ok := g.find(n)
	g.lost = g.lost || !ok
	g.objects[n] = o
	return o
}

// find reads an object from where the table says that it is.
func (g *glance) find(n int) (o types.Object, ok bool) {
	switch p := g.entries[n]; p.kind {
	case filePlace:
		at, ok := g.head(p.at, n)
		if ok {
			o, _, ok = g.parse(at, maxGlanced)
		}
		return o, ok
	case streamPlace:
		in, i := g.objectsIn(p.at), int(p.nth)
		if in == nil || i >= len(in.numbers) || in.numbers[i] != n {
			return nil, false
		}
		end := len(in.content)
		if i+1 < len(in.offsets) && in.offsets[i+1] > in.offsets[i] {
			end = in.offsets[i+1]
		}
		g.worked += end - in.offsets[i]
		text := in.content[in.offsets[i]:end]
		o, err := model.ParseObject(&text)
		return o, err == nil && g.worked <= maxWork
	}
	return nil, true // there is none: it reads as null
}

// parse reads an object of at most so many bytes; of a stream only its dictionary.
// after is what follows it.
func (g *glance) parse(at, most int) (o types.Object, after int, ok bool) {
	text := g.data[at:min(len(g.data), at+most)]
	i := bytes.Index(text, []byte("endobj"))
	if i >= 0 {
		text = text[:i]
	} else {
		g.worked += len(text) / 4 // searching is quicker than parsing
	}
	ends := []int{len(text)}
	if i := bytes.Index(text, []byte("stream")); i >= 0 {
		ends = []int{i, len(text)} // the word may as well stand in a string
	}
	for _, end := range ends {
		if g.worked += end; g.worked > maxWork {
			break
		}
		rest := string(text[:end])
		if o, err := model.ParseObject(&rest); err == nil {
			return o, at + end - len(rest), true
		}
	}
	return nil, at, false
}

// stream reads a stream object and unpacks it.
func (g *glance) stream(at, number int) (types.Dict, []byte) {
	at, ok := g.head(at, number)
	if !ok {
		return nil, nil
	}
	o, at, _ := g.parse(at, maxGlanced)
	d, ok := o.(types.Dict)
	if at = g.skipSpace(at); !ok || !g.has(at, "stream") {
		return nil, nil
	}
	at += len("stream")
	if g.has(at, "\r") {
		at++
	}
	if g.has(at, "\n") {
		at++
	}
	length, ok := d["Length"].(types.Integer)
	if ref, is := d["Length"].(types.IndirectRef); is {
		n := int(ref.ObjectNumber)
		if n < 0 || n >= len(g.entries) || g.entries[n].kind != filePlace {
			return nil, nil // the length of a stream of objects stands in no other
		}
		length, ok = g.object(n).(types.Integer)
	}
	if !ok || length < 0 || int(length) > len(g.data)-at || !g.has(g.skipSpace(at+int(length)), "endstream") {
		return nil, nil
	}
	return d, g.unpack(d, g.data[at:at+int(length)])
}

// unpack decodes the bytes of a stream that is packed as most are.
func (g *glance) unpack(d types.Dict, raw []byte) []byte {
	one := func(key string) types.Object {
		if a, ok := d[key].(types.Array); ok && len(a) == 1 {
			return a[0]
		}
		return d[key]
	}
	out := raw
	if filters := one("Filter"); filters != nil {
		parms, ok := one("DecodeParms").(types.Dict)
		if filters != types.Name(filter.Flate) || !ok && d["DecodeParms"] != nil {
			return nil
		}
		sd := types.StreamDict{Dict: d, Raw: raw, FilterPipeline: []types.PDFFilter{{Name: filter.Flate, DecodeParms: parms}}}
		var err error
		if out, err = (&file{glance: g}).content(sd, maxContent); err != nil {
			return nil
		}
	}
	if g.worked += len(out); g.worked > maxWork {
		return nil
	}
	return out
}

// objectsIn unpacks an object stream; nil when it cannot.
func (g *glance) objectsIn(n int) *objectStream {
	if p, known := g.streams[n]; known {
		return p
	}
	if n < 0 || n >= len(g.entries) || g.entries[n].kind != filePlace {
		return nil
	}
	d, content := g.stream(g.entries[n].at, n)
	first, ok := d["First"].(types.Integer)
	count, ok2 := d["N"].(types.Integer)
	if !ok || !ok2 || first < 0 || int(first) > len(content) || count < 0 || int(count) > int(first) {
		return nil
	}
	heads := strings.FieldsFunc(string(content[:first]), func(r rune) bool { return strings.ContainsRune(" \t\r\n\f\x00", r) })
	if len(heads) < 2*int(count) {
		return nil
	}
	p := &objectStream{content: string(content), numbers: make([]int, count), offsets: make([]int, count)}
	for i := range p.numbers {
		number, err := strconv.Atoi(heads[2*i])
		offset, err2 := strconv.Atoi(heads[2*i+1])
		if err != nil || err2 != nil || offset < 0 || offset > len(content)-int(first) {
			return nil
		}
		p.numbers[i], p.offsets[i] = number, int(first)+offset
	}
	if g.kept += len(content); g.kept > maxStreamsKept {
		clear(g.streams)
		g.kept = len(content)
	}
	g.streams[n] = p
	return p
}

func (g *glance) has(at int, word string) bool {
	return at >= 0 && at <= len(g.data) && bytes.HasPrefix(g.data[at:], []byte(word))
}

func (g *glance) skipSpace(at int) int {
	for at >= 0 && at < len(g.data) && strings.IndexByte(" \t\r\n\f\x00", g.data[at]) >= 0 {
		at++
	}
	return at
}

// integer reads a number of at most ten digits, after white space.
func (g *glance) integer(at int) (n, after int, ok bool) {
	at = g.skipSpace(at)
	from := at
	for at >= 0 && at < len(g.data) && at-from < 11 && g.data[at] >= '0' && g.data[at] <= '9' {
		n = n*10 + int(g.data[at]-'0')
		at++
	}
	return n, at, at > from && at-from < 11
}
