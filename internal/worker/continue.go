// SPDX-License-Identifier: Apache-2.0

//go:build !small

package worker

import (
	"encoding/json"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/redact"
)

// A continued is what is kept of a text that several attempts report, piece by piece.
type continued struct {
	before []byte // the end of what moderators have passed
	stream *redact.Stream
	set    *redact.Set // that stream removes
}

// Continue reports the next piece of a text which several attempts report together: the settlements
// of a job that its service streams. state is nil at the first piece, and is kept for the next one; lead is
// the end of what came before the first. Pieces are valid UTF-8. A sentence is passed on as soon as moderators have passed it,
// as text of an attempt is, and the beginning of a secret is held back, also from one attempt to the
// next. last says that no piece follows.
//
// pass is called before anything is passed on, with how many bytes of the piece are done with: the
// rest has to come again with what follows it. After an error nothing was passed on, and nothing may
// be: the text was flagged, there was no verdict on it, or it is held until the output has passed.
func (a *attempt) Continue(state *any, lead, piece string, last bool, pass func(n int)) error {
	known := a.known()
	c, begun := (*state).(*continued)
	if !begun {
		c = &continued{before: lastOf([]byte(lead)), stream: known.Stream(), set: known}
		_ = c.stream.Next(lead) // was shown
	}
	*state = c
	n := len(piece)
	if g := a.gate; g != nil && g.Output {
		if n = sentences(piece); last {
			n = len(piece)
		}
		if err := a.passes(c, piece[:n]); err != nil {
			return err
		}
	}
	text := ""
	if known != c.set { // another attempt has used another secret
		text, c.stream, c.set = c.stream.End(), known.Stream(), known
	}
	if text += c.stream.Next(piece[:n]); last {
		text += c.stream.End()
	}
	pass(n)
	if text == "" {
		return nil
	}
	s := &a.limiter
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || a.pool.cfg.Report == nil {
		return fault.New(fault.Stopping, "the attempt has ended")
	}
	a.pool.cfg.Report(Report{ID: a.task.ID, Owner: a.task.Owner, Kind: Delta, Text: validUTF8(text), Passed: a.gate != nil})
	return nil
}

// passes has moderators look at a piece of a continued text, together with the end of what came
// before it.
func (a *attempt) passes(c *continued, piece string) error {
	switch {
	case a.gate.Hold:
		return fault.New(fault.ModerationUnavailable, "the text is held until the output has passed")
	case piece == "":
		return nil
	}
	value, _ := json.Marshal(validUTF8(string(c.before) + piece))
	v, err := a.verdict(outputPhase, value)
	if err != nil {
		return err
	}
	if v.Flagged {
		return errFlagged
	}
	c.before = lastOf(append(c.before, piece...))
	return nil
}

// sentences returns where the last sentence of a text ends that is complete.
func sentences(text string) (n int) {
	rest := []byte(text)
	for end := sentenceEnd(rest); end > 0; end = sentenceEnd(rest) {
		n, rest = n+end, rest[end:]
	}
	return n
}
