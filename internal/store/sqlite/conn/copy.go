// SPDX-License-Identifier: Apache-2.0

package conn

import (
	"errors"

	"modernc.org/sqlite"
)

// A Copy copies the database of a Writer into a new file, some pages at a time. What the
// Writer commits meanwhile is also written to the pages that are already copied, so a copy
// comes to an end however busy the database is. Between two steps it holds no lock and no
// read transaction. Like its Writer, it is not safe for concurrent use.
type Copy struct{ b *sqlite.Backup }

// Copy begins a copy into the file that a DSN names. The Writer must not be closed before
// [Copy.Finish].
func (w *Writer) Copy(dsn string) (*Copy, error) {
	c, ok := w.conn.(interface {
		NewBackup(dsn string) (*sqlite.Backup, error)
	})
	if !ok {
		return nil, errors.New("the SQLite driver copies no databases")
	}
	b, err := c.NewBackup(dsn)
	if err != nil {
		return nil, err
	}
	return &Copy{b}, nil
}

// Step copies the next pages and reports whether there are more. After the last page the
// copy is the database as of the last commit.
func (c *Copy) Step(pages int32) (more bool, err error) { return c.b.Step(pages) }

// Progress returns how many pages are copied, and how many there are, as of the last step.
func (c *Copy) Progress() (done, total int64) {
	total = int64(c.b.PageCount())
	return total - int64(c.b.Remaining()), total
}

// Finish closes the file. It is whole only if Step has reported that there are no more
// pages.
func (c *Copy) Finish() error { return c.b.Finish() }
