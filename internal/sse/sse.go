// SPDX-License-Identifier: Apache-2.0

// Package sse reads and writes streams of server-sent events, as section 9.2 of the HTML
// standard defines them.
//
// It decides where an event begins and ends, and nothing else: it opens no connection, and
// does not connect again.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// An Event is an event as a client sees it.
type Event struct {
	// ID is the last id that the stream had up to here; "" if it had none. Own reports
	// whether it is that of this event.
	ID   string
	Own  bool
	Name string // message, unless the event has another name
	Data []byte // valid until the next event is read
}

// ErrTooLong is returned for an event that is larger than the reader allows.
var ErrTooLong = errors.New("an event of the stream is too large")

// A Reader reads the events of a stream.
type Reader struct {
	in    *bufio.Reader
	max   int
	began bool
	cr    bool // the last line ended with CR: an LF that follows belongs to it

	line, data []byte
	id         string
	retry      time.Duration
}

// NewReader returns a reader. max bounds an event, in bytes; 0 = 64 MiB.
func NewReader(r io.Reader, max int) *Reader {
	if max <= 0 {
		max = 64 << 20
	}
	return &Reader{in: bufio.NewReader(r), max: max}
}

// LastEventID is the id with which a client connects again: that of the last event that was
// complete, "" if none had one.
func (r *Reader) LastEventID() string { return r.id }

// Retry is how long a client waits before it connects again, as the stream said last; 0 if it
// did not say.
func (r *Reader) Retry() time.Duration { return r.retry }

// Next returns the next event. At the end of the stream the error is that of its reader, such
// as io.EOF; an event that was cut off is left out.
func (r *Reader) Next() (Event, error) {
	e := Event{ID: r.id}
	r.data = r.data[:0]
	some := false // data was seen, perhaps empty
	for {
		if err := r.readLine(len(r.data)); err != nil {
			return Event{}, err
		}
		if len(r.line) == 0 {
			r.id = e.ID
			if !some {
				e.Own, e.Name = false, ""
				continue
			}
			e.Data = r.data[:len(r.data)-1] // without the last line feed
			if e.Name == "" {
				e.Name = "message"
			}
			return e, nil
		}
		name, value, _ := bytes.Cut(r.line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			r.data, some = append(append(r.data, value...), '\n'), true
		case "event":
			e.Name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.ID, e.Own = string(value), true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				r.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// readLine reads a line, which ends with LF, CR or both. An event must not wait for the byte
// after its CR, so an LF is skipped when it comes. held is how much of the event is in memory
// already.
func (r *Reader) readLine(held int) error {
	r.line = r.line[:0]
	for {
		if _, err := r.in.Peek(1); err != nil {
			return err
		}
		buf, _ := r.in.Peek(r.in.Buffered())
		if r.cr {
			if r.cr = false; buf[0] == '\n' {
				_, _ = r.in.Discard(1)
				continue
			}
		}
		end := bytes.IndexAny(buf, "\r\n")
		part := buf
		if end >= 0 {
			part = buf[:end]
		}
		if held+len(r.line)+len(part) > r.max {
			return ErrTooLong
		}
		r.line = append(r.line, part...)
		if end < 0 {
			_, _ = r.in.Discard(len(buf))
			continue
		}
		r.cr = buf[end] == '\r'
		_, _ = r.in.Discard(end + 1)
		if !r.began {
			r.began = true
			r.line = bytes.TrimPrefix(r.line, []byte("\uFEFF"))
		}
		return nil
	}
}

// Append appends an event. Without an id (0) it does not move the cursor of a client. name
// has no line feed; data may have some.
func Append(buf []byte, id uint64, name string, data []byte) []byte {
	if id != 0 {
		buf = append(buf, "id: "...)
		buf = strconv.AppendUint(buf, id, 10)
		buf = append(buf, '\n')
	}
	buf = append(buf, "event: "...)
	buf = append(buf, name...)
	for {
		end := bytes.IndexAny(data, "\r\n")
		if end < 0 {
			break
		}
		buf = append(append(buf, "\ndata: "...), data[:end]...)
		if data[end] == '\r' && len(data) > end+1 && data[end+1] == '\n' {
			end++
		}
		data = data[end+1:]
	}
	buf = append(append(buf, "\ndata: "...), data...)
	return append(buf, "\n\n"...)
}

// AppendRetry appends how long a client is to wait before it connects again.
func AppendRetry(buf []byte, wait time.Duration) []byte {
	buf = append(buf, "retry: "...)
	buf = strconv.AppendInt(buf, wait.Milliseconds(), 10)
	return append(buf, "\n\n"...)
}
