// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"sync"

	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/filter"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"github.com/roux-engine/roux/fault"
)

// Limits on the decompressed size of one stream and of one page. A page of text
// has some kilobytes, a drawing some megabytes.
const (
	maxContent     = 32 << 20
	maxPageContent = 64 << 20
	maxCMap        = 4 << 20
	maxFontProgram = 16 << 20
	maxObjects     = 2_000_000
)

// A file is an open PDF file: its objects, which refer to each other by number.
// Every getter returns the zero value where the file holds something else, so
// that walking a damaged file needs no checks.
type file struct {
	xref      *model.XRefTable
	lazy      *lazyFile // if set, used instead of xref
	encrypted bool      // and opened without a password
	rebuilt   bool      // its cross-reference table or page tree was wrong and has been rebuilt
	size      int       // in bytes
}

// noConfigDir keeps pdfcpu from creating its configuration directory in the
// user's home. It sets a variable that every parse reads, so it is called only
// once.
var noConfigDir = sync.OnceFunc(api.DisableConfigDir)

// openPDF reads the objects of a file. src is data, possibly followed by a new
// cross-reference table. pdfcpu builds a missing table and decrypts with the
// empty password.
func openPDF(src io.ReadSeeker, data []byte) (f *file, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fault.Wrap(fault.FileInvalid, fmt.Errorf("panic: %v", v), "the PDF file is damaged beyond repair")
		}
	}()
	noConfigDir()
	conf := model.NewDefaultConfiguration()
	conf.Cmd = model.OPTIMIZE
	conf.ValidationMode = model.ValidationRelaxed
	conf.Offline = true
	conf.Limits.MaxObjectCount, conf.Limits.MaxXRefEntries = maxObjects, maxObjects
	conf.Limits.MaxDecodeBytes = maxPageContent
	ctx, err := api.ReadContext(src, conf)
	switch {
	case errors.Is(err, pdfcpu.ErrWrongPassword):
		return nil, fault.Wrap(fault.FileEncrypted, err, "the PDF file is protected by a password: remove the password and try again")
	case errors.Is(err, pdfcpu.ErrUnsupportedEncryptionFeature), err == nil && ctx.E == nil && encryptedInTrailer(data):
		return nil, fault.Wrap(fault.FileEncrypted, err, "the PDF file is protected by a password, or encrypted in a way that cannot be read: remove its protection and try again")
	case errors.Is(err, filter.ErrDecodeLimitExceeded):
		return nil, fault.Wrap(fault.FileTooLarge, err, "a part of the PDF file unpacks to more than %d MiB", maxPageContent>>20)
	case err != nil:
		return nil, fault.Wrap(fault.FileInvalid, err, "the PDF file is damaged beyond repair")
	}
	return &file{xref: ctx.XRefTable, encrypted: ctx.E != nil, size: len(data)}, nil
}

var encryptKey = regexp.MustCompile(`/Encrypt\s*(<<|\d+\s+\d+\s+R)`)

// encryptedInTrailer looks for an encryption dictionary directly in the
// trailer, which pdfcpu overlooks.
func encryptedInTrailer(data []byte) bool {
	const size = 4096
	if i := bytes.LastIndex(data, []byte("trailer")); i >= 0 && encryptKey.Match(data[i:min(len(data), i+size)]) {
		return true
	}
	at := startxref(data)
	return at >= 0 && encryptKey.Match(data[at:min(len(data), at+size)])
}

// get follows references to the object they point to.
func (f *file) get(o types.Object) types.Object {
	for range 32 {
		ref, ok := o.(types.IndirectRef)
		if !ok {
			return o
		}
		if f.lazy != nil {
			o = f.lazy.object(int(ref.ObjectNumber))
			continue
		}
		next, err := f.xref.Dereference(ref)
		if err != nil {
			return nil
		}
		o = next
	}
	return nil
}

