// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/jsonx"
)

// The bounds of outputs and inputs that are too large for an event.
const (
	// MaxLarge is how many bytes of canonical JSON an output may have, including what is
	// stored in files, and an input, including what is read from files.
	MaxLarge = 64 << 20
	// maxTokens bounds the number of names and values in such an output or input, because
	// many small values take far more memory than their text.
	maxTokens = 4 << 20
	// minSpilled is the smallest text or list that is stored in a file, in bytes of JSON;
	// a reference has about 150 bytes.
	minSpilled = 4 << 10
	// maxSpilled bounds the number of files of one output, because each file is
	// synced.
	maxSpilled = 1_000
	// worthSplitting is how large a text or list must be to be stored in its own file
	// before the list around it is.
	worthSplitting = 64 << 10
)

// spill stores texts and lists of an output in files until the rest fits into
// MaxOutput, and returns the output with references in their place (design
// section 7). The files are durable when it returns.
//
// The choice depends only on the value: repeatedly the largest text or list is chosen.
// A list is stored as a whole, unless one of its elements is larger than an inline
// value: then the large parts of that element are stored first, so that a loop can run
// over the list. A file made here holds no references, because retention would
// otherwise have to read files to know which other files they need.
func spill(ctx context.Context, files action.Files, step string, data []byte) ([]byte, error) {
	c := chooser{data: data}
	c.scan()
	chosen := c.choose()
	if chosen == nil {
		return nil, errTooLarge
	}
	out := make([]byte, 0, MaxOutput)
	at := 0
	for _, i := range chosen {
		s := &c.spans[i]
		ref, err := c.store(ctx, files, step, s)
		if err != nil {
			return nil, err
		}
		out = append(out, data[at:s.start]...)
		out = ref.Append(out)
		at = s.end
	}
	return append(out, data[at:]...), nil
}

var errTooLarge = errors.New("the output is too large")

// store writes the content of a span to a file: a text as plain text, a list as
// JSON.
func (c *chooser) store(ctx context.Context, files action.Files, step string, s *span) (jsonx.Large, error) {
	ref := jsonx.Large{List: s.kind == '[', Size: s.count}
	content, name, mime := c.data[s.start:s.end], ".json", "application/json"
	if s.kind == '"' {
		text, err := unquote(content)
		if err != nil {
			return ref, err
		}
		content, name, mime = text, ".txt", "text/plain"
		ref.Size = int64(utf8.RuneCount(text))
	}
	info, err := files.Put(ctx, bytes.NewReader(content), fileName(step, c.path(s))+name, mime)
	if err != nil {
		return ref, fmt.Errorf("keep a large part of the output in a file: %w", err)
	}
	ref.Hash, ref.Bytes = info.Hash, info.Size
	return ref, nil
}

