// SPDX-License-Identifier: Apache-2.0

// Package schedule decides when a schedule starts runs.
//
// It decides at which times a schedule occurs, what an occurrence is called, which occurrences
// were missed and are made up for, and what happens to one while the run before it is still
// active. A cron expression is evaluated on the local wall clock: an occurrence is named by its
// local time, so that one in the hour that is repeated in autumn happens once, and those in the
// hour that is lost in spring happen together, once, at its end.
//
// It starts nothing, stores nothing and knows no clock: times come in and go out as UTC µs.
package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/spell"
)

// CatchUp says what becomes of occurrences that were missed, because no server ran.
type CatchUp string

// The policies of catching up.
const (
	CatchUpNone CatchUp = "none" // they are skipped
	CatchUpLast CatchUp = "last" // the newest occurrence stands for all
	CatchUpAll  CatchUp = "all"  // the newest CatchUpMax start, the oldest of them first
)

// Overlap says what becomes of an occurrence while the run of the one before it is active.
type Overlap string

// The policies of overlap.
const (
	OverlapAllow  Overlap = "allow"
	OverlapSkip   Overlap = "skip"
	OverlapQueue  Overlap = "queue" // it starts when that run has ended
	OverlapCancel Overlap = "cancelPrevious"
)

// CatchUps and Overlaps are all policies, the default first.
var (
	CatchUps = []CatchUp{CatchUpLast, CatchUpNone, CatchUpAll}
	Overlaps = []Overlap{OverlapSkip, OverlapAllow, OverlapQueue, OverlapCancel}
)

// The bounds of a schedule.
const (
	MinEvery  = 10 * time.Second
	MaxEvery  = 366 * 24 * time.Hour
	MaxJitter = time.Hour
	// MaxQueue is how many occurrences wait to be started, and may be caught up on.
	MaxQueue = 1_000
	// DefaultCatchUpMax is how many occurrences CatchUpAll makes up for.
	DefaultCatchUpMax = 100
	// Grace is how late an occurrence may be looked at without being missed.
	Grace = time.Minute
	// Memory is how far back missed occurrences are looked for.
	Memory = 400 * 24 * time.Hour
)

// A Spec says when a schedule occurs. Exactly one of Cron, Every and At is set.
type Spec struct {
	Cron  string        `json:"cron,omitempty"`  // five fields, or a name such as @daily
	Every time.Duration `json:"every,omitempty"` // ns, counted from the creation of the schedule
	At    string        `json:"at,omitempty"`    // once: RFC 3339, or a local time of Zone such as 2026-12-24T18:00
	Zone  string        `json:"zone,omitempty"`  // of the IANA database; default UTC

	CatchUp    CatchUp       `json:"catchUp"`    // default last
	CatchUpMax int           `json:"catchUpMax"` // of CatchUpAll; default 100
	Overlap    Overlap       `json:"overlap"`    // default skip
	Jitter     time.Duration `json:"jitter,omitempty"`
}

// An Occurrence is a time at which a schedule starts a run.
type Occurrence struct {
	// Name is the local time of a cron expression, else the time in UTC. No two occurrences of a
	// schedule have the same.
	Name string `json:"name"`
	At   int64  `json:"at"` // UTC µs
}

// A Table knows the occurrences of a schedule. It does not change.
type Table struct {
	spec   Spec
	zone   *time.Location
	cron   cron.Schedule // of a local wall clock, in which every hour has 60 minutes
	anchor int64         // of intervals
	once   int64
}

