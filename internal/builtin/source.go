// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// Limits of the actions on text. Those that stream accept any file of the
// store; the others hold the whole text in memory.
const (
	maxTextInMemory   = 16 << 20 // an input text in memory
	maxResultInMemory = 32 << 20 // a resulting text or list in memory
	maxResultFile     = 1 << 30  // a result that is streamed into a file
)

// exactlyOne is the schema keyword for inputs of which exactly one must be
// given. It is an annotation for validators and a rule for compile, which then
// leaves a file input alone when another one is given. A oneOf would be checked
// too, but with incomprehensible messages.
const exactlyOne = `"x-exactlyOne"`

// sourceProps are the input properties of an action on a text.
const sourceProps = `
	"text": {"type": "string", "description": "The text itself."},
	"file": {"type": "string", "format": "file", "pattern": "^sha256_[0-9a-f]{64}$", "description": "Hash of a file with the text, in UTF-8. A step that is given no text gets the run's only file."}`

// outputProp is the input property for the form of a result, inline or file,
// and the file's name.
const outputProp = `"output": {"enum": ["inline", "file"], "default": "inline", "description": "file stores the result as a file and returns its hash, for results that are large or wanted as a file."},
				"name": {"type": "string", "minLength": 1, "maxLength": 255, "description": "With output: file. The name of the file. Default: made from the name of the input, where it has one."}`

// fileNameProp is the output property with the name of the file.
const fileNameProp = `"name": {"type": "string", "description": "With output: file. The name of the file."}`

// A target is where a result is stored.
type target struct {
	Output string `json:"output"`
	Name   string `json:"name"`
}

// fileName returns the requested name of the file, or else made.
func (t target) fileName(made string) string { return cmp.Or(t.Name, made) }

// sourceSchema is the input schema of an action on a text: its two sources and
// the properties of rest.
func sourceSchema(rest string, required ...string) json.RawMessage {
	if rest != "" {
		rest = ",\n" + rest
	}
	names, _ := json.Marshal(append([]string{}, required...)) // strings always encode
	return schema(`{"type": "object", "properties": {` + sourceProps + rest + `},
		"required": ` + string(names) + `, ` + exactlyOne + `: ["text", "file"], "additionalProperties": false}`)
}

// A source is a text that was given inline or as a file.
type source struct {
	Text *string `json:"text"`
	File string  `json:"file"`
}

// checkOneSource returns a fault when neither or both sources are given,
// whatever the inputs are called.
func checkOneSource(inline string, hasInline bool, file string) error {
	switch {
	case hasInline && file != "":
		return fault.New(fault.InputInvalid, "%q and \"file\" are both given: want one of them", inline)
	case !hasInline && file == "":
		return fault.New(fault.InputInvalid, "neither %q nor \"file\" is given: want one of them, or give the run exactly one file", inline)
	}
	return nil
}

// A stream is an open text without byte order mark. Reading fails where it is
// not UTF-8. size and name are those of the file, or of the inline text.
type stream struct {
	io.Reader
	size int64
	name string
	file action.File // nil for an inline text
}

// Close closes the file, if there is one.
func (s *stream) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// open opens the text of src.
func (src source) open(ctx context.Context, task *action.Task) (*stream, error) {
	if err := checkOneSource("text", src.Text != nil, src.File); err != nil {
		return nil, err
	}
	if src.Text != nil {
		return &stream{Reader: strings.NewReader(*src.Text), size: int64(len(*src.Text))}, nil
	}
	return openText(ctx, task, src.File)
}

// openText opens a text file.
func openText(ctx context.Context, task *action.Task, hash string) (*stream, error) {
	f, err := task.Files.Open(ctx, hash)
	if err != nil {
		return nil, err
	}
	info := f.Info()
	s := &stream{size: info.Size, name: info.Name, file: f}
	br := bufio.NewReaderSize(contextReader{ctx, f}, 64<<10)
	head, err := br.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		_ = f.Close()
		return nil, err
	}
	said := cmp.Or(info.Name, hash)
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		_, _ = br.Discard(3)
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		_ = f.Close()
		return nil, fault.New(fault.FileUnsupported, "file %s is text in UTF-16: save it as UTF-8", said)
	case bytes.IndexByte(head, 0) >= 0 || bytes.HasPrefix(head, []byte("%PDF-")):
		_ = f.Close()
		return nil, fault.New(fault.FileUnsupported, "file %s is %s: want a text in UTF-8", said, info.MimeType)
	}
	s.Reader = &utf8Reader{r: br, label: said}
	return s, nil
}

// A contextReader fails when its context has ended.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (w contextReader) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.Reader.Read(p)
}

// A utf8Reader passes on valid UTF-8 and fails where it is not valid.
type utf8Reader struct {
	r       *bufio.Reader
	label   string
	at      int64
	pending [utf8.UTFMax]byte // an incomplete rune at the end of the last read
	n       int
}

func (u *utf8Reader) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	data := p[:n]
	for len(data) > 0 || errors.Is(err, io.EOF) && u.n > 0 {
		if u.n > 0 { // complete the pending rune
			for u.n < utf8.UTFMax && len(data) > 0 && !utf8.FullRune(u.pending[:u.n]) {
				u.pending[u.n] = data[0]
				u.n++
				data = data[1:]
			}
			if !utf8.FullRune(u.pending[:u.n]) && !errors.Is(err, io.EOF) {
				break
			}
			if r, size := utf8.DecodeRune(u.pending[:u.n]); size != u.n || r == utf8.RuneError && size == 1 {
				return 0, u.invalid()
			}
			u.at += int64(u.n)
			u.n = 0
			continue
		}
		whole := data
		for i := 1; i < utf8.UTFMax && i <= len(data); i++ { // hold back an incomplete rune
			if b := data[len(data)-i]; utf8.RuneStart(b) {
				if !utf8.FullRune(data[len(data)-i:]) {
					whole = data[:len(data)-i]
				}
				break
			}
		}
		if !utf8.Valid(whole) {
			for len(whole) > 0 {
				r, size := utf8.DecodeRune(whole)
				if r == utf8.RuneError && size == 1 {
					break
				}
				u.at += int64(size)
				whole = whole[size:]
			}
			return 0, u.invalid()
		}
		u.at += int64(len(whole))
		u.n = copy(u.pending[:], data[len(whole):])
		data = nil
	}
	return n, err
}

