// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"regexp"
	"strconv"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
)

const (
	// maxUnpacked bounds what the object streams of one file unpack to while their
	// objects are looked for; those behind it are not found.
	maxUnpacked = 4 * maxPageContent
	// maxStreamDict bounds the dictionary of an object stream, which has a handful
	// of entries.
	maxStreamDict = 4096
)

// A packed object stands in an object stream.
type packed struct {
	number  int
	catalog bool // it is one
}

var catalogType = regexp.MustCompile(`/Type\s*/Catalog\b`)

// An unpacker reads object streams without a table of the file's objects, as far as
// they can be: what is encrypted, or has its dictionary in other objects, is none.
type unpacker struct{ left int64 }

// objects lists what an object stream holds, in its order; nil when the stream is
// another one or damaged. dict is the text before the word "stream", body that
// behind it.
func (u *unpacker) objects(dict, body []byte) (found []packed) {
	if len(dict) > maxStreamDict || !bytes.Contains(dict, []byte("/ObjStm")) || u.left <= 0 {
		return nil
	}
	defer func() {
		if recover() != nil { // of the library's parser or one of its filters
			found = nil
		}
	}()
	text := string(dict)
	o, err := model.ParseObject(&text)
	d, ok := o.(types.Dict)
	first, count := d.IntEntry("First"), d.IntEntry("N")
	if err != nil || !ok || first == nil || count == nil {
		return nil
	}
	// The line that the word "stream" stands in ends with LF or CR LF.
	body = bytes.TrimPrefix(bytes.TrimPrefix(body, []byte("\r")), []byte("\n"))
	sd := types.StreamDict{Dict: d, Raw: body, FilterPipeline: pipeline(d)}
	if err := sd.DecodeWithLimit(min(u.left, maxPageContent)); err != nil {
		return nil
	}
	u.left -= int64(len(sd.Content))
	if *first < 0 || *first > len(sd.Content) {
		return nil
	}
	return packedIn(sd.Content[:*first], sd.Content[*first:], *count)
}

// packedIn reads the head of an object stream: count pairs of an object's number
// and its place.
func packedIn(head, objects []byte, count int) (found []packed) {
	fields := bytes.Fields(head)
	if count < 0 || count > len(fields)/2 {
		return nil
	}
	at := func(i int) int {
		if i >= count {
			return len(objects)
		}
		n, err := strconv.Atoi(string(fields[2*i+1]))
		if err != nil || n < 0 || n > len(objects) {
			return -1
		}
		return n
	}
	for i := range count {
		number, err := strconv.Atoi(string(fields[2*i]))
		from, to := at(i), at(i+1)
		if err != nil || number < 0 || from < 0 || to < from {
			return nil
		}
		found = append(found, packed{number, catalogType.Match(objects[from:to])})
	}
	return found
}

// pipeline is the list of a stream's filters; what is not written in its dictionary
// itself is left out.
func pipeline(d types.Dict) (filters []types.PDFFilter) {
	list := func(key string) []types.Object {
		switch o := d[key].(type) {
		case types.Array:
			return o
		case nil:
			return nil
		default:
			return []types.Object{o}
		}
	}
	parms := list("DecodeParms")
	for i, o := range list("Filter") {
		name, _ := o.(types.Name)
		f := types.PDFFilter{Name: string(name)}
		if i < len(parms) {
			f.DecodeParms, _ = parms[i].(types.Dict)
		}
		filters = append(filters, f)
	}
	return filters
}
