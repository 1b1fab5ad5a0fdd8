// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/roux-engine/roux/internal/failpoint"
)

// passed are the failpoints that processes came by, and what was done there.
type pointLog struct {
	mu   sync.Mutex
	seen map[string]int
}

// read adds what a process's log says.
func (p *pointLog) read(file string) (text string, err error) {
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return "", nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]int{}
	}
	for text := range strings.Lines(string(data)) {
		p.seen[strings.TrimSpace(text)]++
	}
	return string(data), err
}

// never lists the points that nobody came by.
func (p *pointLog) unreached() (names []string) {
	for _, point := range failpoint.Points {
		if p.seen[string(point.Point)] == 0 {
			names = append(names, string(point.Point))
		}
	}
	return names
}

// A story is what a process is at when it comes by a point.
type trigger func(r *round, env []string) (*process, error)

// stories say where the points lie that a run from its start to its end does
// not come by.
var triggers = map[failpoint.Point]trigger{
	failpoint.RecoverRun:      resumedProcess,
	failpoint.LostRecorded:    resumedProcess,
	failpoint.SnapshotWrite:   stoppedProcess,
	failpoint.SuspendWrite:    stoppedProcess,
	failpoint.TrimBefore:      large,
	failpoint.TrimMiddle:      large,
	failpoint.CheckpointFirst: large,
	failpoint.CheckpointHalf:  large,
	failpoint.CheckpointLast:  large,
	failpoint.DeleteBefore:    sweptProcess,
	failpoint.DeleteMiddle:    sweptProcess,
	failpoint.SweepBefore:     sweptProcess,
	failpoint.SweepFile:       sweptProcess,
	failpoint.SweepAfter:      sweptProcess,
	failpoint.BlobRemove:      sweptProcess,
}

func begun(r *round, env []string) (*process, error) { return r.run("mixed", env...) }
func large(r *round, env []string) (*process, error) { return r.run("bulky", env...) }

// resumed is a process that takes up a run in the middle.
func resumedProcess(r *round, env []string) (*process, error) {
	p, err := r.run("mixed")
	if err != nil {
		return nil, err
	}
	for l := range p.lines {
		if l.Type == "node.started" && l.Payload.Step == "both[0].left" {
			p.signal(syscall.SIGKILL)
		}
	}
	r.kills.Add(1)
	return r.c.start(env, "resume")
}

// stopped is a process that is asked to stop while its run waits.
func stoppedProcess(r *round, env []string) (*process, error) {
	p, err := r.run("gate", env...)
	if err != nil {
		return nil, err
	}
	for l := range p.lines {
		if l.Type == "node.waiting" {
			p.signal(syscall.SIGTERM)
			break
		}
	}
	return p, nil
}

// swept is a process that lets go of what is no longer kept.
func sweptProcess(r *round, env []string) (*process, error) {
	r.hasExpired = true
	if err := makeExpired(context.Background(), r.c.dir, 3); err != nil {
		return nil, err
	}
	p, err := r.run("mixed") // what is new has to stay
	if err != nil {
		return nil, err
	}
	if code, err := p.within(maxCommandTime); code != 0 || err != nil {
		return nil, fmt.Errorf("%s: mixed: exit code %d: %w\n%s", r.name, code, err, p.stderr())
	}
	return r.c.start(env, "files", "gc")
}

// actions are what is done at a point.
func actions(fails bool) []string {
	if fails {
		return []string{"die", "panic", "error", "delay"}
	}
	return []string{"die", "panic", "delay"}
}

// tolerated are the codes with which a run may end when one of its actions was
// made to fail: such a failure is the step's own.
var toleratedCodes = []string{"STEP_FAILED", "STORE_FAILED", "INTERNAL_ERROR"}

// hit plays the story of a point, with one thing done there, and lays the
// records beside each other. It returns what is wrong.
func (b *bench) hit(name string, seed uint64, point failpoint.Point, action string) ([]string, error) {
	nth := 1 + int(seed%3)
	for try := range 4 {
		r, err := b.newRound(fmt.Sprintf("%s-%d", name, try), seed, b.failpointBinary)
		if err != nil {
			return nil, err
		}
		problems, was, err := r.hit(point, action, nth)
		if err := r.finish(problems, err); err != nil || was || len(problems) > 0 {
			return problems, err
		}
		// So often it was not passed, or the background was slow: once more, and
		// take the first time.
		nth = 1
	}
	return []string{fmt.Sprintf("%s: nobody came by %s", name, point)}, nil
}

