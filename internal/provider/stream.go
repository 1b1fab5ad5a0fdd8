// SPDX-License-Identifier: Apache-2.0

//go:build !small

package provider

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"
)

// A streamBody is the body of a response that is a stream of server-sent events. Services send an
// event for each token, and reading, decoding and reporting each by itself costs more than all that
// is done with the text. So
//   - many streams read in rounds, see [rounds];
//   - events that were read together are one event if they differ in nothing but the text that they
//     add, which then is the sum of theirs.
//
// Everything else passes as it is and at once, whatever it looks like.
type streamBody struct {
	body *boundedBody
	turn *rounds
	most time.Duration // that a round may take
	// text returns the text that the data of an event adds to the answer, if it does nothing else.
	text func(data []byte) (string, bool)
	left sync.Once

	in      []byte // of an event that has not come whole
	passed  int    // bytes of in that were passed on
	scanned int    // bytes of in where no event ends
	out     []byte // to be passed on
	buf     []byte // for out
	err     error  // of the body
	waits   bool   // the last read has left nothing

	// Events of the shape have a text between these two. joined are the texts of those that were
	// not passed on yet.
	before, after []byte
	joined        []byte
	some          bool // joined has a text, which may be empty
	useless       int  // shapes in a row that no event had but that of which they were made
}

// stream makes the body of a response that of a stream.
func (c *caller) stream(body *boundedBody) io.ReadCloser {
	c.rounds.join()
	return &streamBody{body: body, turn: c.rounds, most: c.stall / 4, text: c.text}
}

// readSize is how much is read at once. A read of less than half of that has left nothing.
const readSize = 4 << 10

// maxHeld bounds the beginning of an event that is held.
const maxHeld = 64 << 10

// maxUseless is how many useless shapes show that events of this service have nothing in common.
const maxUseless = 8

// Read implements io.Reader.
func (s *streamBody) Read(p []byte) (int, error) {
	for len(s.out) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		if s.waits {
			s.turn.wait(s.body.ctx, s.most)
		}
		if cap(s.in)-len(s.in) < readSize {
			s.in = append(make([]byte, 0, 2*len(s.in)+readSize), s.in...)
		}
		n, err := s.body.Read(s.in[len(s.in) : len(s.in)+readSize])
		s.in, s.err, s.waits = s.in[:len(s.in)+n], err, n < readSize/2
		s.out = s.buf[:0]
		s.events()
		s.buf = s.out
	}
	n := copy(p, s.out)
	s.out = s.out[n:]
	return n, nil
}

// Close implements io.Closer.
func (s *streamBody) Close() error {
	s.left.Do(s.turn.leave)
	return s.body.Close()
}

var endOfEvent = []byte("\n\n")

// events passes on what was read. The beginning of an event is held only if it is like the shape.
func (s *streamBody) events() {
	rest := s.in
	for {
		at := bytes.Index(rest[s.scanned:], endOfEvent)
		if at < 0 {
			break
		}
		end := s.scanned + at + len(endOfEvent)
		s.event(rest[:end])
		rest, s.passed, s.scanned = rest[end:], 0, 0
	}
	s.flush()
	begins := min(len(rest), len(s.before))
	if s.passed < len(rest) && (s.err != nil || s.passed > 0 || len(rest) > maxHeld || begins == 0 || !bytes.Equal(rest[:begins], s.before[:begins])) {
		s.out = append(s.out, rest[s.passed:]...)
		rest, s.passed = rest[len(rest)-1:], 1 // the next byte may end the event
	}
	s.in = append(s.in[:0], rest...)
	s.scanned = max(0, len(s.in)-1)
}

// event passes an event on, or joins it to those before it.
func (s *streamBody) event(ev []byte) {
	if text, ok := s.like(ev); ok && s.passed == 0 {
		s.joined, s.some, s.useless = append(s.joined, text...), true, 0
		return
	}
	s.flush()
	if s.out = append(s.out, ev[s.passed:]...); s.passed == 0 {
		s.learn(ev)
	}
}