func (u *utf8Reader) invalid() error {
	return fault.New(fault.FileInvalid, "file %s is not valid UTF-8 at byte %d: save it as UTF-8", u.label, u.at)
}

// text returns the whole text of src, for actions that cannot work in chunks.
func (src source) text(ctx context.Context, task *action.Task) (text, name string, err error) {
	s, err := src.open(ctx, task)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = s.Close() }()
	if s.size > maxTextInMemory+3 {
		return "", "", tooLong(s)
	}
	if src.Text != nil {
		return *src.Text, "", nil
	}
	var b strings.Builder
	b.Grow(int(s.size))
	if _, err := io.Copy(&b, io.LimitReader(s, maxTextInMemory+1)); err != nil {
		return "", "", err
	}
	if b.Len() > maxTextInMemory {
		return "", "", tooLong(s)
	}
	return b.String(), s.name, nil
}

func tooLong(s *stream) error {
	if s.file == nil {
		return fault.New(fault.ValueTooLarge, "the text has %d bytes, this action takes up to %d MiB", s.size, maxTextInMemory>>20)
	}
	return fault.New(fault.FileTooLarge, "file %s has %d bytes, this action takes texts up to %d MiB: split it first",
		cmp.Or(s.name, s.file.Info().Hash), s.size, maxTextInMemory>>20)
}

// storeOutput stores what produce writes, as a stream. produce runs in the
// caller's goroutine.
func storeOutput(ctx context.Context, task *action.Task, name, mimeType string, produce func(w *bufio.Writer) error) (info action.FileInfo, err error) {
	pr, pw := io.Pipe()
	stored := inGoroutine(func() (err error) {
		info, err = task.Files.Put(ctx, pr, name, mimeType)
		return err
	}, func(err error) {
		// The writer may still be writing; this makes it fail.
		_ = pr.CloseWithError(err)
	})
	finished := false
	defer func() {
		if !finished {
			_ = pw.CloseWithError(errors.New("the writer of the file stopped"))
		}
	}()
	w := bufio.NewWriterSize(&limitedWriter{w: pw, left: maxResultFile}, 64<<10)
	err = produce(w)
	if err == nil {
		err = w.Flush()
	}
	finished = true
	_ = pw.CloseWithError(err) // nil means end of file
	refused := stored()
	if err != nil { // from produce, or from the store, which closed the pipe with it
		return action.FileInfo{}, err
	}
	return info, refused
}

// inGoroutine calls fn in a goroutine of its own, then end with its error. wait
// returns that error. If fn panics, wait raises the panic again in the action's
// goroutine, where it is recovered; a panic in any other goroutine would end
// the process (I16).
func inGoroutine(fn func() error, end func(error)) (wait func() error) {
	err := errors.New("the goroutine exited without a result") // runtime.Goexit
	var thrown any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				thrown = fmt.Sprintf("%v\n\n%s", v, debug.Stack())
				err = errors.New("the function panicked")
			}
			end(err)
		}()
		err = fn()
	}()
	return func() error {
		<-done
		if thrown != nil {
			panic(thrown)
		}
		return err
	}
}

// A limitedWriter refuses more than the limit of a resulting file.
type limitedWriter struct {
	w    io.Writer
	left int64
}

func (c *limitedWriter) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		return 0, fault.New(fault.OutputTooLarge, "the result has more than %d MiB: take a part of the input at a time", maxResultFile>>20)
	}
	return c.w.Write(p)
}

// textResult returns a text inline or as a file, beside other fields.
func textResult(ctx context.Context, task *action.Task, to target, text, name, mimeType string, out map[string]any) (action.Result, error) {
	if to.Output != "file" {
		out["text"] = text
		return action.Result{Output: out}, nil
	}
	info, err := task.Files.Put(ctx, strings.NewReader(text), to.fileName(name), mimeType)
	if err != nil {
		return action.Result{}, err
	}
	out["file"], out["name"] = info.Hash, info.Name
	return action.Result{Output: out}, nil
}

// resultTooLarge is the fault for a result that does not fit into memory.
func resultTooLarge(what string) error {
	return fault.New(fault.OutputTooLarge, `%s has more than %d MiB: ask for "output": "file", or take a part of the input at a time`, what, maxResultInMemory>>20)
}

// types returns a single input or output type as a list.
func types(name, description string, mimeTypes ...string) []action.TypeDefinition {
	return []action.TypeDefinition{{Name: name, MimeTypes: mimeTypes, Description: description}}
}

// example returns an example with its input as a Go value.
func example(title string, input map[string]any) action.Example {
	raw, err := json.Marshal(input)
	if err != nil {
		panic(fmt.Sprintf("builtin: example %q: %v", title, err)) // a bug in this package
	}
	return action.Example{Title: title, Input: raw}
}

// condition returns a ready-made predicate.
func condition(name, expression, description string) action.BranchCondition {
	return action.BranchCondition{Name: name, Expression: expression, Description: description}
}
