// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// Limits of matching. One search takes time linear in text times pattern. All
// searches together can still take quadratic time, so they share a time limit.
const (
	maxProgram   = 5_000
	maxMatchWork = 1 << 29 // bytes × instructions of one search
	maxMatching  = 20 * time.Second
)

// textReplace returns the action text-replace, which replaces parts of a text.
func textReplace() action.Action {
	return action.Action{
		Name:        "text-replace",
		Version:     "1.0.0",
		Description: "Replaces parts of a text, literally or by regular expressions, one rule after the other.",
		Cost:        1,
		Input: sourceSchema(`
			"rules": {
				"type": "array", "minItems": 1, "maxItems": 100, "description": "Applied in their order, each to what the one before left.",
				"items": {
					"type": "object",
					"properties": {
						"find": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "What to look for."},
						"replace": {"type": "string", "maxLength": 10000, "default": "", "description": "What to put there. With regex, $1 or ${name} stand for groups and $$ for a dollar sign."},
						"regex": {"type": "boolean", "default": false, "description": "true reads find as a regular expression (RE2 syntax: no look-around, no back references)."},
						"ignoreCase": {"type": "boolean", "default": false, "description": "true finds upper and lower case alike."},
						"first": {"type": "boolean", "default": false, "description": "true replaces the first occurrence only."}
					},
					"required": ["find"],
					"additionalProperties": false
				}
			},
			`+outputProp, "rules"),
		Output: schema(`{
			"type": "object",
			"properties": {
				"text": {"type": "string", "description": "The new text; missing with output: file."},
				"file": {"type": "string", "format": "file", "description": "With output: file. The new text."},
				` + fileNameProp + `,
				"count": {"type": "integer", "minimum": 0, "description": "How many occurrences were replaced."},
				"counts": {"type": "array", "items": {"type": "integer", "minimum": 0}, "description": "The same for each rule."}
			},
			"required": ["count", "counts"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("text", "A text in UTF-8.", "text/*"),
			OutputTypes: types("text", "The new text.", "text/plain", "text/markdown"),
			BranchConditions: []action.BranchCondition{
				condition("is-changed", `output.count > 0`, "Something was replaced."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "20s"},
		},
		Limits: []string{"Texts up to 16 MiB.", "100 rules; patterns of up to 1,000 characters.", "A result of 32 MiB.", "Matching for up to 20 seconds."},
		Faults: []fault.Code{fault.InputInvalid, fault.FileNotFound, fault.FileInvalid, fault.FileUnsupported, fault.FileTooLarge, fault.ValueTooLarge, fault.OutputTooLarge},
		Examples: []action.Example{
			example("A word for a word.", map[string]any{"text": "colour by colour", "rules": []any{map[string]any{"find": "colour", "replace": "color"}}}),
			example("Dates the other way round, then spaces.", map[string]any{"text": "on  2026-11-21", "rules": []any{
				map[string]any{"find": `(\d{4})-(\d\d)-(\d\d)`, "replace": "$3.$2.$1", "regex": true},
				map[string]any{"find": " +", "replace": " ", "regex": true},
			}}),
		},
		Run: runTextReplace,
	}
}

type replaceRule struct {
	Find       string `json:"find"`
	Replace    string `json:"replace"`
	Regex      bool   `json:"regex"`
	IgnoreCase bool   `json:"ignoreCase"`
	First      bool   `json:"first"`
}

func runTextReplace(ctx context.Context, task *action.Task) (action.Result, error) {
	var in struct {
		source
		Rules []replaceRule `json:"rules"`
		target
	}
	if err := decode(task, &in); err != nil {
		return action.Result{}, err
	}
	text, name, err := in.text(ctx, task)
	if err != nil {
		return action.Result{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, maxMatching, fault.New(fault.ValueTooLarge,
		"matching took more than %s: make the patterns simpler, or split the text first", maxMatching))
	defer cancel()
	total, counts := 0, []any{}
	for i, rule := range in.Rules {
		var n int
		if text, n, err = rule.apply(ctx, text); err != nil {
			return action.Result{}, fault.Wrap(fault.CodeOf(err), err, "rules[%d]: %s", i, fault.Message(err))
		}
		total += n
		counts = append(counts, int64(n))
	}
	if name == "" {
		name = "text.txt"
	}
	return textResult(ctx, task, in.target, text, name, "text/plain", map[string]any{"count": int64(total), "counts": counts})
}

func (r *replaceRule) apply(ctx context.Context, text string) (string, int, error) {
	if r.Find == "" {
		return "", 0, fault.New(fault.InputInvalid, `"find" is empty: want what to look for`)
	}
	if !r.Regex && !r.IgnoreCase {
		return r.literal(text)
	}
	find, work, err := r.compile()
	if err != nil {
		return "", 0, err
	}
	fixed, uses := find.template(r)
	if len(text)*work > maxMatchWork {
		return "", 0, fault.New(fault.ValueTooLarge, "the pattern %.60q is too large for a text of %d bytes: make it simpler, or split the text first", r.Find, len(text))
	}
	var out []byte
	n, from, last := 0, 0, -1 // last is where the last match ended
	for at := 0; at <= len(text) && (n == 0 || !r.First); {
		if ctx.Err() != nil {
			return "", 0, context.Cause(ctx)
		}
		m := find.from(text, at)
		if m == nil {
			break
		}
		// As in package regexp, there is no empty match directly after another match.
		accept := m[1] != at || m[0] != last
		if last = m[1]; m[1] == at {
			_, width := utf8.DecodeRuneInString(text[at:])
			at += max(width, 1)
		} else {
			at = m[1]
		}
		if !accept {
			continue
		}
		// Compute the size before building the result: one match can be the whole
		// text, and occur in the replacement thousands of times.
		size := len(out) + m[0] - from + fixed + len(text) - m[1]
		for group, times := range uses {
			size += times * (m[2*group+1] - m[2*group])
		}
		if size > maxResultInMemory {
			return "", 0, resultTooLarge("the new text")
		}
		out = append(out, text[from:m[0]]...)
		if r.Regex {
			out = find.first.ExpandString(out, r.Replace, text, m)
		} else {
			out = append(out, r.Replace...)
		}
		n, from = n+1, m[1]
	}
	return string(append(out, text[from:]...)), n, nil
}

// A patternFinder searches for a pattern from any offset of a text. Package
// regexp can do that only for all matches at once, which cannot be interrupted.
type patternFinder struct {
	first *regexp.Regexp
	// afterRune skips one code point, the one before the offset, because ^, \b and
	// the like look at that.
	afterRune *regexp.Regexp
}

func (f *patternFinder) from(text string, at int) []int {
	if at == 0 {
		return f.first.FindStringSubmatchIndex(text)
	}
	_, width := utf8.DecodeLastRuneInString(text[:at])
	m := f.afterRune.FindStringSubmatchIndex(text[at-width:])
	if m == nil {
		return nil
	}
	m = m[2:] // the pattern is the first group
	for i := range m {
		if m[i] >= 0 {
			m[i] += at - width
		}
	}
	return m
}

// template returns the length of a replacement without its groups, and how
// often it uses each group.
func (f *patternFinder) template(r *replaceRule) (fixed int, uses []int) {
	if !r.Regex {
		return len(r.Replace), nil
	}
	groups := f.first.NumSubexp() + 1
	m := make([]int, 2*groups) // of groups that are empty
	length := func() int { return len(f.first.ExpandString(nil, r.Replace, "x", m)) }
	fixed, uses = length(), make([]int, groups)
	for group := range uses {
		m[2*group+1] = 1
		uses[group] = length() - fixed
		m[2*group+1] = 0
	}
	return fixed, uses
}

func (r *replaceRule) literal(text string) (string, int, error) {
	n := strings.Count(text, r.Find)
	if r.First {
		n = min(n, 1)
	}
	if size := len(text) + n*(len(r.Replace)-len(r.Find)); size > maxResultInMemory {
		return "", 0, resultTooLarge("the new text")
	}
	return strings.Replace(text, r.Find, r.Replace, n), n, nil
}

// compile compiles the rule's pattern and returns the size of its program.
func (r *replaceRule) compile() (*patternFinder, int, error) {
	pattern := r.Find
	if !r.Regex {
		pattern = regexp.QuoteMeta(pattern)
	}
	if r.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	first, err := regexp.Compile(pattern)
	if err != nil {
		return nil, 0, fault.Wrap(fault.InputInvalid, err, "%.60q is no regular expression: %s", r.Find, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, 0, fault.Wrap(fault.InputInvalid, err, "%.60q is no regular expression: %v", r.Find, err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(prog.Inst) > maxProgram {
		return nil, 0, fault.New(fault.InputInvalid, "the regular expression %.60q is too large: repeat less", r.Find)
	}
	later, err := regexp.Compile(`\A(?s:.)(?s:.*?)(` + pattern + `)`)
	if err != nil {
		return nil, 0, fault.Wrap(fault.InputInvalid, err, "the regular expression %.60q is nested too deeply", r.Find)
	}
	return &patternFinder{first, later}, len(prog.Inst), nil
}
