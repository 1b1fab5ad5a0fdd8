// SPDX-License-Identifier: Apache-2.0

package emulate

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/list"
)

// The states of a job, as the books have them.
const (
	JobQueued     = "queued"
	JobRunning    = "running"
	JobDone       = "done"
	JobFailed     = "failed"
	JobIncomplete = "incomplete" // OpenAI: the answer reached its most tokens
	JobCancelled  = "cancelled"
)

// A job is one of any protocol. After it was accepted its fields may only be used with Jobs.mu;
// others get a copy.
type job struct {
	id       string
	protocol jobProtocol
	number   int // in the order of acceptance
	model    string
	input    json.RawMessage
	base     string // URL below which the protocol's URLs of the job are
	key      string // Idempotency-Key
	size     int

	mode     string
	after    time.Duration
	outcome  string          // the state in which it ends, unless it is cancelled
	failure  string          // why it fails
	result   json.RawMessage // nil = what the protocol makes of the input
	seconds  *float64        // that it says it has taken; nil = those that it has
	previews []json.RawMessage
	preview  json.RawMessage // of a copy: the one of that time; nil = none

	callback       string // URL of the webhook
	onStart, onEnd bool   // what the webhook is told
	onPreview      bool
	streamed       bool // it can be followed

	state     string // JobQueued until it ends; a copy says JobRunning, too
	created   time.Time
	started   time.Time
	ended     time.Time
	submitted int
	polls     int
	reads     int
	streams   int
	cancels   int
	sent      DeliveryCount
	told      bool // a webhook about its end was sent

	pending int // timers and deliveries that it has; it is kept until there are none
	age     list.Link[job]
}

// settings are what a job says about itself.
type settings struct {
	Result json.RawMessage `json:"result"`
	Fail   string          `json:"fail"`
	After  string          `json:"after"`
	Mode   string          `json:"mode"`
	// Seconds is how long the job says it has taken, where its protocol says that.
	Seconds *float64 `json:"seconds"`
	// Previews are what the job has made so far, each for an equal part of the time that it runs.
	Previews []json.RawMessage `json:"previews"`
}

// newJob makes a job of what the protocols have in common. Its settings are in its input, unless
// they are given.
func newJob(model string, input json.RawMessage, callback string, given json.RawMessage) (*job, error) {
	j := &job{model: model, input: input, callback: callback, onEnd: true, outcome: JobDone, after: -1}
	if callback != "" {
		if _, err := egress.ParseURL(callback); err != nil {
			return nil, fmt.Errorf("the URL of the webhook: %w", err)
		}
	}
	name, _, _ := strings.Cut(path.Base(model), ":") // Replicate: owner/name:version
	if mode, ok := strings.CutPrefix(name, modelPrefix); ok {
		j.mode = mode
	}
	if given == nil {
		var in struct{ Emulate json.RawMessage }
		_ = json.Unmarshal(input, &in) // an input that is no object has no settings
		given = in.Emulate
	}
	if given != nil {
		var set settings
		if err := json.Unmarshal(given, &set); err != nil {
			return nil, fmt.Errorf("emulate: %w", err)
		}
		if err := j.apply(&set); err != nil {
			return nil, err
		}
	}
	if j.mode != "" {
		if err := checkMode(j.mode); err != nil {
			return nil, err
		}
	}
	return j, nil
}

func (j *job) apply(set *settings) error {
	j.mode, j.result, j.seconds, j.previews = cmp.Or(set.Mode, j.mode), set.Result, set.Seconds, set.Previews
	if len(j.previews) > maxPreviews {
		return fmt.Errorf("emulate.previews has %d elements: want at most %d", len(j.previews), maxPreviews)
	}
	if set.Fail != "" {
		j.outcome, j.failure = JobFailed, set.Fail
	}
	if set.After != "" {
		after, err := time.ParseDuration(set.After)
		if err != nil || after < 0 {
			return fmt.Errorf(`emulate.after %q: want a duration such as "250ms"`, set.After)
		}
		j.after = after
	}
	return nil
}

