// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/pattern"
)

// values are the inputs of a step as texts. That of a file is its hash.
type values map[string]string

// read checks the inputs of a step and returns them as texts. The messages never quote a value,
// because it may be a secret.
func (s *Spec) read(input json.RawMessage) (values, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(input, &given); err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "the input is not an object")
	}
	v := values{}
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		p := s.Parameters[name]
		raw := given[name]
		if raw == nil {
			raw = p.Default
		}
		delete(given, name)
		if raw == nil {
			return nil, fault.New(fault.InputMissing, "input %q is missing", name)
		}
		text, err := p.text(raw)
		if err != nil {
			return nil, fault.New(fault.InputInvalid, "input %q: %s", name, fault.Message(err))
		}
		v[name] = text
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		return nil, fault.New(fault.InputInvalid, "there is no input %q", name)
	}
	return v, nil
}

// text checks a value and returns it as an argument has it.
func (p *Parameter) text(raw json.RawMessage) (string, error) {
	bad := func(want string) (string, error) { return "", fault.New(fault.InputInvalid, "want %s", want) }
	switch p.kind() {
	case typeInteger:
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			return bad("a whole number")
		}
		if p.Min != nil && n < *p.Min || p.Max != nil && n > *p.Max {
			return bad("a number " + p.rangeText())
		}
		return strconv.FormatInt(n, 10), nil
	case typeBoolean:
		if text := string(raw); text == "true" || text == "false" {
			return text, nil
		}
		return bad("true or false")
	}
	var text string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return bad("a text")
	}
	switch n := utf8.RuneCountInString(text); {
	case strings.Contains(text, "\x00"):
		return bad("a text without the character NUL, which no argument can have")
	case !utf8.ValidString(text):
		return bad("text in UTF-8")
	case n > p.maxLength():
		return bad("at most " + strconv.Itoa(p.maxLength()) + " characters")
	case len(text) > maxText:
		return bad("at most " + strconv.Itoa(maxText) + " bytes in UTF-8")
	case p.Enum != nil && !slices.Contains(p.Enum, text):
		return bad("one of " + strings.Join(p.Enum, ", "))
	}
	if p.Pattern != "" {
		re, err := pattern.Compile(anchored(p.Pattern))
		if err != nil || !re.MatchString(text) {
			return bad("a text that matches " + p.Pattern)
		}
	}
	return text, nil
}

func (p *Parameter) maxLength() int {
	if p.MaxLength == 0 {
		return defaultText
	}
	return p.MaxLength
}

func (p *Parameter) rangeText() string {
	var parts []string
	if p.Min != nil {
		parts = append(parts, "from "+strconv.FormatInt(*p.Min, 10))
	}
	if p.Max != nil {
		parts = append(parts, "up to "+strconv.FormatInt(*p.Max, 10))
	}
	return strings.Join(parts, " ")
}

// argv returns the arguments after the program. Each text of the operator becomes one argument,
// as it is, and each parameter one argument, whatever its value is; a value that a program could
// take for an option is refused, unless the operator has written -- before it, or permits it.
func (s *Spec) argv(v values) ([]string, error) {
	args := []string{}
	ended := false // by --
	add := func(text string) error {
		name, ok := whole(text)
		if !ok {
			ended = ended || text == "--"
			args = append(args, text)
			return nil
		}
		p := s.Parameters[name]
		value := v[name]
		if p.kind() == typeFile {
			value = p.at(name)
		}
		if strings.HasPrefix(value, "-") && !ended && !p.LeadingDash {
			return fault.New(fault.InputInvalid, "input %q begins with -, which the command could take for an option; the operator can write -- before it, or leading_dash: true", name)
		}
		args = append(args, value)
		return nil
	}
	for _, part := range s.Run[1:] {
		texts := part.Args
		switch {
		case part.If == "":
			texts = []string{part.Text}
		case v[part.If] != "true":
			continue
		}
		for _, text := range texts {
			if err := add(text); err != nil {
				return nil, err
			}
		}
	}
	return args, nil
}

// environ returns the environment.
func (s *Spec) environ(v values) []string {
	env := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		text := s.Env[name]
		if of, ok := whole(text); ok {
			p := s.Parameters[of]
			if text = v[of]; p.kind() == typeFile {
				text = p.at(of)
			}
		}
		env = append(env, name+"="+text)
	}
	return env
}
