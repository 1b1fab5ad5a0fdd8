// SPDX-License-Identifier: Apache-2.0

// Package timetable judges what a scheduler has stored and started.
//
// It decides, from the records and the runs that have become durable, whether each time of a
// schedule has started at most one run, none that is to be made up for is lost, none came early
// or twice, and the policies of overlap, pause and key were kept. It has a calendar of its own and
// shares no code with the scheduler. It reads no clock, and it starts, stores and repairs nothing.
package timetable

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The labels of runs that were started by a schedule or with a key.
const (
	labelSchedule   = "roux.schedule"
	labelOccurrence = "roux.occurrence"
	labelKey        = "roux.key"
)

const (
	grace = 60_000_000 // µs: how late an occurrence may be decided about without being missed
	// patience is how long, in µs, a scheduler may wait with what it could do at once. It waits that
	// long after an error.
	patience = 31_000_000
	// remembered is how long, in µs, a start is surely known, if its run is removed meanwhile.
	remembered = 12 * 3_600_000_000
	// keyLifetime is how long, in µs, a request with an idempotency key is the same as an earlier one.
	keyLifetime = 24 * 3_600_000_000
)

// Runs are the runs of the world, by their journals.
type Runs interface {
	Ended(account, run string) bool // it has ended, or does not exist
	Removed(account, run string) bool
}

// A Write is a change of a record that has become durable.
type Write struct {
	Account, Kind, ID string
	Delete            bool
	Data              []byte
}

// Counts are what has been judged.
type Counts struct {
	Started    int64 // runs
	Missed     int64 // times at which no server ran, which start nothing
	CaughtUp   int64 // … and which started a run later
	Overlapped int64 // times that were skipped because a run was active
	Replaced   int64 // runs that were cancelled for the next one, and requests that a later one replaced
	Gaps       int64 // times that the clock of the zone left out
	Requests   int64 // with a key, that waited for their start
}

// Add adds the counts of o.
func (c *Counts) Add(o *Counts) {
	c.Started += o.Started
	c.Missed += o.Missed
	c.CaughtUp += o.CaughtUp
	c.Overlapped += o.Overlapped
	c.Replaced += o.Replaced
	c.Gaps += o.Gaps
	c.Requests += o.Requests
}

// Least is the least of the counts.
func (c *Counts) Least() int64 {
	return min(c.Started, c.Missed, c.CaughtUp, c.Overlapped, c.Replaced, c.Gaps, c.Requests)
}

// A Checker judges the schedules of a world, and the keys of its starts. The writes and starts of
// all accounts must be told to it in their order.
type Checker struct {
	runs  Runs
	books map[string]*book // by account and id
	names map[string]*book // by account and name, or key
	order []*book
	Counts
}

// New returns a checker.
func New(runs Runs) *Checker {
	return &Checker{runs: runs, books: map[string]*book{}, names: map[string]*book{}}
}

// A book is what is known of a schedule, or of a key of starts.
type book struct {
	account  string
	entry                      // as it was stored last
	calendar *calendar         // nil = a key
	runs     map[string]string // by occurrence
	asks     map[string]int64  // when these were requested
	asked    map[string]bool   // occurrences whose run was asked for at a time when it may start
	refused  map[string]string // codes of starts, by occurrence
	late     map[string]bool   // occurrences that are caught up on
	last     string            // the run that was started last
	ready    int64             // since when the first of the queue could start, in phase 2
	// written is the latest clock by which it was written: what waits may be looked at again only
	// when the clock, which may have been turned back, has come to that time once more.
	written int64
	gone    bool
}

// An entry is the record of a schedule or of a key.
type entry struct {
	ID       string              `json:"id"`
	Name     string              `json:"name"`
	Key      string              `json:"key"`
	When     when                `json:"when"`
	Paused   int64               `json:"paused"`
	Created  int64               `json:"created"`
	After    int64               `json:"after"`
	Queue    []occurrence        `json:"queue"`
	Active   string              `json:"active"`
	Requests map[string]*request `json:"requests"`
}

