// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
)

// m is an object of JSON.
type m = map[string]any

// content reads a stored file.
func content(t testing.TB, s *blob.Store, hash any) string {
	t.Helper()
	f, err := s.Open(context.Background(), "acme", hash.(string))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// direct calls an action without the checks of a worker, for properties that
// are tried a hundred times.
func direct(t rapid.TB, name string, input m) (m, error) {
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range Actions(Config{}) {
		if a.Name == name {
			res, err := a.Run(context.Background(), &action.Task{Input: raw})
			out, _ := res.Output.(m)
			return out, err
		}
	}
	t.Fatalf("there is no action %s", name)
	return nil, nil
}

// texts of the parts of a split.
func texts(out m) []string {
	list := []string{}
	for _, p := range out["parts"].([]any) {
		list = append(list, p.(m)["text"].(string))
	}
	return list
}

func TestTextSplit(t *testing.T) {
	s := store(t)
	family := "\U0001F468\u200d\U0001F469\u200d\U0001F467" // one character of three people
	for _, tt := range []struct {
		name  string
		input m
		want  []string
	}{
		{"at a separator, empty parts kept", m{"text": "a,b,,c,", "by": "separator", "separator": ","}, []string{"a", "b", "", "c", ""}},
		{"without the empty ones", m{"text": "a,b, ,c,", "by": "separator", "separator": ",", "dropEmpty": true}, []string{"a", "b", "c"}},
		{"lines of every kind", m{"text": "a\r\nb\n\nc", "by": "lines"}, []string{"a", "b", "", "c"}},
		{"a last line feed begins no line", m{"text": "a\n", "by": "lines"}, []string{"a"}},
		{"paragraphs", m{"text": "\n a\nb \n \t\n\nc\r\n\r\nd"}, []string{" a\nb ", "c", "d"}},
		{"no paragraph", m{"text": " \n\n"}, []string{}},
		{"characters break after white space", m{"text": "the quick brown fox", "by": "characters", "size": 10}, []string{"the quick ", "brown fox"}},
		{"and anywhere when there is none", m{"text": "abcdefg", "by": "characters", "size": 3}, []string{"abc", "def", "g"}},
		{"and never inside one that is seen as one", m{"text": "e\u0301" + family + "🇩🇪\r\n", "by": "characters", "size": 1}, []string{"e\u0301", family, "🇩🇪", "\r\n"}},
		{"with overlap", m{"text": "abcdefg", "by": "characters", "size": 4, "overlap": 2}, []string{"abcd", "cdef", "efg"}},
		{"words keep what stands between them", m{"text": " one, two - three four.", "by": "words", "size": 2}, []string{" one, two - ", "three four."}},
		{"words with overlap", m{"text": "a b c d e", "by": "words", "size": 3, "overlap": 1}, []string{"a b c ", "c d e"}},
		{"headings", m{"text": "pre\n# A #\na\n```\n# no\n```\n## B\n### C\n#no\n    # no\n# D", "by": "headings", "level": 2}, []string{"pre\n", "# A #\na\n```\n# no\n```\n", "## B\n### C\n#no\n    # no\n", "# D"}},
		{"no heading", m{"text": "just text", "by": "headings"}, []string{"just text"}},
		{"nothing by characters", m{"text": "", "by": "characters", "size": 5}, []string{}},
		{"nothing by headings", m{"text": "", "by": "headings"}, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := call(t, s, "text-split", tt.input)
			if err != nil {
				t.Fatal(err)
			}
			if got := texts(out); !reflect.DeepEqual(got, tt.want) || out["count"] != int64(len(tt.want)) {
				t.Errorf("got  %q (%v)\nwant %q", got, out["count"], tt.want)
			}
		})
	}
	out, err := call(t, s, "text-split", m{"text": "pre\n# A #\n## B c\n", "by": "headings"})
	want := []any{m{"index": int64(0), "text": "pre\n", "offset": int64(0), "heading": "", "level": int64(0)},
		m{"index": int64(1), "text": "# A #\n", "offset": int64(4), "heading": "A", "level": int64(1)},
		m{"index": int64(2), "text": "## B c\n", "offset": int64(10), "heading": "B c", "level": int64(2)}}
	if err != nil || !reflect.DeepEqual(out["parts"], want) {
		t.Errorf("%v, %v", out["parts"], err)
	}
	file := upload(t, s, "long.txt", []byte("\xef\xbb\xbfäöü one\n\ntwo"))
	out, err = call(t, s, "text-split", m{"file": file.Hash, "output": "file"})
	if err != nil || content(t, s, out["file"]) != "{\"index\":0,\"text\":\"äöü one\",\"offset\":0}\n{\"index\":1,\"text\":\"two\",\"offset\":9}\n" {
		t.Errorf("%v, %v", out, err)
	}
}

