// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/netresearch/go-cron"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/spell"
)

// maxCron is how long an expression may be.
const maxCron = 256

// searchYears is how far the next occurrence is looked for: the longest gap is that of 29
// February on one day of the week, 40 years when a century leaves out a leap year.
const searchYears = 41

// extended are the options that crontab does not have: 5#2, 5#L, L, L-3, 15W.
const extended = cron.DowNth | cron.DowLast | cron.DomL | cron.DomW

// parser is that of crontab: where both days are restricted, one of them is enough.
var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom | extended).WithMaxSearchYears(searchYears)

// macros are the names that stand for an expression.
var macros = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// A field is one of the five of an expression.
type field struct {
	name, want string
	words      []string
}

var (
	months   = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	weekdays = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
	fields   = []field{
		{"minute", "0 to 59", nil}, {"hour", "0 to 23", nil}, {"day of the month", "1 to 31, L or a day and W", nil},
		{"month", "1 to 12 or JAN to DEC", months}, {"day of the week", "0 to 7 or SUN to SAT", weekdays},
	}
	item = regexp.MustCompile(`\S+`)
	word = regexp.MustCompile(`[A-Za-z]+`)
)

// parseCron reads an expression. An error names the column, from 1, of what is wrong.
func parseCron(text string) (cron.Schedule, error) {
	if len(text) > maxCron {
		return nil, fault.New(fault.RequestInvalid, "cron: %d bytes are too many: want at most %d", len(text), maxCron)
	}
	trimmed := strings.TrimSpace(text)
	if strings.HasPrefix(trimmed, "@") {
		if macros[strings.ToLower(trimmed)] != "" {
			return parser.Parse(macros[strings.ToLower(trimmed)])
		}
		return nil, badName(trimmed, strings.Index(text, "@")+1)
	}
	at := item.FindAllStringIndex(text, -1)
	for i, span := range at[:min(len(at), len(fields))] {
		if err := checkField(i, text[span[0]:span[1]], span[0]+1); err != nil {
			return nil, err
		}
	}
	if len(at) != len(fields) {
		return nil, badCount(text, at)
	}
	s, err := parser.Parse(strings.Join(strings.Fields(text), " "))
	if err != nil {
		return nil, badCron(1, err.Error(), "")
	}
	return s, nil
}

func badCron(column int, what, remedy string) error {
	e := fault.New(fault.RequestInvalid, "cron: column %d: %s", column, what)
	e.Remedy = "Write minute, hour, day of the month, month and day of the week, such as \"30 6 * * MON-FRI\"."
	if remedy != "" {
		e.Remedy = remedy + " " + e.Remedy
	}
	return e
}

func badName(name string, column int) error {
	if strings.HasPrefix(strings.ToLower(name), "@every") {
		return badCron(column, "@every is no time of the clock", "Set every (--every) to an interval such as 15m.")
	}
	var known []string
	for m := range macros {
		known = append(known, m)
	}
	slices.Sort(known)
	remedy := "The names are " + strings.Join(known, ", ") + "."
	if near := spell.Nearest(strings.ToLower(name), known); near != "" {
		remedy = "Did you mean " + near + "?"
	}
	return badCron(column, fmt.Sprintf("there is no name %.32q", name), remedy)
}

// badCount says what a wrong number of fields may come from.
func badCount(text string, at [][]int) error {
	column := len(strings.TrimRight(text, " \t")) + 1
	if len(at) > len(fields) {
		column = at[len(fields)][0] + 1
	}
	what := fmt.Sprintf("there are %d fields, want 5", len(at))
	switch {
	case len(at) == 0:
		return badCron(1, "there is no expression", "")
	case len(at) < len(fields):
		return badCron(column, what+": the "+fields[len(at)].name+" is missing", "")
	case len(at) == len(fields)+1:
		return badCron(column, what, "Leave out the seconds, which come first elsewhere; for less than a minute set every (--every).")
	}
	return badCron(column, what, "")
}

// checkField checks a field, each element of its list by itself.
func checkField(i int, text string, column int) error {
	if i == 0 && strings.Contains(text, "TZ=") {
		return badCron(column, "the time zone is no part of the expression", "Set zone (--zone) instead.")
	}
	f := &fields[i]
	for _, element := range strings.Split(text, ",") {
		whole := []string{"*", "*", "*", "*", "*"}
		whole[i] = element
		if _, err := parser.Parse(strings.Join(whole, " ")); err != nil || element == "" || strings.ContainsAny(element, "= \t") {
			remedy := ""
			for _, w := range word.FindAllString(element, -1) {
				if len(f.words) == 0 || slices.Contains(f.words, strings.ToUpper(w)) {
					continue
				}
				if near := spell.Nearest(strings.ToUpper(w), f.words); near != "" {
					remedy = "Did you mean " + near + "?"
				}
			}
			return badCron(column, fmt.Sprintf("%.32q is no %s: want %s, *, a range such as 1-5, or a step such as */2", element, f.name, f.want), remedy)
		}
		column += len(element) + 1
	}
	return nil
}
