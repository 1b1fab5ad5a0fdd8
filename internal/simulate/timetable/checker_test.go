// SPDX-License-Identifier: Apache-2.0

package timetable

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of these tests, on every machine
)

// TestCalendar: the times around changes of the clock, as people expect them.
func TestCalendar(t *testing.T) {
	for _, row := range []struct{ zone, cron, from, until, want string }{
		{"Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z", "2026-03-29T03:00@01:00 2026-03-30T02:30@00:30"},
		{"Europe/Berlin", "*/30 2-3 * * *", "2026-03-28T23:00:00Z", "2026-03-29T12:00:00Z", "2026-03-29T03:00@01:00 2026-03-29T03:30@01:30"},
		{"Europe/Berlin", "30 2 * * *", "2026-10-24T22:00:00Z", "2026-10-25T22:00:00Z", "2026-10-25T02:30@00:30"},
		{"Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00:00Z", "2026-04-05T12:00:00Z", "2026-04-05T01:45@14:45"},
		{"UTC", "5 0-6/3 * * 0,6", "2026-01-02T12:00:00Z", "2026-01-03T05:00:00Z", "2026-01-03T00:05@00:05 2026-01-03T03:05@03:05"},
	} {
		from, until := micros(t, row.from), micros(t, row.until)
		c, err := newCalendar(when{Cron: row.cron, Zone: row.zone}, from)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range c.within(from, until) {
			got = append(got, o.Name+"@"+time.UnixMicro(o.At).UTC().Format("15:04"))
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s in %s: %v, want %s", row.cron, row.zone, got, row.want)
		}
	}
}

