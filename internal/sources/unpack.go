// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

const (
	// maxEntries is how many entries an archive may have.
	maxEntries = 10_000
	// maxKept is how many recipes and lenses a source may have.
	maxKept = 1000
	// maxRatio is how many bytes a byte of a package may become. Texts reach a tenth of it.
	maxRatio = 200
	// freeBytes may come of any package, whatever its ratio is.
	freeBytes = 1 << 20
	// maxName is how many bytes the path of an entry may have.
	maxName = 500
)

// texts are the extensions of recipes and lenses. Other files are not kept.
var texts = []string{".yaml", ".yml", ".json"}

// Unpack writes the recipes and lenses into a directory, which exists and is empty. It
// writes nothing outside of it.
func (g *Fetched) Unpack(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	u := &unpacking{root: root, source: g.Source}
	switch g.Source.Kind {
	case Text:
		return u.write(textName(g.Source.Where), g.content)
	case Git:
		u.most = MaxBytes
		err = u.archive(bytes.NewReader(g.content))
	default:
		u.most = min(MaxBytes, max(freeBytes, maxRatio*int64(len(g.content))))
		err = u.compressed(bytes.NewReader(g.content))
	}
	switch {
	case err != nil:
		return err
	case u.kept == 0:
		return fault.New(fault.RecipeNotFound, "%s has no file of YAML or JSON%s", g.Source.Show(), u.in())
	}
	return nil
}

// textName is the name of the file of a text.
func textName(where string) string {
	name := "recipe.yaml"
	if u, err := url.Parse(where); err == nil {
		if base := path.Base(u.Path); isText(base) && plainName(base) {
			name = base
		}
	}
	return name
}

// plainName reports whether a name has nothing that a file system may take for more than one.
func plainName(name string) bool {
	for _, c := range name {
		if c != '.' && c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return !strings.HasPrefix(name, ".") && len(name) <= 100 && filepath.IsLocal(name)
}

func isText(name string) bool { return slices.Contains(texts, strings.ToLower(path.Ext(name))) }

// An unpacking writes the files of one source.
type unpacking struct {
	root   *os.Root
	source *Source
	most   int64 // bytes that may be read
	read   int64
	// written is how many bytes the texts have.
	written int64
	kept    int
}

func (u *unpacking) in() string {
	if u.source.Sub == "" {
		return ""
	}
	return " in " + u.source.Sub
}

// invalid refuses an archive.
func (u *unpacking) invalid(format string, args ...any) error {
	e := fault.New(fault.FileInvalid, format, args...)
	e.Msg = u.source.Show() + ": " + e.Msg
	e.Remedy = "Make the package of regular files and directories with relative paths, for example with `tar czf recipes.tar.gz recipes`."
	return e
}

func (u *unpacking) compressed(r io.Reader) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return u.invalid("it is not compressed with gzip")
	}
	return u.archive(z)
}

// Read bounds what is unpacked, headers and what is passed over included.
func (u *unpacking) bound(r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if u.read += int64(n); u.read > u.most {
			return 0, errTooMuch
		}
		return n, err
	})
}

var errTooMuch = errors.New("too much is unpacked")

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// archive writes the files of a tar archive.
func (u *unpacking) archive(r io.Reader) error {
	t := tar.NewReader(u.bound(r))
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return u.damaged(err)
		case n == maxEntries:
			return u.invalid("it has more than %d entries", maxEntries)
		}
		if err := u.entry(h, t); err != nil {
			return err
		}
	}
}

func (u *unpacking) damaged(err error) error {
	if errors.Is(err, errTooMuch) {
		return fault.New(fault.FileTooLarge, "%s unpacks to more than %s, which is the limit for its size", u.source.Show(), view.Bytes(u.most))
	}
	return u.invalid("it is damaged: %s", view.OneLine(view.Cut(err.Error(), 200)))
}

// entry writes one file, or passes over it.
func (u *unpacking) entry(h *tar.Header, r io.Reader) error {
	name := path.Clean(strings.TrimSuffix(h.Name, "/"))
	shown := view.OneLine(view.Cut(h.Name, 100))
	switch {
	case h.Typeflag == tar.TypeXGlobalHeader:
		return nil
	case len(h.Name) > maxName || strings.ContainsAny(h.Name, "\\\x00:"):
		return u.invalid("%q is no path that every system has", shown)
	case path.IsAbs(h.Name) || slices.Contains(strings.Split(h.Name, "/"), "..") || !filepath.IsLocal(filepath.FromSlash(name)):
		return u.invalid("Path traversal not allowed: %q leads out of the package", shown)
	case h.Typeflag == tar.TypeDir:
		return nil // those of the files are made
	case h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeLink:
		return u.invalid("%q is a link, and links are not followed", shown)
	case h.Typeflag != tar.TypeReg:
		return u.invalid("%q is neither a file nor a directory", shown)
	}
	if u.source.Sub != "" {
		inner, in := strings.CutPrefix(name, u.source.Sub+"/")
		if !in {
			return nil
		}
		name = inner
	}
	if !isText(name) {
		return nil
	}
	if h.Size > maxText {
		return fault.New(fault.FileTooLarge, "%s: %q has %d bytes: a text has at most %d", u.source.Show(), shown, h.Size, maxText)
	}
	text, err := io.ReadAll(r)
	if u.written += int64(len(text)); err == nil && u.written > u.most { // the holes of a sparse file are not read
		err = errTooMuch
	}
	if err != nil {
		return u.damaged(err)
	}
	return u.write(name, text)
}

// write writes a file below the root. A file that exists is not replaced: two entries of a
// name would leave open which of them was meant.
func (u *unpacking) write(name string, text []byte) error {
	if u.kept++; u.kept > maxKept {
		return u.invalid("it has more than %d files of YAML and JSON", maxKept)
	}
	local := filepath.FromSlash(name)
	if err := u.root.MkdirAll(filepath.Dir(local), 0o700); err != nil {
		return u.invalid("%q cannot be written: a file stands where its directory would be", view.OneLine(view.Cut(name, 100)))
	}
	f, err := u.root.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return u.invalid("it has two files %q", view.OneLine(view.Cut(name, 100)))
	}
	if err != nil {
		return fault.Wrap(fault.InternalError, err, "%s cannot be unpacked: %v", u.source.Show(), err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fault.Wrap(fault.InternalError, err, "%s cannot be unpacked: %v", u.source.Show(), err)
	}
	return nil
}
