// SPDX-License-Identifier: Apache-2.0

// Package media reads PDF files, images, HTML and Markdown that nobody vouches
// for, makes images anew, and reads the headers of sounds and films.
//
// It decides what a file holds (pages, text with its structure, pixels) and
// which fault stands for each way in which it does not: FILE_INVALID for
// damage, FILE_ENCRYPTED for a PDF file that does not open without a password or
// is encrypted in a way that is not read, FILE_UNSUPPORTED for an image of
// another format, FILE_TOO_LARGE for what would pass a limit, STEP_TIMEOUT where
// the file may be whole and the machine too busy. Parsers of such files hang,
// eat memory and panic, so they work in a child process: this program started
// again (see [Dispatch]) with a limit on memory and on time without progress.
// Whatever happens there, the parent survives and says what is wrong with the
// file. Only headers of images, sounds and films are read in the parent, by
// hand, in a bounded number of small reads (see window).
//
// A program that never calls Dispatch, such as one that embeds Roux, parses in
// its own process: panics and hangs are still contained, memory is not.
//
// The package never opens a path and never keeps a file: it gets bytes.
package media

import (
	"cmp"
	"context"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media/pdf"
)

// The defaults of a Config.
const (
	DefaultMaxBytes  = 128 << 20
	DefaultMaxMemory = 768 << 20
	DefaultMaxPages  = 20_000
	DefaultStall     = 3 * time.Second
	// DefaultPDFMemory keeps the child of a PDF file below 256 MiB of resident
	// memory, program and all.
	DefaultPDFMemory = 160 << 20
	// DefaultImageStall is several times what the largest sound image takes.
	DefaultImageStall = 30 * time.Second
)

// maxText bounds the text of one document.
const maxText = pdf.MaxText

// Config is what a Reader is made of. Its zero value is ready for use.
type Config struct {
	MaxBytes  int64 // size of a file that is parsed. Default 128 MiB
	MaxMemory int64 // memory of the child process. Default 768 MiB
	// PDFMemory is the same for a PDF file, within MaxMemory; one of more than
	// 24 MiB gets three times what exceeds it on top. Default 160 MiB.
	PDFMemory int64
	MaxPages  int // Default 20,000
	// Stall is how much CPU time the parser may use without finishing a page; a
	// file that makes it loop fails then. CPU time, because a busy machine must
	// not make a sound file look damaged. A document of many pages gets a tenth
	// of it for each on top. Default 3 s.
	Stall time.Duration
	// ImageStall is the same for all the work on an image. Default 30 s.
	ImageStall time.Duration
	// Silence is how long the child may say nothing, by the clock: long enough to
	// get its CPU time on a machine with ten times its work. Default 10 × Stall,
	// for an image 10 × ImageStall.
	Silence time.Duration
	// Processes bounds how many children run at once; others wait. Default: the
	// number of CPUs.
	Processes int
}

// A Reader reads files under limits. It is safe for concurrent use.
type Reader struct {
	cfg   Config
	slots chan struct{}
	// exe is the program to start as child; found at the first use.
	exe   func() (string, error)
	probe string // see the variable of that name
	// ended, set by tests only, is told how much a child used.
	ended func(*os.ProcessState)
}

// New returns a Reader. It starts nothing.
func New(cfg Config) *Reader {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.MaxMemory <= 0 {
		cfg.MaxMemory = DefaultMaxMemory
	}
	if cfg.PDFMemory <= 0 {
		cfg.PDFMemory = DefaultPDFMemory
	}
	if cfg.MaxPages <= 0 {
		cfg.MaxPages = DefaultMaxPages
	}
	if cfg.Stall <= 0 {
		cfg.Stall = DefaultStall
	}
	if cfg.ImageStall <= 0 {
		cfg.ImageStall = DefaultImageStall
	}
	if cfg.Processes <= 0 {
		cfg.Processes = runtime.NumCPU()
	}
	return &Reader{cfg: cfg, slots: make(chan struct{}, cfg.Processes), exe: sync.OnceValues(self)}
}

