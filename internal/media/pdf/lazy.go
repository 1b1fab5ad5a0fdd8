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

// Limits of a lazyFile: bytes of object streams that are kept, bytes that are
// decompressed and parsed, and the entries of all cross-reference tables.
const (
	maxKeptBytes   = 32 << 20
	maxWork        = 256 << 20
	maxXRefEntries = 2 * maxObjects
	// maxLazyObject is the longest object that is read, streams excepted.
	maxLazyObject = 4 << 20
	maxTrailer    = 64 << 10
)

// A lazyFile reads only the objects that are needed for the number of pages,
// the title and the author. pdfcpu parses all objects before it returns the
// first, which takes seconds in a file with many. A lazyFile supports only
// undamaged files without encryption. Anything unusual sets failed, and pdfcpu
// then reads the file.
type lazyFile struct {
	data        []byte
	entries     []xrefEntry // by object number
	entriesRead int         // number of table entries read so far
	root, info  types.Object
	objects     map[int]types.Object // the objects read so far
	streams     map[int]*objectStream
	keptBytes   int // bytes of the streams kept
	workBytes   int // bytes decompressed or parsed so far
	objectsRead int
	failed      bool
}

// An objectStream is a decompressed object stream.
type objectStream struct {
	content          string
	numbers, offsets []int // of the objects in it
}

// An xrefEntry says where an object is.
type xrefEntry struct {
	at   int // offset in the file, or the number of the object stream
	kind xrefKind
	nth  int32 // index in the object stream
}

type xrefKind uint8

const (
	unknownEntry xrefKind = iota
	freeEntry
	fileEntry
	streamEntry
)

// lazyInfo is Info for files that a lazyFile can read. ok is false when pdfcpu
// must read the file.
func lazyInfo(data []byte, maxPages int) (doc Document, ok bool, err error) {
	defer func() {
		if recover() != nil { // a panic of pdfcpu while parsing one object
			doc, ok, err = Document{}, false, nil
		}
	}()
	return tryLazyInfo(data, maxPages)
}

func tryLazyInfo(data []byte, maxPages int) (doc Document, ok bool, err error) {
	l := openLazy(data)
	if l == nil {
		return Document{}, false, nil
	}
	f := &file{lazy: l, size: len(data)}
	pages, err := f.pages(maxPages)
	if l.failed || err != nil && fault.CodeOf(err) != fault.FileTooLarge {
		return Document{}, false, nil
	}
	if err != nil {
		return Document{}, true, err
	}
	info := f.dict(l.info)
	doc = Document{PageCount: len(pages), Title: oneLine(f.text(info["Title"])), Author: oneLine(f.text(info["Author"]))}
	return doc, !l.failed, nil
}

