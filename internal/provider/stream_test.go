// SPDX-License-Identifier: Apache-2.0

//go:build !small

package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
)

// Events as services send them.
const (
	chatEvent    = `data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":TEXT},"finish_reason":null}],"usage":null}` + "\n\n"
	paddedEvent  = `data: {"id":"1","choices":[{"index":0,"delta":{"content":TEXT}}],"usage":null,"obfuscation":"PAD"}` + "\n\n"
	messageEvent = "event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":TEXT}}` + "\n\n"
)

// parts is a body that comes in parts.
type parts struct {
	parts [][]byte
	err   error
}

func (p *parts) Read(b []byte) (int, error) {
	if len(p.parts) == 0 {
		return 0, p.err
	}
	n := copy(b, p.parts[0])
	if p.parts[0] = p.parts[0][n:]; len(p.parts[0]) == 0 {
		p.parts = p.parts[1:]
	}
	return n, nil
}

func (*parts) Close() error { return nil }

// through passes parts through a stream body, and returns what each read brings.
func through(text func([]byte) (string, bool), err error, in ...string) (reads []string, end error) {
	p := &parts{err: err}
	for _, one := range in {
		if one != "" {
			p.parts = append(p.parts, []byte(one))
		}
	}
	c := &caller{service: &service{stall: time.Minute}, rounds: new(rounds), text: text}
	body := c.stream(&boundedBody{ctx: context.Background(), from: p, left: maxBody, heard: func() {}, done: func() {}})
	defer body.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			reads = append(reads, string(buf[:n]))
		}
		if err != nil {
			return reads, err
		}
	}
}

// filled returns an event with a text, as JSON, and that much padding.
func filled(event, text string, n int) string {
	return strings.NewReplacer("TEXT", text, "PAD", strings.Repeat("x", n)).Replace(event)
}

func chat(text string) string { return filled(chatEvent, quoted(text), 0) }

func quoted(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

// lookalike is an event whose text is always é, and has another value that is told apart only by
// what it does.
func lookalike(other string) string {
	return `data: {"x":"` + other + `","choices":[{"index":0,"delta":{"content":"\u00e9"}}]}` + "\n\n"
}

// Events that were read together and add text are one event; everything else passes as it came.
func TestJoinedEvents(t *testing.T) {
	stop := `data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	padded := func(text string, n int) string { return filled(paddedEvent, quoted(text), n) }
	for name, tt := range map[string]struct {
		in, want []string
	}{
		"together":               {[]string{chat("one") + chat(" two") + chat(" \"three\"") + stop}, []string{chat("one") + chat(" two \"three\"") + stop}},
		"apart":                  {[]string{chat("one"), chat(" two"), chat(" three")}, []string{chat("one"), chat(" two"), chat(" three")}},
		"cut in an event":        {[]string{chat("one") + chat(" two") + chat(" three")[:40], chat(" three")[40:] + chat(" four")}, []string{chat("one") + chat(" two"), chat(" three four")}},
		"cut between the ends":   {[]string{chat("one")[:len(chat("one"))-1], "\n" + chat(" two") + chat(" three")}, []string{chat("one")[:len(chat("one"))-1], "\n" + chat(" two") + chat(" three")}},
		"another id":             {[]string{chat("one") + chat("a") + strings.Replace(chat("two"), `"1"`, `"2"`, 1) + chat("three")}, []string{chat("one") + chat("a") + strings.Replace(chat("two"), `"1"`, `"2"`, 1) + chat("three")}},
		"another choice":         {[]string{chat("one") + strings.ReplaceAll(chat("a")+chat("b"), `"index":0`, `"index":1`)}, []string{chat("one") + strings.ReplaceAll(chat("a")+chat("b"), `"index":0`, `"index":1`)}},
		"with padding":           {[]string{padded("one", 7) + padded(" two", 3) + padded(" three", 9)}, []string{padded("one", 7) + strings.Replace(padded(" two three", 0), `,"obfuscation":""`, "", 1)}},
		"comments between":       {[]string{chat("one") + ": hello\n\n" + chat(" two") + chat(" three") + ": hello\n\n"}, []string{chat("one") + ": hello\n\n" + chat(" two three") + ": hello\n\n"}},
		"a document between":     {[]string{chat("one") + `{"error":{"message":"no"}}` + "\n"}, []string{chat("one") + `{"error":{"message":"no"}}` + "\n"}},
		"a cut event at the end": {[]string{chat("one") + chat(" two")[:50]}, []string{chat("one"), chat(" two")[:50]}},
		"something else that looks like the text": {[]string{lookalike("é") + lookalike("b") + lookalike("c")}, []string{lookalike("é") + lookalike("b") + lookalike("c")}},
		"no events":                             {[]string{"data: " + strings.Repeat("x", 100), "y\n"}, []string{"data: " + strings.Repeat("x", 100), "y\n"}},
		"other ends of lines":                   {[]string{strings.ReplaceAll(chat("a")+chat("b"), "\n", "\r\n")}, []string{strings.ReplaceAll(chat("a")+chat("b"), "\n", "\r\n")}},
		"two lines of data":                     {[]string{strings.Repeat("data: {}\n"+chat("a"), 3)}, []string{strings.Repeat("data: {}\n"+chat("a"), 3)}},
		"a text that is there twice":            {[]string{chat("stop?") + chat("m") + chat("a")}, []string{chat("stop?") + chat("ma")}},
		"a shape of a text that is there twice": {[]string{chat("m") + chat("b") + chat("c")}, []string{chat("m") + chat("b") + chat("c")}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := through(chatTextOf, io.EOF, tt.in...)
			if !errors.Is(err, io.EOF) || !slices.Equal(got, tt.want) {
				t.Errorf("got %v\n%q\nwant\n%q", err, got, tt.want)
			}
		})
	}
	broken := errors.New("broken")
	if got, err := through(chatTextOf, broken, chat("one")+chat(" two")[:60]); !errors.Is(err, fault.ServiceUnavailable) || strings.Join(got, "") != chat("one")+chat(" two")[:60] {
		t.Errorf("%v, %q", err, got)
	}
}

