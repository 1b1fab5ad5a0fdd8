// SPDX-License-Identifier: Apache-2.0

//go:build !small

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// The bounds of streams (I15).
const (
	maxStreams  = 64                     // jobs that are followed at once
	maxBreaks   = 5                      // calls in a row that have had no piece
	streamTime  = time.Hour              // of a call
	maxUnshown  = 1 << 20                // bytes of the text of a job that wait to be shown
	maxShownNow = 64 << 10               // bytes of text that are shown at once
	maxLead     = 8 << 10                // bytes of what was shown by another process that are looked at with what follows it
	showEvery   = 100 * time.Millisecond // the least time between two deltas of a job
)

// A stream is a job that is followed. Its text is shown by settlements that settle nothing, as
// previews are: each is short, so the run need not be in memory between them, and a webhook or a poll
// can end the job at any time.
//
// How much of the text was shown is written in the commit that shows it. Another process follows the
// job from its beginning, and shows what comes behind that.
type stream struct {
	k    *Keeper
	name string
	job  Job
	stop context.CancelFunc
	done chan struct{} // closed when it is not followed any more
	more chan struct{} // 1 slot: there is text

	mu     sync.Mutex
	cursor string
	skip   int64  // bytes of text that come and were shown
	lead   string // the end of those
	text   []byte // that was not shown
	silent bool   // nothing more is shown

	// With the job held:
	shown int64 // bytes of text
	state any   // of the continuer
}

// A continuer is what a settlement reports to, for a text that several of them show; see
// worker.attempt.Continue.
type continuer interface {
	Continue(state *any, lead, piece string, last bool, pass func(n int)) error
}

