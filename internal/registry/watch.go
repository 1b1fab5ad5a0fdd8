// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/roux-engine/roux/internal/userfile"
)

// recent is how long after the time of a file its stamp does not prove that it is the same:
// some file systems keep times in steps of two seconds.
const recent = 3 * time.Second

// A watch decides which files of a directory have changed. It reads none.
type watch struct {
	begun bool
	files map[string]*watched
}

// A watched is a file as it was at the last look.
type watched struct {
	stamp   userfile.Stamp
	hash    [sha256.Size]byte
	pending bool // it has changed, and was not read yet
	missing bool // it was not there at the last look
}

// look takes the stamps of a look and returns the files to read and those that have gone,
// sorted. What has changed is read when two looks in a row find the same stamp, and what is
// missing has gone after two looks: editors write files in parts, or remove them to put
// others in their places. The first look waits for nothing.
func (w *watch) look(stamps map[string]userfile.Stamp, now time.Time) (read, gone []string) {
	if w.files == nil {
		w.files = map[string]*watched{}
	}
	for name, stamp := range stamps {
		f := w.files[name]
		if f == nil {
			f = &watched{stamp: stamp, pending: true}
			w.files[name] = f
			if w.begun {
				continue
			}
		}
		f.missing = false
		if !f.stamp.Modified.Equal(stamp.Modified) || f.stamp.Size != stamp.Size {
			f.stamp, f.pending = stamp, true
			continue
		}
		if age := now.Sub(stamp.Modified); f.pending || age > -recent && age < recent {
			read = append(read, name)
		}
	}
	for name, f := range w.files {
		if _, ok := stamps[name]; ok {
			continue
		}
		if f.missing {
			gone = append(gone, name)
			delete(w.files, name)
		}
		f.missing = true
	}
	w.begun = true
	slices.Sort(read)
	slices.Sort(gone)
	return read, gone
}

// took notes the text of a file that was to be read, and reports whether it is another one
// than before.
func (w *watch) took(name string, text []byte) bool {
	f := w.files[name]
	hash := sha256.Sum256(text)
	changed := f.hash != hash
	f.hash, f.pending = hash, false
	return changed
}
