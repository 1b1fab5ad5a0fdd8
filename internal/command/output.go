// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/redact"
	"github.com/roux-engine/roux/internal/view"
)

// An output keeps the standard output, within its limit.
type output struct {
	mode  string
	limit int64
	n     int64
	buf   bytes.Buffer // text and json
	file  *os.File     // file
	log   *diagnostics // log
	over  func()       // called once when there is more than the limit
	exit  int          // the exit code of a program that succeeded
	// failed is why something could not be written; the program may not notice.
	failed error
}

func (j *job) newOutput(cancel context.CancelCauseFunc) (*output, error) {
	o := &output{mode: j.spec.Stdout, limit: j.limits.output}
	if o.mode == "" {
		o.mode = stdoutText
	}
	field := "output"
	switch o.mode {
	case stdoutFile:
		o.limit, field = j.limits.disk, "disk"
		var err error
		if o.file, err = os.OpenFile(filepath.Join(j.box.Dir, "stdout"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return nil, fault.Wrap(fault.InternalError, err, "make a file for the standard output")
		}
	case stdoutLog:
		o.log = newDiagnostics(j.task.Report, j.hidden, "info")
	}
	o.over = func() {
		cancel(fault.New(fault.CommandLimit, "command %s was killed because its standard output had more than %s, the limit `%s` of the command", j.name, view.ShortBytes(o.limit), field))
	}
	return o, nil
}

// Write implements io.Writer. It fails when there is too much.
func (o *output) Write(p []byte) (int, error) {
	if o.log != nil {
		return o.log.Write(p)
	}
	if o.n+int64(len(p)) > o.limit {
		if o.over != nil {
			o.over()
			o.over = nil
		}
		return 0, io.ErrShortWrite
	}
	var to io.Writer = &o.buf
	if o.file != nil {
		to = o.file
	}
	n, err := to.Write(p)
	o.n += int64(n)
	if err != nil {
		o.failed = err
	}
	return n, err
}

// end is called when nothing follows.
func (o *output) end() {
	if o.log != nil {
		o.log.end()
	}
}

// reader returns what was written.
func (o *output) reader() (io.Reader, error) {
	if o.file == nil {
		return &o.buf, nil
	}
	_, err := o.file.Seek(0, io.SeekStart)
	return o.file, err
}

func (o *output) close() {
	if o.file != nil {
		_ = o.file.Close()
	}
}

// isText reports whether bytes can be shown as text.
func isText(p []byte) bool { return utf8.Valid(p) && !bytes.ContainsRune(p, 0) }

// The bounds of what is kept and logged of a standard error.
const (
	maxTail  = 4 << 10
	maxLine  = 4 << 10
	maxLines = 1000 // as many as a Reporter takes
)

// diagnostics logs what a program prints for people, line by line as it comes, and keeps the
// end of it.
type diagnostics struct {
	report  action.Reporter
	level   string
	hidden  *redact.Stream
	line    []byte
	lines   int
	last    []byte // at most twice maxTail
	strange int64  // bytes of lines that are not text
}

func newDiagnostics(report action.Reporter, hidden *redact.Set, level string) *diagnostics {
	return &diagnostics{report: report, hidden: hidden.Stream(), level: level}
}

// Write implements io.Writer.
func (d *diagnostics) Write(p []byte) (int, error) {
	d.take(d.hidden.Next(string(p)))
	return len(p), nil
}

func (d *diagnostics) take(text string) {
	for text != "" {
		at := strings.IndexAny(text, "\n\r")
		part, rest := text, ""
		if at >= 0 {
			part, rest = text[:at], text[at+1:]
		}
		d.line = append(d.line, part[:min(len(part), max(0, maxLine-len(d.line)))]...)
		if at >= 0 {
			d.flush()
		}
		text = rest
	}
}

// flush passes a line on.
func (d *diagnostics) flush() {
	line := d.line
	d.line = d.line[:0]
	if len(line) == 0 {
		return
	}
	if !isText(line) && !utf8.Valid(line[:max(0, len(line)-utf8.UTFMax)]) || bytes.ContainsRune(line, 0) {
		d.strange += int64(len(line))
		return
	}
	text := printable(string(line))
	d.last = append(append(d.last, text...), '\n')
	if len(d.last) > 2*maxTail {
		d.last = append(d.last[:0], d.last[len(d.last)-maxTail:]...)
	}
	if d.lines++; d.report != nil && d.lines <= maxLines {
		d.report.Log(d.level, text)
	}
}

// printable returns a line without what would change how a terminal shows others.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return -1
		case r == '\t':
			return r
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, line)
}

// end is called when nothing follows.
func (d *diagnostics) end() {
	d.take(d.hidden.End())
	d.flush()
	if d.strange > 0 && d.report != nil {
		d.report.Log(d.level, fmt.Sprintf("(%d bytes that are not text)", d.strange))
	}
}

// tail returns the end of what was printed.
func (d *diagnostics) tail() string {
	text := d.last
	if len(text) > maxTail {
		text = text[len(text)-maxTail:]
		if i := bytes.IndexByte(text, '\n'); i >= 0 && i < len(text)-1 {
			text = text[i+1:]
		}
	}
	out := strings.TrimRight(strings.ToValidUTF8(string(text), ""), "\n")
	if out == "" && d.strange > 0 {
		return fmt.Sprintf("(%d bytes that are not text)", d.strange)
	}
	return out
}
