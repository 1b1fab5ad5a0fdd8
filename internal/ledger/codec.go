// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/wire"
)

// Entries and states are stored in the forms below. The first byte is the number of the
// form: a store keeps entries for ever, so a form that was published is always read.
const (
	entryForm        = 1
	countedEntryForm = 2 // with the key and the day in which it counts
	stateForm        = 2
)

// Append appends the entry as [DecodeEntry] reads it. Its key is not included: the store
// has it beside the entry.
func (e *Entry) Append(buf []byte) []byte {
	form, counted := byte(entryForm), e.KeyName != "" || e.Day != 0
	if counted {
		form = countedEntryForm
	}
	buf = append(buf, form, byte(e.Kind))
	buf = binary.AppendVarint(buf, e.At)
	buf = wire.AppendString(buf, e.Hold)
	buf = wire.AppendString(buf, e.Run)
	buf = binary.AppendVarint(buf, e.HoldUntil)
	buf = wire.AppendString(buf, e.Note)
	if e.Kind == Grant {
		buf = e.Terms.append(buf)
	}
	if counted {
		buf = binary.AppendVarint(wire.AppendString(buf, e.KeyName), e.Day)
	}
	buf = binary.AppendUvarint(buf, uint64(len(e.Parts)))
	for _, p := range e.Parts {
		buf = wire.AppendString(buf, p.Lot)
		buf = binary.AppendVarint(buf, p.Amount)
	}
	return buf
}

// DecodeEntry reads what [Entry.Append] has written of the entry with a key.
func DecodeEntry(key string, data []byte) (*Entry, error) {
	r := &wire.Reader{Buf: data}
	form := r.Byte()
	if r.Err == nil && form != entryForm && form != countedEntryForm {
		return nil, fmt.Errorf("entry of form %d", form)
	}
	e := &Entry{Key: key, Kind: Kind(r.Byte()), At: r.Varint(), Hold: text(r), Run: text(r), HoldUntil: r.Varint(), Note: text(r)}
	if e.Kind == Grant {
		e.Terms = &Terms{}
		e.Terms.read(r)
	}
	if form == countedEntryForm {
		e.KeyName, e.Day = text(r), r.Varint()
	}
	for range count(r) {
		e.Parts = append(e.Parts, Part{text(r), r.Varint()})
	}
	return e, end(r)
}

// AppendState appends the account's state as [DecodeState] reads it. Equal accounts
// append equal bytes.
func (a *Account) AppendState(buf []byte) []byte {
	buf = append(buf, stateForm)
	buf = binary.AppendUvarint(buf, a.seq)
	buf = binary.AppendVarint(buf, a.at)
	lots := slices.SortedFunc(maps.Values(a.lots), func(l, m *Lot) int { return cmp.Compare(l.Seq, m.Seq) })
	buf = binary.AppendUvarint(buf, uint64(len(lots)))
	for _, l := range lots {
		buf = wire.AppendString(buf, l.ID)
		buf = l.Terms.append(buf)
		buf = binary.AppendVarint(buf, l.Created)
		buf = binary.AppendUvarint(buf, l.Seq)
		buf = binary.AppendVarint(buf, l.VoidedAt)
		for b := Free; b <= Voided; b++ {
			buf = binary.AppendVarint(buf, *l.bucket(b))
		}
	}
	holds := slices.SortedFunc(maps.Values(a.holds), func(h, k *Hold) int { return cmp.Compare(h.ID, k.ID) })
	buf = binary.AppendUvarint(buf, uint64(len(holds)))
	for _, h := range holds {
		buf = wire.AppendString(buf, h.ID)
		buf = wire.AppendString(buf, h.Run)
		buf = binary.AppendVarint(buf, h.Created)
		buf = binary.AppendVarint(buf, h.Until)
		buf = binary.AppendUvarint(buf, uint64(len(h.Parts)))
		for _, p := range h.Parts {
			buf = binary.AppendUvarint(buf, a.lots[p.Lot].Seq)
			buf = binary.AppendVarint(buf, p.Amount)
		}
		buf = appendDays(wire.AppendString(buf, h.Key), h.days)
	}
	buf = binary.AppendUvarint(buf, uint64(len(a.usage)))
	for _, key := range slices.Sorted(maps.Keys(a.usage)) {
		u := a.usage[key]
		buf = appendDays(binary.AppendVarint(wire.AppendString(buf, key), u.total), u.days)
	}
	return buf
}

// appendDays appends days and their amounts, the times each since the one before it.
func appendDays(buf []byte, days []dayPart) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(days)))
	last := int64(0)
	for _, d := range days {
		buf = binary.AppendVarint(binary.AppendVarint(buf, d.start-last), d.amount)
		last = d.start
	}
	return buf
}

