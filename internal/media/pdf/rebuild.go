// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"github.com/roux-engine/roux/fault"
)

// maxRevisions limits how many trailers of one file are checked for encryption.
const maxRevisions = 1_000

// openOrRebuild opens a file and returns its pages. Where the cross-reference
// table is wrong, it opens the file again with a table built from the objects
// themselves. A first result that is not usable is dropped before the second
// attempt, so that a large file is not in memory twice.
func openOrRebuild(data []byte, maxPages int) (*file, []pageNode, error) {
	read := func(src io.ReadSeeker) (*file, []pageNode, error) {
		f, err := openPDF(src, data)
		if err != nil {
			return nil, nil, err
		}
		pages, err := f.pages(maxPages)
		return f, pages, err
	}
	f, pages, err := read(bytes.NewReader(data))
	if code := fault.CodeOf(err); err != nil && (code == fault.FileEncrypted || code == fault.FileInvalid) {
		if open := withoutEncryption(data); open != nil {
			data = open
			f, pages, err = read(bytes.NewReader(data))
		}
	}
	switch {
	case err != nil && fault.CodeOf(err) != fault.FileInvalid:
		return nil, nil, err
	case err == nil && (len(data) > Large || f.xrefMatches(data)):
		return f, pages, nil
	case err != nil:
		f = nil
	}
	mended := rebuildXRef(data)
	if mended == nil {
		return f, pages, err
	}
	again, more, failed := read(mended)
	if failed != nil && fault.CodeOf(failed) != fault.FileInvalid && err != nil {
		return nil, nil, failed // the rebuilt file has the more precise fault
	}
	if failed != nil || len(more) < len(pages) {
		return f, pages, err
	}
	again.rebuilt = true
	return again, more, nil
}

// xrefMatches reports whether each table entry points to the object it names,
// and whether the table has object streams if the file has any: where the table
// is missing, pdfcpu builds one without them.
func (f *file) xrefMatches(data []byte) bool {
	heads := map[int][][]byte{}
	for number, entry := range f.xref.Table {
		if entry != nil && entry.ObjectStream != nil && entry.ObjectStreamInd != nil && !f.streamHolds(*entry.ObjectStream, *entry.ObjectStreamInd, number, heads) {
			return false
		}
		if entry == nil || entry.Free || entry.Compressed || entry.Offset == nil || *entry.Offset <= 0 || entry.ObjectStream != nil {
			continue
		}
		if *entry.Offset >= int64(len(data)) {
			return false
		}
		head := bytes.TrimLeft(data[*entry.Offset:min(*entry.Offset+64, int64(len(data)))], " \t\r\n\f\x00")
		rest, found := bytes.CutPrefix(bytes.TrimLeft(head, "0"), strconv.AppendInt(nil, int64(number), 10))
		if !found || len(rest) == 0 || strings.IndexByte(" \t\r\n\f\x00", rest[0]) < 0 {
			return false
		}
	}
	return len(heads) > 0 || !bytes.Contains(data, []byte("/ObjStm"))
}

// streamHolds reports whether an object stream has the object with that number
// at index, as far as that can be known. heads caches the headers of object
// streams between calls.
func (f *file) streamHolds(stream, index, number int, heads map[int][][]byte) bool {
	head, known := heads[stream]
	if !known {
		if entry := f.xref.Table[stream]; entry != nil {
			if osd, ok := entry.Object.(types.ObjectStreamDict); ok && osd.FirstObjOffset > 0 && !f.encrypted {
				text, _ := f.content(osd.StreamDict, osd.FirstObjOffset) // an error only means that there is more content
				head = bytes.Fields(text)
			}
		}
		heads[stream] = head
	}
	if len(head) == 0 {
		return true
	}
	if index < 0 || index >= len(head)/2 {
		return false
	}
	n, err := strconv.Atoi(string(head[2*index]))
	return err == nil && n == number
}

