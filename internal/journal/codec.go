// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/wire"
)

// The stored form of events. A frame holds consecutive events of one run:
//
//	uvarint(first seq) uvarint(At) uvarint(count) event…
//
// An event is its kind, two bytes that say which fields follow, and those fields as
// varints or length-prefixed bytes. The store protects integrity.
const (
	hasFlag = 1 << iota
	hasStep
	hasPath
	hasAttempt
	hasN
	hasM
	hasCode
	hasText
	hasData
	hasHash
	isUnknown // Event.Unknown; no bytes follow for it
)

// eventOverhead is more bytes than most events take without their texts.
const eventOverhead = 24

// AppendFrame appends consecutive events of one Decide as one frame.
func AppendFrame(buf []byte, events []Event) []byte {
	if len(events) == 0 {
		return buf
	}
	need := 0
	for i := range events {
		e := &events[i]
		need += eventOverhead + len(e.Path) + len(e.Code) + len(e.Text) + len(e.Data) + len(e.Hash)
	}
	if need > cap(buf)-len(buf) {
		buf = slices.Grow(buf, max(need, len(buf))) // at least double, because append would copy it five times while growing
	}
	buf = binary.AppendUvarint(buf, events[0].Seq)
	buf = binary.AppendUvarint(buf, uint64(events[0].At))
	buf = binary.AppendUvarint(buf, uint64(len(events)))
	for i := range events {
		buf = appendEvent(buf, &events[i])
	}
	return buf
}

func appendEvent(buf []byte, e *Event) []byte {
	start := len(buf)
	buf = append(buf, byte(e.Kind), 0, 0)
	mask := 0
	if e.Flag != 0 {
		mask |= hasFlag
		buf = append(buf, e.Flag)
	}
	if e.Step >= 0 {
		mask |= hasStep
		buf = binary.AppendUvarint(buf, uint64(e.Step))
	}
	if e.Path != "" {
		mask |= hasPath
		buf = wire.AppendString(buf, string(e.Path))
	}
	if e.Attempt != 0 {
		mask |= hasAttempt
		buf = binary.AppendUvarint(buf, uint64(e.Attempt))
	}
	if e.N != 0 {
		mask |= hasN
		buf = binary.AppendVarint(buf, e.N)
	}
	if e.M != 0 {
		mask |= hasM
		buf = binary.AppendVarint(buf, e.M)
	}
	if e.Code != "" {
		mask |= hasCode
		buf = wire.AppendString(buf, string(e.Code))
	}
	if e.Text != "" {
		mask |= hasText
		buf = wire.AppendString(buf, e.Text)
	}
	if e.Data != nil {
		mask |= hasData
		buf = binary.AppendUvarint(buf, uint64(len(e.Data)))
		buf = append(buf, e.Data...)
	}
	if len(e.Hash) == 32 {
		mask |= hasHash
		buf = append(buf, e.Hash...)
	}
	if e.Unknown {
		mask |= isUnknown
	}
	binary.LittleEndian.PutUint16(buf[start+1:], uint16(mask))
	return buf
}

// EachEvent decodes concatenated frames and calls fn for every event, in order. The
// event's Path, Text and Code are copies; Data and Hash share the memory of frames. A
// decoding error is fault.StoreCorrupt and contains the byte offset.
func EachEvent(frames []byte, fn func(*Event) error) error {
	return EachEventInto(new(Event), frames, fn)
}

// EachEventInto is EachEvent for callers that decode often: e is what fn is called with.
func EachEventInto(e *Event, frames []byte, fn func(*Event) error) error {
	d := wire.Reader{Buf: frames}
	for d.Off < len(d.Buf) {
		at := d.Off
		seq, when, count := d.Uvarint(), d.Uvarint(), d.Uvarint()
		if d.Err == nil && (seq == 0 || count == 0 || count > uint64(len(frames))) {
			d.Err = errors.New("impossible frame header")
		}
		for i := uint64(0); i < count && d.Err == nil; i++ {
			at = d.Off
			*e = Event{Seq: seq + i, At: int64(when)}
			decodeEvent(&d, e)
			if d.Err != nil {
				break
			}
			if err := fn(e); err != nil {
				return err
			}
		}
		if d.Err != nil {
			return fault.Wrap(fault.StoreCorrupt, d.Err, "journal damaged at byte %d: %v", at, d.Err)
		}
	}
	return nil
}

// decodeEvent reads the fields of one event.
func decodeEvent(d *wire.Reader, e *Event) {
	head := d.Take(3)
	if d.Err != nil {
		return
	}
	e.Kind = EventKind(head[0])
	mask := int(binary.LittleEndian.Uint16(head[1:]))
	if !e.Kind.Known() {
		d.Err = fmt.Errorf("unknown event kind %d", e.Kind)
		return
	}
	if mask >= isUnknown<<1 {
		d.Err = fmt.Errorf("unknown fields in event kind %d", e.Kind)
		return
	}
	e.Step, e.Unknown = -1, mask&isUnknown != 0
	if mask&hasFlag != 0 {
		e.Flag = d.Byte()
	}
	if mask&hasStep != 0 {
		e.Step = int32(d.Uvarint())
	}
	if mask&hasPath != 0 {
		e.Path = Path(d.Bytes())
	}
	if mask&hasAttempt != 0 {
		e.Attempt = uint32(d.Uvarint())
	}
	if mask&hasN != 0 {
		e.N = d.Varint()
	}
	if mask&hasM != 0 {
		e.M = d.Varint()
	}
	if mask&hasCode != 0 {
		e.Code = fault.Code(d.Bytes())
	}
	if mask&hasText != 0 {
		e.Text = string(d.Bytes())
	}
	if mask&hasData != 0 {
		if e.Data = d.Bytes(); e.Data == nil {
			e.Data = []byte{}
		}
	}
	if mask&hasHash != 0 {
		e.Hash = d.Take(32)
	}
}

// FramesAfter returns frames without the events up to `last`.
func FramesAfter(frames []byte, last uint64) ([]byte, error) {
	var events []Event
	uncut := true
	err := EachEvent(frames, func(ev *Event) error {
		if ev.Seq > last {
			if uncut && len(events) == 0 {
				return errUncut
			}
			events = append(events, *ev)
		} else {
			uncut = false
		}
		return nil
	})
	if errors.Is(err, errUncut) {
		return slices.Clone(frames), nil
	}
	if err != nil {
		return nil, err
	}
	var tail []byte
	for len(events) > 0 { // the events of one frame have the same time
		n := 1
		for n < len(events) && events[n].At == events[0].At {
			n++
		}
		tail = AppendFrame(tail, events[:n])
		events = events[n:]
	}
	return tail, nil
}

// errUncut stops FramesAfter when there is nothing to cut.
var errUncut = errors.New("there is nothing to cut")