// openLazy reads the cross-reference tables. It returns nil when the file is
// not suitable.
func openLazy(data []byte) *lazyFile {
	if !bytes.HasPrefix(data, []byte("%PDF-")) || bytes.Contains(data, []byte("/Encrypt")) || !hasValidXRef(data) {
		return nil
	}
	l := &lazyFile{data: data, objects: map[int]types.Object{}, streams: map[int]*objectStream{}}
	seen := map[int]bool{}
	for at := startxref(data); at > 0; {
		if seen[at] || len(seen) >= maxRevisions || at >= len(data) {
			return nil
		}
		seen[at] = true
		trailer := l.xrefSection(at)
		if trailer == nil || trailer["Encrypt"] != nil || hasEscape(trailer) {
			return nil
		}
		if l.root == nil {
			l.root = trailer["Root"]
		}
		if l.info == nil {
			l.info = trailer["Info"]
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
	if l.root == nil || len(data) <= Large && !l.xrefMatches() {
		return nil
	}
	return l
}

// hasEscape reports whether a name is written with #, which may hide an Encrypt
// entry.
func hasEscape(d types.Dict) bool {
	for name := range d {
		if strings.Contains(name, "#") {
			return true
		}
	}
	return false
}

// xrefSection reads one cross-reference table and returns its trailer.
func (l *lazyFile) xrefSection(at int) types.Dict {
	at = l.skipSpace(at)
	if !l.has(at, "xref") {
		return l.xrefStream(at)
	}
	at += len("xref")
	for {
		if at = l.skipSpace(at); l.has(at, "trailer") {
			break
		}
		first, after, ok := l.integer(at)
		count, next, ok2 := l.integer(after)
		if !ok || !ok2 || !l.reserveEntries(first, count) {
			return nil
		}
		at = next
		for n := first; n < first+count; n++ {
			offset, after, ok := l.integer(at)
			_, next, ok2 := l.integer(after)
			if next = l.skipSpace(next); !ok || !ok2 || next >= len(l.data) {
				return nil
			}
			switch l.data[next] {
			case 'n':
				if offset >= len("%PDF-1.0\n") {
					l.set(n, xrefEntry{at: offset, kind: fileEntry})
				}
			case 'f':
				l.set(n, xrefEntry{kind: freeEntry})
			default:
				return nil
			}
			at = next + 1
		}
	}
	o, _, _ := l.parse(at+len("trailer"), maxTrailer)
	trailer, _ := o.(types.Dict)
	if _, hybrid := trailer["XRefStm"]; hybrid {
		return nil
	}
	return trailer
}

// xrefStream reads a cross-reference stream.
func (l *lazyFile) xrefStream(at int) types.Dict {
	d, content := l.stream(at, -1)
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
		if !ok || !ok2 || entry == 0 || !l.reserveEntries(int(first), int(count)) || int(count)*entry > len(content) {
			return nil
		}
		for n := range int(count) {
			l.setXRefEntry(int(first)+n, width, content[n*entry:])
		}
		content = content[int(count)*entry:]
	}
	return d
}

// setXRefEntry stores an entry of a cross-reference stream.
func (l *lazyFile) setXRefEntry(n int, width [3]int, b []byte) {
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
		l.set(n, xrefEntry{kind: freeEntry})
	case 1:
		l.set(n, xrefEntry{at: second, kind: fileEntry})
	case 2:
		l.set(n, xrefEntry{at: second, nth: int32(min(third, maxObjects)), kind: streamEntry})
	}
}

// reserveEntries makes room for entries. It reports false when there are too
// many.
func (l *lazyFile) reserveEntries(first, count int) bool {
	if first < 0 || count < 0 || first > maxObjects || count > maxObjects-first {
		return false
	}
	if l.entriesRead += count; l.entriesRead > maxXRefEntries {
		return false
	}
	if more := first + count - len(l.entries); more > 0 {
		l.entries = append(l.entries, make([]xrefEntry, more)...)
	}
	return true
}

// set stores where an object is, unless a newer table has an entry for it.
func (l *lazyFile) set(n int, p xrefEntry) {
	if l.entries[n].kind == unknownEntry {
		l.entries[n] = p
	}
}

// xrefMatches reports whether each entry points to the object it names, and
// whether the table has object streams if the file has any. The objects in
// those are checked when they are read.
func (l *lazyFile) xrefMatches() bool {
	packed := !bytes.Contains(l.data, []byte("/ObjStm"))
	for n, p := range l.entries {
		switch p.kind {
		case streamEntry:
			packed = true
		case fileEntry:
			if _, ok := l.objectHeader(p.at, n); !ok {
				return false
			}
		}
	}
	return packed
}

// objectHeader reads "12 0 obj" and returns the offset after it. A number of -1
// accepts any object.
func (l *lazyFile) objectHeader(at, number int) (after int, ok bool) {
	n, at, ok := l.integer(at)
	_, at, ok2 := l.integer(at)
	at = l.skipSpace(at)
	return at + len("obj"), ok && ok2 && (n == number || number < 0) && l.has(at, "obj")
}

// object returns the object that a reference points to, or nil when there is
// none.
func (l *lazyFile) object(n int) types.Object {
	if o, known := l.objects[n]; known {
		return o
	}
	if n < 0 || n >= len(l.entries) || l.failed {
		return nil
	}
	l.objectsRead++
	l.objects[n] = nil // ends the recursion of a stream that contains its own length
	o, ok := l.readObject(n)
	l.failed = l.failed || !ok
	l.objects[n] = o
	return o
}

