// SPDX-License-Identifier: Apache-2.0

package sse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"
)

// TestVectors runs the vectors of what a client that conforms to the HTML standard sees, and
// again with a reader that gives one byte at a time.
func TestVectors(t *testing.T) {
	dir := os.Getenv("ROUX_SHARED")
	if dir == "" {
		t.Skip("no shared data (set ROUX_SHARED)")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "data", "vectors", "sse-parse.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name   string
			Base64 []byte
			Events []struct{ Event, Data, ID string }
			LastID *string `json:"last_event_id"`
			Retry  *int64
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil || len(file.Cases) < 14 {
		t.Fatalf("%d cases, %v", len(file.Cases), err)
	}
	for _, c := range file.Cases {
		for how, in := range map[string]io.Reader{"at once": bytes.NewReader(c.Base64), "byte by byte": iotest.OneByteReader(bytes.NewReader(c.Base64))} {
			r := NewReader(in, 0)
			n := 0
			for {
				e, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil || n >= len(c.Events) {
					t.Fatalf("%s, %s: event %d: %+v, %v", c.Name, how, n, e, err)
				}
				if want := c.Events[n]; e.Name != want.Event || string(e.Data) != want.Data || e.ID != want.ID {
					t.Errorf("%s, %s: event %d is %s %q %q, want %+v", c.Name, how, n, e.Name, e.Data, e.ID, want)
				}
				n++
			}
			id, retry := "", int64(0)
			if c.LastID != nil {
				id = *c.LastID
			}
			if c.Retry != nil {
				retry = *c.Retry
			}
			if n != len(c.Events) || r.LastEventID() != id || r.Retry().Milliseconds() != retry {
				t.Errorf("%s, %s: %d events, last id %q, retry %s", c.Name, how, n, r.LastEventID(), r.Retry())
			}
		}
	}
}

// What the vectors leave out.
func TestReader(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"a field without a value":           {"data\n\n", "message \"\" id=\"\""},
		"an id of one event only":           {"id: 1\ndata: a\n\ndata: b\n\n", "message \"a\" id=\"1\" own|message \"b\" id=\"1\""},
		"an id that is taken back":          {"id: 1\ndata: a\n\nid\ndata: b\n\n", "message \"a\" id=\"1\" own|message \"b\" id=\"\" own"},
		"an id with NUL is ignored":         {"id: 1\x00\ndata: a\n\n", "message \"a\" id=\"\""},
		"an id without data counts":         {"id: 4\n\ndata: a\n\n", "message \"a\" id=\"4\""},
		"a name without data is dropped":    {"event: x\n\ndata: a\n\n", "message \"a\" id=\"\""},
		"unknown fields":                    {"Data: no\nhello\ndata: a\n\n", "message \"a\" id=\"\""},
		"a BOM only at the beginning":       {"data: a\n\n\uFEFFdata: b\n\ndata: c\n\n", "message \"a\" id=\"\"|message \"c\" id=\"\""},
		"CR LF and CR and LF in one stream": {"data: a\r\ndata: b\rdata: c\n\r\n", "message \"a\\nb\\nc\" id=\"\""},
	} {
		r := NewReader(strings.NewReader(tt.in), 0)
		var got []string
		for {
			e, err := r.Next()
			if err != nil {
				break
			}
			one := fmt.Sprintf("%s %q id=%q", e.Name, e.Data, e.ID)
			if e.Own {
				one += " own"
			}
			got = append(got, one)
		}
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%s: got %s, want %s", name, strings.Join(got, "|"), tt.want)
		}
	}
	for _, bad := range []string{"retry: 1.5\n\n", "retry: -1\n\n", "retry: 99999999999999999999\n\n", "retry: x\n\n"} {
		r := NewReader(strings.NewReader(bad), 0)
		if _, err := r.Next(); !errors.Is(err, io.EOF) || r.Retry() != 0 {
			t.Errorf("%q: %v, %s", bad, err, r.Retry())
		}
	}
}

// An event is returned as soon as its last line has ended, also with CR.
func TestNoWaitAfterCR(t *testing.T) {
	in, out := io.Pipe()
	go func() { _, _ = out.Write([]byte("data: a\r\r")) }() // and then nothing
	if e, err := NewReader(in, 0).Next(); err != nil || string(e.Data) != "a" {
		t.Errorf("%+v, %v", e, err)
	}
}

// The memory of a reader is bounded, whether by one line or by many (I15).
func TestI15_EventsAreBounded(t *testing.T) {
	line := "data: " + strings.Repeat("x", 994) + "\n"
	for n, text := range map[int]string{1000: line + "\n", 1995: strings.Repeat(line, 2) + "\n"} {
		if _, err := NewReader(strings.NewReader(text), n).Next(); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		if _, err := NewReader(strings.NewReader(text), n-1).Next(); !errors.Is(err, ErrTooLong) {
			t.Errorf("%d bytes are taken: %v", n-1, err)
		}
	}
	endless := io.MultiReader(strings.NewReader("data: "), neverEnding{})
	if _, err := NewReader(endless, 1<<20).Next(); !errors.Is(err, ErrTooLong) {
		t.Errorf("without an end: %v", err)
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// What is written is read again, whatever its data; cut at any byte, the events before the
// cut are read.
func TestWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var buf []byte
		var ends []int
		var want []Event
		last := ""
		buf = AppendRetry(buf, 2*time.Second)
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			id := rapid.Uint64Range(0, 5).Draw(t, "id")
			data := rapid.StringMatching(`[a-c:\n\r \x{FEFF}]*`).Draw(t, "data")
			name := rapid.SampledFrom([]string{"node.started", "reset", "a b"}).Draw(t, "name")
			buf = Append(buf, id, name, []byte(data))
			ends = append(ends, len(buf))
			if id != 0 {
				last = fmt.Sprint(id)
			}
			want = append(want, Event{ID: last, Own: id != 0, Name: name, Data: []byte(strings.ReplaceAll(strings.ReplaceAll(data, "\r\n", "\n"), "\r", "\n"))})
		}
		cut := rapid.IntRange(0, len(buf)).Draw(t, "cut")
		r := NewReader(bytes.NewReader(buf[:cut]), 0)
		for i := 0; ; i++ {
			e, err := r.Next()
			if err != nil {
				if i < len(want) && ends[i] <= cut {
					t.Fatalf("event %d was not read: %v", i, err)
				}
				return
			}
			if w := want[i]; ends[i] > cut || e.ID != w.ID || e.Own != w.Own || e.Name != w.Name || !bytes.Equal(e.Data, w.Data) {
				t.Fatalf("event %d: %+v, want %+v", i, e, w)
			}
		}
	})
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("id: 1\nevent: a\ndata: b\n\n"))
	f.Add([]byte("\xef\xbb\xbfdata: a\r\rretry: 3\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := NewReader(bytes.NewReader(in), 0), NewReader(iotest.OneByteReader(bytes.NewReader(in)), 0)
		for {
			x, xerr := a.Next()
			y, yerr := b.Next()
			if (xerr == nil) != (yerr == nil) || x.ID != y.ID || x.Name != y.Name || !bytes.Equal(x.Data, y.Data) {
				t.Fatalf("%+v %v, byte by byte %+v %v", x, xerr, y, yerr)
			}
			if xerr != nil {
				return
			}
		}
	})
}