// New checks a spec, fills in its defaults and returns its table. anchor is when the schedule
// was created.
func New(s *Spec, anchor int64) (*Table, error) {
	if err := s.complete(); err != nil {
		return nil, err
	}
	zone, err := zoneOf(s.Zone)
	if err != nil {
		return nil, err
	}
	t := &Table{spec: *s, zone: zone, anchor: anchor}
	switch {
	case s.Cron != "":
		if t.cron, err = parseCron(s.Cron); err != nil {
			return nil, err
		}
		if t.cron.Next(time.UnixMicro(anchor).UTC()).IsZero() {
			return nil, fault.New(fault.RequestInvalid, "cron: %q names a day that does not exist, so it never occurs", s.Cron)
		}
	case s.At != "":
		if t.once, err = t.parseAt(s.At); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Never is the table of what occurs only when somebody asks for it.
func Never() *Table { return &Table{zone: time.UTC, once: -1 << 62} }

// complete fills in defaults and checks all but the expression and the zone.
func (s *Spec) complete() error {
	n := 0
	for _, set := range []bool{s.Cron != "", s.Every != 0, s.At != ""} {
		if set {
			n++
		}
	}
	if n != 1 {
		return fault.New(fault.RequestInvalid, "want one of cron, every and at")
	}
	if s.Zone == "" {
		s.Zone = "UTC"
	}
	if s.CatchUp == "" {
		s.CatchUp = CatchUpLast
	}
	if s.Overlap == "" {
		s.Overlap = OverlapSkip
	}
	if s.CatchUpMax == 0 {
		s.CatchUpMax = DefaultCatchUpMax
	}
	switch {
	case s.Every != 0 && (s.Every < MinEvery || s.Every > MaxEvery || s.Every%time.Second != 0):
		return fault.New(fault.RequestInvalid, "every: want whole seconds from %s to 366 days, such as 15m", MinEvery)
	case !slices.Contains(CatchUps, s.CatchUp):
		return fault.New(fault.RequestInvalid, "catchUp: want last, none or all")
	case !slices.Contains(Overlaps, s.Overlap):
		return fault.New(fault.RequestInvalid, "overlap: want skip, allow, queue or cancelPrevious")
	case s.CatchUpMax < 1 || s.CatchUpMax > MaxQueue:
		return fault.New(fault.RequestInvalid, "catchUpMax: want 1 to %d", MaxQueue)
	case s.Jitter < 0 || s.Jitter > MaxJitter || s.Jitter%time.Second != 0:
		return fault.New(fault.RequestInvalid, "jitter: want whole seconds up to %s", MaxJitter)
	}
	return nil
}

// zoneOf finds a time zone. The zone of the machine is none: a schedule means the same on
// every machine.
func zoneOf(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err == nil && name != "Local" {
		return zone, nil
	}
	e := fault.New(fault.RequestInvalid, "zone: there is no time zone %.64q", name)
	e.Remedy = "Name one of the IANA database, such as Europe/Berlin or UTC."
	if near := spell.Nearest(name, knownZones); near != "" {
		e.Remedy = "Did you mean " + near + "? " + e.Remedy
	}
	return nil, e
}

// knownZones are those that a wrong name is compared with: the zones of large cities.
var knownZones = strings.Fields(`UTC Europe/London Europe/Dublin Europe/Lisbon Europe/Berlin Europe/Paris Europe/Madrid Europe/Rome
	Europe/Vienna Europe/Zurich Europe/Amsterdam Europe/Brussels Europe/Stockholm Europe/Oslo Europe/Copenhagen Europe/Helsinki
	Europe/Warsaw Europe/Prague Europe/Budapest Europe/Athens Europe/Kyiv Europe/Istanbul America/New_York America/Chicago
	America/Denver America/Los_Angeles America/Toronto America/Vancouver America/Mexico_City America/Bogota America/Sao_Paulo
	America/Argentina/Buenos_Aires America/Santiago Africa/Cairo Africa/Lagos Africa/Nairobi Africa/Johannesburg Asia/Dubai
	Asia/Jerusalem Asia/Karachi Asia/Kolkata Asia/Dhaka Asia/Bangkok Asia/Singapore Asia/Shanghai Asia/Hong_Kong Asia/Seoul
	Asia/Tokyo Australia/Sydney Australia/Melbourne Australia/Perth Australia/Lord_Howe Pacific/Auckland Pacific/Apia`)

// localForms are how a local time may be written.
var localForms = []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"}

func (t *Table) parseAt(text string) (int64, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UnixMicro(), nil
	}
	for _, form := range localForms {
		if wall, err := time.Parse(form, text); err == nil {
			at, _ := t.instant(wall)
			return at.UnixMicro(), nil
		}
	}
	return 0, fault.New(fault.RequestInvalid, "at: %.64q is no time: want one such as 2026-12-24T18:00:00Z, or a local time of the zone such as 2026-12-24T18:00", text)
}

// Next returns the first occurrence after a time, UTC µs. ok is false if there is none.
func (t *Table) Next(after int64) (o Occurrence, ok bool) {
	switch {
	case t.cron != nil:
		return t.nextCron(after)
	case t.spec.Every != 0:
		every := t.spec.Every.Microseconds()
		at := t.anchor + every
		if after >= at {
			at += (after - at + every) / every * every
		}
		return instantName(at), true
	}
	return instantName(t.once), t.once > after
}

func instantName(at int64) Occurrence {
	return Occurrence{Name: time.UnixMicro(at).UTC().Format("2006-01-02T15:04:05.999999Z"), At: at}
}

// nextCron looks for a local time whose instant comes after another one. While the clock is in
// the hour that is repeated, the local times before its end have all been.
func (t *Table) nextCron(after int64) (Occurrence, bool) {
	wall := wallOf(time.UnixMicro(after).In(t.zone))
	for range 26 * 60 { // minutes: no zone goes back by more than a day
		if wall = t.cron.Next(wall); wall.IsZero() {
			break
		}
		at, local := t.instant(wall)
		if micros := at.UnixMicro(); micros > after {
			return Occurrence{Name: local.Format("2006-01-02T15:04"), At: micros}, true
		}
	}
	return Occurrence{}, false
}

// wallOf returns the local time as if it were one in UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant returns when a local time is for the first time, and that local time. One that never
// is, because the clock is put forward over it, stands for the end of what is left out.
func (t *Table) instant(wall time.Time) (at, local time.Time) {
	const day = 24 * time.Hour
	before := wall.Add(-day).In(t.zone)
	for _, near := range [...]time.Time{before, wall.Add(day).In(t.zone)} {
		_, offset := near.Zone()
		if c := wall.Add(-time.Duration(offset) * time.Second).In(t.zone); wallOf(c).Equal(wall) {
			if at.IsZero() || c.Before(at) {
				at = c
			}
		}
	}
	if !at.IsZero() {
		return at, wall
	}
	_, offset := before.Zone()
	for at = before; ; {
		_, at = at.ZoneBounds()
		if at = at.In(t.zone); at.IsZero() || at.After(wall.Add(2*day)) { // it is in no gap
			return wall, wall
		}
		if _, now := at.Zone(); now != offset {
			return at, wallOf(at)
		}
	}
}

// Due is when an occurrence of the schedule with an id is started: up to the jitter later. The
// delay is a hash, so that it is the same wherever it is computed.
func (t *Table) Due(id string, o Occurrence) int64 {
	if t.spec.Jitter == 0 {
		return o.At
	}
	sum := sha256.Sum256([]byte(id + "\x00" + o.Name))
	return o.At + int64(binary.BigEndian.Uint64(sum[:])%uint64(t.spec.Jitter.Microseconds()+1))
}

// between returns the newest occurrences in (after, until], at most `most`, and how many there
// are in all; some is true if there may be more, before what is remembered.
func (t *Table) between(after, until int64, most int) (newest []Occurrence, n int, some bool) {
	if oldest := until - Memory.Microseconds(); after < oldest && t.spec.At == "" {
		after, some = oldest, true
	}
	if every := t.spec.Every.Microseconds(); every != 0 && until > after {
		first, _ := t.Next(after)
		if n = int((until-first.At)/every) + 1; first.At > until {
			return nil, 0, some
		}
		if n > most {
			after = first.At + int64(n-most-1)*every
		}
		for o, _ := t.Next(after); o.At <= until; o, _ = t.Next(o.At) {
			newest = append(newest, o)
		}
		return newest, n, some
	}
	for o, ok := t.Next(after); ok && o.At <= until; o, ok = t.Next(o.At) {
		n++
		if newest = append(newest, o); len(newest) >= 2*most {
			newest = slices.Delete(newest, 0, len(newest)-most)
		}
	}
	return newest[max(0, len(newest)-most):], n, some
}
