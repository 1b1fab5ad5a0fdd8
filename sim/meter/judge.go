// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Gap is a time in which nothing can be expected.
type Gap struct{ From, To int64 } // µs since 1970

func (g Gap) has(at int64) bool { return g.From <= at && at < g.To }

// A Use is how much of the slots of a limit was used.
type Use struct {
	Steps     int
	Share     float64       // of the slots that could be used, those in which steps were carried out that completed
	PerSecond float64       // steps, outside of the gaps
	Restart   time.Duration // in which no server was ready
	Lease     time.Duration // of slots: a worker that was killed held them
	Lost      time.Duration // of slots: what was carried out and lost; it counts as not used
}

// Occupied judges how much of a number of slots was used, from the first request until so few steps are
// left that they cannot fill the slots, without the times in which no server was ready, and without the
// slots that a worker held which was killed. It finds such a slot by the next worker that carries out
// the step, and by the lease: what lies beyond it and a second more is no excuse.
func Occupied(spans []Span, slots int, restarts []Gap, lease time.Duration) (use Use, problems []string) {
	byStep := map[string][]Span{}
	for _, s := range spans {
		byStep[s.At] = append(byStep[s.At], s)
	}
	var done []Span
	var held []Gap
	for at, list := range byStep {
		for i, s := range list[1:] {
			if before := list[i]; before.Kind == "remote" {
				g := Gap{before.End, min(s.Begin, lapses(before.End, restarts, lease+time.Second))}
				held = append(held, g)
				if late := s.Begin - g.To; late > 0 {
					problems = append(problems, fmt.Sprintf("step %s goes on %s later than its lease and a second after its worker was killed", at, micros(late)))
				}
			}
		}
		if last := list[len(list)-1]; last.Dead || last.End == 0 {
			problems = append(problems, fmt.Sprintf("step %s was never carried out to its end", at))
		} else {
			done = append(done, last)
		}
	}
	if use.Steps = len(done); use.Steps <= 3*slots {
		return use, append(problems, fmt.Sprintf("%d steps were carried out: too few to fill %d slots", use.Steps, slots))
	}
	slices.SortFunc(done, func(x, y Span) int { return cmp.Compare(x.End, y.End) })
	all := Gap{spans[0].Begin, done[len(done)-3*slots].End}
	use.measure(all, slots, done, restarts, held)
	for _, s := range spans {
		if s.Dead && all.has(s.Begin) {
			use.Lost += micros(s.End - s.Begin)
		}
	}
	return use, problems
}

// measure goes through the times between which nothing changes.
func (u *Use) measure(all Gap, slots int, done []Span, restarts, held []Gap) {
	working := make([]Gap, len(done))
	for i, s := range done {
		working[i] = Gap{s.Begin, s.End}
	}
	times := []int64{all.From, all.To}
	for _, list := range [][]Gap{working, restarts, held} {
		for _, g := range list {
			times = append(times, g.From, g.To)
		}
	}
	slices.Sort(times)
	var could, were, open time.Duration
	for i, at := range times[1:] {
		from := times[i]
		d := micros(at - from)
		switch {
		case !all.has(from) || d == 0:
			continue
		case count(restarts, from) > 0:
			u.Restart += d
			continue
		}
		away := min(count(held, from), slots)
		open += d
		u.Lease += time.Duration(away) * d
		could += time.Duration(slots-away) * d
		were += time.Duration(min(count(working, from), slots)) * d
	}
	if could > 0 {
		u.Share = float64(were) / float64(could)
	}
	for _, s := range done {
		if all.has(s.End) && count(restarts, s.End) == 0 {
			u.PerSecond++
		}
	}
	u.PerSecond /= max(open.Seconds(), 1e-6)
}

// lapses returns when a lease has lapsed that nobody extends since a time: after a restart it is a full one.
func lapses(since int64, restarts []Gap, lease time.Duration) int64 {
	end := since + lease.Microseconds()
	for _, g := range restarts { // in their order
		if since <= g.To && g.From < end {
			end = max(end, g.To+lease.Microseconds())
		}
	}
	return end
}

func count(gaps []Gap, at int64) (n int) {
	for _, g := range gaps {
		if g.has(at) {
			n++
		}
	}
	return n
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// Of returns the calls of a provider.
func Of(spans []Span, provider string) []Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.Kind != provider })
}

// A Flow is how many tokens were used.
type Flow struct {
	Calls  int
	Tokens int64
	Minute int64   // the most in 60 s
	Share  float64 // of what was permitted from the first call on
}

