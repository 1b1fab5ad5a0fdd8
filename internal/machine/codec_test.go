// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// damagedRuns are the golden runs that are damaged: one with most kinds of event, one with
// child runs, and one that is a child run.
var damagedRuns = []string{"everything", "children", "child"}

// goldenFrames is the journal of a golden run, its program and its last snapshot.
func goldenFrames(t testing.TB, name string) (*Program, []byte, []byte) {
	t.Helper()
	w := &fakeEngine{t: t, now: t0, auto: true}
	w.play(goldenRuns[name].recipe)
	for _, line := range goldenRuns[name].lines {
		w.line(line)
	}
	return w.prog, w.led.frames, w.run.Snapshot(nil)
}

// decodeAll returns copies of the events of the frames.
func decodeAll(frames []byte) (events []journal.Event, err error) {
	err = journal.EachEvent(frames, func(ev *journal.Event) error {
		e := *ev
		e.Data, e.Hash = slices.Clone(ev.Data), slices.Clone(ev.Hash)
		events = append(events, e)
		return nil
	})
	return events, err
}

func TestFramesRoundTrip(t *testing.T) {
	all := []journal.Event{
		{Seq: 1, At: t0, Kind: journal.EvRunStarted, Step: -1, Data: []byte(`{}`)},
		{Seq: 2, At: t0, Kind: journal.EvNodeRetried, Flag: 255, Step: 1<<31 - 1, Path: journal.Path("").Child(1<<31-1, 1<<40), Attempt: 1<<32 - 1,
			N: -1 << 63, M: 1<<63 - 1, Code: "X", Text: "ü\x00", Data: []byte{}, Hash: bytes.Repeat([]byte{7}, 32)},
		{Seq: 3, At: t0, Kind: journal.EvNodeQueued, Step: 0},
		{Seq: 4, At: t0, Kind: journal.EvRunExtended, Step: -1, Flag: uint8(journal.MemoryShare), N: 1<<63 - 1},
		{Seq: 5, At: t0, Kind: journal.EvChildStarted, Attempt: 1, Text: "run_1", Data: journal.EncodeShare(journal.Share{Credits: 1, Steps: 2, Memory: 3}), Hash: bytes.Repeat([]byte{7}, 32)},
		{Seq: 6, At: t0, Kind: journal.EvChildExtended, Attempt: 1, Flag: uint8(journal.StepsShare), N: 4},
		{Seq: 7, At: t0, Kind: journal.EvChildEnded, Attempt: 1, Flag: uint8(journal.RunFailed), N: 5, M: 6, Code: "X", Text: "why", Data: []byte("1")},
	}
	got, err := decodeAll(journal.AppendFrame(journal.AppendFrame(nil, all[:2]), all[2:]))
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if i == 1 && got[i].Data == nil {
			t.Error("empty data became none")
		}
		got[i].Data, all[i].Data = slices.Clip(got[i].Data), slices.Clip(all[i].Data)
		if len(got[i].Data) == 0 {
			got[i].Data, all[i].Data = nil, nil
		}
		if !reflect.DeepEqual(got[i], all[i]) {
			t.Errorf("got  %+v\nwant %+v", got[i], all[i])
		}
	}
}

// TestF20_DamagedFrames: flip any byte, or cut at any length. Decoding either fails
// with STORE_CORRUPT and the offset, or returns events; applying those either fails or
// gives a run. Neither panics. (The store checks integrity: its CRC finds the flips
// that decode.)
func TestF20_DamagedFrames(t *testing.T) {
	for _, name := range damagedRuns {
		t.Run(name, func(t *testing.T) { damageFrames(t, name) })
	}
}