// An adder adds events up, as an adapter does: the text, and where in it everything else came.
func added(text func([]byte) (string, bool), stream string) (sum string) {
	for ev := range strings.SplitAfterSeq(stream, "\n\n") {
		_, data, _ := strings.Cut(string(withoutPadding([]byte(ev))), "data:")
		if got, ok := text([]byte(data)); ok {
			sum += got
		} else {
			sum += "<" + ev + ">"
		}
	}
	return sum
}

// Whatever a service sends and however it is cut into reads, the events add up to the same.
func TestJoinedEventsAddUp(t *testing.T) {
	for name, tt := range map[string]struct {
		text  func([]byte) (string, bool)
		event string
	}{"openai": {chatTextOf, chatEvent}, "padded": {chatTextOf, paddedEvent}, "anthropic": {messageTextOf, messageEvent}} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				var in strings.Builder
				for range rapid.IntRange(0, 30).Draw(t, "events") {
					switch rapid.IntRange(0, 12).Draw(t, "kind") {
					case 0:
						in.WriteString(": comment\n\n")
					case 1:
						in.WriteString(rapid.SampledFrom([]string{"event: ping\ndata: {}\n\n", "data: [DONE]\n\n", "\n\n", "data: {\"x\":\"\n\n", `data: {"choices":[{"delta":{"content":"}}]}` + "\n\n"}).Draw(t, "other"))
					case 2:
						in.WriteString(strings.ReplaceAll(filled(tt.event, `"x"`, 40), `"index":0`, `"index":1`))
					default:
						text := rapid.SampledFrom([]string{"word", " word", "", "m", `a"b`, "é", "\n\n", `\`, "data:", `,"obfuscation":"`, "content", "😀"}).Draw(t, "text")
						raw := quoted(text)
						if rapid.Bool().Draw(t, "escaped") {
							raw = strings.ReplaceAll(raw, "é", `\u00e9`)
						}
						size := rapid.IntRange(0, 40).Draw(t, "padding")
						in.WriteString(filled(tt.event, raw, size))
					}
				}
				stream := in.String()
				var cut []string
				for rest := stream; rest != ""; {
					n := min(len(rest), rapid.SampledFrom([]int{1, 2, 20, 100, 300, 1000, 5000}).Draw(t, "read"))
					cut, rest = append(cut, rest[:n]), rest[n:]
				}
				got, err := through(tt.text, io.EOF, cut...)
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				if got, want := added(tt.text, strings.Join(got, "")), added(tt.text, stream); got != want {
					t.Fatalf("of\n%s\ngot\n%s\nwant\n%s", stream, got, want)
				}
			})
		})
	}
}

