// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// all reads one value and checks that nothing follows.
func all(r io.Reader, lim StreamLimits) (any, error) {
	s := NewStream(r, lim)
	v, err := s.Value()
	if err == nil {
		err = s.End()
	}
	return v, err
}

// TestStreamReadsWhatDecodeReads: Stream has the same values and errors as Decode, also
// when it skips the value.
func TestStreamReadsWhatDecodeReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, err := Canonical(values().Draw(t, "value"))
		if err != nil {
			t.Skip("no JSON")
		}
		want, err := Decode(text, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := all(iotest.OneByteReader(strings.NewReader(string(text))), StreamLimits{})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %#v, %v, want %#v", text, got, err, want)
		}
		s := NewStream(strings.NewReader(string(text)), StreamLimits{})
		if err := errors.Join(s.Skip(), s.End()); err != nil || s.Offset() != int64(len(text)) {
			t.Fatalf("%s: passed over to %d, %v", text, s.Offset(), err)
		}
		cut := rapid.IntRange(0, len(text)-1).Draw(t, "cut")
		if _, err := all(strings.NewReader(string(text[:cut])), StreamLimits{}); err == nil {
			if _, err := Decode(text[:cut], Limits{}); err != nil {
				t.Fatalf("%s is accepted", text[:cut])
			}
		}
	})
}

// TestStreamConformance: the published parsing tests, as for Decode.
func TestStreamConformance(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sharedDir(t, "json-parsing"), "*.json"))
	if err != nil || len(files) < 90 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, want := Decode(data, Limits{Depth: 512})
		_, got := all(strings.NewReader(string(data)), StreamLimits{Value: Limits{Depth: 512}})
		if (got == nil) != (want == nil) {
			t.Errorf("%s: the stream says %v, Decode says %v", filepath.Base(file), got, want)
		}
	}
}

func TestStreamLimits(t *testing.T) {
	long := `"` + strings.Repeat("a", 1<<20) + `"`
	names := strings.Builder{}
	for i := range 200 {
		names.WriteString(`"` + strings.Repeat("x", i+1) + `":0,`)
	}
	broken := errors.New("the disk is gone")
	for _, tt := range []struct {
		name string
		r    io.Reader
		lim  StreamLimits
		rule string
		says string
	}{
		{"a long string", strings.NewReader(long), StreamLimits{Token: 1 << 16}, RuleLimit, "at byte 0: a string or number has more than 65536 bytes"},
		{"a long number", strings.NewReader(strings.Repeat("1", 1<<20)), StreamLimits{Token: 1 << 16}, RuleLimit, "has more than"},
		{"much white space", strings.NewReader(strings.Repeat(" ", 1<<20)), StreamLimits{Token: 1 << 16}, RuleLimit, "has more than"},
		{"deep", strings.NewReader(strings.Repeat("[", 100_000)), StreamLimits{Depth: 100, Value: Limits{Depth: 1_000}}, RuleLimit, "nested more than 100 deep"},
		{"a deep value", strings.NewReader(strings.Repeat("[", 100_000)), StreamLimits{}, RuleLimit, "the value is nested more than 64 deep"},
		{"many values", strings.NewReader("[" + strings.Repeat("0,", 1_000) + "0]"), StreamLimits{Value: Limits{Tokens: 100}}, RuleLimit, "more than 100 names and values"},
		{"a large value", strings.NewReader("[" + strings.Repeat("0,", 1_000) + "0]"), StreamLimits{Value: Limits{Bytes: 100}}, RuleLimit, "more than 100 bytes"},
		{"many names", strings.NewReader("{" + names.String() + `"a":0}`), StreamLimits{Names: 100}, RuleLimit, "more than 100 names"},
		{"a name twice", strings.NewReader(`{"a":1,"b":{},"a":2}`), StreamLimits{}, RuleDuplicate, `the name "a" occurs twice`},
		{"a large integer", strings.NewReader(`9223372036854775808`), StreamLimits{}, RuleNumber, "does not fit 64 bits"},
		{"bad UTF-8", strings.NewReader("\"\xff\""), StreamLimits{}, RuleEncoding, "not valid UTF-8"},
		{"cut", strings.NewReader(`{"a":[1,`), StreamLimits{}, RuleSyntax, "ends before its value does"},
		{"nothing", strings.NewReader(" "), StreamLimits{}, RuleSyntax, "ends before its value does"},
		{"more than one", strings.NewReader(`1 2`), StreamLimits{}, RuleSyntax, "a text holds one value"},
		{"a comma too much", strings.NewReader(`[1,]`), StreamLimits{}, RuleSyntax, "at byte 2"},
	} {
		_, err := all(tt.r, tt.lim)
		var e *Error
		if !errors.As(err, &e) || e.Rule != tt.rule || !strings.Contains(e.Error(), tt.says) {
			t.Errorf("%s: %v, want %s with %q", tt.name, err, tt.rule, tt.says)
		}
	}
	if _, err := all(io.MultiReader(strings.NewReader("[1,"), iotest.ErrReader(broken)), StreamLimits{}); !errors.Is(err, broken) {
		t.Errorf("the reader's error becomes %v", err)
	}
	s := NewStream(io.MultiReader(strings.NewReader("1 "), iotest.ErrReader(broken)), StreamLimits{})
	if _, err := s.Value(); err != nil || !s.More() {
		t.Errorf("a broken reader is taken for the end (%v)", err)
	}
}

// TestStreamForgetsNames: the names of closed objects do not count.
func TestStreamForgetsNames(t *testing.T) {
	object := `{"` + strings.Repeat("x", 1<<20) + `":0}`
	var parts []io.Reader
	for range maxNames>>20 + 2 {
		parts = append(parts, strings.NewReader(object))
	}
	s := NewStream(io.MultiReader(parts...), StreamLimits{})
	for range parts {
		if err := s.Skip(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStreamWalk: Open, Name, Skip and several values.
func TestStreamWalk(t *testing.T) {
	s := NewStream(strings.NewReader(`{"a":[1,{"b":2}],"c":null} 7`), StreamLimits{})
	if k, err := s.Open(); k != '{' || err != nil {
		t.Fatal(k, err)
	}
	if name, err := s.Name(); name != "a" || err != nil || s.Kind() != '[' {
		t.Fatal(name, err)
	}
	if err := s.Skip(); err != nil {
		t.Fatal(err)
	}
	if name, err := s.Name(); name != "c" || err != nil {
		t.Fatal(name, err)
	}
	if v, err := s.Value(); v != nil || err != nil || s.Kind() != '}' {
		t.Fatal(v, err)
	}
	if err := s.Close(); err != nil || !s.More() {
		t.Fatal(err)
	}
	if _, err := s.Open(); err == nil || !strings.Contains(err.Error(), "want an array or object here, got a number") {
		t.Errorf("a number was entered: %v", err)
	}
	if s.More() {
		t.Error("there is nothing more")
	}
}

func BenchmarkStreamSkip(b *testing.B) {
	text, err := Canonical(benchmarkValue())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s := NewStream(strings.NewReader(string(text)), StreamLimits{})
		if err := s.Skip(); err != nil {
			b.Fatal(err)
		}
	}
}
