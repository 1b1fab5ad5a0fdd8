// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bufio"
	"context"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"github.com/clipperhouse/uax29/v2/words"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

const (
	maxParts     = 100_000 // listed inline
	maxPartsFile = 5_000_000
)

// textSplit returns the action text-split, which splits a text into parts.
func textSplit() action.Action {
	return action.Action{
		Name:        "text-split",
		Version:     "1.0.0",
		Description: "Cuts a text into parts: at a separator, by lines, paragraphs or Markdown headings, or into pieces of a size.",
		Cost:        1,
		Input: sourceSchema(`
			"by": {"enum": ["separator", "lines", "paragraphs", "headings", "characters", "words"], "default": "paragraphs",
				"description": "separator: at each occurrence, which is left out. lines: without their ends. paragraphs: at blank lines. headings: before each Markdown heading. characters and words: into pieces of at most size."},
			"separator": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "With by: separator. Taken literally."},
			"size": {"type": "integer", "minimum": 1, "maximum": 1000000, "description": "With by: characters or words. Characters are those that readers see; none is ever cut. By characters, a piece ends after the last white space of its second half where there is one."},
			"overlap": {"type": "integer", "minimum": 0, "default": 0, "description": "With by: characters or words. How much of a piece its successor repeats, at most half of size."},
			"level": {"type": "integer", "minimum": 1, "maximum": 6, "default": 6, "description": "With by: headings. Headings below this level do not begin a part."},
			"dropEmpty": {"type": "boolean", "default": false, "description": "true leaves out parts that are empty or white space."},
			` + outputProp),
		Output: schema(`{
			"type": "object",
			"properties": {
				"parts": {
					"type": "array", "description": "The parts in their order; missing with output: file.",
					"items": {
						"type": "object",
						"properties": {
							"index": {"type": "integer", "minimum": 0, "description": "Its place among the parts, from 0."},
							"text": {"type": "string", "description": "The part."},
							"offset": {"type": "integer", "minimum": 0, "description": "Where it begins in the text, in Unicode code points, as substring() of an expression counts."},
							"heading": {"type": "string", "description": "By headings: the heading's text, empty before the first one."},
							"level": {"type": "integer", "minimum": 0, "maximum": 6, "description": "By headings: its level, 0 before the first one."}
						},
						"required": ["index", "text", "offset"],
						"additionalProperties": false
					}
				},
				"file": {"type": "string", "format": "file", "description": "With output: file. One part a line as JSON, ready to loop over."},
				` + fileNameProp + `,
				"count": {"type": "integer", "minimum": 0, "description": "How many parts there are."}
			},
			"required": ["count"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("text", "A text or Markdown in UTF-8.", "text/*"),
			OutputTypes: types("parts", "The parts, as a list or a file of JSON lines.", "application/json", "application/x-ndjson"),
			BranchConditions: []action.BranchCondition{
				condition("is-split", `output.count > 1`, "There is more than one part."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "20s"},
		},
		Limits: []string{"Texts up to 16 MiB.", "100,000 parts inline, 5,000,000 in a file.", "Parts of 32 MiB together inline."},
		Faults: []fault.Code{fault.InputInvalid, fault.FileNotFound, fault.FileInvalid, fault.FileUnsupported, fault.FileTooLarge, fault.ValueTooLarge, fault.OutputTooLarge},
		Examples: []action.Example{
			example("The paragraphs of a text.", map[string]any{"text": "One.\n\nTwo,\nthree.\n"}),
			example("Pieces for a model, each repeating the end of the last.", map[string]any{"file": "file", "by": "words", "size": 200, "overlap": 20}),
			example("The chapters of a Markdown text.", map[string]any{"text": "# A\n\na\n\n## B\n\nb\n\n# C\n", "by": "headings", "level": 1}),
		},
		Run: runTextSplit,
	}
}

type splitInput struct {
	source
	By        string `json:"by"`
	Separator string `json:"separator"`
	Size      int    `json:"size"`
	Overlap   int    `json:"overlap"`
	Level     int    `json:"level"`
	DropEmpty bool   `json:"dropEmpty"`
	target
}

// A part is a part of a text, as listed.
type part struct {
	Index   int     `json:"index"`
	Text    string  `json:"text"`
	Offset  int     `json:"offset"`
	Heading *string `json:"heading,omitempty"`
	Level   *int    `json:"level,omitempty"`
}

func (in *splitInput) check() error {
	sized := in.By == "characters" || in.By == "words"
	switch {
	case in.By == "separator" && in.Separator == "":
		return fault.New(fault.InputInvalid, `by is "separator", and "separator" is missing or empty: want the text to split at`)
	case sized && in.Size < 1:
		return fault.New(fault.InputInvalid, `by is %q, and "size" is missing: want how many %s a part has at most`, in.By, in.By)
	case in.Overlap < 0 || in.Overlap*2 > in.Size && in.Overlap > 0:
		return fault.New(fault.InputInvalid, "overlap is %d: want at most half of size, which is %d", in.Overlap, in.Size)
	}
	return nil
}

func runTextSplit(ctx context.Context, task *action.Task) (action.Result, error) {
	in := splitInput{By: "paragraphs", Level: 6}
	if err := decode(task, &in); err != nil {
		return action.Result{}, err
	}
	if err := in.check(); err != nil {
		return action.Result{}, err
	}
	text, name, err := in.text(ctx, task)
	if err != nil {
		return action.Result{}, err
	}
	l := &partList{ctx: ctx, in: &in, text: text, most: maxParts}
	if in.Output != "file" {
		l.parts = []any{}
		l.use = l.keep
		if err := l.split(); err != nil {
			return action.Result{}, err
		}
		return action.Result{Output: map[string]any{"parts": l.parts, "count": l.count}}, nil
	}
	l.most = maxPartsFile
	info, err := storeOutput(ctx, task, in.fileName(stem(name, "parts")+".jsonl"), typeJSONLines, func(w *bufio.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		l.use = func(p part) error { return enc.Encode(p) }
		return l.split()
	})
	if err != nil {
		return action.Result{}, err
	}
	return action.Result{Output: map[string]any{"file": info.Hash, "name": info.Name, "count": l.count}}, nil
}

// A partList collects the parts of a text.
type partList struct {
	ctx   context.Context
	in    *splitInput
	text  string
	parts []any
	use   func(part) error
	count int
	most  int
	bytes int
	// Offsets in code points are counted from the last part on, not from the
	// start.
	atByte, atRune int
}

func (l *partList) keep(p part) error {
	if l.bytes += len(p.Text); l.bytes > maxResultInMemory {
		return resultTooLarge("the list of parts")
	}
	out := map[string]any{"index": int64(p.Index), "text": p.Text, "offset": int64(p.Offset)}
	if p.Heading != nil {
		out["heading"], out["level"] = *p.Heading, int64(*p.Level)
	}
	l.parts = append(l.parts, out)
	return nil
}

// add adds the part text[from:to]. from never decreases, even where parts
// overlap.
func (l *partList) add(from, to int, heading *string, level int) error {
	text := l.text[from:to]
	if l.in.DropEmpty && strings.TrimSpace(text) == "" {
		return nil
	}
	if l.count%1024 == 0 && l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	if l.count++; l.count > l.most {
		return fault.New(fault.OutputTooLarge, "the text has more than %d parts: make them larger, or ask for \"output\": \"file\"", l.most)
	}
	l.atRune += utf8.RuneCountInString(l.text[l.atByte:from])
	l.atByte = from
	p := part{Index: l.count - 1, Text: text, Offset: l.atRune}
	if heading != nil {
		p.Heading, p.Level = heading, &level
	}
	return l.use(p)
}

func (l *partList) split() error {
	switch l.in.By {
	case "separator":
		for from := 0; ; {
			at := strings.Index(l.text[from:], l.in.Separator)
			if at < 0 {
				return l.add(from, len(l.text), nil, 0)
			}
			if err := l.add(from, from+at, nil, 0); err != nil {
				return err
			}
			from += at + len(l.in.Separator)
		}
	case "lines":
		return eachLine(l.text, func(from, to, _ int) error { return l.add(from, to, nil, 0) })
	case "headings":
		return l.headings()
	case "characters":
		return l.characters()
	case "words":
		return l.words()
	default:
		return l.paragraphs()
	}
}

// eachLine calls use for each line, with its end and the start of the next one.
func eachLine(text string, use func(from, to, next int) error) error {
	for from := 0; from < len(text); {
		to, next := len(text), len(text)
		if at := strings.IndexByte(text[from:], '\n'); at >= 0 {
			to, next = from+at, from+at+1
		}
		if to > from && next > to && text[to-1] == '\r' {
			to--
		}
		if err := use(from, to, next); err != nil {
			return err
		}
		from = next
	}
	return nil
}

func (l *partList) paragraphs() error {
	begin, end := -1, 0
	flush := func() error {
		if begin < 0 {
			return nil
		}
		from := begin
		begin = -1
		return l.add(from, end, nil, 0)
	}
	err := eachLine(l.text, func(from, to, _ int) error {
		if strings.TrimSpace(l.text[from:to]) == "" {
			return flush()
		}
		if begin < 0 {
			begin = from
		}
		end = to
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// headings splits before Markdown headings that begin with #, outside fenced
// code.
func (l *partList) headings() error {
	begin, heading, level, fence := 0, "", 0, ""
	err := eachLine(l.text, func(from, to, _ int) error {
		line := l.text[from:to]
		if mark := fenceOf(line); mark != "" {
			switch {
			case fence == "":
				fence = mark
			case strings.HasPrefix(mark, fence) && strings.TrimRight(strings.TrimSpace(line), fence[:1]) == "":
				fence = ""
			}
			return nil
		}
		title, n := headingOf(line)
		if fence != "" || n == 0 || n > l.in.Level {
			return nil
		}
		if from > begin || level > 0 {
			h := heading
			if err := l.add(begin, from, &h, level); err != nil {
				return err
			}
		}
		begin, heading, level = from, title, n
		return nil
	})
	if err != nil || begin == len(l.text) {
		return err
	}
	return l.add(begin, len(l.text), &heading, level)
}

// fenceOf returns the characters with which a line opens or closes a fenced
// code block.
func fenceOf(line string) string {
	trimmed := strings.TrimLeft(line, " ")
	if len(line)-len(trimmed) > 3 || len(trimmed) < 3 || trimmed[0] != '`' && trimmed[0] != '~' {
		return ""
	}
	run := len(trimmed) - len(strings.TrimLeft(trimmed, trimmed[:1]))
	if run < 3 || trimmed[0] == '`' && strings.Contains(trimmed[run:], "`") {
		return ""
	}
	return trimmed[:run]
}

func headingOf(line string) (title string, level int) {
	trimmed := strings.TrimLeft(line, " ")
	rest := strings.TrimLeft(trimmed, "#")
	level = len(trimmed) - len(rest)
	if len(line)-len(trimmed) > 3 || level < 1 || level > 6 || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
		return "", 0
	}
	title = strings.TrimSpace(rest)
	if closed := strings.TrimRight(title, "#"); closed == "" || strings.HasSuffix(closed, " ") || strings.HasSuffix(closed, "\t") {
		title = strings.TrimSpace(closed)
	}
	return title, level
}