func readDays(r *wire.Reader) (days []dayPart) {
	last := int64(0)
	for range count(r) {
		last += r.Varint()
		days = append(days, dayPart{last, r.Varint()})
	}
	return days
}

// DecodeState reads what [Account.AppendState] has written. A state that contradicts
// itself is refused.
func DecodeState(data []byte) (*Account, error) {
	r := &wire.Reader{Buf: data}
	if form := r.Byte(); r.Err == nil && form != stateForm {
		return nil, fmt.Errorf("state of form %d", form)
	}
	a := NewAccount()
	a.seq, a.at = r.Uvarint(), r.Varint()
	bySeq := map[uint64]*Lot{}
	for range count(r) {
		l := &Lot{ID: text(r)}
		l.Terms.read(r)
		l.Created, l.Seq, l.VoidedAt = r.Varint(), r.Uvarint(), r.Varint()
		for b := Free; b <= Voided; b++ {
			n := l.bucket(b)
			*n = r.Varint()
			l.Granted += *n
			if *n < 0 || *n > MaxAmount {
				return nil, fmt.Errorf("lot %s has %d credits in a bucket", l.ID, *n)
			}
		}
		granted, fits := add(a.granted, l.Granted)
		if a.lots[l.ID] != nil || bySeq[l.Seq] != nil || l.Seq == 0 || !fits {
			return nil, fmt.Errorf("lot %s contradicts another", l.ID)
		}
		a.lots[l.ID], bySeq[l.Seq], a.granted = l, l, granted
		if l.Free > 0 {
			a.order = append(a.order, l)
		}
	}
	slices.SortFunc(a.order, (*Lot).burnsBefore)
	if err := a.readHolds(r, bySeq); err != nil {
		return nil, err
	}
	for range count(r) {
		key := text(r)
		u := &usage{r.Varint(), readDays(r)}
		ordered := slices.IsSortedFunc(u.days, func(d, e dayPart) int { return cmp.Compare(d.start, e.start) })
		if a.usage[key] != nil || u.total < 0 || !ordered {
			return nil, fmt.Errorf("what key %q has used contradicts itself", key)
		}
		a.usage[key] = u
	}
	return a, end(r)
}

// readHolds reads the holds of a state, which must have all credits that lots have held.
func (a *Account) readHolds(r *wire.Reader, bySeq map[uint64]*Lot) error {
	held := map[*Lot]int64{}
	for range count(r) {
		h := &Hold{ID: text(r), Run: text(r), Created: r.Varint(), Until: r.Varint()}
		for range count(r) {
			l, n := bySeq[r.Uvarint()], r.Varint()
			if l == nil || n <= 0 || n > l.Held-held[l] {
				return fmt.Errorf("reservation %s contradicts its lots", h.ID)
			}
			held[l] += n
			h.Parts = append(h.Parts, Part{l.ID, n})
		}
		h.Key, h.days = text(r), readDays(r)
		counted := int64(0)
		for _, d := range h.days {
			counted += d.amount
		}
		if a.holds[h.ID] != nil || len(h.Parts) == 0 || counted != h.Amount() {
			return fmt.Errorf("reservation %s is empty, comes twice, or does not count what it holds", h.ID)
		}
		a.holds[h.ID] = h
	}
	for _, l := range a.lots {
		if held[l] != l.Held {
			return fmt.Errorf("lot %s has %d credits held, reservations %d", l.ID, l.Held, held[l])
		}
	}
	return nil
}

func (t *Terms) append(buf []byte) []byte {
	buf = wire.AppendString(buf, string(t.Source))
	buf = binary.AppendVarint(buf, int64(t.Priority))
	buf = binary.AppendVarint(buf, t.Effective)
	return binary.AppendVarint(buf, t.Expires)
}

func (t *Terms) read(r *wire.Reader) {
	t.Source = Source(text(r))
	priority := r.Varint()
	t.Priority = int32(priority)
	if int64(t.Priority) != priority && r.Err == nil {
		r.Err = errors.New("the priority is too large")
	}
	t.Effective, t.Expires = r.Varint(), r.Varint()
}

func text(r *wire.Reader) string { return string(r.Bytes()) }

// count reads how many elements follow; each takes at least a byte.
func count(r *wire.Reader) uint64 {
	n := r.Uvarint()
	if r.Err == nil && n > uint64(len(r.Buf)-r.Off) {
		r.Err = errors.New("more elements than bytes")
	}
	if r.Err != nil {
		return 0
	}
	return n
}

func end(r *wire.Reader) error {
	if r.Err == nil && r.Off != len(r.Buf) {
		r.Err = errors.New("bytes after the end")
	}
	return r.Err
}