func damageFrames(t *testing.T, name string) {
	prog, frames, _ := goldenFrames(t, name)
	good, err := decodeAll(frames)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, at int, damaged []byte) {
		t.Helper()
		events, err := decodeAll(damaged)
		if err != nil && fault.CodeOf(err) != fault.StoreCorrupt {
			t.Fatalf("%s %d: %v", what, at, err)
		}
		if err == nil && what == "cut at" && len(events) >= len(good) {
			t.Fatalf("cut at %d: all %d events are there", at, len(events))
		}
		run := NewRun(prog)
		for i := range events {
			if err := run.Apply(&events[i]); err != nil {
				if code := fault.CodeOf(err); code != fault.StoreCorrupt && code != fault.InputInvalid {
					t.Fatalf("%s %d: %v", what, at, err)
				}
				return
			}
		}
	}
	for at := range frames {
		check("cut at", at, frames[:at])
		for _, mask := range []byte{1, 0x80, 0xff} {
			damaged := bytes.Clone(frames)
			damaged[at] ^= mask
			check("flipped", at, damaged)
		}
	}
}

// A damaged event is reported with the byte offset where the event begins; a damaged
// frame header with the offset of the frame.
func TestDamageIsNamedByItsPlace(t *testing.T) {
	events := []journal.Event{{Seq: 1, At: 1, Kind: journal.EvNodeLog, Text: "first"}, {Seq: 2, At: 1, Kind: journal.EvNodeLog, Text: "second"}}
	one := journal.AppendFrame(nil, events[:1])
	both := journal.AppendFrame(nil, events)
	both[len(one)] = 0xff // the kind of the second
	for what, head := range map[string][]uint64{"event 0": {0, 1, 1}, "no event": {1, 1, 0}, "more events than bytes": {1, 1, 1 << 20}} {
		var damaged []byte
		for _, n := range head {
			damaged = binary.AppendUvarint(damaged, n)
		}
		if _, err := decodeAll(append(damaged, one[3:]...)); err == nil || !strings.Contains(err.Error(), "damaged at byte 0: impossible frame header") {
			t.Errorf("a frame of %s: %v", what, err)
		}
	}
	frame := append(bytes.Clone(one), 0)
	for _, damaged := range [][]byte{both, frame} { // both begin after the first event
		if _, err := decodeAll(damaged); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("damaged at byte %d:", len(one))) {
			t.Errorf("%v, want byte %d", err, len(one))
		}
	}
}

// TestF20_DamagedSnapshots: the same for snapshots. Every flip is rejected or gives a
// state that can be written again; a cut is rejected or is a snapshot itself.
func TestF20_DamagedSnapshots(t *testing.T) {
	for _, name := range damagedRuns {
		t.Run(name, func(t *testing.T) { damageSnapshot(t, name) })
	}
}

func damageSnapshot(t *testing.T, name string) {
	prog, _, state := goldenFrames(t, name)
	for at := range state {
		// What a run of a tree or of an account has besides stands at the end, so a cut
		// before it is the snapshot of another run. The store's checksum finds that.
		run, err := Restore(prog, state[:at])
		if fault.CodeOf(err) != fault.StoreCorrupt && (err != nil || !bytes.Equal(run.Snapshot(nil), state[:at])) {
			t.Fatalf("cut at %d: %v", at, err)
		}
		for mask := 1; mask < 256; mask <<= 1 {
			damaged := bytes.Clone(state)
			damaged[at] ^= byte(mask)
			run, err := Restore(prog, damaged)
			if err != nil && fault.CodeOf(err) != fault.StoreCorrupt {
				t.Fatalf("flipped %d: %v", at, err)
			}
			if err == nil {
				run.Snapshot(nil)
				run.NextDue()
			}
		}
	}
}

