// SPDX-License-Identifier: Apache-2.0

// Package emulate has servers that speak the protocols of outside services, for tests and for
// trying out recipes without a service: [Server] those of services with language models, and
// [Jobs] those of services that carry out jobs, which are submitted, polled, reported by webhooks
// and cancelled.
//
// It decides what is answered, which is always the same for the same request, and how answers,
// jobs and webhooks go wrong. It has no model and stores nothing. A Server connects to nothing and
// keeps only a count of requests; Jobs sends webhooks, through package egress, and keeps books.
package emulate

import (
	"cmp"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// The modes: how answers go wrong.
const (
	OK             = "ok"
	RateLimit      = "rate-limit"      // 429 with Retry-After
	Overload       = "overload"        // 529, with Retry-After
	Broken         = "broken"          // 500
	ErrorMidstream = "error-midstream" // an error after the first half of the answer
	CutMidstream   = "cut-midstream"   // the connection ends after the first half
	Stall          = "stall"           // nothing more comes after the first half
	DoubleStart    = "double-start"    // the first event of a stream comes twice
	Splice         = "splice"          // the second half is that of another answer
	Slow           = "slow"            // a tenth of a second between two pieces
	Truncated      = "truncated"       // the answer ends because it has its most tokens
	InvalidJSON    = "invalid-json"    // the first answer of a conversation is no JSON
	Clock          = "clock"           // each piece is the time at which it is sent, see [Server.Handler]
	modelPrefix    = "emulate-"        // of a model that is named after a mode
)

// Modes returns the names of all modes.
func Modes() []string {
	return []string{OK, RateLimit, Overload, Broken, ErrorMidstream, CutMidstream, Stall, DoubleStart, Splice, Slow, Truncated, InvalidJSON, Clock}
}

// Config configures a server. Its zero value answers every request.
type Config struct {
	// Mode is how answers go wrong; a model whose name is emulate- and a mode has that one.
	// Default OK.
	Mode string
	// Times is how many requests go wrong before all others are OK; 0 = all.
	Times int64
	// Key is the key that requests must have; "" = none is checked.
	Key string
	// Models are the models that there are; empty = any.
	Models []string
	// Answer is the text of every answer. Default: what was asked, see Handler.
	Answer string
	// RetryAfter is the value of that header. Default "1".
	RetryAfter string
	// Rate is how many pieces of a stream are sent a second. 0 = all at once, in the mode Slow 10.
	Rate float64
}

// A Server counts the requests that it has had.
type Server struct {
	cfg      Config
	requests atomic.Int64
	bad      atomic.Int64
}

// New returns a server.
func New(cfg Config) *Server {
	cfg.Mode, cfg.RetryAfter = cmp.Or(cfg.Mode, OK), cmp.Or(cfg.RetryAfter, "1")
	return &Server{cfg: cfg}
}

// Requests is how many requests were answered, well or not.
func (s *Server) Requests() int64 { return s.requests.Load() }

// maxRequest bounds the body of a request.
const maxRequest = 64 << 20

// Handler returns the handler of both protocols: POST /v1/messages and POST
// /v1/chat/completions. An answer is the last message of the user; with "into the language L"
// in the system prompt it begins with "[L] ", and a schema makes a JSON document that fits it
// where types, properties and enum are all that it says.
//
// A piece of a stream is a word with the space before it. In the mode Clock it has a space and 16
// digits in its place, the time at which it is written in µs since 1970, so that whoever gets it
// on the same machine knows how long that has taken.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, readMessages, messages{}) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, readChat, chat{}) })
	return mux
}

// An ask is a request in either protocol.
type ask struct {
	model, system, last string
	again               bool // the conversation has an answer
	stream              bool
	schema              json.RawMessage
	inputTokens         int
}

// A reply is what is answered.
type reply struct {
	id, model, text, stop string
	input, output         int
}

