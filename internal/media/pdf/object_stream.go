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
	// maxDecompressed limits the decompressed size of all object streams of one
	// file while it is searched for objects. Objects beyond that are not found.
	maxDecompressed = 4 * maxPageContent
	// maxStreamDict limits the dictionary of an object stream, which has a handful
	// of entries.
	maxStreamDict = 4096
)

// A compressedObject is an object in an object stream.
type compressedObject struct {
	number  int
	catalog bool // it is the catalog
}

var catalogType = regexp.MustCompile(`/Type\s*/Catalog\b`)

// An objectStreamReader reads object streams without a cross-reference table.
// It cannot read those that are encrypted or whose dictionary refers to other
// objects.
type objectStreamReader struct{ left int64 }

// objects lists the objects of an object stream in order. It returns nil for a
// damaged stream and for any other stream. dict is the text before the word
// "stream", body the bytes after it.
func (u *objectStreamReader) objects(dict, body []byte) (found []compressedObject) {
	if len(dict) > maxStreamDict || !bytes.Contains(dict, []byte("/ObjStm")) || u.left <= 0 {
		return nil
	}
	defer func() {
		if recover() != nil { // a panic of pdfcpu's parser or of one of its filters
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
	// The line of the word "stream" ends with LF or CR LF.
	body = bytes.TrimPrefix(bytes.TrimPrefix(body, []byte("\r")), []byte("\n"))
	sd := types.StreamDict{Dict: d, Raw: body, FilterPipeline: filtersOf(d)}
	if err := sd.DecodeWithLimit(min(u.left, maxPageContent)); err != nil {
		return nil
	}
	u.left -= int64(len(sd.Content))
	if *first < 0 || *first > len(sd.Content) {
		return nil
	}
	return parseObjectStream(sd.Content[:*first], sd.Content[*first:], *count)
}

// parseObjectStream reads the header of an object stream: count pairs of an
// object number and an offset.
func parseObjectStream(head, objects []byte, count int) (found []compressedObject) {
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
		found = append(found, compressedObject{number, catalogType.Match(objects[from:to])})
	}
	return found
}

// filtersOf lists the filters of a stream. Filters that are in other objects
// are left out.
func filtersOf(d types.Dict) (filters []types.PDFFilter) {
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