// TestApplyRefuses: a gap, an event before the first, an event of a step that is not
// in memory, of an unknown kind or of the wrong sort is STORE_CORRUPT. An event that
// was applied before is ignored (I2).
func TestApplyRefuses(t *testing.T) {
	prog, frames, _ := goldenFrames(t, "everything")
	events, err := decodeAll(frames)
	if err != nil {
		t.Fatal(err)
	}
	run := NewRun(prog)
	if err := run.Apply(&journal.Event{Seq: 1, Kind: journal.EvNodeQueued}); fault.CodeOf(err) != fault.StoreCorrupt {
		t.Errorf("before run.started: %v", err)
	}
	first := events[0]
	if err := run.Apply(&first); err != nil {
		t.Fatal(err)
	}
	before := run.Snapshot(nil)
	if err := run.Apply(&first); err != nil || !bytes.Equal(run.Snapshot(nil), before) {
		t.Errorf("an event applied already: %v", err)
	}
	for what, ev := range map[string]journal.Event{
		"a gap":                         {Seq: 3, Kind: journal.EvNodeQueued},
		"a scope that is not open":      {Seq: 2, Kind: journal.EvNodeQueued, Path: journal.Path("").Child(1, 9), Step: 1},
		"a step of another scope":       {Seq: 2, Kind: journal.EvNodeQueued, Step: 1 << 20},
		"a run's event about a step":    {Seq: 2, Kind: journal.EvRunStatus, Step: 0},
		"a step's event about the run":  {Seq: 2, Kind: journal.EvNodeQueued, Step: -1},
		"an end of scopes never opened": {Seq: 2, Kind: journal.EvNodeCompleted, Flag: 1, Step: 0},
		"a compensation never begun":    {Seq: 2, Kind: journal.EvNodeCompensated, Step: 0},
		"an item of no loop":            {Seq: 2, Kind: journal.EvNodeIteration, Step: 0},
		"items of no loop":              {Seq: 2, Kind: journal.EvNodeItems, Step: 0},
		"an abort of nothing":           {Seq: 2, Kind: journal.EvNodeAborting, Step: 0},
		"a value that nothing bound":    {Seq: 2, Kind: journal.EvNodeInvalidated, Step: 0, M: 1},
		"edited fields that are none":   {Seq: 2, Kind: journal.EvRunRetried, Step: -1, N: 2, Data: []byte(`[`)},
	} {
		run := NewRun(prog)
		first := events[0]
		if err := run.Apply(&first); err != nil {
			t.Fatal(err)
		}
		if err := run.Apply(&ev); fault.CodeOf(err) != fault.StoreCorrupt {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzEachEvent(f *testing.F) {
	for _, name := range damagedRuns {
		_, frames, _ := goldenFrames(f, name)
		f.Add(frames)
		f.Add(frames[:len(frames)/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		events, err := decodeAll(data)
		if err != nil || len(events) == 0 {
			return
		}
		// A decoded event encodes to the same bytes.
		var again []byte
		for i := range events {
			again = journal.AppendFrame(again, events[i:i+1])
		}
		back, err := decodeAll(again)
		if err != nil {
			t.Fatal(err)
		}
		if len(back) != len(events) {
			t.Fatalf("%d events became %d", len(events), len(back))
		}
	})
}

func FuzzApply(f *testing.F) {
	progs := map[string]*Program{}
	for _, name := range damagedRuns {
		prog, frames, _ := goldenFrames(f, name)
		progs[name] = prog
		f.Add(name, frames)
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if progs[name] == nil {
			return
		}
		run := NewRun(progs[name])
		if err := journal.EachEvent(data, run.Apply); err == nil {
			run.Snapshot(nil)
		}
	})
}

func FuzzRestore(f *testing.F) {
	progs := map[string]*Program{}
	for _, name := range damagedRuns {
		prog, _, state := goldenFrames(f, name)
		progs[name] = prog
		f.Add(name, state)
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		prog := progs[name]
		if prog == nil {
			return
		}
		if run, err := Restore(prog, data); err == nil {
			if _, err := Restore(prog, run.Snapshot(nil)); err != nil {
				t.Fatalf("what was restored and written out cannot be restored: %v", err)
			}
		}
	})
}
