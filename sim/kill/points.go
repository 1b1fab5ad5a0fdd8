// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/roux-engine/roux/internal/failpoint"
)

// pointLog records the failpoints that were reached, and the actions done there.
type pointLog struct {
	mu   sync.Mutex
	seen map[string]int
}

// read adds the log of a process.
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

// unreached lists the points that were never reached.
func (p *pointLog) unreached() (names []string) {
	for _, point := range failpoint.Points {
		if p.seen[string(point.Point)] == 0 {
			names = append(names, string(point.Point))
		}
	}
	return names
}

// A trigger starts a process that will reach a point.
type trigger func(r *round, env []string) (*process, error)

// triggers are the triggers of points that a plain run does not reach.
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
	failpoint.GroupMiddle:     nestedProcess,
	failpoint.EntryWrite:      nestedProcess,
	failpoint.ChildBegins:     nestedProcess,
	failpoint.ChildEnds:       nestedProcess,
	failpoint.AdmitBefore:     admittingProcess,
	failpoint.DeleteBefore:    sweptProcess,
	failpoint.DeleteMiddle:    sweptProcess,
	failpoint.SweepBefore:     sweptProcess,
	failpoint.SweepFile:       sweptProcess,
	failpoint.SweepAfter:      sweptProcess,
	failpoint.BlobRemove:      sweptProcess,
	failpoint.SpaceMade:       workspaceProcess,
	failpoint.SpaceClaimed:    workspaceProcess,
	failpoint.SpaceRemove:     workspaceProcess,
	failpoint.SpaceEmptied:    workspaceProcess,
	failpoint.SpaceLast:       workspaceProcess,
}

func begun(r *round, env []string) (*process, error) { return r.run("mixed", env...) }
func large(r *round, env []string) (*process, error) { return r.run("bulky", env...) }

// resumedProcess starts a process that resumes a run in the middle.
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

// nestedProcess starts a process that runs a tree of runs, which pays.
func nestedProcess(r *round, env []string) (*process, error) {
	if err := r.pay(); err != nil {
		return nil, err
	}
	return r.run("nested", env...)
}

// workspaceProcess starts a process that runs a tree of runs with workspaces.
func workspaceProcess(r *round, env []string) (*process, error) {
	if err := r.lay(); err != nil {
		return nil, err
	}
	return r.run("mosaic", env...)
}

// admittingProcess starts a process that resumes more runs than may be live.
func admittingProcess(r *round, env []string) (*process, error) {
	if err := r.pay(); err != nil {
		return nil, err
	}
	for range maxLive + 2 {
		p, err := r.run("nested")
		if err != nil {
			return nil, err
		}
		for l := range p.lines {
			if l.Type == "run.status.changed" {
				p.signal(syscall.SIGKILL)
			}
		}
		r.kills.Add(1)
	}
	return r.c.start(env, "resume")
}

// stoppedProcess starts a process and stops it while its run waits.
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

// sweptProcess starts a process that runs retention.
func sweptProcess(r *round, env []string) (*process, error) {
	r.hasExpired = true
	if err := makeExpired(context.Background(), r.c.dir, 3); err != nil {
		return nil, err
	}
	p, err := r.run("mixed") // this new run must be kept
	if err != nil {
		return nil, err
	}
	if code, err := p.within(maxCommandTime); code != 0 || err != nil {
		return nil, fmt.Errorf("%s: mixed: exit code %d: %w\n%s", r.name, code, err, p.stderr())
	}
	return r.c.start(env, "files", "gc")
}

// actions are the actions that are done at a point.
func actions(fails bool) []string {
	if fails {
		return []string{"die", "panic", "error", "delay"}
	}
	return []string{"die", "panic", "delay"}
}

// toleratedCodes are the codes with which a run may end after an injected failure of
// one of its actions, because such a failure is the step's own.
var toleratedCodes = []string{"STEP_FAILED", "STORE_FAILED", "INTERNAL_ERROR"}

// hit triggers a point with one action there, and compares the records. It returns the
// contradictions.
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
		// The point was not reached that often, or the background was slow: try again
		// with the first time.
		nth = 1
	}
	return []string{fmt.Sprintf("%s: %s was not reached", name, point)}, nil
}

// finish closes a round, and keeps its directory only if there are problems.
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
	if err = errors.Join(err, r.plant()); err != nil {
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

// checkInjectedExit checks how a process ended after an injected fault.
func (r *round) checkInjectedExit(p *process, action string, code int) string {
	switch {
	case action == "die" && code == -1, action == "panic" && code == 2, action == "delay" && r.checkExit(p, code) == "":
		return ""
	case action == "die" || action == "delay":
		return fmt.Sprintf("%s: after %s it ended with exit code %d:\n%s", r.name, action, code, p.stderr())
	case code == -1:
		return fmt.Sprintf("%s: after %s a signal ended it:\n%s", r.name, action, p.stderr())
	}
	return "" // the error may belong to a step, or may have been handled
}

// resumeAll resumes until every run has ended, and compares the records.
func (r *round) resumeAll() (problems []string, err error) {
	for tries := 0; ; tries++ {
		p, err := r.c.start([]string{failpoint.Log + "=" + filepath.Join(r.dir, "points")}, "resume")
		if err != nil {
			return nil, err
		}
		stop := r.sendRequests()
		code, err := p.within(maxCommandTime)
		if serr := stop(); err == nil {
			err = serr
		}
		if err != nil {
			return nil, err
		}
		r.restarted(p.serving())
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

// checkExpiredGone runs retention once more, without a fault, and checks that
// everything expired is gone.
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
			problems = append(problems, fmt.Sprintf("%s: the unused file %s is still there", r.name, name))
		}
	}
	return problems, nil
}