// A protocol writes answers.
type protocol interface {
	key(r *http.Request) string
	fail(w http.ResponseWriter, status int, kind, message string)
	whole(w http.ResponseWriter, a *reply)
	stream(w *streamWriter, a *reply, mode string)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, read func([]byte) (*ask, error), p protocol) {
	n := s.requests.Add(1)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		p.fail(w, http.StatusRequestEntityTooLarge, "request_too_large", "the request is too large")
		return
	}
	a, err := read(body)
	if err != nil {
		p.fail(w, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	if s.cfg.Key != "" && subtle.ConstantTimeCompare([]byte(p.key(r)), []byte(s.cfg.Key)) != 1 {
		p.fail(w, http.StatusUnauthorized, "authentication_error", "incorrect API key provided: "+p.key(r))
		return
	}
	if !s.knows(a.model) {
		p.fail(w, http.StatusNotFound, "not_found_error", "model: "+a.model)
		return
	}
	mode := s.mode(a.model)
	switch mode {
	case RateLimit:
		w.Header().Set("Retry-After", s.cfg.RetryAfter)
		p.fail(w, http.StatusTooManyRequests, "rate_limit_error", "this request would exceed the rate limit")
		return
	case Overload:
		w.Header().Set("Retry-After", s.cfg.RetryAfter)
		p.fail(w, 529, "overloaded_error", "overloaded")
		return
	case Broken:
		p.fail(w, http.StatusInternalServerError, "api_error", "internal server error")
		return
	}
	text := s.answer(a, mode)
	reply := &reply{id: fmt.Sprintf("emulated-%d", n), model: a.model, text: text, stop: "", input: a.inputTokens, output: tokens(text)}
	if mode == Truncated {
		reply.text, reply.stop = text[:len(text)/2], "length"
	}
	if !a.stream {
		if mode == Stall {
			<-r.Context().Done()
			return
		}
		p.whole(w, reply)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	p.stream(s.streamWriter(w, r, mode), reply, mode)
}

func (s *Server) knows(model string) bool {
	if len(s.cfg.Models) == 0 {
		return true
	}
	for _, m := range s.cfg.Models {
		if m == model {
			return true
		}
	}
	return false
}

// mode returns the mode of a request.
func (s *Server) mode(model string) string {
	mode := s.cfg.Mode
	if name, ok := strings.CutPrefix(model, modelPrefix); ok {
		mode = name
	}
	if mode != OK && s.cfg.Times > 0 && s.bad.Add(1) > s.cfg.Times {
		return OK
	}
	return mode
}

// answer returns the text of the answer.
func (s *Server) answer(a *ask, mode string) string {
	if mode == InvalidJSON && !a.again {
		return "Of course! Here is your JSON: {"
	}
	if s.cfg.Answer != "" {
		return s.cfg.Answer
	}
	if a.schema == nil {
		// A service of the kind anthropic gets the schema in the system prompt.
		if _, text, ok := strings.Cut(a.system, "fit this JSON Schema:\n"); ok {
			a.schema = json.RawMessage(text)
		}
	}
	if a.schema != nil {
		var schema any
		if json.Unmarshal(a.schema, &schema) == nil {
			if text, err := json.Marshal(sample(schema, 0)); err == nil {
				return string(text)
			}
		}
	}
	if _, rest, ok := strings.Cut(a.system, "into the language "); ok {
		language, _, _ := strings.Cut(rest, ".")
		return "[" + language + "] " + a.last
	}
	return a.last
}

// sample returns a value of a schema.
func sample(schema any, depth int) any {
	s, _ := schema.(map[string]any)
	if enum, ok := s["enum"].([]any); ok && len(enum) > 0 {
		return enum[0]
	}
	if v, ok := s["const"]; ok {
		return v
	}
	kind, _ := s["type"].(string)
	switch {
	case kind == "string":
		return "text"
	case kind == "integer", kind == "number":
		return 1
	case kind == "boolean":
		return true
	case kind == "null", depth > 20:
		return nil
	case kind == "array":
		return []any{sample(s["items"], depth+1)}
	}
	out := map[string]any{}
	props, _ := s["properties"].(map[string]any)
	for name, of := range props {
		out[name] = sample(of, depth+1)
	}
	return out
}

// tokens counts a text: a token for every four bytes, and one for what is left.
func tokens(text string) int { return (len(text) + 3) / 4 }

// pieces splits a text where words begin.
func pieces(text string) (out []string) {
	for len(text) > 0 {
		at := strings.IndexByte(text[1:], ' ') + 1
		if at == 0 {
			at = len(text)
		}
		out, text = append(out, text[:at]), text[at:]
	}
	return out
}

// A streamWriter writes the events of a stream.
type streamWriter struct {
	w     io.Writer
	flush *http.ResponseController
	ctx   interface{ Done() <-chan struct{} }
	clock bool
	every time.Duration // between two pieces; 0 = none waits
	due   time.Time     // of the last piece
	timer *time.Timer
}

func (s *Server) streamWriter(w http.ResponseWriter, r *http.Request, mode string) *streamWriter {
	out := &streamWriter{w: w, flush: http.NewResponseController(w), ctx: r.Context(), clock: mode == Clock}
	rate := s.cfg.Rate
	if mode == Slow {
		rate = 10
	}
	if rate > 0 {
		out.every = time.Duration(float64(time.Second) / rate)
		out.due, out.timer = time.Now(), time.NewTimer(0)
	}
	return out
}

// piece waits until the next piece of the answer is due, and returns what is sent of it.
func (s *streamWriter) piece(text string) string {
	if s.every > 0 {
		// One that is late makes no later one late.
		s.due = s.due.Add(s.every)
		s.timer.Reset(time.Until(s.due))
		select {
		case <-s.timer.C:
		case <-s.ctx.Done():
			panic(http.ErrAbortHandler) // nobody reads the rest
		}
	}
	if s.clock {
		return fmt.Sprintf(" %016d", time.Now().UnixMicro())
	}
	return text
}

func (s *streamWriter) event(name string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		return // nothing here fails to encode
	}
	if name != "" {
		_, _ = fmt.Fprintf(s.w, "event: %s\n", name)
	}
	_, _ = fmt.Fprintf(s.w, "data: %s\n\n", raw)
	_ = s.flush.Flush()
}

// halfway does what a mode does in the middle of a stream. over is true if the stream ends there.
func (s *streamWriter) halfway(mode string) (over bool) {
	switch mode {
	case Stall:
		<-s.ctx.Done()
		return true
	case CutMidstream:
		panic(http.ErrAbortHandler)
	}
	return false
}
