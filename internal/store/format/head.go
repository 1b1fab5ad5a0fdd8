// SPDX-License-Identifier: Apache-2.0

package format

import (
	"encoding/binary"
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// A record can hold the head of its run, whose row is written later: recipe, version,
// plan_hash, root, parent, status, code and message (length and bytes each), created,
// updated, ended, used (varints), failures (a byte). Such a run owes nothing and is not
// quarantined.

// headSize returns an upper bound of the bytes of a head in a record.
func headSize(h *store.Head) int {
	return len(h.Recipe) + len(h.Version) + len(h.PlanHash) + len(h.Root) + len(h.Parent) + len(h.Status) + len(h.Code) + len(h.Message) +
		8*binary.MaxVarintLen32 + 4*binary.MaxVarintLen64 + 1
}

func appendHead(buf []byte, h *store.Head) []byte {
	for _, s := range [...]string{h.Recipe, h.Version, h.PlanHash, h.Root, h.Parent, h.Status, string(h.Code), h.Message} {
		buf = append(binary.AppendUvarint(buf, uint64(len(s))), s...)
	}
	for _, n := range [...]int64{h.Created, h.Updated, h.Ended, h.Used} {
		buf = binary.AppendVarint(buf, n)
	}
	return append(buf, byte(Flag(h.Failures)))
}

// Head returns the head that a record holds. The record is one with HasHead.
func (r *Record) Head() (store.Head, error) {
	h := store.Head{Key: r.Key}
	b, ok := r.head, true
	for _, s := range [...]*string{&h.Recipe, &h.Version, &h.PlanHash, &h.Root, &h.Parent, &h.Status, (*string)(&h.Code), &h.Message} {
		n, k := binary.Uvarint(b)
		if ok = ok && k > 0 && n <= uint64(len(b)-k); !ok {
			break
		}
		*s, b = string(b[k:k+int(n)]), b[k+int(n):]
	}
	for _, n := range [...]*int64{&h.Created, &h.Updated, &h.Ended, &h.Used} {
		v, k := binary.Varint(b)
		if ok = ok && k > 0; !ok {
			break
		}
		*n, b = v, b[k:]
	}
	if !ok || len(b) != 1 {
		return store.Head{}, fault.New(fault.StoreCorrupt, "the record of event %d of run %s holds a malformed head", r.First, r.Key.Run)
	}
	h.Failures = b[0] != 0
	return h, nil
}

// HasHead reports whether the record holds the head of its run.
func (r *Record) HasHead() bool { return r.head != nil }

// cutHead takes a head off the front of a record's body. It begins with its length, u32.
func cutHead(body []byte) (head, rest []byte, err error) {
	const size = 4
	if len(body) >= size {
		if n := uint64(binary.LittleEndian.Uint32(body)); n <= uint64(len(body)-size) {
			return body[size : size+n : size+n], body[size+n:], nil
		}
	}
	return nil, nil, errors.New("the length of its head is malformed")
}
