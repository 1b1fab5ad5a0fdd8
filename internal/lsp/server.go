// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/expressions"
)

// Config is what a server is made of.
type Config struct {
	// Options returns what the text in a file is compiled against, as `roux validate` does it. Required.
	Options func(file string) compile.Options
	// Actions are those that texts may name. Required.
	Actions catalogue.Actions
	// Dir is the working directory, an absolute path. Files in it are named relative to it.
	Dir string
	// Version is that of the program.
	Version string
	// Ignore are names of files that are neither recipes nor lenses.
	Ignore []string
}

const (
	// maxDocuments is how many documents may be open at once.
	maxDocuments = 1000
	// maxText is how many bytes the documents that are open may have together.
	maxText = 256 << 20
	// maxRequests is how many requests are answered at the same time; more wait.
	maxRequests = 4
	// maxWaiting is how many requests may wait or be answered; more are refused.
	maxWaiting = 64
)

// A server has the documents of one client.
type server struct {
	cfg   Config
	conn  *conn
	cache *expressions.Cache // because most of a text is the same from one key to the next

	mu        sync.Mutex
	docs      map[string]*document
	utf8      bool
	stage     stage
	cancels   map[string]context.CancelFunc // of the requests that are being answered
	published map[string]*published         // by URI of the document that was checked
	due       map[string]bool               // documents that must be checked
	wake      chan struct{}

	slots    chan struct{}
	requests sync.WaitGroup
}

// A stage is how far the life of a server has come.
type stage uint8

const (
	starting stage = iota
	serving
	shutDown
)

// ErrNoShutdown is that a client went without a good-bye, for which the protocol wants a failure.
var ErrNoShutdown = errors.New("the client ended without the request shutdown")

// Serve answers the messages of a client until it says exit, its stream ends, or the context ends.
func Serve(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	s := &server{
		cfg: cfg, conn: newConn(in, out), cache: expressions.NewLasting(), docs: map[string]*document{}, cancels: map[string]context.CancelFunc{},
		published: map[string]*published{}, due: map[string]bool{}, wake: make(chan struct{}, 1), slots: make(chan struct{}, maxRequests),
	}
	ctx, stop := context.WithCancel(ctx)
	var checker sync.WaitGroup
	checker.Go(func() { s.checkDue(ctx) })
	err := s.serve(ctx)
	stop()
	s.requests.Wait()
	checker.Wait()
	return err
}

func (s *server) serve(ctx context.Context) error {
	type read struct {
		m   *message
		err error
	}
	messages := make(chan read)
	go func() { // it ends with the stream, which nothing else can interrupt
		for {
			m, err := s.conn.read()
			select {
			case messages <- read{m, err}:
			case <-ctx.Done():
				return
			}
			var own *rpcError
			if err != nil && !errors.As(err, &own) {
				return
			}
		}
	}()
	for {
		var r read
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r = <-messages:
		}
		var own *rpcError
		switch {
		case errors.As(r.err, &own):
			null := json.RawMessage("null")
			s.conn.answer(&null, nil, own)
		case r.err != nil && s.at() == shutDown && errors.Is(r.err, io.EOF):
			return nil
		case errors.Is(r.err, io.EOF):
			return ErrNoShutdown
		case r.err != nil:
			return fault.New(fault.InputInvalid, "the input is no message of the Language Server Protocol: %v", r.err)
		case r.m.Method == "exit":
			if s.at() != shutDown {
				return ErrNoShutdown
			}
			return nil
		default:
			s.take(ctx, r.m)
		}
		if s.broken() {
			return fault.New(fault.InputInvalid, "the client does not read any more")
		}
	}
}

func (s *server) broken() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.conn.err != nil
}

func (s *server) at() stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage
}

// take carries out a notification, in the order of the messages, or begins to answer a request.
func (s *server) take(ctx context.Context, msg *message) {
	if msg.ID == nil {
		if msg.Method != "" && s.at() == serving {
			if err := guarded(func() error { return s.notified(msg) }); err != nil {
				s.log(fmt.Sprintf("%s: %v", msg.Method, err))
			}
		}
		return
	}
	if msg.Method == "" {
		return // the answer to a request: this server makes none
	}
	if stop := s.lifecycle(msg); stop {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	id := string(*msg.ID)
	s.mu.Lock()
	var refused *rpcError
	switch _, twice := s.cancels[id]; {
	case twice:
		refused = failed(codeInvalidRequest, "the id %.80s is in use", id)
	case len(s.cancels) >= maxWaiting:
		refused = failed(codeRequestFailed, "%d requests wait for their answers already", maxWaiting)
	default:
		s.cancels[id] = cancel
	}
	s.mu.Unlock()
	if refused != nil {
		cancel()
		s.conn.answer(msg.ID, nil, refused)
		return
	}
	// The documents are those of now: a later change does not reach this request.
	var handle func() (any, error)
	if err := guarded(func() error {
		handle = s.handler(msg)
		return nil
	}); err != nil {
		handle = func() (any, error) { return nil, err }
	}
	s.requests.Go(func() {
		defer func() {
			s.mu.Lock()
			delete(s.cancels, id)
			s.mu.Unlock()
			cancel()
		}()
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-ctx.Done():
		}
		var result any
		err := ctx.Err()
		if err == nil {
			err = guarded(func() (e error) {
				result, e = handle()
				return e
			})
		}
		if ctx.Err() != nil {
			err = failed(codeCancelled, "cancelled")
		}
		s.conn.answer(msg.ID, result, err)
	})
}

// guarded calls f and makes an error of a panic, so that one request does not end the server.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = failed(codeInternal, "internal error: %v", r)
		}
	}()
	return f()
}

