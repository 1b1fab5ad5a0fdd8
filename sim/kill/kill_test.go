// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/failpoint"
)

func TestMain(m *testing.M) {
	if asHelper() {
		return
	}
	code := m.Run()
	if b, err := shared(); started && err == nil {
		if err := errors.Join(b.rec.Stop(), os.RemoveAll(b.dir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

var started bool

// shared is one bench for all tests of this process, because building the binaries
// takes long.
var shared = sync.OnceValues(func() (*bench, error) {
	if !started {
		return nil, nil // set by TestMain; no test needed the bench
	}
	dir, err := os.MkdirTemp("", "roux-kill-test-")
	if err != nil {
		return nil, err
	}
	return newBench(context.Background(), dir, "", true)
})

func benchOf(t *testing.T) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("builds two binaries and kills processes for a minute")
	}
	started = true
	b, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// counting returns a bench with the same binaries that has counted nothing yet.
func counting(t *testing.T) *bench {
	b := benchOf(t)
	return &bench{plainBinary: b.plainBinary, failpointBinary: b.failpointBinary, dir: b.dir, files: b.files, rec: b.rec, servingLimit: maxCommandTime}
}

// TestF01_Kill9 kills the real binary at random moments (F01, F02, F03, F16); `go run
// ./sim/kill` does so more often. Only the bench checks how soon a restarted process
// serves, because tests must not depend on time.
func TestF01_Kill9(t *testing.T) {
	b := counting(t)
	o := &options{kills: 20, parallel: 2, seed: 1}
	problems, err := b.randomKills(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s (seed %d)", p, o.seed)
	}
	if n := b.kills.Load(); n < 20 || b.effects.Load() == 0 || b.runs.Load() == 0 || b.compared.Load() == 0 {
		t.Errorf("%d kills, %d effects, %d runs, %d disks compared: too little to prove anything", n, b.effects.Load(), b.runs.Load(), b.compared.Load())
	}
}

// TestF02_CrashBetweenResultAndSuccessors kills the process between the commit of a
// result and the step that follows: the journal must remember the result.
func TestF02_CrashBetweenResultAndSuccessors(t *testing.T) {
	inject(t, failpoint.CommitBefore, failpoint.CommitAfter, failpoint.EffectsBefore, failpoint.EffectsAfter)
}

// TestF03_CrashBetweenStartAndWork kills the process between the commit of an
// attempt's start and its work, and between the work and its record: the work must be
// repeated with the same key.
func TestF03_CrashBetweenStartAndWork(t *testing.T) {
	inject(t, failpoint.HandBefore, failpoint.ActionBefore, failpoint.ActionAfter, failpoint.ResultBefore)
}

// TestKilledAmongWorkspaces kills the process while the workspaces of nested runs are made and removed: the next
// one removes all of them, and nothing that is not theirs (X162).
func TestKilledAmongWorkspaces(t *testing.T) {
	b := benchOf(t)
	compared, links := b.compared.Load(), b.links.Load()
	inject(t, failpoint.SpaceMade, failpoint.SpaceClaimed, failpoint.SpaceRemove, failpoint.SpaceEmptied, failpoint.SpaceLast)
	compared, links = b.compared.Load()-compared, b.links.Load()-links
	if compared < 5 || links == 0 { // after SpaceRemove there is a workspace with files in which links are planted
		t.Errorf("%d disks were compared, with %d links in workspaces: too little to prove anything", compared, links)
	}
}

func inject(t *testing.T, points ...failpoint.Point) {
	t.Helper()
	b := benchOf(t)
	for i, point := range points {
		problems, err := b.hit(fmt.Sprintf("%s-%d", t.Name(), i), uint64(i), point, "die")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Error(p)
		}
	}
}

// TestF45_StopsAndKills alternately stops and kills the processes of one run while its
// attempt runs. Three attempts are handed back and two are lost, which is below
// lost_limit, so the run completes.
func TestF45_StopsAndKills(t *testing.T) {
	b := benchOf(t)
	r, err := b.newRound(fmt.Sprintf("stops-%d", b.scenarios.Add(1)), 1, b.plainBinary)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := r.mixed([]bool{false, true, false, true, false})
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	if r.lostAttempts != 2 {
		t.Errorf("%d attempts count as lost, 2 processes were killed", r.lostAttempts)
	}
	if err := r.finish(problems, nil); err != nil {
		t.Error(err)
	}
}

// TestASetApartRunIsReleased: a run with which the process dies again and again before
// it can record anything is quarantined (I16), and the bench releases it.
func TestASetApartRunIsReleased(t *testing.T) {
	b := benchOf(t)
	r, err := b.newRound(fmt.Sprintf("apart-%d", b.scenarios.Add(1)), 1, b.failpointBinary)
	if err != nil {
		t.Fatal(err)
	}
	die := []string{fmt.Sprintf("%s=%s=die@1", failpoint.Setting, failpoint.LostRecorded)}
	p, err := resumedProcess(r, die)
	for tries := 0; ; tries++ {
		if err != nil || tries == 8 {
			t.Fatalf("died %d times and was not quarantined, %v", tries, err)
		}
		if code, err := p.within(maxCommandTime); err != nil {
			t.Fatal(err)
		} else if code != -1 {
			break
		}
		p, err = r.c.start(die, "resume")
	}
	runs, err := r.list()
	if err != nil || len(runs) != 1 || runs[0].Quarantine == "" {
		t.Fatalf("runs %+v, %v; want one that is quarantined", runs, err)
	}
	before := r.released.Load()
	if problems, err := r.resumeAll(); err != nil || len(problems) > 0 || r.released.Load() != before+1 {
		t.Errorf("%d released, %v, %v", r.released.Load()-before, problems, err)
	}
}

// TestF36_KilledServer kills a server while clients start runs, and follow them and the feed of
// their account over connections that are cut at random bytes, by server-sent events and by
// WebSocket: what all connections of a client had together is the journal, or the feed, as it
// is stored (I14, X180, X182, X185), each start has started one run (I13), and effects and
// credits agree with it.
func TestF36_KilledServer(t *testing.T) {
	b := counting(t)
	o := &options{kills: 4, parallel: 1, seed: 1, http: true}
	problems, err := b.randomKills(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s (seed %d)", p, o.seed)
	}
	for v := range ways {
		if b.reconnects[v].Load() < 10 || b.frames[v].Load() < 20 {
			t.Errorf("%s: %d reconnects, %d frames: too little to prove anything", v, b.reconnects[v].Load(), b.frames[v].Load())
		}
	}
	if b.kills.Load() < 4 || b.sequences.Load() < 20 || b.paid.Load() == 0 || b.unanswered.Load() == 0 {
		t.Errorf("%d kills, %d sequences, %d requests without an answer, %d credits: too little to prove anything",
			b.kills.Load(), b.sequences.Load(), b.unanswered.Load(), b.paid.Load())
	}
}

// TestF08_RemoteWorkers kills and stops a server and its remote workers, and cuts and holds what
// connects them, with a provider of jobs beside them: each effect belongs to an attempt and keeps its
// key, each job is charged once, and every run ends (F07, F08).
func TestF08_RemoteWorkers(t *testing.T) {
	b := counting(t)
	problems, err := b.remoteRound(t.Context(), fmt.Sprintf("workers-%d", b.scenarios.Add(1)), 1, faultsShort)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	if b.kills.Load() != 2 || b.stalls.Load() != 2 || b.partitions.Load() != 2 || b.jobs.Load() == 0 || b.effects.Load() == 0 {
		t.Errorf("%d kills, %d stops, %d partitions, %d jobs, %d effects: too little to prove anything",
			b.kills.Load(), b.stalls.Load(), b.partitions.Load(), b.jobs.Load(), b.effects.Load())
	}
}

// A task that kills its worker again and again ends INTERRUPTED after the third one, and the tasks of
// other workers go on.
func TestTaskThatKillsWorkers(t *testing.T) {
	b := counting(t)
	problems, err := b.killers(t.Context(), 6)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	if b.deaths.Load() != 6 {
		t.Errorf("%d workers were killed, want 6", b.deaths.Load())
	}
}

// Backups of a server under load are restored: the books reconcile and every run replays. `go run
// ./sim/kill -backups 12` makes one every 10 s.
func TestBackupsUnderLoad(t *testing.T) {
	b := counting(t)
	o := &options{backups: 2, every: time.Second, seed: 1}
	problems, err := b.backUp(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s (seed %d)", p, o.seed)
	}
	if b.backups.Load() != 2 || b.replays.Load() < 4 {
		t.Errorf("%d backups, %d replays: too little to prove anything", b.backups.Load(), b.replays.Load())
	}
}
