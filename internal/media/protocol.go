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

// Operations of a child.
const (
	opInfo     = "pdf-info"
	opText     = "pdf-text"
	opImage    = "image"
	opHTML     = "html-to-markdown"
	opMarkdown = "markdown-to-html"
)

// subject names what the request reads, for messages.
func (r *request) subject() string {
	switch r.Op {
	case opHTML:
		return "the HTML"
	case opMarkdown:
		return "the Markdown text"
	case opImage:
		return "the image"
	}
	return "the PDF file"
}

// request is what the parent asks for, as JSON in the child's environment. The
// child reads the file from standard input.
type request struct {
	Op        string          `json:"op"`
	Plain     bool            `json:"plain,omitempty"`
	Pages     []pdf.PageRange `json:"pages,omitempty"`
	MaxBytes  int64           `json:"maxBytes"`
	Size      int64           `json:"size,omitempty"` // of the file; 0 = unknown
	MaxPages  int             `json:"maxPages"`
	MaxMemory int64           `json:"maxMemory"`
	// StallMS limits the CPU time between two progress reports. Work on an image
	// reports none, so there it limits the whole.
	StallMS int64 `json:"stallMs"`
	// Image has the parameters of opImage.
	Image *imageJob `json:"image,omitempty"`
	// Markup has the parameters of opHTML and opMarkdown.
	Markup *markup `json:"markup,omitempty"`
	// Misbehaviour names a misbehaviour for tests, see testMisbehave.
	Misbehaviour string `json:"misbehaviour,omitempty"`
}

func (r request) stall() time.Duration { return time.Duration(r.StallMS) * time.Millisecond }

// maxReply limits how many bytes the parent reads from a child: text escaped as
// JSON, or the bytes of an image in base64.
func (r request) maxReply() int64 {
	if r.Op == opImage {
		return maxEncoded/3*4 + 16<<20
	}
	return 4 * maxText
}

// testMisbehave is set by tests only. It misbehaves as parsers do on hostile
// files.
var testMisbehave func(kind string)

// A message is a line of the child's standard output. The final message holds
// the document, the converted text, the facts of the image, or the fault. Those
// before it report progress, or carry the pages of a document or the bytes of
// an image, in order.
type message struct {
	Done  int           `json:"done,omitempty"`
	Total int           `json:"total,omitempty"`
	Data  []byte        `json:"data,omitempty"`
	Page  *pdf.Page     `json:"page,omitempty"`
	Doc   *pdf.Document `json:"doc,omitempty"`
	Image *ImageResult  `json:"image,omitempty"`
	// Converted is the result of a conversion of markup.
	Converted *string    `json:"converted,omitempty"`
	Code      fault.Code `json:"code,omitempty"`
	Msg       string     `json:"msg,omitempty"`
	Log       string     `json:"log,omitempty"` // cause, for the log only
}

// final reports whether no message follows.
func (m message) final() bool {
	return m.Doc != nil || m.Converted != nil || m.Image != nil || m.Code != ""
}

// execute carries out a request on the bytes of src and returns the final
// message. It calls emit for the messages before that and stops when emit
// fails. The same code runs in a child and in a program without one.
func execute(req request, src io.Reader, emit func(message) error) (last message, err error) {
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
		return message{}, errTooLarge(req)
	}
	if err := emit(message{}); err != nil {
		return message{}, err
	}
	if testMisbehave != nil {
		testMisbehave(req.Misbehaviour)
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

// readPDF reads a PDF file and calls emit for each page of its text.
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

// readAll reads all of src, into one allocation when the size is known.
func readAll(src io.Reader, size int64) ([]byte, error) {
	if size <= 0 {
		return io.ReadAll(src)
	}
	out := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	_, err := out.ReadFrom(src)
	return out.Bytes(), err
}

// toFault turns an error of a parser into one that a user can act on.
func toFault(err error, req request) *fault.Error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.Wrap(fault.FileInvalid, err, "%s is damaged beyond repair", req.subject())
}