// lifecycle answers what begins and ends the service, and refuses what does not fit to its stage.
func (s *server) lifecycle(msg *message) (answered bool) {
	s.mu.Lock()
	stage := s.stage
	s.mu.Unlock()
	switch {
	case msg.Method == "initialize" && stage == starting:
		var p initializeParams
		if err := decode(orNull(msg.Params), &p); err != nil {
			s.conn.answer(msg.ID, nil, failed(codeParams, "%v", err))
			return true
		}
		encoding := "utf-16"
		s.mu.Lock()
		s.stage = serving
		if slices.Contains(p.Capabilities.General.PositionEncodings, "utf-8") {
			encoding, s.utf8 = "utf-8", true
		}
		s.mu.Unlock()
		s.conn.answer(msg.ID, map[string]any{"capabilities": capabilities(encoding), "serverInfo": map[string]string{"name": "roux", "version": s.cfg.Version}}, nil)
	case msg.Method == "initialize":
		s.conn.answer(msg.ID, nil, failed(codeInvalidRequest, "initialize came a second time"))
	case stage == starting:
		s.conn.answer(msg.ID, nil, failed(codeNotInitialized, "%s came before initialize", msg.Method))
	case stage == shutDown:
		s.conn.answer(msg.ID, nil, failed(codeInvalidRequest, "%s came after shutdown", msg.Method))
	case msg.Method == "shutdown":
		s.mu.Lock()
		s.stage = shutDown
		s.mu.Unlock()
		s.requests.Wait()
		s.conn.answer(msg.ID, nil, nil)
	default:
		return false
	}
	return true
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// handler returns what answers a request.
func (s *server) handler(msg *message) func() (any, error) {
	handlers := map[string]func(*document, *documentParams) (any, error){
		"textDocument/hover": s.hover, "textDocument/completion": s.complete, "textDocument/definition": s.definition,
		"textDocument/references": s.references, "textDocument/prepareRename": s.prepareRename, "textDocument/rename": s.rename,
		"textDocument/documentSymbol": s.symbols, "textDocument/formatting": s.format, "textDocument/codeAction": s.codeActions,
	}
	refuse := func(err error) func() (any, error) { return func() (any, error) { return nil, err } }
	h := handlers[msg.Method]
	if h == nil {
		return refuse(failed(codeNoMethod, "there is no method %.80q", msg.Method))
	}
	var p documentParams
	if err := decode(orNull(msg.Params), &p); err != nil {
		return refuse(failed(codeParams, "%v", err))
	}
	s.mu.Lock()
	d := s.docs[p.TextDocument.URI]
	s.mu.Unlock()
	if d == nil {
		return refuse(failed(codeParams, "%.200q is not open", p.TextDocument.URI))
	}
	if d.lost != "" {
		return refuse(failed(codeRequestFailed, "%s", d.lost))
	}
	if d.is(s.cfg.Ignore) == foreign {
		return func() (any, error) { return nil, nil }
	}
	return func() (any, error) { return h(d, &p) }
}

// notified carries out a notification.
func (s *server) notified(msg *message) error {
	switch msg.Method {
	case "$/cancelRequest":
		var p struct {
			ID json.RawMessage `json:"id"`
		}
		if err := decode(orNull(msg.Params), &p); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if cancel := s.cancels[string(p.ID)]; cancel != nil {
			cancel()
		}
		return nil
	case "textDocument/didSave", "workspace/didChangeWatchedFiles":
		s.mu.Lock()
		defer s.mu.Unlock()
		for uri := range s.docs { // a text may include the one that was saved
			s.check(uri)
		}
		return nil
	case "textDocument/didOpen", "textDocument/didChange", "textDocument/didClose":
		var p documentParams
		if err := decode(orNull(msg.Params), &p); err != nil {
			return err
		}
		switch msg.Method {
		case "textDocument/didOpen":
			return s.open(&p)
		case "textDocument/didChange":
			return s.change(&p)
		}
		s.close(p.TextDocument.URI)
	}
	return nil
}

func (s *server) open(p *documentParams) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	uri := p.TextDocument.URI
	if s.docs[uri] == nil && len(s.docs) >= maxDocuments {
		return fmt.Errorf("%d documents are open; close one before %.200q", len(s.docs), uri)
	}
	d := newDocument(uri, fileOf(uri, s.cfg.Dir), p.TextDocument.Version, p.TextDocument.Text, s.utf8)
	return s.keep(d)
}

func (s *server) change(p *documentParams) error {
	s.mu.Lock()
	d := s.docs[p.TextDocument.URI]
	s.mu.Unlock()
	if d == nil {
		return fmt.Errorf("%.200q is not open", p.TextDocument.URI)
	}
	// Requests about other versions are answered meanwhile. Nobody else changes a document.
	known := d.is(s.cfg.Ignore) != foreign
	d = d.changed(p.ContentChanges, p.TextDocument.Version)
	d.known = known
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep(d)
}

// keep replaces a version of a document, and has it checked. s.mu is held.
func (s *server) keep(d *document) error {
	sum := len(d.text)
	for uri, other := range s.docs {
		if uri != d.uri {
			sum += len(other.text)
		}
	}
	if sum > maxText {
		d.lose(fmt.Sprintf("the documents that are open have more than %d bytes together: close some, and open %s again", maxText, d.file))
	}
	s.docs[d.uri] = d
	s.check(d.uri)
	if d.lost != "" {
		return errors.New(d.lost)
	}
	return nil
}

func (s *server) close(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.docs, uri)
	delete(s.due, uri)
	s.publish(uri, nil)
}

// log tells the client of something that it did wrong and that has no answer.
func (s *server) log(text string) {
	s.conn.notify("window/logMessage", map[string]any{"type": 1, "message": strings.ToValidUTF8(text, "?")})
}