// maxPreviews is how many previews a job may have.
const maxPreviews = 1000

// frames are the previews of a job of the mode Preview that names none.
var frames = []json.RawMessage{json.RawMessage(`{"frame":1}`), json.RawMessage(`{"frame":2}`), json.RawMessage(`{"frame":3}`)}

// previewAt is when a job begins to have its i-th preview.
func (j *job) previewAt(i int) time.Time {
	return j.started.Add((j.after - j.after/4) / time.Duration(len(j.previews)) * time.Duration(i))
}

// took is how many seconds the job says it has taken.
func (j *job) took() float64 {
	if j.seconds != nil {
		return *j.seconds
	}
	return j.ended.Sub(j.started).Seconds()
}

// echo returns the result of a job: its own, or its input and model.
func (j *job) echo() json.RawMessage {
	if j.result != nil {
		return j.result
	}
	out, err := json.Marshal(struct {
		Echo  json.RawMessage `json:"echo"`
		Model string          `json:"model"`
	}{j.input, j.model})
	if err != nil {
		return nil // the input was decoded from JSON
	}
	return out
}

// live reports whether a job, or a copy of one, has not ended.
func (j *job) live() bool { return j.state == JobQueued || j.state == JobRunning }

// copy returns a job as it is now. A job is queued for the first quarter of its time.
func (j *job) copy() *job {
	c := *j
	if c.state == JobQueued && !time.Now().Before(c.started) {
		c.state = JobRunning
		for i, p := range c.previews {
			if !time.Now().Before(c.previewAt(i)) {
				c.preview = p
			}
		}
	}
	return &c
}

// An acceptance is what follows from a submission.
type acceptance struct {
	job    job
	drop   bool      // there is no answer
	before *delivery // is to be sent before the answer
}

// accept makes a job of a submission, or finds the one that has its key.
func (s *Jobs) accept(j *job) (*acceptance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := j.protocol.name() + " " + j.key
	old := s.keys[key]
	if old != nil && (s.cfg.Idempotent || j.protocol.idempotent()) {
		old.submitted++
		return &acceptance{job: *old.copy()}, nil
	}
	if !s.makeRoom(j.size) {
		return nil, errFull
	}
	s.open(j)
	if j.key != "" {
		s.keys[key] = j
	}
	// A client that repeats a submission gets its answer, so that it can go on.
	a := &acceptance{job: *j.copy(), drop: j.mode == Drop && old == nil}
	if j.onStart && j.callback != "" {
		j.pending++
		s.enqueue(&delivery{job: j, id: newID("msg_"), start: true})
	}
	for i, p := range j.previews {
		if j.onPreview && j.callback != "" {
			j.pending++
			s.at(timer{j.previewAt(i), j, &delivery{job: j, id: newID("msg_"), preview: p, once: true}})
		}
	}
	switch d, _ := j.webhook(0); {
	case j.mode == Reorder && d != nil:
		j.state, j.started, j.ended = j.outcome, j.created, j.created
		j.pending++
		a.before = d
	case j.mode != Silent:
		j.pending++
		s.at(timer{j.created.Add(j.after), j, nil})
	}
	return a, nil
}

// open enters a new job into the books.
func (s *Jobs) open(j *job) {
	j.mode = cmp.Or(j.mode, s.cfg.Mode)
	if j.mode == Faults {
		j.mode = drawn[s.dice.IntN(len(drawn))]
	}
	if j.mode == Fail && j.outcome != JobFailed {
		j.outcome, j.failure = JobFailed, "the job failed because its mode is fail"
	}
	if j.mode == Preview && j.previews == nil {
		j.previews = frames
	}
	if j.after < 0 {
		j.after = s.cfg.After
	}
	s.count++
	j.number, j.submitted, j.state, j.created = s.count, 1, JobQueued, time.Now()
	j.started = j.created.Add(j.after / 4)
	j.age.Of = j
	s.jobs[j.id] = j
	s.size += j.size
}