// characters splits into parts of at most size characters as readers see them
// (grapheme clusters). window holds the end of each character of the current
// part.
func (l *partList) characters() error {
	size, overlap := l.in.Size, l.in.Overlap
	from, window := 0, make([]int, 0, min(size, len(l.text))+1)
	it := graphemes.FromString(l.text)
	for it.Next() {
		if len(window) == size {
			end := l.breakAfter(window, max(size/2, overlap))
			if err := l.add(from, window[end-1], nil, 0); err != nil {
				return err
			}
			keep := end - overlap
			from = window[keep-1]
			window = append(window[:0], window[keep:]...)
		}
		window = append(window, it.End())
	}
	if len(window) == 0 {
		return nil
	}
	return l.add(from, len(l.text), nil, 0)
}

// breakAfter returns how many characters of a full part to keep: those up to
// the last white space if that leaves more than least, else all.
func (l *partList) breakAfter(window []int, least int) int {
	for n := len(window); n > least; n-- {
		r, _ := utf8.DecodeLastRuneInString(l.text[:window[n-1]])
		if unicode.IsSpace(r) {
			return n
		}
	}
	return len(window)
}

// words splits into parts of at most size words, each with what follows it.
func (l *partList) words() error {
	size, overlap := l.in.Size, l.in.Overlap
	from, starts := 0, make([]int, 0, min(size, len(l.text))+1) // of the words of the current part
	it := words.FromString(l.text)
	for it.Next() {
		if !strings.ContainsFunc(it.Value(), inWord) {
			continue
		}
		if len(starts) == size {
			if err := l.add(from, it.Start(), nil, 0); err != nil {
				return err
			}
			starts = append(starts[:0], starts[size-overlap:]...)
			if from = it.Start(); overlap > 0 {
				from = starts[0]
			}
		}
		starts = append(starts, it.Start())
	}
	if len(l.text) == 0 {
		return nil
	}
	return l.add(from, len(l.text), nil, 0)
}
