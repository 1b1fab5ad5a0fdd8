// SPDX-License-Identifier: Apache-2.0

package moderation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/pattern"
)

// maxMatching bounds what the patterns may cost for one value, in instructions × bytes.
const maxMatching = 2_000_000_000

// terms flags values that have listed terms in them, or that match patterns. A text costs time
// that does not depend on the number of terms.
type terms struct {
	category string
	// Terms by their first word. Those with one word that may have any end are in prefixes.
	phrases  map[string][][]string
	prefixes map[string]bool
	longest  int // bytes of the longest prefix
	// parts are terms of scripts that do not separate words.
	parts    []string
	patterns []pattern.Pattern
	insts    int
}

func newTerms(c *Config) (*terms, error) {
	if len(c.Terms)+len(c.Patterns) == 0 {
		return nil, fmt.Errorf("want terms or patterns")
	}
	if len(c.Terms) > maxTerms || len(c.Patterns) > maxPatterns {
		return nil, fmt.Errorf("%d terms and %d patterns: want at most %d and %d", len(c.Terms), len(c.Patterns), maxTerms, maxPatterns)
	}
	t := &terms{category: c.Category, phrases: map[string][][]string{}, prefixes: map[string]bool{}}
	for i, term := range c.Terms {
		if err := t.add(term); err != nil {
			return nil, fmt.Errorf("terms[%d]: %w", i, err)
		}
	}
	for i, src := range c.Patterns {
		p, err := pattern.Compile(src)
		if err != nil {
			return nil, fmt.Errorf("patterns[%d]: %w", i, err)
		}
		if p.MatchString("") {
			return nil, fmt.Errorf("patterns[%d] matches every text", i)
		}
		t.patterns = append(t.patterns, p)
		t.insts += p.Insts
	}
	return t, nil
}

func (t *terms) add(term string) error {
	text, any := strings.CutSuffix(term, "*")
	text = strings.ToLower(plain(text))
	words := strings.FieldsFunc(text, between)
	switch {
	case len(term) > maxTermBytes:
		return fmt.Errorf("%d bytes: want at most %d", len(term), maxTermBytes)
	case len(words) == 0:
		return fmt.Errorf("%.40q has no letters or digits", term)
	case strings.ContainsFunc(text, unspaced):
		t.parts = append(t.parts, strings.TrimSpace(text))
	case any && len(words) == 1:
		t.prefixes[words[0]] = true
		t.longest = max(t.longest, len(words[0]))
	case any:
		return fmt.Errorf("%.40q: only a single word may end with *", term)
	default:
		t.phrases[words[0]] = append(t.phrases[words[0]], words)
	}
	return nil
}

// plain returns a text in which what looks alike is alike: compatible characters are one, and
// characters that are not shown are gone.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) {
			return -1
		}
		return r
	}, norm.NFKC.String(text))
}

// between reports whether a character stands between words.
func between(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.M, r)
}

// unspaced reports whether a character is of a script that does not separate words.
func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// Check implements action.ModerationGateway.
func (t *terms) Check(ctx context.Context, m *action.Moderation) (action.Verdict, error) {
	size := 0
	for _, text := range m.Texts {
		size += len(text)
	}
	if t.insts*size > maxMatching {
		return action.Verdict{}, fault.New(fault.ValueTooLarge, "the %s has %d bytes of text, too many for the patterns of a moderator", m.Phase, size)
	}
	for _, text := range m.Texts {
		if ctx.Err() != nil {
			return action.Verdict{}, context.Cause(ctx)
		}
		if t.matches(text) {
			return action.Verdict{Flagged: true, Categories: []string{t.category}, Reason: "it has a listed term"}, nil
		}
	}
	return action.Verdict{}, nil
}

func (t *terms) matches(text string) bool {
	text = plain(text)
	for i := range t.patterns {
		if t.patterns[i].MatchString(text) {
			return true
		}
	}
	text = strings.ToLower(text)
	for _, part := range t.parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	words := strings.FieldsFunc(text, between)
	for i, word := range words {
		for _, phrase := range t.phrases[word] {
			if len(phrase) <= len(words)-i && slices.Equal(phrase, words[i:i+len(phrase)]) {
				return true
			}
		}
		for n := 1; n <= min(len(word), t.longest); n++ {
			if t.prefixes[word[:n]] {
				return true
			}
		}
	}
	return false
}
