// SPDX-License-Identifier: Apache-2.0

package userfile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

// Save writes a file in one step and returns its path. When to is a directory,
// the file gets its stored name in it, which never leads out of it (A15).
func Save(src io.Reader, to, name, hash string, force bool) (string, error) {
	dir, base := filepath.Split(to)
	if info, err := os.Stat(to); base == "" || err == nil && info.IsDir() {
		dir, base = to, SafeName(name, hash)
	}
	if dir == "" {
		dir = "."
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.Wrap(fault.FileNotFound, err, "%s: no such directory; looked in %s", filepath.Clean(dir), lookedIn(filepath.Clean(dir)))
	}
	if err != nil {
		return "", OpenError(dir, fault.FileNotFound, err)
	}
	defer func() { _ = root.Close() }()
	path := filepath.Join(dir, base)
	d, err := NewAtomic(root, base, path, 0o666, force)
	if err != nil {
		return "", err
	}
	defer d.Discard()
	if _, err := io.Copy(d, src); err != nil {
		return "", err
	}
	return path, d.Place()
}

// devices are names that Windows reserves for devices, with any extension.
var devices = []string{"con", "prn", "aux", "nul", "conin$", "conout$"}

// SafeName turns the name of an upload into one that names a file inside a
// directory on every system. It returns substitute when nothing is left of it.
func SafeName(name, substitute string) string {
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	name = strings.Map(func(r rune) rune {
		if view.Unprintable(r) || r < ' ' || strings.ContainsRune(`<>:"|?*`, r) || r == utf8.RuneError {
			return '_'
		}
		return r
	}, name)
	// A leading dot hides a file, and a leading dash looks like a flag. Windows
	// drops a trailing dot or space.
	name = strings.TrimRight(name, ". ")
	if name != "" && strings.ContainsRune(".-~ ", rune(name[0])) {
		name = "_" + name[1:]
	}
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	stem = strings.TrimRight(stem, " ")
	for _, d := range devices {
		if stem == d {
			name = "_" + name
		}
	}
	if len(stem) == 4 && (stem[:3] == "com" || stem[:3] == "lpt") && stem[3] >= '0' && stem[3] <= '9' {
		name = "_" + name
	}
	if len(name) > 200 {
		name = string(bytes.ToValidUTF8([]byte(name[:200]), nil))
	}
	if name == "" {
		return substitute
	}
	return name
}