// TextOptions shape the result of Text.
type TextOptions struct {
	// Pages are read, in the order of the document; nil = all. A page that the
	// document does not have is INPUT_INVALID.
	Pages []pdf.PageRange
	// Plain leaves out all marks: paragraphs only.
	Plain bool
	// Progress is told about every finished page. Optional.
	Progress func(done, total int)
}

// Info returns the facts of a PDF file.
func (r *Reader) Info(ctx context.Context, src io.Reader) (pdf.Document, error) {
	return r.read(ctx, src, request{Op: opInfo}, nil)
}

// Text returns the text of a PDF file as Markdown, page by page.
func (r *Reader) Text(ctx context.Context, src io.Reader, opts TextOptions) (pdf.Document, error) {
	return r.read(ctx, src, request{Op: opText, Plain: opts.Plain, Pages: opts.Pages}, opts.Progress)
}

func (r *Reader) read(ctx context.Context, src io.Reader, req request, progress func(done, total int)) (pdf.Document, error) {
	req.StallMS = r.cfg.Stall.Milliseconds()
	req.Size = sizeOf(src)
	req.MaxMemory = min(r.cfg.MaxMemory, r.cfg.PDFMemory+3*max(0, req.Size-pdf.Large))
	var pages []pdf.Page
	last, err := r.ask(ctx, src, req, func(m message) error {
		if m.Page != nil {
			pages = append(pages, *m.Page)
		}
		if m.Total > 0 && progress != nil {
			progress(m.Done, m.Total)
		}
		return nil
	})
	if err != nil {
		return pdf.Document{}, err
	}
	if last.Doc == nil {
		return pdf.Document{}, fault.New(fault.InternalError, "the reader of files answered without a document")
	}
	last.Doc.Pages = pages
	return *last.Doc, nil
}

// sizeOf is how many bytes a source has, 0 = unknown.
func sizeOf(src io.Reader) int64 {
	seeker, ok := src.(io.Seeker)
	if !ok {
		return 0
	}
	at, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	end, err := seeker.Seek(0, io.SeekEnd)
	if _, back := seeker.Seek(at, io.SeekStart); err != nil || back != nil {
		return 0 // reading it will tell why
	}
	return end - at
}

// ask has a request carried out on the bytes of src, under all limits. hear
// gets every message but the last, which is returned.
func (r *Reader) ask(ctx context.Context, src io.Reader, req request, hear func(message) error) (message, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
	req.MaxPages, req.Probe = r.cfg.MaxPages, r.probe
	req.MaxMemory = cmp.Or(req.MaxMemory, r.cfg.MaxMemory)
	req.MaxBytes = cmp.Or(req.MaxBytes, r.cfg.MaxBytes)
	if wired.Load() {
		return r.askChild(ctx, src, req, hear)
	}
	return r.askHere(ctx, src, req, hear)
}

// silence is how long nothing may be heard of the work.
func (r *Reader) silence(req request) time.Duration {
	if r.cfg.Silence > 0 {
		return r.cfg.Silence
	}
	return 10 * max(req.stall(), r.cfg.Stall)
}

func tooLong(limit time.Duration, req request) error {
	part := "a part of it"
	switch {
	case req.Markup != nil:
		return fault.New(fault.FileTooLarge, "%s takes more than %s of computing to convert, which is the limit: split it, or look for one mark repeated thousands of times", req.subject(), limit)
	case req.Op == opImage:
		part = "it"
	}
	return fault.New(fault.FileInvalid, "%s cannot be read: %s took more than %s of computing, as damaged files do", req.subject(), part, limit)
}

func silent(silence time.Duration, req request) error {
	return fault.New(fault.StepTimeout, "reading %s made no progress for %s", req.subject(), silence)
}

func tooLarge(req request) error {
	return fault.New(fault.FileTooLarge, "%s has more than %d MiB, which is the limit of what is parsed", req.subject(), req.MaxBytes>>20)
}
