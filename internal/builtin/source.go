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

// The bounds of the actions on text. Those that stream take any file of the
// store; the others hold the whole text.
const (
	maxHeld   = 16 << 20 // a text that is held in memory
	maxMade   = 32 << 20 // a text or list that is made in memory
	maxToFile = 1 << 30  // what is streamed into a file
)

// exactlyOne is the keyword by which a schema says that one of several inputs
// must be given and no other. It is an annotation for validators and a rule for
// compile, which then leaves a file input alone when another one is given.
// Written as oneOf it would be checked too, but in words nobody understands.
const exactlyOne = `"x-exactlyOne"`

// sourceProps are the inputs of an action that works on a text.
const sourceProps = `
	"text": {"type": "string", "description": "The text itself."},
	"file": {"type": "string", "format": "file", "pattern": "^sha256_[0-9a-f]{64}$", "description": "Hash of a file with the text, in UTF-8. A step that is given no text gets the run's only file."}`

// outputProp chooses where a result goes, and what a file is called.
const outputProp = `"output": {"enum": ["inline", "file"], "default": "inline", "description": "file stores the result as a file and returns its hash, for results that are large or wanted as a file."},
				"name": {"type": "string", "minLength": 1, "maxLength": 255, "description": "With output: file. The name of the file. Default: made from the name of the input, where it has one."}`

// madeName is the field of an output that says what a file is called.
const madeName = `"name": {"type": "string", "description": "With output: file. The name of the file."}`

// A target is where a result goes.
type target struct {
	Output string `json:"output"`
	Name   string `json:"name"`
}

// named is the name of a file that is made: the one that was asked for, else made.
func (t target) named(made string) string { return cmp.Or(t.Name, made) }

// sourceSchema is the input schema of an action that works on a text: its two
// sources and the properties of rest.
func sourceSchema(rest string, required ...string) json.RawMessage {
	if rest != "" {
		rest = ",\n" + rest
	}
	names, _ := json.Marshal(append([]string{}, required...)) // strings always encode
	return schema(`{"type": "object", "properties": {` + sourceProps + rest + `},
		"required": ` + string(names) + `, ` + exactlyOne + `: ["text", "file"], "additionalProperties": false}`)
}

// source is a text that was given inline or as a file.
type source struct {
	Text *string `json:"text"`
	File string  `json:"file"`
}

// given refuses neither and both, whatever the inputs are called.
func given(inline string, hasInline bool, file string) error {
	switch {
	case hasInline && file != "":
		return fault.New(fault.InputInvalid, "%q and \"file\" are both given: want one of them", inline)
	case !hasInline && file == "":
		return fault.New(fault.InputInvalid, "neither %q nor \"file\" is given: want one of them, or give the run exactly one file", inline)
	}
	return nil
}

// A stream is an open text: without byte order mark, and an error where it is
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
	if err := given("text", src.Text != nil, src.File); err != nil {
		return nil, err
	}
	if src.Text != nil {
		return &stream{Reader: strings.NewReader(*src.Text), size: int64(len(*src.Text))}, nil
	}
	return openText(ctx, task, src.File)
}

// openText opens a file that holds text.
func openText(ctx context.Context, task *action.Task, hash string) (*stream, error) {
	f, err := task.Files.Open(ctx, hash)
	if err != nil {
		return nil, err
	}
	info := f.Info()
	s := &stream{size: info.Size, name: info.Name, file: f}
	br := bufio.NewReaderSize(watched{ctx, f}, 64<<10)
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
	s.Reader = &utf8Reader{r: br, said: said}
	return s, nil
}

// watched ends with its context.
type watched struct {
	ctx context.Context
	io.Reader
}

func (w watched) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.Reader.Read(p)
}

// utf8Reader passes on what is valid UTF-8 and fails where it is not.
type utf8Reader struct {
	r    *bufio.Reader
	said string
	at   int64
	part [utf8.UTFMax]byte // the begun rune at the end of the last read
	n    int
}

func (u *utf8Reader) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	data := p[:n]
	for len(data) > 0 || errors.Is(err, io.EOF) && u.n > 0 {
		if u.n > 0 { // complete the begun rune
			for u.n < utf8.UTFMax && len(data) > 0 && !utf8.FullRune(u.part[:u.n]) {
				u.part[u.n] = data[0]
				u.n++
				data = data[1:]
			}
			if !utf8.FullRune(u.part[:u.n]) && !errors.Is(err, io.EOF) {
				break
			}
			if r, size := utf8.DecodeRune(u.part[:u.n]); size != u.n || r == utf8.RuneError && size == 1 {
				return 0, u.bad()
			}
			u.at += int64(u.n)
			u.n = 0
			continue
		}
		whole := data
		for i := 1; i < utf8.UTFMax && i <= len(data); i++ { // keep back a begun rune
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
			return 0, u.bad()
		}
		u.at += int64(len(whole))
		u.n = copy(u.part[:], data[len(whole):])
		data = nil
	}
	return n, err
}