// Join restores what split divides, and offsets are the positions of the parts.
func TestSplitAndJoin(t *testing.T) {
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "é", "e\u0301", "日本", " ", "\n", "\r\n", "# h\n", "```\n", ",", ".", "\U0001F600", "\u200d", "one two", "\t"}), 0, 60).Draw(t, "text"), "")
	})
	rapid.Check(t, func(t *rapid.T) {
		text := text.Draw(t, "text")
		input := m{"text": text, "by": rapid.SampledFrom([]string{"separator", "characters", "words", "headings"}).Draw(t, "by"), "separator": ",", "size": rapid.IntRange(1, 9).Draw(t, "size")}
		out, err := direct(t, "text-split", input)
		if err != nil {
			t.Fatal(err)
		}
		parts, sep := texts(out), ""
		if input["by"] == "separator" {
			sep = ","
		}
		joined, err := direct(t, "text-join", m{"items": parts, "separator": sep})
		if err != nil || joined["text"] != text {
			t.Fatalf("%q becomes %q, %v by way of %q", text, joined["text"], err, parts)
		}
		input["overlap"] = input["size"].(int) / 2
		out, err = direct(t, "text-split", input)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range out["parts"].([]any) {
			p := p.(m)
			runes := []rune(text)[p["offset"].(int64):]
			if part := p["text"].(string); !strings.HasPrefix(string(runes), part) || !utf8.ValidString(part) {
				t.Fatalf("part %q is not at %d of %q", part, p["offset"], text)
			}
		}
	})
}

func TestTextJoin(t *testing.T) {
	s := store(t)
	for _, tt := range []struct {
		input m
		want  string
	}{
		{m{"items": []any{"a", 7, true, nil, 9007199254740993, 1.5}}, "a\n7\ntrue\n\n9007199254740993\n1.5"},
		{m{"items": []any{"a", " ", "b"}, "prefix": "- ", "suffix": ";", "separator": " ", "skipEmpty": true}, "- a; - b;"},
		{m{"items": []any{}}, ""},
	} {
		out, err := call(t, s, "text-join", tt.input)
		if err != nil || out["text"] != tt.want {
			t.Errorf("%v: %q, %v, want %q", tt.input, out["text"], err, tt.want)
		}
	}
	out, err := call(t, s, "text-join", m{"items": []any{"a", "b"}, "output": "file", "name": "list.md"})
	if err != nil || content(t, s, out["file"]) != "a\nb" || out["count"] != int64(2) {
		t.Errorf("%v, %v", out, err)
	}
}

