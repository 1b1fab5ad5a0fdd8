// SPDX-License-Identifier: Apache-2.0

package timetable

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	minute = 60_000_000 // µs
	day    = 24 * 60    // minutes
)

// when is what a record says of the times of a schedule.
type when struct {
	Cron       string        `json:"cron"`
	Every      time.Duration `json:"every"`
	At         string        `json:"at"`
	Zone       string        `json:"zone"`
	CatchUp    string        `json:"catchUp"`
	CatchUpMax int           `json:"catchUpMax"`
	Overlap    string        `json:"overlap"`
	Jitter     time.Duration `json:"jitter"`
}

// An occurrence is a time at which a schedule occurs. Its name and its time are as stored.
type occurrence struct {
	Name string `json:"name"`
	At   int64  `json:"at"` // UTC µs
}

// A calendar lists the times of one schedule. It goes through them minute by minute, as a clock on
// the wall does: a minute that this clock has shown already does not occur again, and those that it
// leaves out occur together when it shows a later one.
type calendar struct {
	when    when
	zone    *time.Location
	created int64
	fields  [5]func(int) bool // of a cron expression
	once    int64             // minute on the wall of a schedule that occurs once, by local time

	listed int64 // the minute up to which all is listed, UTC
	shown  int64 // the latest minute that the clock has shown
	list   []occurrence
}

func newCalendar(w when, created int64) (c *calendar, err error) {
	c = &calendar{when: w, created: created, listed: created/minute - 2*day}
	if c.zone, err = time.LoadLocation(w.Zone); err != nil {
		return nil, err
	}
	c.shown = c.wall(c.listed)
	switch {
	case w.Cron != "":
		parts := strings.Fields(w.Cron)
		if len(parts) != len(c.fields) {
			return nil, fmt.Errorf("the expression %q has %d fields", w.Cron, len(parts))
		}
		for i, part := range parts {
			if c.fields[i], err = field(part); err != nil {
				return nil, err
			}
		}
	case w.At != "":
		if at, err := time.Parse(time.RFC3339, w.At); err == nil {
			c.list = []occurrence{{utcName(at.UnixMicro()), at.UnixMicro()}}
			break
		}
		at, err := time.Parse("2006-01-02T15:04", w.At)
		if err != nil {
			return nil, err
		}
		c.once = at.Unix() / 60
	}
	return c, nil
}

// field reads a field of a cron expression: numbers, ranges and steps.
func field(text string) (func(int) bool, error) {
	in := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		span, step, stepped := strings.Cut(part, "/")
		first, last, ranged := strings.Cut(span, "-")
		from, to, every := 0, 59, 1
		var err error
		if span != "*" {
			if from, err = strconv.Atoi(first); err != nil {
				return nil, err
			}
			if to = from; ranged {
				if to, err = strconv.Atoi(last); err != nil {
					return nil, err
				}
			}
		}
		if stepped {
			if every, err = strconv.Atoi(step); err != nil {
				return nil, err
			}
		}
		for n := from; n <= to; n += every {
			in[n] = true
		}
	}
	return func(n int) bool { return in[n] }, nil
}

func utcName(at int64) string { return time.UnixMicro(at).UTC().Format("2006-01-02T15:04:05.999999Z") }

// wall is what the clock on the wall shows at a minute, in minutes.
func (c *calendar) wall(utc int64) int64 {
	_, offset := time.Unix(utc*60, 0).In(c.zone).Zone()
	return utc + int64(offset/60)
}

// matches reports whether a minute on the wall is one of the schedule.
func (c *calendar) matches(wall int64) bool {
	if c.when.Cron == "" {
		return wall == c.once
	}
	t := time.Unix(wall*60, 0).UTC()
	return c.fields[0](t.Minute()) && c.fields[1](t.Hour()) && c.fields[2](t.Day()) && c.fields[3](int(t.Month())) && c.fields[4](int(t.Weekday()))
}

// extend lists what occurs up to a time.
func (c *calendar) extend(until int64) {
	if every := c.when.Every.Microseconds(); every > 0 {
		for at := c.created + int64(len(c.list)+1)*every; at <= until; at += every {
			c.list = append(c.list, occurrence{utcName(at), at})
		}
		return
	}
	if c.when.Cron == "" && len(c.list) > 0 {
		return // it has occurred
	}
	for c.listed < until/minute {
		c.listed++
		shows := c.wall(c.listed)
		for wall := c.shown + 1; wall <= shows; wall++ {
			if !c.matches(wall) {
				continue
			}
			name := utcName(c.listed * minute)
			if c.when.Cron != "" {
				name = time.Unix(shows*60, 0).UTC().Format("2006-01-02T15:04")
			}
			c.list = append(c.list, occurrence{name, c.listed * minute})
			break
		}
		c.shown = max(c.shown, shows)
	}
}

// within returns what occurs after a time, up to another one.
func (c *calendar) within(after, until int64) []occurrence {
	c.extend(until)
	first := func(t int64) int {
		i, _ := slices.BinarySearchFunc(c.list, t, func(o occurrence, t int64) int {
			if o.At > t {
				return 1
			}
			return -1
		})
		return i
	}
	if until <= after {
		return nil
	}
	return c.list[first(after):first(until)]
}

// next returns the first time after another one, if it is within three days.
func (c *calendar) next(after int64) (at int64, ok bool) {
	for until := after; until <= after+3*day*minute; until += 6 * 60 * minute {
		if list := c.within(after, until); len(list) > 0 {
			return list[0].At, true
		}
	}
	return 0, false
}
