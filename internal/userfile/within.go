// SPDX-License-Identifier: Apache-2.0

package userfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

// ReadWithin reads a regular file below a directory: not through .. or a link that leads
// out of the directory. limit is the number of bytes that it may have. name has slashes.
// missing is the code of the error when it does not exist.
func ReadWithin(dir, name string, limit int64, missing fault.Code) ([]byte, error) {
	shown, local := filepath.Join(dir, name), filepath.FromSlash(name)
	if !filepath.IsLocal(local) {
		return nil, fault.New(missing, "%s leads out of the directory %s", name, dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, OpenError(shown, missing, err)
	}
	defer func() { _ = root.Close() }()
	// Opening a pipe can block, so its kind is looked at before.
	info, err := root.Stat(local)
	switch {
	case err != nil:
		return nil, OpenError(shown, missing, err)
	case info.IsDir():
		return nil, OpenError(shown, missing, syscall.EISDIR)
	case !info.Mode().IsRegular():
		return nil, fault.New(fault.FileInvalid, "%s is %s and no regular file", shown, Kind(info.Mode()))
	}
	f, err := root.Open(local)
	if err != nil {
		return nil, OpenError(shown, missing, err)
	}
	defer func() { _ = f.Close() }()
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		return nil, OpenError(shown, missing, errors.Join(err, errors.New("it was replaced while it was opened: try again")))
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, OpenError(shown, missing, err)
	case int64(len(text)) > limit:
		return nil, fault.New(fault.FileTooLarge, "%s is larger than %s", shown, view.Bytes(limit))
	}
	return text, nil
}

// A Stamp is what tells, mostly, that a file has changed.
type Stamp struct {
	Size     int64
	Modified time.Time
}

// StampsWithin returns the stamps of the files that ListWithin lists, by name. Those that
// have gone meanwhile, or lead out of the directory, have none.
func StampsWithin(dir string, limit int, extensions ...string) (map[string]Stamp, error) {
	names, err := ListWithin(dir, limit, extensions...)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	stamps := make(map[string]Stamp, len(names))
	for _, name := range names {
		if info, err := root.Stat(name); err == nil && info.Mode().IsRegular() {
			stamps[name] = Stamp{info.Size(), info.ModTime()}
		}
	}
	return stamps, nil
}

// ListWithin returns the names of the entries of a directory that have one of the
// extensions, sorted. There may be at most as many as limit says.
func ListWithin(dir string, limit int, extensions ...string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(extensions, strings.ToLower(filepath.Ext(e.Name()))) {
			names = append(names, e.Name())
		}
	}
	if len(names) > limit {
		return nil, fmt.Errorf("it holds %d such files; at most %d are read", len(names), limit)
	}
	return names, nil
}
