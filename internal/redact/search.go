// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"slices"
	"strings"
)

// A trie finds many patterns at once (Aho and Corasick, 1975). Its state after some text
// is the longest end of the text that is a pattern or the beginning of one. That tells which
// patterns end there, and how much of the text may still become a part of one: what a
// stream has to hold back.
type trie struct {
	root  [256]int32 // the state after one byte
	nodes []trieNode
}

// A trieNode is a state. Its children are a list, because most states have only one.
type trieNode struct {
	child, next int32 // the first child, and the next child of the same parent; 0 = none
	fail        int32 // the longest other state that the text up to here ends with
	depth       int32 // the length of the text that the state is
	match       int32 // the length of the longest pattern that ends here; 0 = none
	open        int32 // the length of the longest end of the text that more text may continue
	b           byte
}

type builder struct{ t *trie }

func newBuilder() builder { return builder{&trie{nodes: make([]trieNode, 1)}} }

// add adds a pattern.
func (b builder) add(pattern string) {
	t := b.t
	at := int32(0)
	for i := range len(pattern) {
		c := pattern[i]
		next := t.find(at, c)
		if next == 0 {
			next = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{b: c, depth: int32(i) + 1})
			if at == 0 {
				t.root[c] = next
			} else {
				t.nodes[next].next, t.nodes[at].child = t.nodes[at].child, next
			}
		}
		at = next
	}
	t.nodes[at].match = t.nodes[at].depth
}

// build computes where each state continues when no child fits, level by level.
func (b builder) build() *trie {
	t := b.t
	var queue []int32
	for _, n := range t.root {
		if n != 0 {
			queue = append(queue, n)
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if t.nodes[at].child != 0 {
			t.nodes[at].open = t.nodes[at].depth
		} else {
			t.nodes[at].open = t.nodes[t.nodes[at].fail].open
		}
		for c := t.nodes[at].child; c != 0; c = t.nodes[c].next {
			fail := t.step(t.nodes[at].fail, t.nodes[c].b)
			t.nodes[c].fail = fail
			t.nodes[c].match = max(t.nodes[c].match, t.nodes[fail].match)
			queue = append(queue, c)
		}
	}
	return t
}

// find returns the child of a state for a byte; 0 = none.
func (t *trie) find(at int32, c byte) int32 {
	if at == 0 {
		return t.root[c]
	}
	n := t.nodes[at].child
	for n != 0 && t.nodes[n].b != c {
		n = t.nodes[n].next
	}
	return n
}

// step returns the state after one more byte. A state falls at most as often as text was
// read before, so that the cost of a text is linear in its length.
func (t *trie) step(at int32, c byte) int32 {
	for {
		if n := t.find(at, c); n != 0 || at == 0 {
			return n
		}
		at = t.nodes[at].fail
	}
}

// occurs reports whether there may be something to remove in a text. Most texts contain no
// secret, and are not copied.
func (t *trie) occurs(text string) bool {
	state := int32(0)
	for i := range len(text) {
		if t.nodes[state].depth >= cutLen && strings.HasPrefix(text[i:], ellipsis) {
			return true
		}
		if state = t.step(state, text[i]); t.nodes[state].match > 0 {
			return true
		}
	}
	return t.nodes[state].depth >= cutLen
}

// ellipsis is where a text was cut.
const ellipsis = "…"

// A span is a part of the text, by the positions of its bytes since the stream began.
type span struct{ from, to int }

// A stream is the search in one text.
type stream struct {
	trie    *trie
	state   int32
	held    []byte // the text from position at on, which was not written yet
	at      int
	found   []span // what is to be removed of held, sorted and apart
	covered int    // Mark was written for everything before this position
	out     []byte // what may be passed on
}

// chunk is how much text is searched before the part that is clear is written.
const chunk = 64 << 10

// write takes more text. last means that no more follows.
func (s *stream) write(text []byte, last bool) {
	for len(text) > chunk {
		s.search(text[:chunk], false)
		text = text[chunk:]
	}
	s.search(text, last)
}

func (s *stream) search(text []byte, last bool) {
	begin := s.at + len(s.held)
	s.held = append(s.held, text...)
	for i, c := range text {
		end := begin + i
		if c == ellipsis[0] && len(text)-i >= len(ellipsis) && string(text[i:i+len(ellipsis)]) == ellipsis {
			s.cut(end)
		}
		s.state = s.trie.step(s.state, c)
		if n := s.trie.nodes[s.state].match; n > 0 {
			s.remove(span{end + 1 - int(n), end + 1})
		}
	}
	end := begin + len(text)
	if last {
		s.cut(end)
		s.release(end)
		return
	}
	s.release(end - int(s.trie.nodes[s.state].open))
}

// cut removes the beginning of a secret where the text is cut.
func (s *stream) cut(end int) {
	if n := s.trie.nodes[s.state].depth; n >= cutLen {
		s.remove(span{end - int(n), end})
	}
}

// remove records a part to be removed. It ends behind every other one, or with it.
func (s *stream) remove(p span) {
	if p.from <= s.covered && s.covered > 0 {
		s.covered = p.to // it continues what was removed before, and everything found since is in it
		s.found = s.found[:0]
		return
	}
	for len(s.found) > 0 {
		before := s.found[len(s.found)-1]
		if before.to < p.from {
			break
		}
		p.from = min(p.from, before.from)
		s.found = s.found[:len(s.found)-1]
	}
	s.found = append(s.found, p)
}

// release writes the text before a position, in which nothing more will be found.
func (s *stream) release(until int) {
	skip := func() {
		if n := min(s.covered, until) - s.at; n > 0 {
			s.held, s.at = s.held[n:], s.at+n
		}
	}
	skip()
	for len(s.found) > 0 && s.found[0].from < until {
		p := s.found[0]
		s.found = s.found[1:]
		n := p.from - s.at
		s.out = append(append(s.out, s.held[:n]...), Mark...)
		s.held, s.at, s.covered = s.held[n:], p.from, p.to
		skip()
	}
	if n := until - s.at; n > 0 {
		s.out = append(s.out, s.held[:n]...)
		s.held, s.at = s.held[n:], until
	}
	s.held = slices.Clip(s.held) // so that the next text does not keep what was written
	if len(s.held) == 0 {
		s.held = nil
	}
}

// take returns what may be passed on.
func (s *stream) take() string {
	text := string(s.out)
	s.out = s.out[:0]
	return text
}