// finish closes a round and keeps its directory only where there is something
// to look at.
func (r *round) finish(problems []string, err error) error {
	cerr := r.c.close()
	if err != nil || len(problems) > 0 {
		return err
	}
	if cerr != nil {
		return cerr
	}
	return os.RemoveAll(r.dir)
}

func (r *round) hit(point failpoint.Point, action string, nth int) (problems []string, was bool, err error) {
	log := filepath.Join(r.dir, "points")
	env := []string{
		fmt.Sprintf("%s=%s=%s@%d", failpoint.Setting, point, action, nth), failpoint.Log + "=" + log,
	}
	tell := triggers[point]
	if tell == nil {
		tell = begun
	}
	if action == "panic" || action == "error" {
		r.tolerate = toleratedCodes
	}
	p, err := tell(r, env)
	if err != nil {
		return nil, false, err
	}
	code, err := p.within(maxCommandTime)
	if err != nil {
		return nil, false, err
	}
	text, err := r.points.read(log)
	if err != nil {
		return nil, false, err
	}
	was = strings.Contains(text, fmt.Sprintf("hit %s %s\n", point, action))
	if was {
		r.hits.Add(1)
		if action == "die" {
			r.kills.Add(1)
		}
		if bad := r.checkInjectedExit(p, action, code); bad != "" {
			problems = append(problems, bad)
		}
	}
	more, err := r.resumeAll()
	return append(problems, more...), was, err
}

// hurtExit judges how a process ended that was hurt.
func (r *round) checkInjectedExit(p *process, action string, code int) string {
	switch {
	case action == "die" && code == -1, action == "panic" && code == 2, action == "delay" && r.checkExit(p, code) == "":
		return ""
	case action == "die" || action == "delay":
		return fmt.Sprintf("%s: after %s it ended with exit code %d:\n%s", r.name, action, code, p.stderr())
	case code == -1:
		return fmt.Sprintf("%s: after %s a signal ended it:\n%s", r.name, action, p.stderr())
	}
	return "" // an error may be somebody's, or be mended
}

// toTheEnd resumes until every run has ended, and compares.
func (r *round) resumeAll() (problems []string, err error) {
	for tries := 0; ; tries++ {
		p, err := r.c.start([]string{failpoint.Log + "=" + filepath.Join(r.dir, "points")}, "resume")
		if err != nil {
			return nil, err
		}
		stop := r.sendSignals()
		code, err := p.within(maxCommandTime)
		if serr := stop(); err == nil {
			err = serr
		}
		if err != nil {
			return nil, err
		}
		r.restarted(p)
		if bad := r.checkExit(p, code); bad != "" {
			problems = append(problems, bad)
		}
		again, err := r.release()
		if err != nil {
			return nil, err
		}
		if !again {
			break
		}
		if tries == 5 {
			return append(problems, r.name+": resumed 5 times, and not every run has ended (I6)"), nil
		}
	}
	if r.hasExpired {
		more, err := r.checkExpiredGone()
		if err != nil {
			return nil, err
		}
		problems = append(problems, more...)
	}
	more, err := r.compare()
	return append(append(problems, r.slow...), more...), err
}

// cleared lets go of what is no longer kept once more, without hurting anybody,
// and checks that all of it is gone.
func (r *round) checkExpiredGone() (problems []string, err error) {
	if _, talk, code, err := r.c.output("files", "gc"); err != nil || code != 0 {
		return []string{fmt.Sprintf("%s: files gc: exit code %d\n%s", r.name, code, talk)}, err
	}
	runs, err := r.list()
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		if run.Recipe == "aged" {
			problems = append(problems, fmt.Sprintf("%s: run %s ended two days ago and is still there", r.name, run.ID))
		}
	}
	out, talk, code, err := r.c.output("files", "ls", "--limit", "500", "-o", "json")
	if err != nil || code != 0 {
		return append(problems, fmt.Sprintf("%s: files ls: exit code %d\n%s", r.name, code, talk)), err
	}
	for _, name := range []string{"old.txt", "loose.txt"} {
		if strings.Contains(out, name) {
			problems = append(problems, fmt.Sprintf("%s: a file %s that nobody wants is still there", r.name, name))
		}
	}
	return problems, nil
}
