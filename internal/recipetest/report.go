// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/roux-engine/roux/internal/view"
)

// Report is the text of a test that has failed: what differs, each with its place.
func (r *Result) Report() string {
	var lines []string
	if r.Problem != "" {
		lines = append(lines, r.Pos.String()+": "+r.Problem)
	}
	for i := range r.Mismatches {
		lines = append(lines, strings.TrimSuffix(r.Mismatches[i].String(), "\n"))
	}
	lines = append(lines, r.Hints...)
	return strings.Join(lines, "\n")
}

// Counts counts the tests of files by their outcome. broken is how many files could not be run.
func Counts(files []*File) (passed, failed, skipped, broken int) {
	for _, f := range files {
		if len(f.Diags) > 0 && len(f.Results) == 0 {
			broken++
		}
		for i := range f.Results {
			switch f.Results[i].Outcome {
			case Passed:
				passed++
			case Failed:
				failed++
			default:
				skipped++
			}
		}
	}
	return passed, failed, skipped, broken
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string       `xml:"name,attr"`
	Class   string       `xml:"classname,attr"`
	File    string       `xml:"file,attr"`
	Line    int          `xml:"line,attr,omitempty"`
	Time    string       `xml:"time,attr"`
	Failure *junitReason `xml:"failure"`
	Error   *junitReason `xml:"error"`
	Skipped *junitReason `xml:"skipped"`
}

type junitReason struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the results as JUnit XML, which services for CI read.
func WriteJUnit(w io.Writer, files []*File) error {
	out := junitSuites{}
	total := 0.0
	for _, f := range files {
		s := junitSuite{Name: f.File}
		took := 0.0
		if len(f.Diags) > 0 && len(f.Results) == 0 {
			s.Tests, s.Errors = 1, 1
			s.Cases = append(s.Cases, junitCase{Name: "the file", Class: f.File, File: f.File, Time: "0.000", Error: &junitReason{f.Diags[0].Msg, view.Clean(f.Format())}})
		}
		for i := range f.Results {
			c, ms := f.Results[i].junit(&s), f.Results[i].TookMS
			s.Cases = append(s.Cases, c)
			took += ms
		}
		s.Time = seconds(took)
		total += took
		out.Tests, out.Failures, out.Errors, out.Skipped = out.Tests+s.Tests, out.Failures+s.Failures, out.Errors+s.Errors, out.Skipped+s.Skipped
		out.Suites = append(out.Suites, s)
	}
	out.Time = seconds(total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(ms float64) string { return fmt.Sprintf("%.3f", ms/1000) }

func (r *Result) junit(s *junitSuite) junitCase {
	c := junitCase{Name: r.Test, Class: r.File, File: r.File, Line: r.Pos.Line, Time: seconds(r.TookMS)}
	s.Tests++
	switch {
	case r.Outcome == Skipped:
		s.Skipped++
		c.Skipped = &junitReason{Message: r.Reason}
	case r.Outcome == Failed && r.Problem != "":
		s.Errors++
		c.Error = &junitReason{r.Problem, view.Clean(r.Report())}
	case r.Outcome == Failed:
		s.Failures++
		first, _, _ := strings.Cut(r.Mismatches[0].String(), "\n")
		c.Failure = &junitReason{first, view.Clean(r.Report())}
	}
	return c
}

// WriteTAP writes the results in the Test Anything Protocol, version 14.
func WriteTAP(w io.Writer, files []*File) error {
	var b strings.Builder
	n := 0
	line := func(ok bool, name, directive, why string) {
		n++
		word := "ok"
		if !ok {
			word = "not ok"
		}
		fmt.Fprintf(&b, "%s %d - %s%s\n", word, n, strings.NewReplacer("\\", "\\\\", "#", "\\#").Replace(view.OneLine(name)), directive)
		if why != "" {
			b.WriteString("  ---\n  message: |\n    " + strings.ReplaceAll(strings.TrimSpace(view.Clean(why)), "\n", "\n    ") + "\n  ...\n")
		}
	}
	for _, f := range files {
		if len(f.Diags) > 0 && len(f.Results) == 0 {
			line(false, f.File, "", f.Format())
		}
		for i := range f.Results {
			r := &f.Results[i]
			switch r.Outcome {
			case Skipped:
				line(true, f.File+": "+r.Test, " # SKIP "+view.OneLine(r.Reason), "")
			default:
				line(r.Outcome == Passed, f.File+": "+r.Test, "", r.Report())
			}
		}
	}
	_, err := fmt.Fprintf(w, "TAP version 14\n1..%d\n%s", n, b.String())
	return err
}