// rebuildXRef returns the file with a table built from the objects in it, or
// nil when it has none or no catalog. Of two objects with one number the later
// one counts, because updates are appended. The table is a cross-reference
// stream, because only that can refer to objects in object streams.
func rebuildXRef(data []byte) io.ReadSeeker {
	data = data[max(0, bytes.Index(data[:min(len(data), 1024)], []byte("%PDF-"))):]
	places, catalog := findObjects(data)
	trailer := newTrailer(data, catalog)
	if len(places) == 0 || trailer == "" {
		return nil
	}
	numbers := slices.Sorted(maps.Keys(places))
	var index, table bytes.Buffer
	index.WriteString("0 1")
	table.Write(objectLocation{}.xrefEntry())
	for i := 0; i < len(numbers); {
		end := i + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		fmt.Fprintf(&index, " %d %d", numbers[i], end-i)
		for ; i < end; i++ {
			table.Write(places[numbers[i]].xrefEntry())
		}
	}
	last := numbers[len(numbers)-1] + 1
	var tail bytes.Buffer
	fmt.Fprintf(&tail, "\n%d 0 obj\n<< /Type /XRef /Size %d /W [1 5 3] /Index [%s] /Length %d %s >>\nstream\n", last, last+1, &index, table.Len(), trailer)
	_, _ = table.WriteTo(&tail)
	fmt.Fprintf(&tail, "\nendstream\nendobj\nstartxref\n%d\n%%%%EOF\n", len(data)+1)
	return io.NewSectionReader(concatReader{data, tail.Bytes()}, 0, int64(len(data)+tail.Len()))
}

// concatReader reads two byte slices as one, without a copy.
type concatReader struct{ head, tail []byte }