// readObject reads an object from where the table says it is.
func (l *lazyFile) readObject(n int) (o types.Object, ok bool) {
	switch p := l.entries[n]; p.kind {
	case fileEntry:
		at, ok := l.objectHeader(p.at, n)
		if ok {
			o, _, ok = l.parse(at, maxLazyObject)
		}
		return o, ok
	case streamEntry:
		in, i := l.objectStream(p.at), int(p.nth)
		if in == nil || i >= len(in.numbers) || in.numbers[i] != n {
			return nil, false
		}
		end := len(in.content)
		if i+1 < len(in.offsets) && in.offsets[i+1] > in.offsets[i] {
			end = in.offsets[i+1]
		}
		l.workBytes += end - in.offsets[i]
		text := in.content[in.offsets[i]:end]
		o, err := model.ParseObject(&text)
		return o, err == nil && l.workBytes <= maxWork
	}
	return nil, true // there is no such object, which means null
}

// parse reads an object that has no more than most bytes; of a stream it reads only the
// dictionary. after is the offset after it.
func (l *lazyFile) parse(at, most int) (o types.Object, after int, ok bool) {
	text := l.data[at:min(len(l.data), at+most)]
	i := bytes.Index(text, []byte("endobj"))
	if i >= 0 {
		text = text[:i]
	} else {
		l.workBytes += len(text) / 4 // searching is faster than parsing
	}
	ends := []int{len(text)}
	if i := bytes.Index(text, []byte("stream")); i >= 0 {
		ends = []int{i, len(text)} // the word may also be part of a string
	}
	for _, end := range ends {
		if l.workBytes += end; l.workBytes > maxWork {
			break
		}
		rest := string(text[:end])
		if o, err := model.ParseObject(&rest); err == nil {
			return o, at + end - len(rest), true
		}
	}
	return nil, at, false
}

// stream reads a stream object and decompresses it.
func (l *lazyFile) stream(at, number int) (types.Dict, []byte) {
	at, ok := l.objectHeader(at, number)
	if !ok {
		return nil, nil
	}
	o, at, _ := l.parse(at, maxLazyObject)
	d, ok := o.(types.Dict)
	if at = l.skipSpace(at); !ok || !l.has(at, "stream") {
		return nil, nil
	}
	at += len("stream")
	if l.has(at, "\r") {
		at++
	}
	if l.has(at, "\n") {
		at++
	}
	length, ok := d["Length"].(types.Integer)
	if ref, is := d["Length"].(types.IndirectRef); is {
		n := int(ref.ObjectNumber)
		if n < 0 || n >= len(l.entries) || l.entries[n].kind != fileEntry {
			return nil, nil // the length of an object stream must not be in an object stream
		}
		length, ok = l.object(n).(types.Integer)
	}
	if !ok || length < 0 || int(length) > len(l.data)-at || !l.has(l.skipSpace(at+int(length)), "endstream") {
		return nil, nil
	}
	return d, l.decompress(d, l.data[at:at+int(length)])
}

// decompress decodes the bytes of a stream with the usual filter.
func (l *lazyFile) decompress(d types.Dict, raw []byte) []byte {
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
		if out, err = (&file{lazy: l}).content(sd, maxContent); err != nil {
			return nil
		}
	}
	if l.workBytes += len(out); l.workBytes > maxWork {
		return nil
	}
	return out
}

// objectStream decompresses an object stream. It returns nil on failure.
func (l *lazyFile) objectStream(n int) *objectStream {
	if p, known := l.streams[n]; known {
		return p
	}
	if n < 0 || n >= len(l.entries) || l.entries[n].kind != fileEntry {
		return nil
	}
	d, content := l.stream(l.entries[n].at, n)
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
	if l.keptBytes += len(content); l.keptBytes > maxKeptBytes {
		clear(l.streams)
		l.keptBytes = len(content)
	}
	l.streams[n] = p
	return p
}

func (l *lazyFile) has(at int, word string) bool {
	return at >= 0 && at <= len(l.data) && bytes.HasPrefix(l.data[at:], []byte(word))
}

func (l *lazyFile) skipSpace(at int) int {
	for at >= 0 && at < len(l.data) && strings.IndexByte(" \t\r\n\f\x00", l.data[at]) >= 0 {
		at++
	}
	return at
}

// integer reads a number of at most ten digits, after white space.
func (l *lazyFile) integer(at int) (n, after int, ok bool) {
	at = l.skipSpace(at)
	from := at
	for at >= 0 && at < len(l.data) && at-from < 11 && l.data[at] >= '0' && l.data[at] <= '9' {
		n = n*10 + int(l.data[at]-'0')
		at++
	}
	return n, at, at > from && at-from < 11
}
