// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"github.com/clipperhouse/uax29/v2/words"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// wordCount returns the action word-count, which measures a text.
func wordCount() action.Action {
	return action.Action{
		Name:        "word-count",
		Version:     "1.0.0",
		Description: "Counts the words, characters, lines and paragraphs of a text and estimates the minutes it takes to read.",
		Cost:        1,
		Input: sourceSchema(`"wordsPerMinute": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 200,
			"description": "Reading speed for the estimate."}`),
		Output: schema(`{
			"type": "object",
			"properties": {
				"words": {"type": "integer", "minimum": 0, "description": "Words by the rules of Unicode (UAX 29): runs with a letter or digit. In Chinese and Japanese each ideograph counts."},
				"characters": {"type": "integer", "minimum": 0, "description": "Characters as readers see them: an accented letter or a flag is one."},
				"codePoints": {"type": "integer", "minimum": 0, "description": "Unicode code points, which size() of an expression counts."},
				"bytes": {"type": "integer", "minimum": 0, "description": "Bytes in UTF-8, without a byte order mark."},
				"lines": {"type": "integer", "minimum": 0, "description": "Lines; a last one without line feed counts."},
				"paragraphs": {"type": "integer", "minimum": 0, "description": "Blocks of lines with blank lines between them."},
				"readingMinutes": {"type": "integer", "minimum": 0, "description": "Whole minutes, rounded up."}
			},
			"required": ["words", "characters", "codePoints", "bytes", "lines", "paragraphs", "readingMinutes"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("text", "A text in UTF-8.", "text/*"),
			OutputTypes: types("counts", "How much text it is.", "application/json"),
			BranchConditions: []action.BranchCondition{
				condition("is-empty", `output.words == 0`, "The text has no words."),
				condition("is-long", `output.words > 10000`, "The text has more than 10,000 words."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "1m"},
		},
		Limits: []string{"Texts of any size that the store takes; they are streamed."},
		Faults: []fault.Code{fault.InputInvalid, fault.FileNotFound, fault.FileInvalid, fault.FileUnsupported},
		Examples: []action.Example{
			example("A short text.", map[string]any{"text": "The ferry sails at noon.\n\nBe there."}),
			example("A file, for slow readers.", map[string]any{"file": "file", "wordsPerMinute": 120}),
		},
		Run: runWordCount,
	}
}

func runWordCount(ctx context.Context, task *action.Task) (action.Result, error) {
	in := struct {
		source
		WordsPerMinute int64 `json:"wordsPerMinute"`
	}{WordsPerMinute: 200}
	if err := decode(task, &in); err != nil {
		return action.Result{}, err
	}
	if in.WordsPerMinute < 1 {
		return action.Result{}, fault.New(fault.InputInvalid, "wordsPerMinute is %d: want 1 or more", in.WordsPerMinute)
	}
	s, err := in.open(ctx, task)
	if err != nil {
		return action.Result{}, err
	}
	defer func() { _ = s.Close() }()
	var c counts
	if err := eachChunk(&progressReader{r: contextReader{ctx, s}, size: s.size, reporter: report(task), text: "counting"}, c.add); err != nil {
		return action.Result{}, err
	}
	c.end()
	return action.Result{Output: map[string]any{
		"words": c.words, "characters": c.chars, "codePoints": c.runes, "bytes": c.bytes, "lines": c.lines, "paragraphs": c.paragraphs,
		"readingMinutes": (c.words + in.WordsPerMinute - 1) / in.WordsPerMinute,
	}}, nil
}

// counts are the counts of a text so far.
type counts struct {
	words, chars, runes, bytes, lines, paragraphs int64
	begun, blank                                  bool // of the current line
	inside                                        bool // inside a paragraph
}

func (c *counts) add(piece []byte) {
	c.bytes += int64(len(piece))
	c.runes += int64(utf8.RuneCount(piece))
	for w := words.FromBytes(piece); w.Next(); {
		if bytes.ContainsFunc(w.Value(), inWord) {
			c.words++
		}
	}
	for g := graphemes.FromBytes(piece); g.Next(); {
		c.chars++
	}
	for len(piece) > 0 {
		if !c.begun {
			c.begun, c.blank = true, true
		}
		line, rest, ended := bytes.Cut(piece, []byte("\n"))
		c.blank = c.blank && len(bytes.TrimSpace(line)) == 0
		piece = rest
		if ended {
			c.endLine()
		}
	}
}

func (c *counts) endLine() {
	c.lines++
	if !c.blank && !c.inside {
		c.paragraphs++
	}
	c.inside, c.begun = !c.blank, false
}

func (c *counts) end() {
	if c.begun {
		c.endLine()
	}
}

// inWord reports whether a rune makes its segment a word, as opposed to white
// space or punctuation.
func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

const chunkBytes = 1 << 20

// eachChunk calls use with chunks of up to a megabyte that end between words
// and between characters: after a line feed, else before an ASCII letter that
// follows a space. A megabyte without either is cut between two code points.
func eachChunk(r io.Reader, use func(piece []byte)) error {
	buf := make([]byte, 0, chunkBytes)
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if len(buf) > 0 {
				use(buf)
			}
			return nil
		}
		if err != nil {
			return err
		}
		at := chunkEnd(buf)
		use(buf[:at])
		buf = append(buf[:0], buf[at:]...)
	}
}

func chunkEnd(full []byte) int {
	if at := bytes.LastIndexByte(full, '\n'); at >= 0 {
		return at + 1
	}
	plain := func(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }
	for at := len(full) - 1; at > 0; at-- {
		if full[at-1] == ' ' && plain(full[at]) {
			return at
		}
	}
	at := len(full)
	for back := 1; back < utf8.UTFMax; back++ {
		if utf8.RuneStart(full[len(full)-back]) {
			if !utf8.FullRune(full[len(full)-back:]) {
				at = len(full) - back
			}
			break
		}
	}
	return at
}