// A request waits in the queue of a key.
type request struct {
	IfActive  string `json:"ifActive"`
	NotBefore int64  `json:"notBefore"`
}

// A firing is an entry of the history of a schedule.
type firing struct {
	Name   string `json:"name"`
	Last   string `json:"last"`
	Count  int    `json:"count"`
	Result string `json:"result"`
	Run    string `json:"run"`
	Code   string `json:"code"`
}

func (f firing) String() string {
	return fmt.Sprintf("%s %s, %d in all, run %q", f.Result, f.Name, f.Count, f.Run)
}

func manual(name string) bool { return strings.HasPrefix(name, "now.") }

func (b *book) String() string {
	if b.Key != "" {
		return fmt.Sprintf("key %s of account %s", b.Key, b.account)
	}
	return fmt.Sprintf("schedule %s of account %s", b.Name, b.account)
}

// Wrote judges records that were written together. now is the clock of the process that wrote
// them.
func (c *Checker) Wrote(now int64, writes []Write) error {
	var firings []firing
	for i := range writes {
		if w := &writes[i]; w.Kind == "schedule.firing" && !w.Delete {
			var f firing
			if err := json.Unmarshal(w.Data, &f); err != nil {
				return err
			}
			firings = append(firings, f)
		}
	}
	for i := range writes {
		var err error
		switch w := &writes[i]; {
		case w.Kind == "schedule", w.Kind == "start.key":
			err = c.wrote(now, w, firings)
		case w.Kind == "schedule.due" && !w.Delete:
			err = c.postpones(now, w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// postpones notes by which clock it was said when there is something to do.
func (c *Checker) postpones(now int64, w *Write) error {
	var due struct{ Account, ID string }
	if err := json.Unmarshal(w.Data, &due); err != nil {
		return err
	}
	if b := c.books[due.Account+"/"+due.ID]; b != nil {
		b.written = max(b.written, now)
	}
	return nil
}

func (c *Checker) wrote(now int64, w *Write, firings []firing) error {
	b := c.books[w.Account+"/"+w.ID]
	if w.Delete {
		if b == nil || b.gone {
			return fmt.Errorf("%s of account %s is deleted, and there is none", w.ID, w.Account)
		}
		if b.gone = true; b.Key != "" {
			return c.forgets(b)
		}
		return nil
	}
	var next entry
	if err := json.Unmarshal(w.Data, &next); err != nil {
		return err
	}
	if b == nil {
		var err error
		if b, err = c.open(w, &next); err != nil {
			return err
		}
	}
	b.gone = false
	var err error
	if b.calendar == nil {
		err = c.takes(b, &next)
	} else {
		err = c.advances(b, &next, firings, now)
	}
	if err != nil {
		return fmt.Errorf("%s at %s: %w", b, utcName(now), err)
	}
	b.entry, b.written = next, max(b.written, now)
	return nil
}

// open begins a book.
func (c *Checker) open(w *Write, first *entry) (*book, error) {
	b := &book{account: w.Account, runs: map[string]string{}, asks: map[string]int64{}, asked: map[string]bool{}, refused: map[string]string{}, late: map[string]bool{}}
	b.entry.Name, b.entry.Key = first.Name, first.Key
	name := w.Account + "/schedule/" + first.Name
	if first.Key != "" {
		name = w.Account + "/key/" + first.Key
	} else {
		var err error
		if b.calendar, err = newCalendar(first.When, first.Created); err != nil {
			return nil, err
		}
		if len(first.Queue) > 0 || first.After < first.Created {
			return nil, fmt.Errorf("%s begins with times that have passed: %+v", b, *first)
		}
		b.entry = *first
	}
	c.books[w.Account+"/"+w.ID], c.names[name] = b, b
	c.order = append(c.order, b)
	return b, nil
}

// advances judges a change of a schedule.
func (c *Checker) advances(b *book, next *entry, firings []firing, now int64) error {
	var batch []occurrence
	switch {
	case next.When != b.When || next.Created != b.Created:
		return fmt.Errorf("its times are others: %+v", next.When)
	case b.Paused != 0 && next.Paused == 0: // resumed: what has been meanwhile was not missed
		if want := max(b.After, now); next.After != want {
			return fmt.Errorf("it is resumed after %s, want %s", utcName(next.After), utcName(want))
		}
	case next.After != b.After && b.Paused != 0:
		return fmt.Errorf("it is paused, and has got to %s", utcName(next.After))
	case next.After != b.After:
		batch = b.calendar.within(b.After, next.After)
		if n := len(batch); n == 0 || batch[n-1].At != next.After {
			return fmt.Errorf("it has got from %s to %s, where it does not occur", utcName(b.After), utcName(next.After))
		}
		if next.After > now {
			return fmt.Errorf("%s comes %d µs too early", batch[len(batch)-1].Name, next.After-now)
		}
		if left := b.calendar.within(next.After, now-b.When.Jitter.Microseconds()); len(left) > 0 {
			return fmt.Errorf("it has got to %s, and %s is left out", utcName(next.After), left[0].Name)
		}
	}
	queue := slices.Clone(b.Queue)
	for _, o := range next.Queue { // what users ask for comes before what is found to be due then
		if manual(o.Name) && !slices.Contains(queue, o) {
			queue = append(queue, o)
		}
	}
	if pausing := b.Paused == 0 && next.Paused != 0; pausing && len(queue) > 0 && len(firings) > 0 && firings[0].Result == "started" { // before a crash
		if err := c.fate(b, queue[0], firings[0], 0); err != nil {
			return err
		}
		queue, firings = queue[1:], firings[1:]
	}
	kept := c.keeps(b, batch, now)
	if missed := batch[:len(batch)-len(kept)]; len(missed) > 0 {
		c.Missed += int64(len(missed))
		if len(firings) == 0 || firings[0].Result != "skipped" || firings[0].Name != missed[0].Name || firings[0].Count != len(missed) ||
			len(missed) > 1 && firings[0].Last != missed[len(missed)-1].Name {
			return fmt.Errorf("%d times from %s on are to be missed, and its history says %v", len(missed), missed[0].Name, firings)
		}
		firings = firings[1:]
	}
	return c.leaves(b, next, append(queue, kept...), firings)
}

// keeps returns which times of a batch are to start runs: the end of it.
func (c *Checker) keeps(b *book, batch []occurrence, now int64) []occurrence {
	late := 0
	for _, o := range batch {
		if now-o.At-b.When.Jitter.Microseconds() > grace {
			late++
		}
		if b.calendar.when.Cron != "" && b.calendar.wall(o.At/minute)-b.calendar.wall(o.At/minute-1) > 1 {
			c.Gaps++
		}
	}
	kept := batch
	switch {
	case b.When.CatchUp == "none":
		kept = batch[late:]
	case b.When.CatchUp == "all" && late > 0:
		kept = batch[max(0, min(late, len(batch)-b.When.CatchUpMax)):]
	case b.When.CatchUp == "last" && late > 0:
		kept = batch[len(batch)-1:]
	}
	for _, o := range kept {
		if now-o.At-b.When.Jitter.Microseconds() > grace {
			b.late[o.Name] = true
		}
	}
	return kept
}

// leaves judges what has left the queue of a schedule.
func (c *Checker) leaves(b *book, next *entry, queue []occurrence, firings []firing) error {
	n := len(queue) - len(next.Queue)
	if n < 0 || !slices.Equal(queue[n:], next.Queue) {
		return fmt.Errorf("%v wait, want the end of %v", next.Queue, queue)
	}
	if b.Paused == 0 && next.Paused != 0 {
		if len(next.Queue) > 0 {
			return fmt.Errorf("it is paused, and %v wait", next.Queue)
		}
		for _, o := range queue {
			if run := b.runs[o.Name]; run != "" && !c.runs.Removed(b.account, run) {
				return fmt.Errorf("it is paused, and %s, which has run %s, waits no longer", o.Name, run)
			}
		}
		if len(queue) > 0 && (len(firings) != 1 || firings[0].Result != "skipped" || firings[0].Name != queue[0].Name || firings[0].Count != len(queue)) {
			return fmt.Errorf("it is paused while %v wait, and its history says %v", queue, firings)
		}
		return nil
	}
	if n != len(firings) {
		return fmt.Errorf("of %v, %d no longer wait, and its history says %v", queue, n, firings)
	}
	for i, f := range firings {
		o := queue[i]
		if f.Name != o.Name || f.Count != 1 {
			return fmt.Errorf("%s no longer waits, and its history says %v", o.Name, f)
		}
		if err := c.fate(b, o, f, len(queue)-i-1); err != nil {
			return err
		}
	}
	return nil
}

// transient are the codes of starts that may succeed a little later although nobody changes anything.
var transient = map[string]bool{
	"SERVICE_UNAVAILABLE": true, "STORE_FAILED": true, "STORE_FULL": true, "RATE_LIMITED": true, "STOPPING": true, "STALE_EPOCH": true,
}

// fate judges what has become of an occurrence, behind which others wait.
func (c *Checker) fate(b *book, o occurrence, f firing, behind int) error {
	run := b.runs[o.Name]
	switch f.Result {
	case "started":
		if run == "" || f.Run != run && f.Run != "" {
			return fmt.Errorf("%s has started run %q by its history, and by the journals %q", o.Name, f.Run, run)
		}
		if b.late[o.Name] {
			c.CaughtUp++
		}
		return nil
	case "failed":
		if run != "" && !c.runs.Removed(b.account, run) { // its removal frees the key of its start
			return fmt.Errorf("%s failed with %s by its history, and has run %s", o.Name, f.Code, run)
		}
		if transient[f.Code] {
			return fmt.Errorf("%s failed with %s, which is transient: it is to be tried again", o.Name, f.Code)
		}
		if code, ok := b.refused[o.Name]; !ok || code != f.Code {
			return fmt.Errorf("%s failed with %s by its history, and its start was answered %q", o.Name, f.Code, code)
		}
		return nil
	case "skipped":
		switch {
		case run != "":
			return fmt.Errorf("%s is skipped, and has run %s", o.Name, run)
		case b.last == "" || c.runs.Ended(b.account, b.last):
			return fmt.Errorf("%s is skipped, and the run before it, %q, is not active", o.Name, b.last)
		case b.When.Overlap == "skip", b.When.Overlap == "cancelPrevious" && behind > 0:
			c.Overlapped++
			return nil
		}
	}
	return fmt.Errorf("%s is %s, which its policy %s does not say", o.Name, f.Result, b.When.Overlap)
}

// of finds the book of a run by its labels; nil = no schedule and no key started it.
func (c *Checker) of(account string, labels map[string]string) (b *book, name string, err error) {
	name = labels[labelOccurrence]
	if name == "" {
		return nil, "", nil
	}
	at := account + "/schedule/" + labels[labelSchedule]
	if key := labels[labelKey]; key != "" {
		at = account + "/key/" + key
	}
	if b = c.names[at]; b == nil {
		return nil, "", fmt.Errorf("a run has labels %v, and there is no such schedule or key", labels)
	}
	return b, name, nil
}

// Asked judges that the start of a run is asked for, before it is carried out.
func (c *Checker) Asked(account string, labels map[string]string, now int64) error {
	b, name, err := c.of(account, labels)
	if b == nil {
		return err
	}
	switch {
	case b.gone:
		err = fmt.Errorf("%s is deleted, and starts %s", b, name)
	case len(b.Queue) == 0 || b.Queue[0].Name != name:
		err = fmt.Errorf("%s starts %s, and what is stored waits in the order %v", b, name, b.Queue)
	case b.Paused != 0 && !manual(name):
		err = fmt.Errorf("%s is paused and starts %s", b, name)
	case b.notBefore(name) > now: // an occurrence that waits was due when it was stored, see advances
		err = fmt.Errorf("%s starts %s %d µs too early", b, name, b.notBefore(name)-now)
	case b.When.Overlap != "allow" && b.last != "" && b.last != b.runs[name] && !c.runs.Ended(account, b.last):
		err = fmt.Errorf("%s starts %s while run %s is active", b, name, b.last)
	}
	delete(b.refused, name)
	b.asked[name] = true
	return err
}

// Refused notes how a start was refused.
func (c *Checker) Refused(account string, labels map[string]string, code string) {
	if b, name, _ := c.of(account, labels); b != nil {
		b.refused[name] = code
	}
}

// Started judges a run that has become durable. now is the clock of the process that started it.
func (c *Checker) Started(account string, labels map[string]string, run string, now int64) error {
	b, name, err := c.of(account, labels)
	if b == nil {
		return err
	}
	i := slices.IndexFunc(b.Queue, func(o occurrence) bool { return o.Name == name })
	switch other := b.runs[name]; {
	case other != "" && strings.HasPrefix(name, "once-") && i >= 0 && b.Queue[i].At-b.asks[name] >= keyLifetime: // a request with the same key, much later
	case other != "" && (!c.runs.Removed(account, other) || i >= 0 && now-b.Queue[i].At < remembered):
		return fmt.Errorf("I13: %s has started runs %s and %s for %s", b, other, run, name)
	case !b.asked[name]:
		return fmt.Errorf("%s has run %s for %s, which was not asked for", b, run, name)
	case i < 0:
		return fmt.Errorf("%s has run %s for %s, which was not stored as one to start", b, run, name)
	}
	c.Counts.Started++
	b.runs[name], b.asks[name], b.last = run, b.Queue[i].At, run
	return nil
}

// Cancels judges that a run is cancelled for the next one.
func (c *Checker) Cancels(account, run string) error {
	for _, b := range c.order {
		if b.account != account || b.last != run {
			continue
		}
		if len(b.Queue) == 0 || b.policy(b.Queue[0].Name) != "cancelPrevious" {
			return fmt.Errorf("%s cancels run %s, and its policy is %s: %v", b, run, b.When.Overlap, b.Queue)
		}
		c.Replaced++
		return nil
	}
	return fmt.Errorf("run %s of account %s is cancelled, which no schedule started last", run, account)
}

// NextDue is when something is due next, by the clock of the process; ok is false if that is not
// within three days. What waits for a run is due soon.
func (c *Checker) NextDue(now int64) (due int64, ok bool) {
	for _, b := range c.order {
		at, is := max(now, b.written)+patience, len(b.Queue) > 0
		switch {
		case b.gone || b.Paused != 0 && len(b.Queue) == 0:
			continue
		case is:
			at = max(at, b.notBefore(b.Queue[0].Name))
		case b.calendar != nil:
			at, is = b.calendar.next(b.After)
			at += b.When.Jitter.Microseconds()
		}
		if is && (!ok || at < due) {
			due, ok = at, true
		}
	}
	return due, ok
}

// Rests judges that a scheduler with nothing to do, which nothing has disturbed for a while, has
// done what it had to.
func (c *Checker) Rests(now int64) error {
	for _, b := range c.order {
		if b.gone {
			continue
		}
		if b.calendar != nil && b.Paused == 0 && now-b.written > patience { // it may have been postponed since
			if left := b.calendar.within(b.After, now-b.When.Jitter.Microseconds()-patience); len(left) > 0 {
				return fmt.Errorf("%s: nothing has become of %s at %s", b, left[0].Name, utcName(now))
			}
		}
		switch {
		case len(b.Queue) == 0, b.notBefore(b.Queue[0].Name) > now, b.When.Overlap != "allow" && b.last != "" && !c.runs.Ended(b.account, b.last):
			b.ready = 0
		case b.ready == 0:
			b.ready = now
		case now-max(b.ready, b.written) > patience:
			return fmt.Errorf("%s: %s waits, and could start since %s", b, b.Queue[0].Name, utcName(b.ready))
		}
	}
	return nil
}