// Tokens judges how many tokens a minute calls have used. No stretch of time may have more than its share
// and burst; slack is how much later than another one a call may be on its way. had is what there was to
// begin with, and gaps are the times in which no server was ready: the limit begins anew with nothing.
func Tokens(calls []Span, perMinute, burst, had int64, gaps []Gap, slack time.Duration) (f Flow, problems []string) {
	if f.Calls = len(calls); f.Calls < 2 {
		return f, []string{fmt.Sprintf("%d calls: too few to judge a limit of tokens", f.Calls)}
	}
	worst := int64(0)
	for i := range calls {
		sum, most := int64(0), int64(0)
		for _, c := range calls[i:] {
			d := c.Begin - calls[i].Begin
			if sum += c.Tokens; d < time.Minute.Microseconds() {
				most = sum
			}
			permitted := burst + perMinute*(d+slack.Microseconds())/time.Minute.Microseconds()
			worst = max(worst, sum-permitted)
		}
		f.Minute = max(f.Minute, most)
		f.Tokens += calls[i].Tokens
	}
	if worst > 0 {
		problems = append(problems, fmt.Sprintf("%d tokens a minute and a burst of %d were exceeded by %d", perMinute, burst, worst))
	}
	open := calls[len(calls)-1].Begin - calls[0].Begin
	for _, g := range gaps {
		open -= g.To - g.From
	}
	f.Share = float64(f.Tokens) / (float64(had) + float64(perMinute)*micros(open).Minutes())
	return f, problems
}

// A Trip is what calls show of a breaker.
type Trip struct {
	Calls, Failed int
	Opened        int           // how often
	Probes        int           // calls that tried the provider meanwhile
	Resumed       time.Duration // from the end of the outage to the first call that succeeded
}

// Breaker judges a breaker that opens for a time when at least min calls, and that share of all, have failed.
// The calls last less long than its window. Meanwhile one call at a time may try the provider, each after that
// time. slack is how long it takes until a caller knows of an answer, and acts on it.
func Breaker(calls []Span, share float64, least int, open time.Duration, outage Gap, slack time.Duration) (t Trip, problems []string) {
	type moment struct {
		at   int64
		ends bool
		call int
	}
	var all []moment
	resumed := false
	for i, c := range calls {
		if all = append(all, moment{c.Begin, false, i}, moment{c.End, true, i}); c.Failed {
			t.Failed++
		} else if c.Begin >= outage.To && !resumed {
			t.Resumed, resumed = micros(c.Begin-outage.To), true
		}
	}
	t.Calls = len(calls)
	slices.SortFunc(all, func(x, y moment) int { return cmp.Compare(x.at, y.at) })
	failed, of, opened, until, probe := 0, 0, int64(0), int64(0), -1
	for _, m := range all {
		switch c := calls[m.call]; {
		case m.ends && m.call == probe && c.Failed:
			opened, until, probe = m.at, m.at+open.Microseconds(), -1
		case m.ends && m.call == probe:
			failed, of, opened, probe = 0, 0, 0, -1
		case m.ends && opened == 0:
			if of++; c.Failed {
				failed++
			}
			if failed >= least && float64(failed) >= share*float64(of) && c.Failed {
				t.Opened++
				opened, until = m.at, m.at+open.Microseconds()
			}
		case m.ends || opened == 0 || m.at < opened+slack.Microseconds() && probe < 0: // it was on its way
		case probe >= 0:
			problems = append(problems, fmt.Sprintf("call %d comes while another one tries the provider", m.call))
		case m.at < until-slack.Microseconds():
			problems = append(problems, fmt.Sprintf("call %d comes %s after the breaker has opened for %s", m.call, micros(m.at-opened), open))
		default:
			t.Probes++
			probe = m.call
		}
	}
	return t, problems
}

// A Load is how many retries a provider got.
type Load struct {
	First, Retries int
	Share          float64 // of the retries that were permitted until the last one, those that came
}

// Retries judges that there are at no time more retries than a share of the first attempts, and what a floor
// permits a second since a time, with a burst. A retry is a call of a step that has called before.
func Retries(calls []Span, share, floor, burst float64, since int64, slack time.Duration) (l Load, problems []string) {
	seen := map[string]bool{}
	var retries []Span
	var first []int64
	for _, c := range calls {
		if seen[c.At] {
			retries = append(retries, c)
		} else {
			seen[c.At], first = true, append(first, c.Begin)
		}
	}
	l.First, l.Retries = len(first), len(retries)
	earned := 0 // first attempts so far, with those that are on their way
	for i, c := range retries {
		for earned < len(first) && first[earned] <= c.Begin+slack.Microseconds() {
			earned++
		}
		permitted := share*float64(earned) + floor*micros(c.Begin-since).Seconds()
		l.Share = float64(i+1) / permitted
		if over := float64(i+1) - permitted - burst - floor*slack.Seconds(); over > 0 {
			problems = append(problems, fmt.Sprintf("%d retries of %d first attempts: %.1f more than permitted", i+1, earned, over))
		}
	}
	return l, problems
}
