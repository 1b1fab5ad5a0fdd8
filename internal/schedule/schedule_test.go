// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of this test, on every machine

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
)

func table(t interface{ Fatal(...any) }, s Spec, anchor int64) *Table {
	tab, err := New(&s, anchor)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func utc(text string) int64 {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return at.UnixMicro()
}

// The hour that is repeated and the hour that is lost, in zones of several kinds.
func TestDaylightSaving(t *testing.T) {
	for _, tt := range []struct{ cron, zone, after, want string }{
		{"30 1 * * *", "Europe/London", "2026-10-24T12:00:00Z", "2026-10-25T01:30=00:30Z 2026-10-26T01:30=01:30Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T02:30=00:30Z 2026-10-26T02:30=01:30Z"},
		// From the second of both hours on, the times of the first one have been.
		{"*/20 2 * * *", "Europe/Berlin", "2026-10-25T01:05:00Z", "2026-10-26T02:00=01:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00=01:00Z 2026-03-30T02:30=00:30Z"},
		{"*/20 2,3 * * *", "Europe/Berlin", "2026-03-29T00:50:00Z", "2026-03-29T03:00=01:00Z 2026-03-29T03:20=01:20Z"},
		{"15 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T03:00=07:00Z 2026-03-09T02:15=06:15Z"},
		// Half an hour.
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T10:00:00Z", "2026-04-05T01:45=14:45Z 2026-04-06T01:45=15:15Z"},
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T10:00:00Z", "2026-10-04T02:30=15:30Z 2026-10-05T02:15=15:15Z"},
		// A whole day.
		{"0 12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z", "2011-12-31T00:00=10:00Z 2011-12-31T12:00=22:00Z"},
	} {
		tab := table(t, Spec{Cron: tt.cron, Zone: tt.zone}, utc("2010-01-01T00:00:00Z"))
		after, got := utc(tt.after), []string{}
		for range strings.Count(tt.want, "=") {
			o, ok := tab.Next(after)
			if !ok {
				break
			}
			got = append(got, o.Name+"="+time.UnixMicro(o.At).UTC().Format("15:04Z"))
			after = o.At
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s in %s after %s:\n got %s\nwant %s", tt.cron, tt.zone, tt.after, strings.Join(got, " "), tt.want)
		}
	}
}

// A fieldOf draws a field of an expression, and what it matches.
func fieldOf(t *rapid.T, name string, low, high int) (text string, matches func(int) bool) {
	a := rapid.IntRange(low, high).Draw(t, name)
	b := rapid.IntRange(a, high).Draw(t, name+" to")
	step := rapid.IntRange(2, min(20, high-low)).Draw(t, name+" step")
	switch rapid.IntRange(0, 3).Draw(t, name+" kind") {
	case 0:
		return "*", func(int) bool { return true }
	case 1:
		return fmt.Sprintf("%d,%d", a, b), func(n int) bool { return n == a || n == b }
	case 2:
		return fmt.Sprintf("%d-%d", a, b), func(n int) bool { return n >= a && n <= b }
	}
	return fmt.Sprintf("*/%d", step), func(n int) bool { return (n-low)%step == 0 }
}

// Against a model that walks the clock minute by minute: a local time happens when it is first
// reached, and those that the clock passes over happen when it has.
func TestCronModel(t *testing.T) {
	places := [][2]string{ // a zone, and a time shortly before its clock is changed, if it ever is
		{"Europe/Berlin", "2026-03-28T00:00:00Z"}, {"Europe/Berlin", "2026-10-24T00:00:00Z"}, {"America/New_York", "2026-03-07T00:00:00Z"}, {"America/New_York", "2026-10-31T00:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T00:00:00Z"}, {"Australia/Lord_Howe", "2026-10-03T00:00:00Z"}, {"America/Santiago", "2026-09-05T00:00:00Z"}, {"America/Santiago", "2026-04-04T00:00:00Z"},
		{"Asia/Kolkata", "2026-02-27T00:00:00Z"}, {"UTC", "2026-02-27T00:00:00Z"},
	}
	rapid.Check(t, func(t *rapid.T) {
		minute, minuteFits := fieldOf(t, "minute", 0, 59)
		hour, hourFits := fieldOf(t, "hour", 0, 23)
		dom, domFits := fieldOf(t, "dom", 1, 31)
		dow, dowFits := fieldOf(t, "dow", 0, 6)
		fits := func(w time.Time) bool {
			day := domFits(w.Day()) && dowFits(int(w.Weekday()))
			if dom != "*" && dow != "*" {
				day = domFits(w.Day()) || dowFits(int(w.Weekday()))
			}
			return minuteFits(w.Minute()) && hourFits(w.Hour()) && day
		}
		place := rapid.SampledFrom(places).Draw(t, "place")
		zone, begin := place[0], utc(place[1])
		end := begin + (60 * time.Hour).Microseconds()
		loc, _ := time.LoadLocation(zone)
		var want []Occurrence
		top := wallOf(time.UnixMicro(begin).In(loc)) // the latest local time that has been
		for at := begin + time.Minute.Microseconds(); at <= end; at += time.Minute.Microseconds() {
			wall := wallOf(time.UnixMicro(at).In(loc))
			happens := false
			for top.Before(wall) {
				top = top.Add(time.Minute)
				happens = happens || fits(top)
			}
			if happens {
				want = append(want, Occurrence{wall.Format("2006-01-02T15:04"), at})
			}
		}
		expr := fmt.Sprintf("%s %s %s * %s", minute, hour, dom, dow)
		tab := table(t, Spec{Cron: expr, Zone: zone}, begin)
		got, n, some := tab.between(begin, end, 10_000)
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("%s in %s: occurrence %d is %v, want %v", expr, zone, i, got[i], want[i])
			}
		}
		if n != len(want) || n != len(got) || some {
			t.Fatalf("%s in %s: %d occurrences, want %d", expr, zone, n, len(want))
		}
	})
}