// flush passes on what was joined.
func (s *streamBody) flush() {
	if !s.some {
		return
	}
	s.out = append(append(append(s.out, s.before...), s.joined...), s.after...)
	s.joined, s.some = s.joined[:0], false
}

// like returns the text of an event of the shape, as it is written in JSON.
func (s *streamBody) like(ev []byte) (text []byte, ok bool) {
	if len(s.before) == 0 {
		return nil, false
	}
	ev, ok = bytes.CutPrefix(withoutPadding(ev), s.before)
	if ok {
		ev, ok = bytes.CutSuffix(ev, s.after)
	}
	return ev, ok && inString(ev)
}

// learn makes the shape of an event, which has one line of data and perhaps a name before it.
func (s *streamBody) learn(ev []byte) {
	ev = withoutPadding(ev)
	name, data, ok := bytes.Cut(ev, []byte("data:"))
	lines := bytes.Count(ev, endOfEvent[:1])
	alone := len(name) == 0 && lines == 2
	named := bytes.HasPrefix(name, []byte("event:")) && bytes.HasSuffix(name, endOfEvent[:1]) && lines == 3
	if !ok || s.useless > maxUseless || !alone && !named {
		return
	}
	text, ok := s.text(data)
	quoted := []byte(`"` + text + `"`)
	if !ok || text == "" || bytes.Count(data, quoted) != 1 {
		return // it is not written as it is, or there twice
	}
	// With another text in this place the event must add that one: what was found may be something
	// else that looks the same.
	at := bytes.Index(data, quoted) + 1
	before, after, other := data[:at], data[at+len(text):], text+"."
	if got, ok := s.text([]byte(string(before) + other + string(after))); !ok || got != other {
		return
	}
	at += len(ev) - len(data)
	s.before, s.after = bytes.Clone(ev[:at]), bytes.Clone(after)
	s.useless++
}

// inString reports whether a text can be a part of a JSON string.
func inString(text []byte) bool {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c < ' ':
			return false
		case c == '\\':
			if i++; i == len(text) {
				return false
			}
		}
	}
	return true
}

// padding is a field that OpenAI adds at the end, so that the sizes of events do not tell what they
// say.
var padding, paddingEnd = []byte(`,"obfuscation":"`), []byte("\"}\n\n")

// withoutPadding returns an event without that field. A quotation mark after a comma begins no part
// of a string, so what is found is the field.
func withoutPadding(ev []byte) []byte {
	if !bytes.HasSuffix(ev, paddingEnd) {
		return ev
	}
	at := bytes.LastIndex(ev, padding)
	if at < 0 || !inString(ev[at+len(padding):len(ev)-len(paddingEnd)]) {
		return ev
	}
	return append(ev[:at:at], paddingEnd[1:]...)
}

// rounds are moments at which all streams read what has come since the last one, so that a process
// with many of them reads no more often than one with few. Few streams do not wait.
type rounds struct {
	mu      sync.Mutex
	streams int
	next    chan struct{} // closed when the next round begins; nil = nobody waits
}

// All streams together read at most once per perRead, as far as rounds of maxRound allow.
const (
	perRead  = 650 * time.Microsecond
	minRound = 5 * time.Millisecond
	maxRound = 130 * time.Millisecond // more than text is collected before it is an event
)

// join counts a stream, until it leaves.
func (r *rounds) join() {
	r.mu.Lock()
	r.streams++
	r.mu.Unlock()
}

func (r *rounds) leave() {
	r.mu.Lock()
	r.streams--
	r.mu.Unlock()
}

// wait waits for the next round, unless that would take longer than most.
func (r *rounds) wait(ctx context.Context, most time.Duration) {
	r.mu.Lock()
	long := min(time.Duration(r.streams)*perRead, maxRound)
	if long < minRound || long > most {
		r.mu.Unlock()
		return
	}
	if r.next == nil {
		r.next = make(chan struct{})
		time.AfterFunc(long, r.begin)
	}
	next := r.next
	r.mu.Unlock()
	select {
	case <-next:
	case <-ctx.Done():
	}
}

// begin begins a round.
func (r *rounds) begin() {
	r.mu.Lock()
	close(r.next)
	r.next = nil
	r.mu.Unlock()
}