func TestTextReplace(t *testing.T) {
	s := store(t)
	rule := func(kv ...any) m {
		r := m{"find": kv[0], "replace": kv[1]}
		for _, flag := range kv[2:] {
			r[flag.(string)] = true
		}
		return r
	}
	for _, tt := range []struct {
		name, text string
		rules      []any
		want       string
		counts     []any
	}{
		{"literally", "a.b.c", []any{rule(".", "-")}, "a-b-c", []any{int64(2)}},
		{"one after the other", "abc", []any{rule("a", "b"), rule("b", "x"), rule("q", "")}, "xxc", []any{int64(1), int64(2), int64(0)}},
		{"the first only", "aaa", []any{rule("a", "b", "first")}, "baa", []any{int64(1)}},
		{"whatever the case", "Äa äA", []any{rule("äa", "$1", "ignoreCase")}, "$1 $1", []any{int64(2)}},
		{"groups", "2026-11-21", []any{rule(`(\d+)-(?P<m>\d+)-(\d+)`, "$3.${m}.$1$$", "regex")}, "21.11.2026$", []any{int64(1)}},
		{"anchors see what stands before", "aa\nab", []any{rule(`^a`, "x", "regex")}, "xa\nab", []any{int64(1)}},
		{"also line by line", "aa\nab", []any{rule(`(?m)^a`, "x", "regex")}, "xa\nxb", []any{int64(2)}},
		{"word borders", "cat concat cat", []any{rule(`\bcat\b`, "dog", "regex")}, "dog concat dog", []any{int64(2)}},
		{"empty matches", "abc", []any{rule(`x*`, "-", "regex")}, "-a-b-c-", []any{int64(4)}},
		{"alternatives stay together", "xaxb", []any{rule(`a|b`, "c", "regex")}, "xcxc", []any{int64(2)}},
		{"the first match only", "a1b2", []any{rule(`\d`, "#", "regex", "first")}, "a#b2", []any{int64(1)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := call(t, s, "text-replace", m{"text": tt.text, "rules": tt.rules})
			if err != nil || out["text"] != tt.want || !reflect.DeepEqual(out["counts"], tt.counts) {
				t.Errorf("%q, %v, %v, want %q, %v", out["text"], out["counts"], err, tt.want, tt.counts)
			}
		})
	}
}

// Our interruptible search finds the same matches as package regexp.
func TestReplaceAsRegexp(t *testing.T) {
	patterns := []string{`a`, `a*`, `^a`, `(?m)^a`, `a$`, `(?m)a$`, `\ba`, `\Ba`, `(a)(b)?`, `a|ab`, `a*?b`, `\A.`, `.\z`, `é+`, `(?i)A`, `[^a]`, ``, `(?s).`}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab é\n"))).Draw(t, "text")
		pattern := rapid.SampledFrom(patterns[:len(patterns)-2]).Draw(t, "pattern")
		want := regexp.MustCompile(pattern).ReplaceAllString(text, "<$0|$1>")
		got, _, err := (&replaceRule{Find: pattern, Replace: "<$0|$1>", Regex: true}).apply(context.Background(), text)
		if err != nil || got != want {
			t.Fatalf("%q in %q: %q, %v, want %q", pattern, text, got, err, want)
		}
	})
}

// I15: a quadratic search ends at the time limit.
func TestI15_MatchingEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	reached := fault.New(fault.ValueTooLarge, "enough")
	cancel(reached)
	_, _, err := (&replaceRule{Find: `a`, Regex: true}).apply(ctx, "aaa")
	if !errors.Is(err, fault.ValueTooLarge) {
		t.Errorf("error = %v", err)
	}
}

// The size of a result is computed before it is built: a match can be the whole
// text and occur in the replacement thousands of times.
func TestI15_ReplacementsAreMeasuredFirst(t *testing.T) {
	text := strings.Repeat("ab", 1<<19)
	for _, rule := range []m{
		{"find": "(?s).*", "replace": strings.Repeat("$0", 4_000)},
		{"find": "(a)|(?P<rest>(?s)b.*)", "replace": strings.Repeat("${rest}", 1_000)},
	} {
		rule["regex"] = true
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := direct(t, "text-replace", m{"text": text, "rules": []any{rule}})
		runtime.ReadMemStats(&after)
		if made := (after.TotalAlloc - before.TotalAlloc) >> 20; !errors.Is(err, fault.OutputTooLarge) || made > 256 {
			t.Errorf("%.20q: %v, after %d MiB", rule["find"], err, made)
		}
	}
	out, err := direct(t, "text-replace", m{"text": text, "rules": []any{m{"find": "(?s)(?P<one>a)(.*)", "replace": "$$${one}$9" + strings.Repeat("$2", 30), "regex": true}}})
	if want := 2 + 30*(len(text)-1); err != nil || len(out["text"].(string)) != want {
		t.Errorf("%d bytes, %v; want %d", len(fmt.Sprint(out["text"])), err, want)
	}
}