// X251: however often and however late a schedule is looked at, also after restarts and with a clock
// that goes back, each occurrence is started or skipped, and no more than once.
func TestEveryOccurrenceOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := rapid.SampledFrom([]Spec{
			{Cron: "*/7 * * * *", Zone: "Europe/Berlin"}, {Cron: "30 2 * * *", Zone: "Europe/Berlin"}, {Every: 10 * time.Second}, {Every: 17 * time.Minute}, {At: "2026-10-25T02:30", Zone: "Europe/Berlin"},
		}).Draw(t, "spec")
		spec.CatchUp = rapid.SampledFrom(CatchUps).Draw(t, "catchUp")
		spec.CatchUpMax = rapid.IntRange(1, 30).Draw(t, "max")
		spec.Jitter = time.Duration(rapid.SampledFrom([]int{0, 5, 300}).Draw(t, "jitter")) * time.Second
		begin := utc("2026-10-24T22:00:00Z")
		tab := table(t, spec, begin)
		s := State{After: begin}
		now, furthest := begin, begin
		var started []Occurrence
		skipped := 0
		for range rapid.IntRange(1, 20).Draw(t, "looks") {
			now += int64(rapid.SampledFrom([]time.Duration{time.Second, 9 * time.Second, 50 * time.Second, 7 * time.Minute, 3 * time.Hour, -time.Hour, -30 * time.Hour}).Draw(t, "step")) / 1000
			furthest = max(furthest, now)
			text, err := json.Marshal(s) // a restart
			if err != nil {
				t.Fatal(err)
			}
			s = State{}
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			before := s.After
			for _, k := range tab.Step("sched_1", &s, now) {
				if skipped += k.Count; k.Reason == Missed && now-k.Last.At <= (Grace+spec.Jitter).Microseconds() && spec.CatchUp != CatchUpLast {
					t.Fatalf("at %d: %+v is skipped, which is not late", now, k)
				}
				if k.Last.At <= before || k.First.At > k.Last.At {
					t.Fatalf("skipped %+v after %d", k, before)
				}
			}
			if s.After < before {
				t.Fatal("it went back")
			}
			if n := len(s.Queue); n > 0 && spec.CatchUp == CatchUpLast && now-s.Queue[0].At > (Grace+spec.Jitter).Microseconds() && n != 1 {
				t.Fatalf("last starts %d", n)
			}
			for _, o := range s.Queue {
				if late := now - o.At - spec.Jitter.Microseconds(); tab.Due("sched_1", o) > now || spec.CatchUp == CatchUpNone && late > Grace.Microseconds() {
					t.Fatalf("%+v starts at %d", o, now)
				}
			}
			started, s.Queue = append(started, s.Queue...), nil
		}
		all, n, _ := tab.between(begin, s.After, 1<<20)
		if n != len(started)+skipped {
			t.Fatalf("%d occurrences, %d started and %d skipped", n, len(started), skipped)
		}
		known := map[string]bool{}
		for _, o := range all {
			known[o.Name] = true
		}
		for _, o := range started {
			if !known[o.Name] {
				t.Fatalf("%v is started twice, or is none", o)
			}
			delete(known, o.Name)
		}
		if due, ok := tab.NextDue("sched_1", &s); ok && due <= now {
			t.Fatalf("the next one was due at %d, it is %d", due, now)
		}
	})
}