// A service whose events have nothing in common is not looked at for ever, and only a short
// beginning of an event is held (I15).
func TestI15_JoiningIsBounded(t *testing.T) {
	calls := 0
	count := func(data []byte) (string, bool) { calls++; return chatTextOf(data) }
	var in []string
	for i := range 1000 {
		in = append(in, strings.Replace(chat(fmt.Sprint("word", i)), `"m"`, fmt.Sprintf(`"m%d-"`, i), 1))
	}
	if _, err := through(count, io.EOF, in...); !errors.Is(err, io.EOF) || calls > 2*(maxUseless+1) {
		t.Errorf("%d calls, %v", calls, err)
	}
	head, _, _ := strings.Cut(chat("x"), `"x"`)
	huge := slices.Repeat([]string{strings.Repeat("y", 4<<10)}, 8<<20/(4<<10))
	got, err := through(chatTextOf, io.EOF, append([]string{chat("one"), head + `"`}, huge...)...)
	if size := len(strings.Join(got, "")); !errors.Is(err, io.EOF) || size != len(chat("one"))+len(head)+1+8<<20 || len(got[1]) > maxHeld+readSize {
		t.Errorf("%d bytes, %d of them held, %v", size, len(got[1]), err)
	}
}

// Many streams read at the same moments, few at once, and none waits longer than it may.
func TestRounds(t *testing.T) {
	for _, tt := range []struct {
		streams    int
		most, want time.Duration
	}{{1, time.Minute, 0}, {7, time.Minute, 0}, {20, time.Minute, 13 * time.Millisecond}, {200, time.Minute, maxRound}, {5000, time.Minute, maxRound}, {200, maxRound - 1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			var r rounds
			for range tt.streams {
				r.join()
			}
			began := time.Now()
			var wait sync.WaitGroup
			for i := range tt.streams {
				wait.Go(func() {
					if i%2 == 0 && tt.want > 0 {
						time.Sleep(tt.want / 2) // it comes in the middle of a round
					}
					r.wait(t.Context(), tt.most)
					if took := time.Since(began); took != tt.want {
						t.Errorf("of %d streams one waited %s, want %s", tt.streams, took, tt.want)
					}
				})
			}
			wait.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			began = time.Now()
			r.wait(ctx, tt.most)
			if time.Since(began) != 0 {
				t.Error("the end of the call is not heard")
			}
			for range tt.streams {
				r.leave()
			}
			if r.wait(t.Context(), tt.most); r.streams != 0 || time.Since(began) != 0 {
				t.Errorf("%d streams are left", r.streams)
			}
		})
	}
}

// A stream that is closed twice leaves once.
func TestStreamLeavesOnce(t *testing.T) {
	c := &caller{service: &service{stall: time.Minute}, rounds: new(rounds), text: chatTextOf}
	body := c.stream(&boundedBody{ctx: context.Background(), from: io.NopCloser(bytes.NewReader(nil)), heard: func() {}, done: func() {}})
	if c.rounds.streams != 1 || body.Close() != nil || body.Close() != nil || c.rounds.streams != 0 {
		t.Errorf("%d streams", c.rounds.streams)
	}
}

// BenchmarkStreamBody is what five events cost that are read together.
func BenchmarkStreamBody(b *testing.B) {
	in := slices.Repeat([]string{strings.Repeat(chat(" word"), 5)}, 1000)
	b.ReportAllocs()
	for range b.N/1000 + 1 {
		if _, err := through(chatTextOf, io.EOF, in...); !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
}