func micros(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

// runs are those that are active.
type runs map[string]bool

func (r runs) Ended(_, run string) bool { return !r[run] }

func (runs) Removed(string, string) bool { return false }

// TestRules: the checker accepts what a scheduler may do, and names each thing that it may not. A
// step is a write of the schedule, with its history, or something that happens to a run.
func TestRules(t *testing.T) {
	const created = int64(1_767_225_600_000_000) // 2026-01-01
	record := func(more string) string {
		return fmt.Sprintf(`{"id":"s","name":"s","when":{"every":60000000000,"zone":"UTC","catchUp":"last","overlap":"skip"},"created":%d%s}`, created, more)
	}
	name := func(n int64) string { return utcName(created + n*minute) }
	waits := func(after int64, queue ...int64) string {
		var list []string
		for _, n := range queue {
			list = append(list, fmt.Sprintf(`{"name":%q,"at":%d}`, name(n), created+n*minute))
		}
		return record(fmt.Sprintf(`,"after":%d,"queue":[%s]`, created+after*minute, strings.Join(list, ",")))
	}
	fired := func(result string, n int64, count int, run string) string {
		return fmt.Sprintf(`{"name":%q,"last":%q,"count":%d,"result":%q,"run":%q}`, name(n), name(n+int64(count)-1), count, result, run)
	}
	failed := func(n int64, code string) string {
		return fmt.Sprintf(`{"name":%q,"last":%q,"count":1,"result":"failed","code":%q}`, name(n), name(n), code)
	}
	labels := func(n int64) map[string]string {
		return map[string]string{labelSchedule: "s", labelOccurrence: name(n)}
	}
	active := runs{}
	for want, steps := range map[string][]any{
		"": {waits(1, 1), "ask 1", "start 1 a", []string{waits(1), fired("started", 1, 1, "a")}, "at 2", waits(2, 2), []string{waits(2), fired("skipped", 2, 1, "a")},
			"end a", "at 3", waits(3, 3), "ask 3", "start 3 b", []string{waits(3), fired("started", 3, 1, "b")}, "at 9", []string{waits(9, 9), fired("skipped", 4, 5, "")}},
		"too early":                            {"at 0", waits(1, 1)},
		"where it does not occur":              {record(fmt.Sprintf(`,"after":%d`, created+minute+1))},
		"is left out":                          {"at 5", waits(1, 1)},
		"are to be missed":                     {"at 5", waits(5, 1, 2, 3, 4, 5)},
		"wait, want the end of":                {waits(1, 1, 2)},
		"what is stored waits in the order":    {"ask 1"},
		"which was not asked for":              {waits(1, 1), "start 1 a"},
		"has started runs":                     {waits(1, 1), "ask 1", "start 1 a", "start 1 b"},
		"by the journals":                      {waits(1, 1), []string{waits(1), fired("started", 1, 1, "a")}},
		"is skipped, and has run":              {waits(1, 1), "ask 1", "start 1 a", []string{waits(1), fired("skipped", 1, 1, "a")}},
		"is not active":                        {waits(1, 1), []string{waits(1), fired("skipped", 1, 1, "")}},
		"while run a is active":                {waits(1, 1), "ask 1", "start 1 a", []string{waits(1), fired("started", 1, 1, "a")}, "at 2", waits(2, 2), "ask 2"},
		"and its start was answered":           {waits(1, 1), []string{waits(1), fired("failed", 1, 1, "")}},
		"which is transient":                   {waits(1, 1), "ask 1", "refuse 1 STORE_FULL", []string{waits(1), failed(1, "STORE_FULL")}},
		"no longer wait, and its history says": {waits(1, 1), waits(1)},
		"it is paused, and has got to":         {record(`,"paused":1,"after":` + fmt.Sprint(created)), record(`,"paused":1,"after":` + fmt.Sprint(created+minute))},
		"it is resumed after":                  {record(`,"paused":1,"after":` + fmt.Sprint(created)), "at 7", waits(5)},
		"waits no longer":                      {waits(1, 1), "ask 1", "start 1 a", []string{record(`,"paused":1,"after":` + fmt.Sprint(created+minute)), fired("skipped", 1, 1, "")}},
		"which no schedule started last":       {"cancel a"},
		"cancels run a, and its policy":        {waits(1, 1), "ask 1", "start 1 a", "cancel a"},
		"nothing has become of":                {"at 5", "rest"},
		"and could start since":                {waits(1, 1), "rest", "at 2", "rest"},
		"is deleted, and there is none":        {"delete", "delete"},
		"its times are others":                 {strings.Replace(waits(0), "60000000000", "70000000000", 1)},
		"is deleted, and starts":               {waits(1, 1), "delete", "ask 1"},
		"there is no such schedule or key":     {"ask of another"},
		"begins with times that have passed":   {"new " + strings.Replace(waits(1, 1), `"name":"s"`, `"name":"n"`, 1)},
		"which was not stored as one to start": {waits(1, 1), "ask 1", "start 1 a", []string{waits(1), fired("started", 1, 1, "a")}, "ask 2 anyway", "start 2 c"},
	} {
		clear(active)
		c, now := New(active), created
		write := func(id string, data ...string) error {
			var writes []Write
			for _, f := range data[1:] {
				writes = append(writes, Write{Account: "a", Kind: "schedule.firing", Data: []byte(f)})
			}
			return c.Wrote(now, append(writes, Write{Account: "a", Kind: "schedule", ID: id, Data: []byte(data[0])}))
		}
		err := write("s", waits(0))
		now += minute
		for _, step := range steps {
			if err != nil {
				t.Fatalf("%s: before its last step: %v", want, err)
			}
			var n int64
			var word, run string
			text, _ := step.(string)
			_, _ = fmt.Sscan(text, &word, &n, &run)
			switch word {
			case "at":
				now = created + n*minute
			case "ask":
				l := labels(n)
				if strings.HasSuffix(text, "another") {
					l[labelSchedule] = "another"
				}
				if err = c.Asked("a", l, now); strings.HasSuffix(text, "anyway") {
					err = nil
				}
			case "start":
				active[run] = true
				err = c.Started("a", labels(n), run, now)
			case "refuse":
				c.Refused("a", labels(n), run)
			case "end":
				clear(active)
			case "cancel":
				err = c.Cancels("a", "a")
			case "rest":
				err = c.Rests(now)
			case "delete":
				err = c.Wrote(now, []Write{{Account: "a", Kind: "schedule", ID: "s", Delete: true}})
			case "new":
				err = write("n", strings.TrimPrefix(text, "new "))
			default:
				if list, ok := step.([]string); ok {
					err = write("s", list...)
				} else {
					err = write("s", text)
				}
			}
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestKeyRules: the same of the starts with a key. A step is a write of the key's record, or
// something that happens to a run.
func TestKeyRules(t *testing.T) {
	const now = int64(1_767_225_600_000_000)
	queue := func(requests ...string) string { // each is a name and its policy, or its delay in µs
		var list, details []string
		for _, r := range requests {
			name, how, _ := strings.Cut(r, " ")
			how, again := strings.CutSuffix(how, " a day later")
			at := now
			if again {
				at += keyLifetime
			}
			detail := fmt.Sprintf(`{"ifActive":%q}`, how)
			if strings.HasPrefix(how, "+") {
				detail = fmt.Sprintf(`{"ifActive":"queue","notBefore":%d}`, now+5*minute)
			}
			list = append(list, fmt.Sprintf(`{"name":%q,"at":%d}`, name, at))
			details = append(details, fmt.Sprintf("%q:%s", name, detail))
		}
		return fmt.Sprintf(`{"id":"k","key":"k","queue":[%s],"requests":{%s}}`, strings.Join(list, ","), strings.Join(details, ","))
	}
	active := runs{}
	for want, steps := range map[string][]string{
		"": {queue("r1 queue"), "ask r1", "start r1 a", queue(), queue("r2 queue"), "end", "ask r2", "start r2 b", queue(), queue("r3 skip"), queue(),
			queue("r4 queue"), queue("r5 cancelPrevious"), "cancel b", "end", "ask r5", "refuse r5 RECIPE_INVALID", queue(), queue("r6 +"), queue("r7 +"), "later", "ask r7", "start r7 c", queue(), "end", queue("once-1 queue"), "ask once-1", "start once-1 d", queue(), "end",
			"day", queue("once-1 queue a day later"), "ask once-1", "start once-1 e", queue(), "end", "delete"},
		"waits without a request":                 {`{"id":"k","key":"k","queue":[{"name":"r1","at":1}]}`},
		"two requests came at once":               {queue("r1 queue", "r2 queue")},
		"and nothing has become of it":            {queue("r1 queue"), queue()},
		"request r2 no longer waits":              {queue("r1 queue"), queue("r1 queue", "r2 skip"), queue("r1 queue")},
		"request r1 no longer waits, and nothing": {queue("r1 queue"), queue("r2 +")},
		"request r1 no longer waits":              {queue("r1 queue"), "ask r1", "refuse r1 STORE_FULL", queue()},
		"is forgotten while":                      {queue("r1 queue"), "delete"},
		"run \"a\" may be active":                 {queue("r1 queue"), "ask r1", "start r1 a", queue(), "delete"},
		"while run a is active":                   {queue("r1 queue"), "ask r1", "start r1 a", queue(), queue("r2 queue"), "ask r2"},
		"µs too early":                            {queue("r1 +"), "ask r1"},
		"waits in the order":                      {queue("r1 queue"), queue("r1 queue", "r2 queue"), "ask r2"},
		"for once-1":                              {queue("once-1 queue"), "ask once-1", "start once-1 a", queue(), "end", "day", queue("once-1 queue"), "ask once-1", "start once-1 b"},
		"I13":                                     {queue("r1 queue"), "ask r1", "start r1 a", "start r1 b"},
		"its policy is":                           {queue("r1 queue"), "ask r1", "start r1 a", queue(), queue("r2 queue"), "cancel a"},
		"and could start since":                   {queue("r1 queue"), "rest", "later", "rest"},
	} {
		clear(active)
		c, clock := New(active), now
		var err error
		for _, step := range steps {
			if err != nil {
				t.Fatalf("%s: before its last step: %v", want, err)
			}
			var word, name, run string
			_, _ = fmt.Sscan(step, &word, &name, &run)
			labels := map[string]string{labelKey: "k", labelOccurrence: name}
			switch word {
			case "ask":
				err = c.Asked("a", labels, clock)
			case "refuse":
				c.Refused("a", labels, run)
			case "start":
				active[run] = true
				err = c.Started("a", labels, run, clock)
			case "end":
				clear(active)
			case "cancel":
				err = c.Cancels("a", name)
			case "later":
				clock += 10 * minute
			case "day":
				clock += keyLifetime
			case "rest":
				err = c.Rests(clock)
			case "delete":
				err = c.Wrote(clock, []Write{{Account: "a", Kind: "start.key", ID: "k", Delete: true}})
			default:
				err = c.Wrote(clock, []Write{{Account: "a", Kind: "start.key", ID: "k", Data: []byte(step)}})
			}
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
