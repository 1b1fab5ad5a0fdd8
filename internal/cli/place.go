// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

// A placed is what became of a file that a command offers to write.
type placed struct {
	File string `json:"file"`
	Done string `json:"done"` // written, unchanged, updated or kept
	Why  string `json:"why,omitempty"`
}

// The ways a file is placed.
const (
	fileWritten   = "written"
	fileUnchanged = "unchanged"
	fileUpdated   = "updated"
	fileKept      = "kept"
)

// A placer writes files below one directory, which it never leaves: names go
// through a rooted handle, symbolic links out of it are refused.
type placer struct {
	root *os.Root
	dir  string // as the user called it
}

// openPlacer opens a directory, which is made where it is missing.
func openPlacer(dir string) (*placer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fault.Wrap(fault.Usage, err, "%s cannot be made a directory: %v", showPath(dir), err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, "%s cannot be opened: %v", showPath(dir), err)
	}
	return &placer{root, dir}, nil
}

func (p *placer) close() { _ = p.root.Close() }

// show is the name of a file as the user would write it.
func (p *placer) show(name string) string { return path.Join(p.dir, name) }

// read returns a file; ok is false where there is none.
func (p *placer) read(name string) (text []byte, ok bool, err error) {
	text, err = p.root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fault.Wrap(fault.Usage, err, "%s cannot be read: %v", p.show(name), err)
	}
	return text, true, nil
}

// offer writes a file that is not there. One that is there and differs belongs
// to the user and is kept, unless ours says that only Roux writes it.
func (p *placer) offer(name string, text []byte, ours bool) (placed, error) {
	old, there, err := p.read(name)
	switch {
	case err != nil:
		return placed{}, err
	case there && bytes.Equal(old, text):
		return placed{p.show(name), fileUnchanged, ""}, nil
	case there && !ours:
		return placed{p.show(name), fileKept, "you have changed it"}, nil
	}
	if err := p.write(name, text); err != nil {
		return placed{}, err
	}
	if there {
		return placed{p.show(name), fileUpdated, ""}, nil
	}
	return placed{p.show(name), fileWritten, ""}, nil
}

// write replaces a file at once: nobody sees half of it.
func (p *placer) write(name string, text []byte) error {
	if err := p.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return writeError(p.show(name), err)
	}
	return replaceFile(p.root, name, p.show(name), text)
}

// showPlaced tells what became of each file.
func (a *app) showPlaced(list []placed) {
	a.show(list, func() {
		for _, p := range list {
			line := fmt.Sprintf("%-9s  %s", p.Done, view.OneLine(p.File))
			if p.Why != "" {
				line += ": " + p.Why
			}
			a.text("%s\n", line)
		}
	})
}