// What a policy makes of three days without a server.
func TestCatchUp(t *testing.T) {
	begin := utc("2026-11-01T00:30:00Z")
	for _, tt := range []struct {
		policy CatchUp
		most   int
		want   string
	}{
		{CatchUpNone, 0, "starts [], skips 72 from 2026-11-01T01:00 to 2026-11-04T00:00"},
		{CatchUpLast, 0, "starts [2026-11-04T00:00], skips 71 from 2026-11-01T01:00 to 2026-11-03T23:00"},
		{CatchUpAll, 2, "starts [2026-11-03T23:00 2026-11-04T00:00], skips 70 from 2026-11-01T01:00 to 2026-11-03T22:00"},
	} {
		tab := table(t, Spec{Cron: "@hourly", CatchUp: tt.policy, CatchUpMax: tt.most}, begin)
		s := State{After: begin}
		skipped := tab.Step("a", &s, utc("2026-11-04T00:30:00Z"))
		names := []string{}
		for _, o := range s.Queue {
			names = append(names, o.Name)
		}
		got := fmt.Sprintf("starts %v", names)
		for _, k := range skipped {
			got += fmt.Sprintf(", skips %d from %s to %s", k.Count, k.First.Name, k.Last.Name)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.policy, got, tt.want)
		}
	}
	// Ten years are not counted minute by minute.
	tab := table(t, Spec{Cron: "* * * * *", CatchUp: CatchUpAll, CatchUpMax: MaxQueue}, begin)
	s := State{After: begin}
	if skipped := tab.Step("a", &s, begin+(10*365*24*time.Hour).Microseconds()); len(s.Queue) != MaxQueue || !skipped[0].More || s.Queue[MaxQueue-1].Name != "2036-10-29T00:30" {
		t.Errorf("%d, %+v", len(s.Queue), skipped)
	}
	s.After -= time.Hour.Microseconds()
	if skipped := tab.Step("a", &s, s.After+time.Hour.Microseconds()); len(skipped) != 1 || skipped[0].Reason != QueueFull || skipped[0].Count != 60 {
		t.Errorf("a full queue: %+v", skipped)
	}
}

func TestOverlap(t *testing.T) {
	for _, tt := range []struct {
		policy Overlap
		active bool
		queued int
		want   string
	}{
		{OverlapSkip, false, 1, "0 "}, {OverlapSkip, true, 1, "1 active"}, {OverlapAllow, true, 2, "0 "}, {OverlapQueue, true, 2, "2 "},
		{OverlapCancel, true, 2, "1 superseded"}, {OverlapCancel, true, 1, "3 "}, {OverlapCancel, false, 2, "0 "},
	} {
		s := State{Queue: make([]Occurrence, tt.queued)}
		if v, r := s.First(tt.policy, tt.active); strconv.Itoa(int(v))+" "+string(r) != tt.want {
			t.Errorf("%+v: %d %s", tt, v, r)
		}
	}
}