// unquote returns the text of a JSON string.
func unquote(quoted []byte) ([]byte, error) {
	if in := quoted[1 : len(quoted)-1]; bytes.IndexByte(in, '\\') < 0 {
		return in, nil
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return []byte(s), err
}

// maxFileName bounds the length of a file's name without its extension.
const maxFileName = 100

// fileName returns a name made of the step and the path in its output, such as
// "read.pages.3.text".
func fileName(step string, path []string) string {
	name := strings.Join(append([]string{step}, path...), ".")
	// The part before a slash would be taken for a directory.
	name = strings.NewReplacer("/", "_", `\`, "_").Replace(name)
	if len(name) > maxFileName {
		name = strings.ToValidUTF8(name[:maxFileName], "")
	}
	return name
}

// A span is a text, a list or an object of at least minSpilled bytes in the
// JSON text.
type span struct {
	start, end int
	parent     int // the span around it; -1 for the outermost span
	kind       byte
	count      int64 // elements of a list
	index      int64 // of this span in the list around it
	key        [2]int
	saved      int  // bytes saved by references inside the span, or by one that replaces it
	taken      bool // will be replaced by a reference
	splittable int  // texts and lists inside that can be stored in their own files
	oversized  []int
}

func (s *span) size() int       { return s.end - s.start - s.saved }
func (s *span) candidate() bool { return s.kind != '{' } // scan omits small spans

// A chooser chooses what to store in files. It reads canonical JSON without decoding it,
// because a decoded output of 64 MiB would take many times that memory.
type chooser struct {
	data  []byte
	spans []span
	queue []queued // a heap, the largest first
	saved int
	// eager makes next return also lists that wait, because nothing else is left.
	eager bool
}

// scan records every text, list and object of at least minSpilled bytes, each after the
// span around it.
func (c *chooser) scan() {
	type open struct {
		span  int // index in all
		count int64
		key   [2]int
	}
	var stack []open
	var all []span // open spans and large closed ones, ordered by start
	begin := func(at int, kind byte) {
		s := span{start: at, kind: kind, parent: -1}
		if n := len(stack); n > 0 {
			s.parent, s.index, s.key = stack[n-1].span, stack[n-1].count, stack[n-1].key
		}
		all = append(all, s)
	}
	// end closes the span that was opened last, and drops it if it is small. Spans inside
	// a small one are small too and were dropped, so it is the last element of all.
	end := func(i, at int, count int64) {
		if all[i].end, all[i].count = at, count; at-all[i].start < minSpilled {
			all = all[:i]
		}
	}
	d := c.data
	for i := 0; i < len(d); i++ {
		switch b := d[i]; b {
		case '"':
			from := i
			for i++; d[i] != '"'; i++ {
				if d[i] == '\\' {
					i++
				}
			}
			if n := len(stack); i+1 < len(d) && d[i+1] == ':' && n > 0 {
				stack[n-1].key = [2]int{from, i + 1}
				continue
			}
			if i+1-from >= minSpilled {
				begin(from, '"')
				end(len(all)-1, i+1, 0)
			}
		case '[', '{':
			begin(i, b)
			stack = append(stack, open{span: len(all) - 1})
		case ',':
			stack[len(stack)-1].count++
		case ']', '}':
			top := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if d[i-1] != '[' && d[i-1] != '{' {
				top.count++
			}
			end(top.span, i+1, top.count)
		}
	}
	c.spans = all
}

// choose marks the spans to store in files and returns them in the order of the text. It
// returns nil if the rest cannot be made to fit.
func (c *chooser) choose() []int {
	for i := range c.spans {
		s := &c.spans[i]
		if s.end-s.start > MaxOutput && s.parent >= 0 {
			p := &c.spans[s.parent]
			p.oversized = append(p.oversized, i)
		}
		if s.kind != '{' && s.end-s.start >= worthSplitting {
			for p := s.parent; p >= 0; p = c.spans[p].parent {
				c.spans[p].splittable++
			}
		}
	}
	c.fill()
	taken := 0
	for len(c.data)-c.saved > MaxOutput {
		i := c.next()
		if i < 0 {
			return nil
		}
		taken += c.take(i)
		if taken > maxSpilled {
			return nil
		}
	}
	var chosen []int
	for i := range c.spans {
		if c.spans[i].taken {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// fill puts all texts and lists into the queue.
func (c *chooser) fill() {
	for i := range c.spans {
		if c.spans[i].candidate() {
			c.queue = append(c.queue, queued{c.spans[i].size(), i})
		}
	}
	heap.Init(c)
}

// next returns the largest text or list that does not wait, or -1 if there is none. The
// span around another one is at least as large, so it leaves the queue first, and either
// waits or is taken. Therefore the sizes in the queue are always current.
func (c *chooser) next() int {
	for {
		if len(c.queue) == 0 {
			if c.eager {
				return -1
			}
			c.eager = true
			c.fill()
			continue
		}
		q := heap.Pop(c).(queued)
		s := &c.spans[q.span]
		switch {
		case s.taken || c.insideTaken(q.span) || s.size() < minSpilled:
		case !c.eager && c.waits(s):
			// take puts it back into the queue when a span inside it is taken.
		default:
			return q.span
		}
	}
}

// insideTaken reports whether a list around the span was taken.
func (c *chooser) insideTaken(i int) bool {
	for p := c.spans[i].parent; p >= 0; p = c.spans[p].parent {
		if c.spans[p].taken {
			return true
		}
	}
	return false
}

// waits reports whether an element of the list is larger than an inline value and can be
// stored in its own file, or has a part that can.
func (c *chooser) waits(s *span) bool {
	return s.kind == '[' && slices.ContainsFunc(s.oversized, func(i int) bool {
		e := &c.spans[i]
		return !e.taken && e.size() > MaxOutput && (e.kind != '{' || e.splittable > 0)
	})
}

// refLength is the maximum length of a reference.
const refLength = 160

// take marks a span and clears the marks inside it. It returns by how many the number of
// files grows.
func (c *chooser) take(i int) int {
	s := &c.spans[i]
	files := 1
	for k := i + 1; k < len(c.spans) && c.spans[k].start < s.end; k++ {
		if c.spans[k].taken {
			c.spans[k].taken = false
			files--
		}
	}
	saves := s.size() - refLength
	gone := s.splittable
	if s.end-s.start >= worthSplitting {
		gone++
	}
	s.taken, s.saved, s.splittable = true, s.saved+saves, 0
	c.saved += saves
	for p := s.parent; p >= 0; p = c.spans[p].parent {
		around := &c.spans[p]
		around.saved += saves
		around.splittable -= gone
		if around.candidate() {
			heap.Push(c, queued{around.size(), p})
		}
	}
	return files
}

// path returns the keys and indices that lead to a span, from the top.
func (c *chooser) path(s *span) []string {
	var path []string
	for ; s.parent >= 0; s = &c.spans[s.parent] {
		if c.spans[s.parent].kind == '[' {
			path = append(path, fmt.Sprint(s.index))
			continue
		}
		key, _ := unquote(c.data[s.key[0]:s.key[1]]) // cannot fail: encode made this JSON
		path = append(path, string(key))
	}
	slices.Reverse(path)
	return path
}

// queued is a span with its size at the time it was queued.
type queued struct{ size, span int }

// Len, Less, Swap, Push and Pop implement heap.Interface. Of two spans of the same size
// the one that starts first comes first.
func (c *chooser) Len() int { return len(c.queue) }
func (c *chooser) Less(i, j int) bool {
	a, b := c.queue[i], c.queue[j]
	return a.size > b.size || a.size == b.size && a.span < b.span
}
func (c *chooser) Swap(i, j int) { c.queue[i], c.queue[j] = c.queue[j], c.queue[i] }
func (c *chooser) Push(x any)    { c.queue = append(c.queue, x.(queued)) }
func (c *chooser) Pop() any {
	n := len(c.queue) - 1
	q := c.queue[n]
	c.queue = c.queue[:n]
	return q
}
