// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// sector is what a disk writes whole or not at all.
const sector = 512

type opKind uint8

const (
	opWrite opKind = iota
	opTruncate
	opSync    // of a file: all its writes before op `until` are now durable
	opCreate  // a name in the directory
	opRemove  // of a name
	opSyncDir // of the directory: names created or removed before op `until` are now durable
	opSubmit  // a commit is handed to the store
	opAck     // the store has answered
)

// An op is an operation on the disk, or the submission or acknowledgement of a commit.
type op struct {
	kind  opKind
	file  int    // number of the file, independent of its name; for opSubmit and opAck the number of the fact
	name  string // in the directory
	data  []byte
	off   int64 // for opTruncate the new size
	until int
}

// A tape records every operation that reaches the files of one directory, in order.
type tape struct {
	dir string

	mu    sync.Mutex
	off   bool
	blind bool // the disk ignores syncs of the directory
	ops   []op
	names map[string]int
	files int
}

// newTape returns a tape whose files so far, which are durable, have the given names.
func newTape(dir string, names []string) *tape {
	t := &tape{dir: dir, names: map[string]int{}}
	for _, n := range names {
		t.names[n] = t.files
		t.files++
	}
	return t
}

func (t *tape) add(o op) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(o)
}

func (t *tape) put(o op) {
	if !t.off {
		t.ops = append(t.ops, o)
	}
}

func (t *tape) now() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ops)
}

// stop ends the recording, so that no cut comes later.
func (t *tape) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.off = true
}

func (t *tape) here(path string) bool { return filepath.Dir(path) == t.dir }

func (t *tape) opened(path string, existed bool) int {
	if !t.here(path) {
		return -1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	name := filepath.Base(path)
	id, known := t.names[name]
	if !known || !existed {
		id = t.files
		t.files++
		t.names[name] = id
		t.put(op{kind: opCreate, file: id, name: name})
	}
	return id
}

func (t *tape) removed(path string) {
	if t.here(path) {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.names, filepath.Base(path))
		t.put(op{kind: opRemove, name: filepath.Base(path)})
	}
}

func (t *tape) wrote(id int, data []byte, off int64) {
	if id >= 0 {
		t.add(op{kind: opWrite, file: id, data: bytes.Clone(data), off: off})
	}
}

func (t *tape) truncated(id int, size int64) {
	if id >= 0 {
		t.add(op{kind: opTruncate, file: id, off: size})
	}
}

func (t *tape) synced(id, until int) {
	if id >= 0 {
		t.add(op{kind: opSync, file: id, until: until})
	}
}

func (t *tape) directory(path string, until int) {
	if t.here(path) && !t.blind {
		t.add(op{kind: opSyncDir, until: until})
	}
}

// A platter is the state of a disk at one moment of a tape: what is durable, and what
// may or may not have been written. Its moment only moves forward.
type platter struct {
	tape    *tape
	at      int
	content map[int][]byte
	waiting map[int][]int  // file -> numbers of the ops that no sync covers
	names   map[string]int // durable: name -> file
	moves   map[string][]int
}

func newPlatter(t *tape, base map[string][]byte, ids map[string]int) *platter {
	p := &platter{tape: t, content: map[int][]byte{}, waiting: map[int][]int{}, names: map[string]int{}, moves: map[string][]int{}}
	for name, data := range base {
		p.content[ids[name]], p.names[name] = bytes.Clone(data), ids[name]
	}
	return p
}

// advance moves to the moment before op `cut`.
func (p *platter) advance(cut int) {
	for ; p.at < cut; p.at++ {
		switch o := &p.tape.ops[p.at]; o.kind {
		case opWrite, opTruncate:
			p.waiting[o.file] = append(p.waiting[o.file], p.at)
		case opSync:
			w := p.waiting[o.file]
			n, _ := slices.BinarySearch(w, o.until)
			for _, i := range w[:n] {
				p.content[o.file] = p.tape.ops[i].apply(p.content[o.file])
			}
			p.waiting[o.file] = slices.Clone(w[n:])
		case opCreate, opRemove:
			p.moves[o.name] = append(p.moves[o.name], p.at)
		case opSyncDir:
			for name, m := range p.moves {
				n, _ := slices.BinarySearch(m, o.until)
				for _, i := range m[:n] {
					p.tape.ops[i].rename(p.names)
				}
				p.moves[name] = slices.Clone(m[n:])
			}
		}
	}
}

func (o *op) apply(data []byte) []byte {
	if o.kind == opTruncate {
		if int64(len(data)) > o.off {
			return data[:o.off]
		}
		return append(data, make([]byte, o.off-int64(len(data)))...)
	}
	return put(data, o.data, o.off)
}

func put(data, piece []byte, off int64) []byte {
	if gap := off + int64(len(piece)) - int64(len(data)); gap > 0 {
		data = append(data, make([]byte, gap)...)
	}
	copy(data[off:], piece)
	return data
}

func (o *op) rename(names map[string]int) {
	if o.kind == opCreate {
		names[o.name] = o.file
	} else {
		delete(names, o.name)
	}
}

// A fate decides what a power cut leaves of the writes that were not synced.
type fate struct {
	name string
	mend func(p *platter, id int, dice *rand.Rand) []byte
}