func (u *utf8Reader) bad() error {
	return fault.New(fault.FileInvalid, "file %s is not valid UTF-8 at byte %d: save it as UTF-8", u.said, u.at)
}

// text is the whole text of src, for actions that cannot work piece by piece.
func (src source) text(ctx context.Context, task *action.Task) (text, name string, err error) {
	s, err := src.open(ctx, task)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = s.Close() }()
	if s.size > maxHeld+3 {
		return "", "", tooLong(s)
	}
	if src.Text != nil {
		return *src.Text, "", nil
	}
	var b strings.Builder
	b.Grow(int(s.size))
	if _, err := io.Copy(&b, io.LimitReader(s, maxHeld+1)); err != nil {
		return "", "", err
	}
	if b.Len() > maxHeld {
		return "", "", tooLong(s)
	}
	return b.String(), s.name, nil
}

func tooLong(s *stream) error {
	if s.file == nil {
		return fault.New(fault.ValueTooLarge, "the text has %d bytes, this action takes up to %d MiB", s.size, maxHeld>>20)
	}
	return fault.New(fault.FileTooLarge, "file %s has %d bytes, this action takes texts up to %d MiB: split it first",
		cmp.Or(s.name, s.file.Info().Hash), s.size, maxHeld>>20)
}

// put stores what produce writes, piece by piece. produce runs on the caller's
// goroutine.
func put(ctx context.Context, task *action.Task, name, mimeType string, produce func(w *bufio.Writer) error) (info action.FileInfo, err error) {
	pr, pw := io.Pipe()
	stored := aside(func() (err error) {
		info, err = task.Files.Put(ctx, pr, name, mimeType)
		return err
	}, func(err error) {
		// What is still being written goes nowhere; its writer must hear of it.
		_ = pr.CloseWithError(err)
	})
	finished := false
	defer func() {
		if !finished {
			_ = pw.CloseWithError(errors.New("the writer of the file stopped"))
		}
	}()
	w := bufio.NewWriterSize(&capped{w: pw, left: maxToFile}, 64<<10)
	err = produce(w)
	if err == nil {
		err = w.Flush()
	}
	finished = true
	_ = pw.CloseWithError(err) // nil = the end
	refused := stored()
	if err != nil { // of produce, or of the store, which ended the pipe with it
		return action.FileInfo{}, err
	}
	return info, refused
}

// aside calls fn on a goroutine of its own, and end with what came of it. wait
// returns that. A panic of fn is thrown again by wait, on the goroutine of the
// action, where it is contained; no other would be (I16).
func aside(fn func() error, end func(error)) (wait func() error) {
	err := errors.New("the goroutine has ended without a word") // runtime.Goexit
	var thrown any
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() {
			if v := recover(); v != nil {
				thrown = fmt.Sprintf("%v\n\n%s", v, debug.Stack())
				err = errors.New("it panicked")
			}
			end(err)
		}()
		err = fn()
	}()
	return func() error {
		<-over
		if thrown != nil {
			panic(thrown)
		}
		return err
	}
}

// capped refuses what exceeds the bound of a file that is made.
type capped struct {
	w    io.Writer
	left int64
}

func (c *capped) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		return 0, fault.New(fault.OutputTooLarge, "the result has more than %d MiB: take a part of the input at a time", maxToFile>>20)
	}
	return c.w.Write(p)
}

// textResult gives a text back inline or as a file, beside other fields.
func textResult(ctx context.Context, task *action.Task, to target, text, name, mimeType string, out map[string]any) (action.Result, error) {
	if to.Output != "file" {
		out["text"] = text
		return action.Result{Output: out}, nil
	}
	info, err := task.Files.Put(ctx, strings.NewReader(text), to.named(name), mimeType)
	if err != nil {
		return action.Result{}, err
	}
	out["file"], out["name"] = info.Hash, info.Name
	return action.Result{Output: out}, nil
}

// madeTooLarge is the fault of a result that does not fit into memory.
func madeTooLarge(what string) error {
	return fault.New(fault.OutputTooLarge, `%s has more than %d MiB: ask for "output": "file", or take a part of the input at a time`, what, maxMade>>20)
}

// types is what an action takes or gives, as a list of one.
func types(name, description string, mimeTypes ...string) []action.TypeDefinition {
	return []action.TypeDefinition{{Name: name, MimeTypes: mimeTypes, Description: description}}
}

// example is an input that works, written as a Go value.
func example(title string, input map[string]any) action.Example {
	raw, err := json.Marshal(input)
	if err != nil {
		panic(fmt.Sprintf("builtin: example %q: %v", title, err)) // a mistake in this package
	}
	return action.Example{Title: title, Input: raw}
}

// condition is a ready-made predicate.
func condition(name, expression, description string) action.BranchCondition {
	return action.BranchCondition{Name: name, Expression: expression, Description: description}
}
