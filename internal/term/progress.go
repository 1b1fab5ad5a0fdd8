// SPDX-License-Identifier: Apache-2.0

package term

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/roux-engine/roux/internal/view"
)

// progressFrom is how much must have been read before progress is drawn.
const progressFrom = 16 << 20

// progressEvery is the time between two drawings.
const progressEvery = 100 * time.Millisecond

// A Progress is a reader that draws on a screen how much of a large file has
// been read.
type Progress struct {
	r      io.Reader
	screen *Screen // nil draws nothing
	now    func() time.Time
	name   string
	size   int64 // -1 when it is not known
	done   int64
	drawn  time.Time
	shown  bool
	err    error
}

// NewProgress returns a Progress that reads a file of size bytes from r; size
// is -1 when it is not known. It draws nothing when screen is nil or not live.
func NewProgress(r io.Reader, screen *Screen, now func() time.Time, name string, size int64) *Progress {
	return &Progress{r: r, screen: screen, now: now, name: view.OneLine(view.Cut(name, 40)), size: size}
}

// Read implements io.Reader.
func (p *Progress) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.done += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		p.err = err
	}
	if p.screen == nil || !p.screen.Live() || p.done <= progressFrom {
		return n, err
	}
	if now := p.now(); now.Sub(p.drawn) > progressEvery {
		p.drawn, p.shown = now, true
		text := Size(p.done)
		if p.size > 0 {
			text = fmt.Sprintf("%3d %%  %s of %s", min(100*p.done/p.size, 100), text, Size(p.size))
		}
		p.screen.Print("\r\x1b[K" + p.name + "  " + text)
	}
	return n, err
}

// Err returns the error of the reader below, other than io.EOF.
func (p *Progress) Err() error { return p.err }

// End removes what is drawn.
func (p *Progress) End() {
	if p.shown {
		p.screen.Print("\r\x1b[K")
	}
}

// Size returns a number of bytes in decimal units, such as 1.2 MB.
func Size(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, unit := float64(n), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB"} {
		if f /= 1000; f < 999.5 {
			break
		}
	}
	if f < 9.95 {
		return fmt.Sprintf("%.1f %s", f, unit)
	}
	return fmt.Sprintf("%.0f %s", f, unit)
}

// A Counter draws on a screen how many of something have been read.
type Counter struct {
	screen *Screen // nil draws nothing
	now    func() time.Time
	name   string
	what   string
	drawn  time.Time
	shown  bool
}

// NewCounter returns a counter of what is read of something with a name. It draws nothing
// when screen is nil or not live.
func NewCounter(screen *Screen, now func() time.Time, name, what string) *Counter {
	return &Counter{screen: screen, now: now, name: view.OneLine(view.Cut(name, 40)), what: what, drawn: now()}
}

// Set says how many it is now.
func (c *Counter) Set(n uint64) {
	if c.screen == nil || !c.screen.Live() {
		return
	}
	if now := c.now(); now.Sub(c.drawn) > progressEvery {
		c.drawn, c.shown = now, true
		c.screen.Print(fmt.Sprintf("\r\x1b[K%s  %d %s", c.name, n, c.what))
	}
}

// End removes what is drawn.
func (c *Counter) End() {
	if c.shown {
		c.screen.Print("\r\x1b[K")
	}
}