// fates are the ways in which a disk may lose writes that were not synced. A sector is
// written whole or not at all; which ones were written is arbitrary.
var fates = []fate{
	{"all lost", func(p *platter, id int, _ *rand.Rand) []byte { return bytes.Clone(p.content[id]) }},
	{"all kept", func(p *platter, id int, _ *rand.Rand) []byte {
		return p.some(id, func(int) bool { return true })
	}},
	{"the last lost", func(p *platter, id int, dice *rand.Rand) []byte {
		w := p.waiting[id]
		if len(w) == 0 {
			return bytes.Clone(p.content[id])
		}
		from := dice.IntN(len(w))
		data := p.some(id, func(i int) bool { return i < from })
		if o := &p.tape.ops[w[from]]; o.kind == opWrite { // this one is torn
			whole := len(o.data) / sector * sector
			data = put(data, o.data[:min(len(o.data), sector*dice.IntN(whole/sector+1))], o.off)
		}
		return data
	}},
	{"the first lost", func(p *platter, id int, dice *rand.Rand) []byte {
		from := dice.IntN(len(p.waiting[id]) + 1)
		return p.some(id, func(i int) bool { return i >= from })
	}},
	{"one lost", func(p *platter, id int, dice *rand.Rand) []byte {
		lost := dice.IntN(len(p.waiting[id]) + 1)
		return p.some(id, func(i int) bool { return i != lost })
	}},
	{"writes lost", func(p *platter, id int, dice *rand.Rand) []byte {
		keep := dice.Float64()
		return p.some(id, func(int) bool { return dice.Float64() < keep })
	}},
	{"sectors lost", func(p *platter, id int, dice *rand.Rand) []byte { return p.sectors(id, dice, false) }},
	{"sectors of any age", func(p *platter, id int, dice *rand.Rand) []byte { return p.sectors(id, dice, true) }},
}

// some returns the file with those unsynced writes that keep selects, each of them
// whole. Gaps between them beyond the old end of the file read as zeros.
func (p *platter) some(id int, keep func(i int) bool) []byte {
	data := bytes.Clone(p.content[id])
	for i, at := range p.waiting[id] {
		if keep(i) {
			data = p.tape.ops[at].apply(data)
		}
	}
	return data
}

// sectors returns the file with each sector as it was at some moment since the last
// sync or, with mixed set, with any subset of the writes to it. Sectors beyond the old
// end of the file that were not written are zeros or arbitrary bytes.
func (p *platter) sectors(id int, dice *rand.Rand, mixed bool) []byte {
	keep := dice.Float64()
	old := len(p.content[id])
	data := bytes.Clone(p.content[id])
	moment := map[int64]int{} // of each sector
	reached := map[int64]bool{}
	for i, at := range p.waiting[id] {
		o := &p.tape.ops[at]
		if o.kind == opTruncate {
			data = o.apply(data)
			continue
		}
		for from := 0; from < len(o.data); {
			n := (o.off + int64(from)) / sector
			to := min(len(o.data), int((n+1)*sector-o.off))
			if _, drawn := moment[n]; !drawn {
				if moment[n] = len(p.tape.ops); dice.Float64() > keep {
					moment[n] = dice.IntN(i + 1)
				}
			}
			if mixed && dice.Float64() < keep || !mixed && i < moment[n] {
				data = put(data, o.data[from:to], o.off+int64(from))
				reached[n] = true
			}
			from = to
		}
	}
	if dice.IntN(2) == 0 {
		for n := int64((old + sector - 1) / sector); (n+1)*sector <= int64(len(data)); n++ {
			if !reached[n] {
				for i := range sector {
					data[n*sector+int64(i)] = byte(dice.Uint32())
				}
			}
		}
	}
	return data
}

// image returns one possible content of the directory after a power cut.
func (p *platter) image(f fate, dice *rand.Rand) map[string][]byte {
	names := map[string]int{}
	for name, id := range p.names {
		names[name] = id
	}
	for _, name := range sortedKeys(p.moves) {
		m := p.moves[name]
		for _, i := range m[:dice.IntN(len(m)+1)] {
			p.tape.ops[i].rename(names)
		}
	}
	image := map[string][]byte{}
	for _, name := range sortedKeys(names) {
		if id := names[name]; !strings.HasSuffix(name, "-shm") {
			image[name] = f.mend(p, id, dice)
			if old := len(p.content[id]); len(image[name]) > old && dice.IntN(4) == 0 {
				// Its new length was not on the disk.
				image[name] = image[name][:old+dice.IntN((len(image[name])-old)/sector+1)*sector]
			}
		}
	}
	switch dice.IntN(4) { // the index of the log is never synced: it may be anything
	case 0:
		image["roux.db-shm"] = make([]byte, 32<<10)
	case 1:
		noise := make([]byte, 32<<10)
		for i := range noise {
			noise[i] = byte(dice.Uint32())
		}
		image["roux.db-shm"] = noise
	}
	return image
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// writeImage writes an image into a directory.
func writeImage(dir string, image map[string][]byte) error {
	for name, data := range image {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// readImage reads a directory as an image.
func readImage(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	image := map[string][]byte{}
	for _, e := range entries {
		if name := e.Name(); name != "lock" && !strings.HasSuffix(name, "-shm") && err == nil {
			image[name], err = os.ReadFile(filepath.Join(dir, name))
		}
	}
	return image, err
}