func TestWordCount(t *testing.T) {
	s := store(t)
	for _, tt := range []struct {
		name, text string
		want       []int64 // words, characters, code points, bytes, lines, paragraphs, minutes
	}{
		{"prose", "The ferry sails at noon.\n\nBe there.\n", []int64{7, 36, 36, 36, 3, 2, 1}},
		{"nothing", "", []int64{0, 0, 0, 0, 0, 0, 0}},
		{"marks are no words", "-- ... !?", []int64{0, 9, 9, 9, 1, 1, 0}},
		{"numbers and joined words", "3.14 can't 1,000 x_y", []int64{4, 20, 20, 20, 1, 1, 1}},
		{"what is seen as one", "e\u0301 🇩🇪", []int64{1, 3, 5, 12, 1, 1, 1}},
		{"Japanese", "日本語。", []int64{3, 4, 4, 12, 1, 1, 1}},
		{"line ends of Windows", "a\r\n\r\nb", []int64{2, 4, 6, 6, 3, 2, 1}},
	} {
		out, err := call(t, s, "word-count", m{"text": tt.text})
		if err != nil {
			t.Fatal(err)
		}
		got := []int64{}
		for _, k := range []string{"words", "characters", "codePoints", "bytes", "lines", "paragraphs", "readingMinutes"} {
			got = append(got, out[k].(int64))
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A text in chunks has the same counts as the whole.
func TestCountsOfPieces(t *testing.T) {
	for name, text := range map[string]string{
		"lines": strings.Repeat("one two\n\n", 300_000), "spaces": strings.Repeat("word ", 500_000), "no break": "a" + strings.Repeat("ä", 1_200_001),
		"all in one": strings.Repeat("a", 3<<20),
	} {
		var whole, parts counts
		whole.add([]byte(text))
		whole.end()
		err := eachChunk(strings.NewReader(text), func(p []byte) {
			if !utf8.Valid(p) {
				t.Errorf("%s: a piece ends inside a code point", name)
			}
			parts.add(p)
		})
		parts.end()
		if err != nil {
			t.Fatal(err)
		}
		if name == "no break" || name == "all in one" { // the one word is cut at each megabyte, and counted once for each part
			parts.words = whole.words
		}
		if parts != whole {
			t.Errorf("%s: %+v, want %+v", name, parts, whole)
		}
	}
}

// The producer of a file may fail or panic, and the store may refuse it:
// neither waits for the other, and the first error is returned.
func TestPut(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := store(t)
	task := &action.Task{Files: s.Files("acme")}
	made := errors.New("no more rows")
	if _, err := storeOutput(t.Context(), task, "a", "", func(*bufio.Writer) error { return made }); !errors.Is(err, made) {
		t.Errorf("error = %v", err)
	}
	func() {
		defer func() {
			if v := recover(); v != "bad row" {
				t.Errorf("recovered %v", v)
			}
		}()
		_, _ = storeOutput(t.Context(), task, "a", "", func(*bufio.Writer) error { panic("bad row") })
	}()
	forever := func(w *bufio.Writer) error {
		for {
			if _, err := w.WriteString("more "); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(made)
	if _, err := storeOutput(ctx, task, "a", "", forever); !errors.Is(err, made) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := storeOutput(t.Context(), &action.Task{Files: forgetful{}}, "a", "", forever); !errors.Is(err, fault.OutputTooLarge) {
		t.Errorf("without end: %v", err)
	}
}

// forgetful accepts any file and stores none.
type forgetful struct{ action.Files }

func (forgetful) Put(_ context.Context, r io.Reader, name, mimeType string) (action.FileInfo, error) {
	n, err := io.Copy(io.Discard, r)
	return action.FileInfo{Name: name, MimeType: mimeType, Size: n}, err
}

func TestHash(t *testing.T) {
	s := store(t)
	for algorithm, want := range map[string]string{ // of "abc", as the standards print them
		"sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"sha1":   "a9993e364706816aba3e25717850c26c9cd0d89d",
		"md5":    "900150983cd24fb0d6963f7d28e17f72",
		"crc32":  "352441c2",
		"sha512": "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
	} {
		out, err := call(t, s, "hash", m{"text": "abc", "algorithm": algorithm})
		if err != nil || out["hex"] != want || out["sizeBytes"] != int64(3) || out["algorithm"] != algorithm {
			t.Errorf("%s: %v, %v", algorithm, out, err)
		}
	}
	data := []byte("\x00\xff\xfe binary")
	file := upload(t, s, "x.bin", data)
	out, err := call(t, s, "hash", m{"file": file.Hash})
	if err != nil || "sha256_"+out["hex"].(string) != file.Hash || out["file"] != file.Hash || out["name"] != "x.bin" || out["sizeBytes"] != int64(len(data)) {
		t.Errorf("%v, %v", out, err)
	}
	if out, err := call(t, s, "hash", m{"text": ""}); err != nil || out["base64"] != "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=" {
		t.Errorf("of nothing: %v, %v", out, err)
	}
}

// X160: translate-text exists, accepts the inputs of the sample recipe, and
// reports what is missing.
func TestX160_TranslateText(t *testing.T) {
	s := store(t)
	file := upload(t, s, "a.md", []byte("# Guten Tag"))
	for _, input := range []m{
		{"text": "hello", "targetLanguage": "es"}, {"content": "hello", "targetLanguage": "pt-BR", "sourceLanguage": "en"}, {"file": file.Hash, "targetLanguage": "zh"},
	} {
		_, err := call(t, s, "translate-text", input)
		if !errors.Is(err, fault.ProviderNotConfigured) || !strings.Contains(err.Error(), "no provider of models is configured") {
			t.Errorf("%v: %v", input, err)
		}
	}
	if a := find(t, "translate-text"); a.Provider != "llm" {
		t.Errorf("provider %q", a.Provider)
	}
}

// An invalid text or option is refused with a code and a message.
func TestTextRefusals(t *testing.T) {
	s := store(t)
	file := func(name, text string) string { return upload(t, s, name, []byte(text)).Hash }
	hello, latin, cut := file("hello.txt", "hello"), file("latin.txt", "caf\xe9 au lait"), file("cut.txt", "abc\xe2\x82")
	half := file("half.txt", "abc\xc3")
	utf16, long := file("utf16.csv", "\xff\xfea\x00"), file("long.txt", strings.Repeat("a b\n", maxTextInMemory/4+1))
	rule := func(find string) []any {
		return []any{m{"find": find, "regex": true, "replace": strings.Repeat("x", 9_999)}}
	}
	for _, tt := range []struct {
		name, action string
		input        m
		code         fault.Code
		says         string
	}{
		{"neither text nor file", "word-count", m{}, fault.InputInvalid, `neither "text" nor "file" is given`},
		{"both", "hash", m{"text": "a", "file": hello}, fault.InputInvalid, `"text" and "file" are both given`},
		{"text and content", "translate-text", m{"text": "a", "content": "b", "targetLanguage": "de"}, fault.InputInvalid, `"text" and "content"`},
		{"no language", "translate-text", m{"text": "a", "targetLanguage": "to German please"}, fault.InputContractViolation, "targetLanguage"},
		{"a foreign encoding", "word-count", m{"file": latin}, fault.FileInvalid, "file latin.txt is not valid UTF-8 at byte 3"},
		{"a rune cut at the end", "word-count", m{"file": cut}, fault.FileInvalid, "not valid UTF-8 at byte 3"},
		{"another", "word-count", m{"file": half}, fault.FileInvalid, "not valid UTF-8 at byte 3"},
		{"UTF-16", "csv-to-json", m{"file": utf16}, fault.FileUnsupported, "UTF-16: save it as UTF-8"},
		{"a PDF as text", "text-split", m{"file": file("r.pdf", string(reportPDF(t)))}, fault.FileUnsupported, "r.pdf is application/pdf: want a text"},
		{"a long text held", "text-split", m{"file": long}, fault.FileTooLarge, "up to 16 MiB"},
		{"no separator", "text-split", m{"text": "a", "by": "separator"}, fault.InputInvalid, `"separator" is missing`},
		{"no size", "text-split", m{"text": "a", "by": "words"}, fault.InputInvalid, `"size" is missing`},
		{"too much overlap", "text-split", m{"text": "a", "by": "words", "size": 10, "overlap": 6}, fault.InputInvalid, "at most half of size"},
		{"too many parts", "text-split", m{"text": strings.Repeat("a ", maxParts+1), "by": "words", "size": 1}, fault.OutputTooLarge, "more than 100000 parts"},
		{"a joined text that explodes", "text-join", m{"items": make([]any, 100_000), "separator": strings.Repeat("x", 10_000)}, fault.OutputTooLarge, "1000000000 bytes"},
		{"and into a file", "text-join", m{"items": make([]any, 100_000), "separator": strings.Repeat("x", 10_000), "prefix": strings.Repeat("y", 10_000), "output": "file"}, fault.OutputTooLarge, "2000000000 bytes"},
		{"a list in a list", "text-join", m{"items": []any{[]any{}}}, fault.InputContractViolation, "items"},
		{"no regular expression", "text-replace", m{"text": "a", "rules": rule("(a")}, fault.InputInvalid, "rules[0]: \"(a\" is no regular expression: missing closing )"},
		{"a large program", "text-replace", m{"text": "a", "rules": rule("(a{900}b{900}c{900}d{900}){1}e{900}f{900}g{900}")}, fault.InputInvalid, "too large: repeat less"},
		{"a large program on a long text", "text-replace", m{"text": strings.Repeat("a", 1<<20), "rules": rule("(b{900})c{900}")}, fault.ValueTooLarge, "make it simpler"},
		{"a replacement that explodes", "text-replace", m{"text": strings.Repeat("a", 10_000), "rules": rule("a")}, fault.OutputTooLarge, "the new text has more than 32 MiB"},
		{"literally as well", "text-replace", m{"text": strings.Repeat("a", 10_000), "rules": []any{m{"find": "a", "replace": strings.Repeat("x", 9_999)}}}, fault.OutputTooLarge, "the new text"},
		{"an unknown algorithm", "hash", m{"text": "a", "algorithm": "sha3"}, fault.InputContractViolation, "algorithm"},
		{"a speed of nothing", "word-count", m{"text": "a", "wordsPerMinute": 0}, fault.InputContractViolation, "wordsPerMinute"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := call(t, s, tt.action, tt.input)
			if !errors.Is(err, tt.code) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %.300v, want %s with %q", err, tt.code, tt.says)
			}
		})
	}
}

// broken is a file store that panics once it has read.
type broken struct{ action.Files }

func (broken) Put(_ context.Context, r io.Reader, _, _ string) (action.FileInfo, error) {
	_, _ = r.Read(make([]byte, 1))
	panic("no such store")
}

// A panic in a helper goroutine of an action is raised in the action's own
// goroutine, where it is recovered, and the other goroutines end (I16).
func TestI16_PanicBesideAnAction(t *testing.T) {
	defer goleak.VerifyNone(t)
	thrown := func(fn func()) (v any) {
		defer func() { v = recover() }()
		fn()
		return nil
	}
	write := func(w *bufio.Writer) error { return errors.Join(w.WriteByte('x'), w.Flush()) }
	task := &action.Task{Files: broken{}}
	if v := thrown(func() { _, _ = storeOutput(t.Context(), task, "a", "", write) }); !strings.HasPrefix(fmt.Sprint(v), "no such store") {
		t.Errorf("put: recovered %v", v)
	}
	job := func(w io.Writer) error { _, err := w.Write([]byte("x")); return err }
	if v := thrown(func() { _, _ = storeImage(t.Context(), task, "a", "", job) }); !strings.HasPrefix(fmt.Sprint(v), "no such store") {
		t.Errorf("an image: recovered %v", v)
	}
	s := store(t)
	task.Files = s.Files("acme")
	if v := thrown(func() { _, _ = storeImage(t.Context(), task, "a", "", func(io.Writer) error { panic("bad pixel") }) }); !strings.HasPrefix(fmt.Sprint(v), "bad pixel") {
		t.Errorf("making an image: recovered %v", v)
	}
	if found, err := s.List(t.Context(), "acme", blob.Query{}); err != nil || len(found) != 0 {
		t.Errorf("what was not made is kept: %+v, %v", found, err)
	}
}
