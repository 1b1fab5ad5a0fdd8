// SPDX-License-Identifier: Apache-2.0

package fault

import "fmt"

// Severity is whether a diagnostic prevents a recipe from running.
type Severity uint8

// The severities. The zero value is an error, so a forgotten field is safe.
const (
	SeverityError Severity = iota
	SeverityWarning
)

func (s Severity) String() string {
	if s == SeverityWarning {
		return "warning"
	}
	return "error"
}

// A Pos is a place in a source text. Line and Col count from 1, Col in
// characters (runes); 0 = unknown. Len is the length to underline, in runes.
type Pos struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line"`
	Col  int    `json:"column"`
	Len  int    `json:"length,omitempty"`
}

func (p Pos) String() string {
	file := p.File
	if file == "" {
		file = "input"
	}
	if p.Line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d:%d", file, p.Line, p.Col)
}

// A Place is another position that is relevant to a diagnostic, with the
// reason.
type Place struct {
	Pos Pos    `json:"pos"`
	Msg string `json:"message"`
}

// A Diagnostic is one problem at one place of a source text.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	// Rule refines Code for programs and for suppression, for example
	// "unknown-field" or "cycle". Kebab case, stable.
	Rule string `json:"rule"`
	// Msg says what was found and what was expected, in one sentence.
	Msg string `json:"message"`
	Pos Pos    `json:"pos"`
	// Hint is a suggestion, such as `did you mean "steps"?`.
	Hint string `json:"hint,omitempty"`
	// Pointer is the JSON pointer of the value (RFC 6901).
	Pointer string  `json:"pointer,omitempty"`
	Related []Place `json:"related,omitempty"`
}

// String returns the one-line form: file:line:col: severity CODE/rule: message;
// hint.
func (d Diagnostic) String() string {
	s := fmt.Sprintf("%s: %s %s/%s: %s", d.Pos, d.Severity, d.Code, d.Rule, d.Msg)
	if d.Hint != "" {
		s += "; " + d.Hint
	}
	return s
}
