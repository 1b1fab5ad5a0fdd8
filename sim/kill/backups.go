// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A round of backups has a server that is not killed: clients start runs of an account that pays,
// and at each interval `roux backup` copies its directory. Each copy is restored into a directory
// of its own while the load goes on, and there
//   - there is every run whose start was answered before the backup was asked for (I1)
//   - `roux credits reconcile` finds nothing, in any account, and there are entries (I11)
//   - `roux doctor` finds nothing: it folds the journal of every run
//   - `roux replay` agrees, for each run that has not ended and each that ended since the backup before (I2)
//
// In the end the same holds in the original.

// startEvery is the time between two starts. A list has 500 runs at most, which is enough for
// four minutes.
const startEvery = 500 * time.Millisecond

// copiedRecipes are those of the load. bulky is not one of them: with hundreds of its runs the
// database has gigabytes.
var copiedRecipes = []string{"mixed", "chain", "wide", "gate", "undo", "nested"}

// A copied is a backup, and the runs that must be in it.
type copied struct {
	dir  string
	runs []string
}

// A restorer checks directories that were restored, one after the other.
type restorer struct {
	*round
	replayed map[string]bool // runs that had ended
}

// backUp is a round with that number of backups.
func (b *bench) backUp(ctx context.Context, o *options) (problems []string, err error) {
	r, err := b.newRound("b1", o.seed, b.plainBinary)
	if err != nil {
		return nil, err
	}
	s, err := newServer(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.end = cancel
	if err := s.begin(); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.kill9())
	}
	check := &restorer{round: r, replayed: map[string]bool{}}
	made := make(chan copied, o.backups)
	load, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	var loaded, checked error
	group.Go(func() { loaded = s.load(load) })
	group.Go(func() {
		for c := range made {
			found, cerr := check.restore(c)
			problems, checked = append(problems, found...), errors.Join(checked, cerr)
		}
	})
	err = s.copies(ctx, o, made)
	close(made)
	stop()
	group.Wait()
	s.process.signal(syscall.SIGTERM)
	code, werr := s.process.within(maxCommandTime)
	if err = errors.Join(err, loaded, checked, werr); err == nil && code != 0 {
		err = fmt.Errorf("%s: the server stopped with exit code %d\n%s", r.name, code, s.process.stderr())
	}
	if err == nil {
		var more []string
		runs, _ := s.known()
		more, err = check.directory(r.c.dir, runs)
		problems = append(problems, more...)
	}
	problems = append(problems, s.bad...)
	return problems, r.finish(problems, err)
}

// copies makes a backup at each interval.
func (s *server) copies(ctx context.Context, o *options, made chan<- copied) error {
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	for range o.backups {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		runs, _ := s.known()
		var b struct{ Path string }
		if err := s.ask(&b, "backup", "--to", filepath.Join(s.dir, "backups")); err != nil {
			return err
		}
		made <- copied{b.Path, runs}
	}
	return nil
}

// load starts runs until ctx ends.
func (s *server) load(ctx context.Context) error {
	tick := time.NewTicker(startEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		recipe := copiedRecipes[s.rng.IntN(len(copiedRecipes))]
		s.tags[s.tag(i)] = recipe
		if err := s.start(ctx, i, recipe); err != nil && ctx.Err() == nil {
			return err
		}
		s.runs.Add(1)
	}
}

// restore makes a directory of a backup and checks it.
func (r *restorer) restore(c copied) (problems []string, err error) {
	n := r.backups.Add(1)
	dir := filepath.Join(r.dir, fmt.Sprint("restored", n))
	out, talk, code, err := r.c.output("restore", c.dir, "--data", dir)
	if err != nil || code != 0 {
		return nil, errors.Join(err, fmt.Errorf("%s: restore %s: exit code %d\n%s%s", r.name, c.dir, code, out, talk))
	}
	if problems, err = r.directory(dir, c.runs); err != nil || len(problems) > 0 {
		return problems, err
	}
	return nil, os.RemoveAll(dir)
}

// directory checks a data directory that no process holds. Those runs must be in it.
func (r *restorer) directory(dir string, must []string) (problems []string, err error) {
	bad := func(format string, args ...any) {
		problems = append(problems, dir+": "+fmt.Sprintf(format, args...))
	}
	c, err := newClient(r.c.exe, dir, dir+".client.jsonl", r.c.env...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	in := *r.round
	in.c, in.stands = c, true
	runs, err := in.list()
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, run := range runs {
		have[run.ID] = true
	}
	for _, run := range must {
		if !have[run] {
			bad("run %s was started before the backup, and is not in it (I1)", run)
		}
	}
	if err := in.checkBooks(bad); err != nil {
		return nil, err
	}
	if err := in.checkDoctor(bad); err != nil {
		return nil, err
	}
	for _, run := range runs {
		if r.replayed[run.ID] {
			continue
		}
		r.replayed[run.ID] = run.EndedAt != ""
		below, err := in.below(&run)
		if err != nil {
			return nil, err
		}
		for _, run := range append(below, run) {
			if err := in.replay(run.ID, bad); err != nil {
				return nil, err
			}
		}
	}
	return problems, nil
}

// checkBooks proves the credits of all accounts.
func (r *round) checkBooks(bad func(string, ...any)) error {
	out, talk, code, err := r.c.output("credits", "reconcile", "--all", "-o", "json")
	if err != nil {
		return err
	}
	var books []struct{ Entries uint64 }
	if err := json.Unmarshal([]byte(out), &books); err != nil || code != 0 || len(books) == 0 || books[0].Entries < 2 {
		bad("reconcile: exit code %d\n%.4000s%s (I11)", code, out, talk)
	}
	return nil
}

// replay has a run replayed.
func (r *round) replay(run string, bad func(string, ...any)) error {
	var folded struct{ Same bool }
	out, talk, code, err := r.c.output("replay", run, "-o", "json")
	if err != nil {
		return err
	}
	r.replays.Add(1)
	if json.Unmarshal([]byte(out), &folded) != nil || !folded.Same || code != 0 {
		bad("the replay of run %s prints %.400s %s (exit code %d, I2)", run, out, talk, code)
	}
	return nil
}
