// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/media/pdf"
)

// The operations of a child.
const (
	opInfo  = "pdf-info"
	opText  = "pdf-text"
	opImage = "image"
	opHTML  = "html-to-markdown"
	opMark  = "markdown-to-html"
)

// subject is what the request reads, as its faults call it.
func (r *request) subject() string {
	switch r.Op {
	case opHTML:
		return "the HTML"
	case opMark:
		return "the Markdown text"
	case opImage:
		return "the image"
	}
	return "the PDF file"
}

// request is what the parent asks, as JSON in the child's environment; the file
// comes through standard input.
type request struct {
	Op        string          `json:"op"`
	Plain     bool            `json:"plain,omitempty"`
	Pages     []pdf.PageRange `json:"pages,omitempty"`
	MaxBytes  int64           `json:"maxBytes"`
	Size      int64           `json:"size,omitempty"` // of the file, 0 = unknown
	MaxPages  int             `json:"maxPages"`
	MaxMemory int64           `json:"maxMemory"`
	// StallMS is how much CPU time may pass between two signs of progress; an
	// image has them all at once, at its end.
	StallMS int64 `json:"stallMs"`
	// Image shapes opImage.
	Image *imageJob `json:"image,omitempty"`
	// Markup shapes opHTML and opMark.
	Markup *markup `json:"markup,omitempty"`
	// Probe names a misbehaviour, see the variable of that name.
	Probe string `json:"probe,omitempty"`
}

func (r request) stall() time.Duration { return time.Duration(r.StallMS) * time.Millisecond }

// maxReply bounds what the parent reads of a child: text, escaped as JSON, or
// the bytes of an image in base64.
func (r request) maxReply() int64 {
	if r.Op == opImage {
		return maxEncoded/3*4 + 16<<20
	}
	return 4 * maxText
}

// probe, set by tests only, misbehaves as hostile files make parsers do.
var probe func(kind string)

// message is a line of the child's standard output. The last one holds the
// document, the facts of the image made, or the fault; those before it are
// signs of life, the pages of a document and the bytes of an image, in order.
type message struct {
	Done  int           `json:"done,omitempty"`
	Total int           `json:"total,omitempty"`
	Data  []byte        `json:"data,omitempty"`
	Page  *pdf.Page     `json:"page,omitempty"`
	Doc   *pdf.Document `json:"doc,omitempty"`
	Image *Picture      `json:"image,omitempty"`
	// Converted is the outcome of a conversion of markup.
	Converted *string    `json:"converted,omitempty"`
	Code      fault.Code `json:"code,omitempty"`
	Msg       string     `json:"msg,omitempty"`
	Log       string     `json:"log,omitempty"` // cause, for the log only
}

// last tells whether nothing follows.
func (m message) last() bool {
	return m.Doc != nil || m.Converted != nil || m.Image != nil || m.Code != ""
}

// answer carries out a request on the bytes of src and returns the last
// message; emit takes those before it, and what it fails with ends the work. It
// is the same code in the child and in a program without child.
func answer(req request, src io.Reader, emit func(message) error) (last message, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fault.Wrap(fault.FileInvalid, fmt.Errorf("panic: %v", v), "%s is damaged beyond repair", req.subject())
		}
	}()
	data, err := readAll(io.LimitReader(src, req.MaxBytes+1), min(req.Size, req.MaxBytes))
	if err != nil {
		return message{}, err
	}
	if int64(len(data)) > req.MaxBytes {
		return message{}, tooLarge(req)
	}
	if err := emit(message{}); err != nil {
		return message{}, err
	}
	if probe != nil {
		probe(req.Probe)
	}
	if req.Op == opImage {
		made, err := makeImage(data, *req.Image, req.MaxMemory, func(p []byte) error { return emit(message{Data: p}) })
		return message{Image: &made}, err
	}
	if req.Markup != nil {
		text, err := convertMarkup(data, req)
		return message{Converted: &text}, err
	}
	doc, err := readPDF(data, req, emit)
	return message{Doc: &doc}, err
}

// readPDF returns the facts of a PDF file; emit takes the pages of its text.
func readPDF(data []byte, req request, emit func(message) error) (pdf.Document, error) {
	if req.Op == opInfo {
		return pdf.Info(data, req.MaxPages)
	}
	return pdf.Text(data, pdf.Options{
		MaxPages: req.MaxPages, Pages: req.Pages, Plain: req.Plain,
		Page:     func(p pdf.Page) error { return emit(message{Page: &p}) },
		Progress: func(done, total int) error { return emit(message{Done: done, Total: total}) },
	})
}

// readAll reads everything into one piece of memory when the size is known.
func readAll(src io.Reader, size int64) ([]byte, error) {
	if size <= 0 {
		return io.ReadAll(src)
	}
	out := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	_, err := out.ReadFrom(src)
	return out.Bytes(), err
}

// asFault makes every error of a parser one that a person can act on.
func asFault(err error, req request) *fault.Error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.Wrap(fault.FileInvalid, err, "%s is damaged beyond repair", req.subject())
}
