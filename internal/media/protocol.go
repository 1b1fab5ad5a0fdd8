// SPDX-License-Identifier: Apache-2.0

package media

import (
	"errors"
	"fmt"
	"io"

	"github.com/roux-engine/roux/fault"
)

// The operations of a child.
const (
	opInfo = "pdf-info"
	opText = "pdf-text"
	opHTML = "html-to-markdown"
	opMark = "markdown-to-html"
)

// subject is what the request reads, as its faults call it.
func (r *request) subject() string {
	switch r.Op {
	case opHTML:
		return "the HTML"
	case opMark:
		return "the Markdown text"
	}
	return "the PDF file"
}

// request is what the parent asks, as JSON in the child's environment; the file
// comes through standard input.
type request struct {
	Op        string `json:"op"`
	Plain     bool   `json:"plain,omitempty"`
	MaxBytes  int64  `json:"maxBytes"`
	MaxPages  int    `json:"maxPages"`
	MaxMemory int64  `json:"maxMemory"`
	StallMS   int64  `json:"stallMs"`
	// Markup shapes opHTML and opMark.
	Markup *markup `json:"markup,omitempty"`
	// Probe names a misbehaviour, see the variable of that name.
	Probe string `json:"probe,omitempty"`
}

// probe, set by tests only, misbehaves as hostile files make parsers do.
var probe func(kind string)

// message is a line of the child's standard output. Each one is a sign of life;
// the last holds either the document or the fault.
type message struct {
	Done  int        `json:"done,omitempty"`
	Total int        `json:"total,omitempty"`
	Doc   *Document  `json:"doc,omitempty"`
	Code  fault.Code `json:"code,omitempty"`
	Msg   string     `json:"msg,omitempty"`
	Log   string     `json:"log,omitempty"` // cause, for the log only
}

// answer carries out a request on the bytes of src. It is the same code in the
// child and in a program without child.
func answer(req request, src io.Reader, alive func(done, total int)) (doc Document, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fault.Wrap(fault.FileInvalid, fmt.Errorf("panic: %v", v), "%s is damaged beyond repair", req.subject())
		}
	}()
	data, err := io.ReadAll(io.LimitReader(src, req.MaxBytes+1))
	if err != nil {
		return Document{}, err
	}
	if int64(len(data)) > req.MaxBytes {
		return Document{}, tooLarge(req)
	}
	alive(0, 0)
	if probe != nil {
		probe(req.Probe)
	}
	if req.Markup != nil {
		return convertMarkup(data, req)
	}
	return readPDF(data, req, alive)
}

// asFault makes every error of a parser one that a person can act on.
func asFault(err error, req request) *fault.Error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.Wrap(fault.FileInvalid, err, "%s is damaged beyond repair", req.subject())
}
