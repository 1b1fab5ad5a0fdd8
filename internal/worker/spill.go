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

// The bounds of outputs and inputs that do not travel inline.
const (
	// MaxLarge is how many bytes of canonical JSON an output may have with all
	// that is put into files, and an input with all that is read from them.
	MaxLarge = 64 << 20
	// maxTokens bounds what such a value may decode to: many small values take
	// far more memory than text.
	maxTokens = 4 << 20
	// minSpilled is the smallest text or list that is put into a file, in bytes
	// of JSON; a reference has about 150.
	minSpilled = 4 << 10
	// maxSpilled bounds the files of one output: each is synced.
	maxSpilled = 1_000
	// worthSplitting is how large a text or list must be to go by itself before
	// the list around it does.
	worthSplitting = 64 << 10
)

// spill puts texts and lists of an output into files until the rest fits into
// MaxOutput, and returns the output with references in their place (design
// section 7). The files are durable when it returns.
//
// The choice depends on the value alone. It is the largest text or list, again
// and again. A list goes as a whole, unless one of its elements is larger than an
// inline value: then what is large in there goes first, so that a loop can run
// over the list. What lies in a file holds no references: whoever keeps files
// would have to look into them to know what they name.
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

// store writes what a span holds to a file: a text as it is, a list as JSON.
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

// unquote gives the text of a JSON string.
func unquote(quoted []byte) ([]byte, error) {
	if in := quoted[1 : len(quoted)-1]; bytes.IndexByte(in, '\\') < 0 {
		return in, nil
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return []byte(s), err
}

// maxFileName bounds the name of such a file, without its extension.
const maxFileName = 100

// fileName is the step and the place in its output, such as "read.pages.3.text".
func fileName(step string, path []string) string {
	name := strings.Join(append([]string{step}, path...), ".")
	// What is before a slash would be taken for a directory.
	name = strings.NewReplacer("/", "_", `\`, "_").Replace(name)
	if len(name) > maxFileName {
		name = strings.ToValidUTF8(name[:maxFileName], "")
	}
	return name
}

// A span is a text, a list or an object of some size in the JSON text.
type span struct {
	start, end int
	parent     int // the span around it; -1 for the whole
	kind       byte
	count      int64 // elements of a list
	index      int64 // its own, in the list around it
	key        [2]int
	saved      int  // bytes that references inside, or in its place, save
	taken      bool // it is to be replaced
	inner      int  // texts and lists inside that are worth to go by themselves
	wide       []int
}

func (s *span) size() int       { return s.end - s.start - s.saved }
func (s *span) candidate() bool { return s.kind != '{' } // scan has left out what is small

// A chooser finds what to put into files. It reads canonical JSON as it is,
// without decoding it: an output of 64 MiB would take many times that.
type chooser struct {
	data  []byte
	spans []span
	queue []queued // a heap, the largest first
	saved int
	// eager takes also lists that wait: nothing else is left.
	eager bool
}

// scan notes every text, list and object of minSpilled bytes or more, each after
// what surrounds it.
func (c *chooser) scan() {
	type open struct {
		span  int // index in all
		count int64
		key   [2]int
	}
	var stack []open
	var all []span // open ones and those that are large, by where they begin
	begin := func(at int, kind byte) {
		s := span{start: at, kind: kind, parent: -1}
		if n := len(stack); n > 0 {
			s.parent, s.index, s.key = stack[n-1].span, stack[n-1].count, stack[n-1].key
		}
		all = append(all, s)
	}
	// end closes the span that was begun last; a small one is forgotten. What is
	// inside it is small, too, so it is the last of all.
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

// choose marks what goes into files and returns it in its order in the text; nil
// when the rest cannot be made to fit.
func (c *chooser) choose() []int {
	for i := range c.spans {
		s := &c.spans[i]
		if s.end-s.start > MaxOutput && s.parent >= 0 {
			p := &c.spans[s.parent]
			p.wide = append(p.wide, i)
		}
		if s.kind != '{' && s.end-s.start >= worthSplitting {
			for p := s.parent; p >= 0; p = c.spans[p].parent {
				c.spans[p].inner++
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

// next is the largest text or list whose turn it is; -1 when none is left. What is
// around a span is as large, so it comes before it, and waits or is taken: the sizes
// in the queue are always those of now.
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
		case s.taken || c.within(q.span) || s.size() < minSpilled:
		case !c.eager && c.waits(s):
			// Whatever is taken inside puts it back.
		default:
			return q.span
		}
	}
}

// within says that a list around the span was taken.
func (c *chooser) within(i int) bool {
	for p := c.spans[i].parent; p >= 0; p = c.spans[p].parent {
		if c.spans[p].taken {
			return true
		}
	}
	return false
}

// waits says that an element of the list is larger than an inline value, and has
// something inside, or is something, that can go by itself.
func (c *chooser) waits(s *span) bool {
	return s.kind == '[' && slices.ContainsFunc(s.wide, func(i int) bool {
		e := &c.spans[i]
		return !e.taken && e.size() > MaxOutput && (e.kind != '{' || e.inner > 0)
	})
}

// refLength is at most the length of a reference.
const refLength = 160

// take marks a span, and takes back the marks inside it. It returns how many more
// files that makes.
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
	gone := s.inner
	if s.end-s.start >= worthSplitting {
		gone++
	}
	s.taken, s.saved, s.inner = true, s.saved+saves, 0
	c.saved += saves
	for p := s.parent; p >= 0; p = c.spans[p].parent {
		around := &c.spans[p]
		around.saved += saves
		around.inner -= gone
		if around.candidate() {
			heap.Push(c, queued{around.size(), p})
		}
	}
	return files
}

// path is where a span is: keys and indices from the top.
func (c *chooser) path(s *span) []string {
	var path []string
	for ; s.parent >= 0; s = &c.spans[s.parent] {
		if c.spans[s.parent].kind == '[' {
			path = append(path, fmt.Sprint(s.index))
			continue
		}
		key, _ := unquote(c.data[s.key[0]:s.key[1]]) // of JSON that encode has made
		path = append(path, string(key))
	}
	slices.Reverse(path)
	return path
}

// queued is a span and the size it had when it was put into the queue.
type queued struct{ size, span int }

// Len, Less, Swap, Push and Pop implement heap.Interface. Of two spans of one
// size the first comes first.
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