// hold has the settlements of a job wait for each other, because an attempt has one at a time.
func (k *Keeper) hold(ctx context.Context, name string) (release func(), err error) {
	mine := make(chan struct{})
	for {
		k.mu.Lock()
		other := k.held[name]
		if other == nil {
			k.held[name] = mine
		}
		k.mu.Unlock()
		if other == nil {
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return func() {
		k.mu.Lock()
		delete(k.held, name)
		k.mu.Unlock()
		close(mine)
	}, nil
}

// settle records how a job has ended, after what is known of its text.
func (k *Keeper) settle(ctx context.Context, j *Job, from journal.Source, result action.Func) error {
	name := j.Provider + "/" + j.ID
	release, err := k.hold(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	k.mu.Lock()
	s := k.streams[name]
	k.mu.Unlock()
	if s != nil && s.job.Run == j.Run {
		for more := true; more; {
			more = s.show(ctx, true)
		}
	}
	return AfterOthers(ctx, func() error { return k.cfg.Settle(ctx, j, from, result) })
}

// wanted takes note that a job may be followed, if there is room. The caller holds the lock.
func (k *Keeper) wanted(provider string, one plannedPoll) {
	if len(k.streams)+len(k.toFollow) >= maxStreams {
		return
	}
	if _, ok := k.cfg.Service(provider).(action.Follower); ok {
		k.toFollow = append(k.toFollow, one)
	}
}

// followNew begins to follow the jobs that were taken note of. The caller holds the lock.
func (k *Keeper) followNew(ctx context.Context) {
	for _, one := range k.toFollow {
		k.work.Go(func() {
			if j, ok, err := k.planned(ctx, one); ok && err == nil {
				k.follow(ctx, &j)
			}
		})
	}
	k.toFollow = nil
}

// followAgain takes note that a job that goes on may be followed, unless it is, or its service does
// not want that.
func (k *Keeper) followAgain(j *Job) {
	name := j.Provider + "/" + j.ID
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.streams[name] == nil && !k.polled[name].unfollowable {
		k.wanted(j.Provider, k.plan(&Name{Class: *j.Class(), Submitted: j.Submitted, Digest: digest(name)}, k.now()))
		k.nudge()
	}
}

// unfollow ends the stream of a job that has ended, or is to be cancelled. The caller holds the lock.
func (k *Keeper) unfollow(name string) {
	if s := k.streams[name]; s != nil {
		s.stop()
	}
}

// begin returns the stream of a job; nil = it is followed, or there is no room. stop ends it.
func (k *Keeper) begin(ctx context.Context, stop context.CancelFunc, j *Job) *stream {
	name := j.Provider + "/" + j.ID
	s := &stream{k: k, name: strings.Clone(name), job: *j, stop: stop, done: make(chan struct{}), more: make(chan struct{}, 1)}
	for {
		k.mu.Lock()
		old := k.streams[name]
		room := len(k.streams) < maxStreams
		if old == nil && room {
			k.streams[s.name] = s
		}
		k.mu.Unlock()
		switch {
		case old == nil && room:
			return s
		case old == nil || old.job.Run == j.Run && old.job.Fence() == j.Fence() && old.job.Step == j.Step:
			return nil
		}
		old.stop() // an earlier attempt had the same job
		select {
		case <-old.done:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow follows a job until it has ended, or cannot be followed any more. It is polled all the same.
func (k *Keeper) follow(all context.Context, j *Job) {
	svc, ok := k.cfg.Service(j.Provider).(action.Follower)
	if !ok {
		return
	}
	ctx, stop := context.WithCancel(all)
	defer stop()
	s := k.begin(ctx, stop, j)
	if s == nil {
		return
	}
	var showing sync.WaitGroup
	defer func() {
		stop()
		showing.Wait()
		k.mu.Lock()
		delete(k.streams, s.name)
		k.mu.Unlock()
		close(s.done)
	}()
	was, err := k.lastPreview(ctx, j)
	if err != nil {
		return
	}
	s.skip, s.shown = was.Text, was.Text
	showing.Go(func() { s.showAll(ctx) })
	st, err := s.read(ctx, svc)
	if st.Result != nil {
		if err = k.settle(all, j, journal.FromStream, st.Result); err == nil {
			k.remember(j, nil, true)
			return
		}
	}
	if ctx.Err() == nil {
		s.showNow(ctx)
	}
	if err != nil && ctx.Err() == nil {
		k.cfg.Logger.Info("a job is not followed any more; it is asked about", "job", s.name, "run", j.Run, "err", err)
		if refused(err) {
			k.unfollowable(s.name)
		}
	}
}

// refused reports whether a service does not let a job be followed.
func refused(err error) bool {
	return errors.Is(err, fault.HTTPStatus) || errors.Is(err, fault.ProviderNotConfigured)
}

// unfollowable remembers that a job cannot be followed.
func (k *Keeper) unfollowable(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.polled) < maxPolled {
		p := k.polled[name]
		p.unfollowable = true
		k.polled[name] = p
	}
}

// read reads the stream of a job until its end. One that breaks goes on behind the last piece.
func (s *stream) read(ctx context.Context, svc action.Follower) (st action.JobState, err error) {
	k := s.k
	for breaks := 0; ; {
		if err = k.awaitTurn(ctx, s.job.Provider); err != nil {
			return action.JobState{}, err
		}
		last := s.at()
		err = k.callFor(ctx, streamTime, s.job.Provider, func(ctx context.Context) (err error) {
			st, err = svc.Follow(ctx, s.job.Public(), last, s.add)
			return err
		})
		if err == nil || ctx.Err() != nil || refused(err) || errors.Is(err, fault.StepTimeout) {
			break
		}
		k.pauseFor(s.job.Provider, err)
		if s.at() != last {
			breaks = 0
		}
		if breaks++; breaks > maxBreaks {
			break
		}
		if wait(ctx, backoff(breaks)) != nil {
			break
		}
	}
	if err != nil {
		st = action.JobState{}
	}
	return st, err
}

// awaitTurn waits until a provider may be called, and counts the call as a poll of it.
func (k *Keeper) awaitTurn(ctx context.Context, provider string) error {
	k.mu.Lock()
	now := k.now()
	at := now
	if p := k.providers[provider]; p != nil {
		at = max(p.free, now)
		p.free = at + k.gap()
	}
	k.mu.Unlock()
	return wait(ctx, at-now)
}

// at is the cursor of the last piece.
func (s *stream) at() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor
}

// add takes the next piece of a stream.
func (s *stream) add(p action.Piece) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor = strings.Clone(p.Cursor)
	text := strings.ToValidUTF8(p.Text, "\uFFFD")
	if n := int(min(s.skip, int64(len(text)))); n > 0 {
		s.lead += text[:n]
		s.lead, text, s.skip = strings.Clone(s.lead[max(0, len(s.lead)-maxLead):]), text[n:], s.skip-int64(n)
	}
	switch {
	case s.silent || text == "":
		return
	case len(s.text)+len(text) > maxUnshown:
		s.stopShowing()
		return
	}
	s.text = append(s.text, text...)
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// stopShowing shows nothing more. The caller holds the lock.
func (s *stream) stopShowing() { s.silent, s.text = true, nil }

// showAll shows text as it comes: at once after a silence, and else what has come since.
func (s *stream) showAll(ctx context.Context) {
	for {
		select {
		case <-s.more:
		case <-ctx.Done():
			return
		}
		if s.showNow(ctx) {
			select {
			case s.more <- struct{}{}:
			default:
			}
		}
		if wait(ctx, showEvery.Microseconds()) != nil {
			return
		}
	}
}

// showNow is show of a job that goes on.
func (s *stream) showNow(ctx context.Context) (more bool) {
	release, err := s.k.hold(ctx, s.name)
	if err != nil {
		return false
	}
	defer release()
	return ctx.Err() == nil && s.show(ctx, false)
}

// show shows the text that there is, or the beginning of it, and reports whether there is more. last
// means that the job has ended. The caller holds the job.
func (s *stream) show(ctx context.Context, last bool) (more bool) {
	s.mu.Lock()
	piece, silent, lead := string(s.text), s.silent, s.lead
	s.mu.Unlock()
	if len(piece) > maxShownNow {
		end := maxShownNow
		for !utf8.RuneStart(piece[end]) {
			end--
		}
		piece, last, more = piece[:end], false, true
	}
	if silent || piece == "" && (!last || s.state == nil) {
		return false
	}
	was, err := s.k.lastPreview(ctx, &s.job)
	if was.Bytes += int64(len(piece) + shownBytes); err == nil && was.Bytes > maxAllShown {
		err = fault.New(fault.OutputTooLarge, "the text of the job has more than %d bytes", maxAllShown)
	}
	n := 0
	var held error
	if err == nil {
		shown := s.job
		shown.Mark = &journal.Mark{Until: s.job.Expires + day}
		err = AfterOthers(ctx, func() error {
			return s.k.cfg.Show(ctx, &shown, journal.FromStream, func(_ context.Context, t *action.Task) (action.Result, error) {
				if c, ok := t.Report.(continuer); ok {
					held = c.Continue(&s.state, lead, piece, last, func(done int) {
						n, was.Text = done, s.shown+int64(done)
						shown.Mark.Data, _ = json.Marshal(was) // numbers and texts
					})
				}
				return action.Result{}, action.ErrUnsettled
			})
		})
	}
	if err == nil {
		err = held // it has returned
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		// Where it is not known what was shown, nothing may follow it.
		if s.stopShowing(); ctx.Err() == nil {
			s.k.cfg.Logger.Info("the text of a job is not shown any more", "job", s.name, "run", s.job.Run, "err", err)
		}
		return false
	}
	if s.shown += int64(n); len(s.text) >= n {
		s.text = append(s.text[:0], s.text[n:]...)
	}
	return more && n > 0
}