// makeRoom drops the jobs that ended first until there is room for one.
func (s *Jobs) makeRoom(size int) bool {
	for len(s.jobs) >= s.cfg.MaxJobs || s.size+size > maxJobBytes {
		j := s.ended.Front()
		if j == nil {
			return false
		}
		s.ended.Remove(&j.age)
		delete(s.jobs, j.id)
		if key := j.protocol.name() + " " + j.key; s.keys[key] == j {
			delete(s.keys, key)
		}
		s.size -= j.size
		s.dropped++
	}
	return true
}

// end ends a job.
func (s *Jobs) end(j *job, state string, now time.Time) {
	j.state, j.ended = state, now
	if j.started.After(now) {
		j.started = now
	}
	if d, delay := j.webhook(s.cfg.Late); d != nil {
		j.pending++
		if delay > 0 {
			s.at(timer{now.Add(delay), j, d})
		} else {
			s.enqueue(d)
		}
	}
	s.settle(j)
}

// settle lets a job be dropped if nothing is to be done for it any more.
func (s *Jobs) settle(j *job) {
	if !j.live() && j.pending == 0 {
		s.ended.ToBack(&j.age)
	}
}

func (s *Jobs) find(p jobProtocol, id string) *job {
	if j := s.jobs[id]; j != nil && j.protocol.name() == p.name() {
		return j
	}
	return nil
}

// countPoll returns a job that is asked about, or nil, and the mode in which it does not answer.
func (s *Jobs) countPoll(p jobProtocol, id string) (*job, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countSecond(p.name(), time.Now())
	j := s.find(p, id)
	if j == nil {
		return nil, ""
	}
	j.polls++
	refused := false
	switch j.mode {
	case Deaf: // a job that has no webhook is known when it has ended
		refused = j.live() || j.callback != "" && j.onEnd && !j.told
	case Limit, Garbage:
		refused = j.polls == 1
	}
	if refused {
		return j.copy(), j.mode
	}
	return j.copy(), ""
}

// endCancelled cancels a job that has not ended.
func (s *Jobs) endCancelled(p jobProtocol, id string) (_ *job, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.find(p, id)
	if j == nil {
		return nil, false
	}
	j.cancels++
	if ended = !j.live(); !ended {
		s.end(j, JobCancelled, time.Now())
	}
	return j.copy(), ended
}

// A timer is something to be done at a time.
type timer struct {
	at   time.Time
	job  *job
	send *delivery // nil = the job ends
}

func earlier(a, b *timer) bool { return a.at.Before(b.at) }

// at sets a timer.
func (s *Jobs) at(t timer) {
	s.timers = heap.Push(s.timers, t, earlier)
	if s.timers[0] == t {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// loop does what is due.
func (s *Jobs) loop() {
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		select {
		case <-clock.C:
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		clock.Reset(s.due())
	}
}

// due does everything that is due, and returns when there will be more.
func (s *Jobs) due() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.timers) > 0 {
		if wait := s.timers[0].at.Sub(now); wait > 0 {
			return wait
		}
		var t timer
		t, s.timers = heap.Pop(s.timers, earlier)
		switch {
		case t.send != nil:
			s.enqueue(t.send)
		default:
			t.job.pending--
			if t.job.live() {
				s.end(t.job, t.job.outcome, now)
			} else {
				s.settle(t.job)
			}
		}
	}
	return time.Hour
}

// newID returns a new id in the form of most services.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// decode reads a JSON object.
func decode(body []byte, v any) error {
	if trimmed := bytes.TrimSpace(body); len(trimmed) == 0 || trimmed[0] != '{' {
		return errors.New("the body is no JSON object")
	}
	return json.Unmarshal(body, v)
}