// dict returns a dictionary; of a stream, its dictionary.
func (f *file) dict(o types.Object) types.Dict {
	switch o := f.get(o).(type) {
	case types.Dict:
		return o
	case types.StreamDict:
		return o.Dict
	case *types.StreamDict:
		return o.Dict
	case types.ObjectStreamDict:
		return o.Dict
	}
	return nil
}

func (f *file) array(o types.Object) types.Array {
	a, _ := f.get(o).(types.Array)
	return a
}

func (f *file) stream(o types.Object) (types.StreamDict, bool) {
	switch o := f.get(o).(type) {
	case types.StreamDict:
		return o, true
	case *types.StreamDict:
		return *o, true
	}
	return types.StreamDict{}, false
}

func (f *file) number(o types.Object) (float64, bool) {
	switch o := f.get(o).(type) {
	case types.Integer:
		return float64(o), true
	case types.Float:
		return float64(o), true
	}
	return 0, false
}

func (f *file) float(o types.Object) float64 {
	n, _ := f.number(o)
	return n
}

func (f *file) name(o types.Object) string {
	n, _ := f.get(o).(types.Name)
	return string(n)
}

// bytes returns the bytes of a string.
func (f *file) bytes(o types.Object) []byte {
	switch o := f.get(o).(type) {
	case types.StringLiteral:
		b, err := types.Unescape(string(o))
		if err != nil {
			return []byte(o)
		}
		return b
	case types.HexLiteral:
		b, err := o.Bytes()
		if err != nil {
			return nil
		}
		return b
	}
	return nil
}

// text returns a text string, decoded.
func (f *file) text(o types.Object) string { return textString(f.bytes(o)) }

func (f *file) matrix(o types.Object) matrix {
	a := f.array(o)
	if len(a) != 6 {
		return identity
	}
	var m matrix
	for i := range m {
		m[i] = f.float(a[i])
	}
	return m
}

// box returns a rectangle with its corners in order.
func (f *file) box(o types.Object) (r rect, ok bool) {
	a := f.array(o)
	if len(a) != 4 {
		return rect{}, false
	}
	x0, y0, x1, y1 := f.float(a[0]), f.float(a[1]), f.float(a[2]), f.float(a[3])
	return rect{min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)}, true
}

// A rect is x0 y0 x1 y1.
type rect [4]float64

var errContentTooLarge = fault.New(fault.FileTooLarge, "a page of the PDF file unpacks to more than %d MiB", maxContent>>20)

// content decompresses a stream up to limit bytes, and returns
// errContentTooLarge when it has more. Of a damaged stream it returns what
// precedes the damage.
func (f *file) content(sd types.StreamDict, limit int) ([]byte, error) {
	if sd.Content != nil {
		if len(sd.Content) > limit {
			return sd.Content[:limit], errContentTooLarge
		}
		return sd.Content, nil
	}
	if fl := sd.FilterPipeline; len(fl) == 1 && fl[0].Name == filter.Flate && f.plainFlate(fl[0].DecodeParms) && len(sd.Raw) > 2 {
		var out bytes.Buffer
		n, err := io.Copy(&out, io.LimitReader(flate.NewReader(bytes.NewReader(sd.Raw[2:])), int64(limit)+1))
		if n > int64(limit) {
			return out.Bytes()[:limit], errContentTooLarge
		}
		if n > 0 || err == nil {
			return out.Bytes(), nil
		}
	}
	err := sd.DecodeWithLimit(int64(limit))
	if errors.Is(err, filter.ErrDecodeLimitExceeded) || len(sd.Content) > limit {
		return nil, errContentTooLarge
	}
	return sd.Content, err
}

func (f *file) plainFlate(parms types.Dict) bool { return f.float(parms["Predictor"]) < 2 }

// identityOf identifies a dictionary. pdfcpu keeps one map per dictionary of
// the file.
func identityOf(d types.Dict) uintptr { return reflect.ValueOf(d).Pointer() }

// dangling reports whether o is a reference to a missing object.
func (f *file) dangling(o types.Object) bool {
	_, ref := o.(types.IndirectRef)
	return ref && f.get(o) == nil
}