func (j concatReader) ReadAt(p []byte, at int64) (int, error) {
	n := 0
	if at < int64(len(j.head)) {
		n = copy(p, j.head[at:])
	}
	if from := at + int64(n) - int64(len(j.head)); n < len(p) && from < int64(len(j.tail)) {
		n += copy(p[n:], j.tail[from:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

var encryptRef = regexp.MustCompile(`/Encrypt\s+(\d{1,10})\s+(\d{1,5})\s+R`)

// withoutEncryption returns the file without its Encrypt entries when only
// attachments are encrypted, so that the rest can be read without a password.
// It returns nil when more of it is encrypted. In such a file, strings and
// streams have the filter Identity.
func withoutEncryption(data []byte) []byte {
	refs := encryptRef.FindAllSubmatchIndex(data, maxRevisions)
	if len(refs) == 0 {
		return nil
	}
	open := bytes.Clone(data)
	for _, at := range refs {
		copy(open[at[0]:at[1]], bytes.Repeat([]byte(" "), at[1]-at[0]))
	}
	f, err := openPDF(bytes.NewReader(open), open)
	if err != nil {
		return nil
	}
	for _, at := range refs {
		number, _ := strconv.Atoi(string(data[at[2]:at[3]]))
		generation, _ := strconv.Atoi(string(data[at[4]:at[5]]))
		d := f.dict(*types.NewIndirectRef(number, generation))
		plain := func(key string) bool { return d[key] == nil || f.name(d[key]) == "Identity" }
		if v := f.float(d["V"]); f.name(d["Filter"]) != "Standard" || v != 4 && v != 5 || len(f.dict(d["CF"])) == 0 || !plain("StmF") || !plain("StrF") {
			return nil
		}
	}
	return open
}

// An objectLocation says where an object is: in the file, or in an object
// stream.
type objectLocation struct {
	offset, generation int // of the object, or of its object stream
	stream, index      int // number of the object stream and the index in it; 0 = none
}

// xrefEntry is the table entry, in fields of 1, 5 and 3 bytes. The zero value
// is the entry of a free object.
func (p objectLocation) xrefEntry() []byte {
	kind, second, third := byte(1), uint64(p.offset), uint64(p.generation)
	switch {
	case p.stream > 0:
		kind, second, third = 2, uint64(p.stream), uint64(p.index)
	case p.offset == 0 && p.generation == 0:
		kind, third = 0, 65535
	}
	return binary.BigEndian.AppendUint64([]byte{kind}, second<<24|third&0xFFFFFF)
}

// findObjects finds the objects of a file by their headers, "12 0 obj", the
// objects in object streams, and the number of the catalog. It skips the
// contents of other streams. Each search continues where the previous one
// ended, so the time is linear in the size of the file.
func findObjects(data []byte) (places map[int]objectLocation, catalog int) {
	places = map[int]objectLocation{}
	word := func(s string) *wordSearch { return &wordSearch{data: data, word: []byte(s), at: -1} }
	begin, end, stream, over := word("obj"), word("endobj"), word("stream"), word("endstream")
	unpack := objectStreamReader{left: maxDecompressed}
	for i := begin.next(0); i < len(data); i = begin.next(i) {
		offset, number, generation, ok := objectHeaderBefore(data, i)
		i += len("obj")
		if !ok || number == 0 || number > maxObjects || len(places) >= maxObjects {
			continue
		}
		places[number] = objectLocation{offset: offset, generation: generation}
		if bytes.Contains(data[i:min(i+256, len(data), end.next(i))], []byte("/Catalog")) {
			catalog = number
		}
		s := stream.next(i)
		if s >= end.next(i) {
			continue
		}
		after := over.next(s)
		if after >= len(data) {
			continue
		}
		for index, in := range unpack.objects(data[i:s], data[s+len("stream"):after]) {
			if in.number == 0 || in.number > maxObjects || len(places) >= maxObjects {
				continue
			}
			places[in.number] = objectLocation{offset: offset, stream: number, index: index}
			if in.catalog {
				catalog = in.number
			}
		}
		i = after
	}
	for number, p := range places {
		if p.stream > 0 && places[p.stream] != (objectLocation{offset: p.offset, generation: places[p.stream].generation}) {
			delete(places, number) // a later object has replaced the object stream
		}
	}
	return places, catalog
}

// A wordSearch finds a word repeatedly, at increasing offsets.
type wordSearch struct {
	data, word []byte
	at         int // offset of the last hit; -1 before the first search
}

// next returns the first offset from i on, or the end of the data.
func (s *wordSearch) next(i int) int {
	if s.at >= i {
		return s.at
	}
	if s.at = bytes.Index(s.data[i:], s.word); s.at < 0 {
		s.at = len(s.data)
	} else {
		s.at += i
	}
	return s.at
}

// objectHeaderBefore reads the two numbers before the word at i.
func objectHeaderBefore(data []byte, i int) (offset, number, generation int, ok bool) {
	generation, at, ok := numberBefore(data, i, 5)
	if !ok {
		return 0, 0, 0, false
	}
	number, at, ok = numberBefore(data, at, 10)
	return at, number, generation, ok
}

// numberBefore reads the number, with white space after it, that ends at i.
func numberBefore(data []byte, i, most int) (n, at int, ok bool) {
	end := i
	for end > 0 && i-end < 8 && strings.IndexByte(" \t\r\n\f\x00", data[end-1]) >= 0 {
		end--
	}
	at = end
	for at > 0 && end-at < most && data[at-1] >= '0' && data[at-1] <= '9' {
		at--
	}
	if end == i || at == end {
		return 0, 0, false
	}
	for _, c := range data[at:end] {
		n = n*10 + int(c-'0')
	}
	return n, at, true
}

var (
	trailerRefs = []*regexp.Regexp{regexp.MustCompile(`/Info\s+\d{1,10}\s+\d{1,5}\s+R`), regexp.MustCompile(`/Encrypt\s+\d{1,10}\s+\d{1,5}\s+R`),
		regexp.MustCompile(`/ID\s*\[\s*<[0-9A-Fa-f\s]*>\s*<[0-9A-Fa-f\s]*>\s*\]`)}
	rootRef = regexp.MustCompile(`/Root\s+\d{1,10}\s+\d{1,5}\s+R`)
)

// newTrailer copies the entries of a new trailer from the last one of the file.
// If there is none, it refers to the catalog that was found. It returns "" when
// there is neither.
func newTrailer(data []byte, catalog int) string {
	const around = 2048
	i := bytes.LastIndex(data, []byte("/Root"))
	if i >= 0 {
		region := data[max(0, i-around):min(len(data), i+around)]
		if root := rootRef.Find(data[i:min(len(data), i+around)]); root != nil {
			out := string(root)
			for _, entry := range trailerRefs {
				out += " " + string(entry.Find(region))
			}
			return out
		}
	}
	if catalog == 0 {
		return ""
	}
	return fmt.Sprintf("/Root %d 0 R", catalog)
}