// What is wrong is refused with its column, and with what was probably meant.
func TestBadSpecs(t *testing.T) {
	for _, tt := range []struct {
		spec        Spec
		what, remed string
	}{
		{Spec{Cron: "30 6 * * MOM-FRI"}, "cron: column 10:", "Did you mean MON?"},
		{Spec{Cron: "0 9,25 * * *"}, `cron: column 5: "25" is no hour: want 0 to 23`, ""},
		{Spec{Cron: " 61 * * * *"}, "cron: column 2:", ""},
		{Spec{Cron: "0 0 * FEBR *"}, "cron: column 7:", "Did you mean FEB?"},
		{Spec{Cron: "0 0 1, * *"}, "cron: column 7:", ""},
		{Spec{Cron: "*/0 * * * *"}, "cron: column 1:", ""},
		{Spec{Cron: "1-5-9 * * * *"}, "cron: column 1:", ""},
		{Spec{Cron: "0 6 * *"}, "cron: column 8: there are 4 fields, want 5: the day of the week is missing", ""},
		{Spec{Cron: "0 0 6 * * *"}, "cron: column 11: there are 6 fields, want 5", "Leave out the seconds"},
		{Spec{Cron: "CRON_TZ=UTC 0 6 * * *"}, "cron: column 1: the time zone", "--zone"},
		{Spec{Cron: "TZ=0"}, "cron: column 1: the time zone", "--zone"},
		{Spec{Cron: "@dayly"}, `cron: column 1: there is no name "@dayly"`, "Did you mean @daily?"},
		{Spec{Cron: "@every 5m"}, "cron: column 1: @every", "--every"},
		{Spec{Cron: "0 0 30 2 *"}, "a day that does not exist", ""},
		{Spec{Cron: strings.Repeat("1,", 200) + "1 * * * *"}, "at most 256", ""},
		{Spec{Cron: "   "}, "cron: column 1: there is no expression", ""},
		{Spec{Cron: "@daily", Zone: "Europe/Berlln"}, `no time zone "Europe/Berlln"`, "Did you mean Europe/Berlin?"},
		{Spec{Cron: "@daily", Zone: "Local"}, `no time zone "Local"`, "IANA"},
		{Spec{Cron: "@daily", Zone: "../../etc/passwd"}, `no time zone`, "IANA"},
		{Spec{At: "tomorrow"}, `at: "tomorrow" is no time`, ""},
		{Spec{Every: time.Second}, "every: want whole seconds from 10s", ""},
		{Spec{Every: time.Hour, Cron: "@daily"}, "want one of cron, every and at", ""},
		{Spec{Every: time.Hour, CatchUp: "some"}, "catchUp: want last, none or all", ""},
		{Spec{Every: time.Hour, Overlap: "maybe"}, "overlap: want skip", ""},
		{Spec{Every: time.Hour, CatchUpMax: 1001}, "catchUpMax: want 1 to 1000", ""},
		{Spec{Every: time.Hour, Jitter: 2 * time.Hour}, "jitter: want whole seconds up to 1h0m0s", ""},
	} {
		_, err := New(&tt.spec, 0)
		e := new(fault.Error)
		if !errors.As(err, &e) || e.Code != fault.RequestInvalid || !strings.Contains(e.Msg, tt.what) || !strings.Contains(e.Remedy, tt.remed) {
			t.Errorf("%+v: %v; remedy %q; want %q and %q", tt.spec, err, e.Remedy, tt.what, tt.remed)
		}
	}
}

// What crontab does not have.
func TestExtendedCron(t *testing.T) {
	for expr, want := range map[string]string{
		"0 0 L * *": "2026-11-30T00:00", "0 0 * * FRI#2": "2026-11-13T00:00", "0 0 * * FRI#L": "2026-11-27T00:00", "0 0 15W * *": "2026-11-16T00:00",
		"0 0 29 2 *": "2028-02-29T00:00", "@Weekly": "2026-11-08T00:00", "0 0 13 * 5": "2026-11-06T00:00", "0 0 * * 7": "2026-11-08T00:00", "0 0 * * FRI-MON": "2026-11-06T00:00",
	} {
		if o, ok := table(t, Spec{Cron: expr}, 0).Next(utc("2026-11-05T12:00:00Z")); !ok || o.Name != want {
			t.Errorf("%s: %v, want %s", expr, o, want)
		}
	}
}

// A delay is the same on every machine, and within its bound.
func TestJitter(t *testing.T) {
	tab := table(t, Spec{Cron: "@hourly", Jitter: 10 * time.Minute}, 0)
	seen := map[int64]bool{}
	for i := range 100 {
		o, _ := tab.Next(int64(i) * time.Hour.Microseconds())
		d := tab.Due("sched_1", o) - o.At
		if seen[d] = true; d < 0 || d > (10*time.Minute).Microseconds() || d != table(t, Spec{Cron: "@hourly", Jitter: 10 * time.Minute}, 5).Due("sched_1", o)-o.At {
			t.Errorf("%v: %d", o, d)
		}
	}
	if len(seen) < 90 {
		t.Errorf("%d different delays", len(seen))
	}
}

func FuzzCron(f *testing.F) {
	for _, seed := range []string{"* * * * *", "TZ=0", "CRON_TZ=", "0 0 L-3 * MON#2", "@daily", "1-5/2,7 */3 ? JAN-MAR 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := Spec{Cron: text, Zone: "Europe/Berlin"}
		tab, err := New(&s, 0)
		if err != nil {
			return
		}
		at := utc("2026-03-28T00:00:00Z")
		for range 5 {
			o, ok := tab.Next(at)
			if !ok {
				return
			}
			if o.At <= at {
				t.Fatalf("%q: %d is not after %d", text, o.At, at)
			}
			at = o.At
		}
	})
}
