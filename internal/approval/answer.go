// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// A Person is who reads and answers requests.
type Person struct {
	Account string
	Name    string // of the key
	Key     string // its id
	Role    string // of the key; "" = it has scopes of its own
	// Trusted is true for who may do anything with the account, such as the user of the data
	// directory: approvers do not restrict them.
	Trusted bool
}

// may reports whether a person is one of the approvers.
func (p *Person) may(approvers []string) bool {
	return p.Trusted || len(approvers) == 0 || slices.Contains(approvers, p.Name) || p.Role != "" && slices.Contains(approvers, rolePrefix+p.Role)
}

// An Info is a request as people see it.
type Info struct {
	ID   string
	Kind string
	// State is "open", a decision, "timed_out", or "cancelled" if the step waits no longer.
	State     string
	Title     string
	Text      string
	Form      []byte
	Value     []byte
	Decisions []Decision
	Approvers []string
	Run, Step string
	Asked     int64 // UTC µs
	Due       int64 // 0 = none
	NextAt    int64 // of the next reminder; 0 = none
	Default   *Answer
	Answer    *Answer
	May       bool // whether who asks may answer
	Held      bool // the text and the value are for those who may answer only
}

// stored is a request as it was read.
type stored struct {
	state
	account, id string
	revision    uint64
	until       int64
}

// read returns a request.
func (m *Manager) read(ctx context.Context, account, id string) (*stored, error) {
	r, err := m.cfg.Records.Record(ctx, store.RecordKey{Account: account, Kind: recordRequest, ID: id})
	if err != nil {
		if errors.Is(err, fault.RecordNotFound) {
			err := fault.New(fault.RecordNotFound, "the account has no request %.60q", id)
			err.Remedy = "`roux approvals` and `GET /v1/approvals` list those that are open."
			return nil, err
		}
		return nil, err
	}
	return decode(&r)
}

func decode(r *store.Record) (*stored, error) {
	st, err := store.DecodeRecord[state](r)
	if err != nil {
		return nil, err
	}
	return &stored{state: *st, account: r.Account, id: r.ID, revision: r.Revision, until: r.Until}, nil
}

// put writes how a request stands, unless it was changed meanwhile (fault.Conflict). The name makes
// it one of the open requests.
func (s *stored) put(open bool) store.RecordChange {
	c := change(recordRequest, s.account, s.id, s.revision, s.until, &s.state)
	if open {
		c.Name = nameOf(s.Asked, s.id)
	}
	return c
}

func (m *Manager) content(ctx context.Context, account, id string) (*content, error) {
	r, err := m.cfg.Records.Record(ctx, store.RecordKey{Account: account, Kind: recordContent, ID: id})
	if errors.Is(err, fault.RecordNotFound) {
		return new(content), nil // it has ended
	}
	if err != nil {
		return nil, err
	}
	return store.DecodeRecord[content](&r)
}

// job returns the job of a request that its step waits for; nil = it waits no longer.
func (m *Manager) job(ctx context.Context, id string) (*jobs.Job, error) {
	r, err := m.cfg.Records.Record(ctx, jobs.Key(jobs.People, id))
	if err == nil {
		_, err = m.cfg.Records.Record(ctx, jobs.CancelKey(jobs.People, id))
		if err == nil {
			return nil, nil
		}
		if errors.Is(err, fault.RecordNotFound) {
			j, err := jobs.Decode(&r)
			return &j, err
		}
	}
	if errors.Is(err, fault.RecordNotFound) {
		return nil, nil
	}
	return nil, err
}

// Get returns a request of an account.
func (m *Manager) Get(ctx context.Context, who *Person, id string) (*Info, error) {
	s, err := m.read(ctx, who.Account, id)
	if err != nil {
		return nil, err
	}
	return m.info(ctx, who, s)
}

// info describes a request with what it shows.
func (m *Manager) info(ctx context.Context, who *Person, s *stored) (*Info, error) {
	j, err := m.job(ctx, s.id)
	if err != nil {
		return nil, err
	}
	info := m.brief(who, s, j != nil)
	c, err := m.content(ctx, s.account, s.id)
	if err != nil {
		return nil, err
	}
	if info.Form, info.Default = c.Form, c.Default; !s.Held || info.May {
		info.Text, info.Value = c.Text, c.Value
	}
	return info, nil
}

// brief describes a request without what it shows. waits says whether its step waits.
func (m *Manager) brief(who *Person, s *stored, waits bool) *Info {
	info := &Info{
		ID: s.id, Kind: s.Kind, State: "open", Title: s.Title, Decisions: s.Decisions, Approvers: s.Approvers, Run: s.Run, Step: s.Step,
		Asked: s.Asked, Due: s.Due, Answer: s.Answer, Held: s.Held, May: who.may(s.Approvers),
	}
	switch {
	case s.End == endGone || s.End == "" && s.Answer == nil && !waits:
		info.State = endGone
	case s.Answer != nil:
		info.State = string(s.Answer.Decision)
	case s.End != "":
		info.State = s.End
	default:
		info.NextAt = s.reminder()
	}
	return info
}

// List returns requests of an account that are open, the oldest first, behind a place; next is the
// place of the next page, "" = there is none. What they show is not in it.
func (m *Manager) List(ctx context.Context, who *Person, after string, limit int) (list []*Info, next string, err error) {
	for {
		page, more, err := m.cfg.Records.Records(ctx, store.RecordQuery{Account: who.Account, Kind: recordRequest, Named: true, After: after, Limit: limit})
		if err != nil {
			return nil, "", err
		}
		for i := range page {
			s, err := decode(&page[i])
			if err != nil {
				continue // a damaged one does not hide the others
			}
			after = page[i].Name
			j, err := m.job(ctx, s.id)
			if err != nil {
				return nil, "", err
			}
			if j == nil {
				continue // it is about to be asked, or its step has ended
			}
			if list = append(list, m.brief(who, s, true)); len(list) == limit && (more || i < len(page)-1) {
				return list, after, nil
			}
		}
		if !more {
			return list, "", nil
		}
	}
}

// An Outcome is what became of an answer that counts.
type Outcome struct {
	*Info
	// Later is true if the run goes on only when a process carries it on.
	Later bool
}

// Answer answers a request. The error is fault.Conflict if it has been answered, fault.TooLate
// after its time-out and when its step no longer waits, fault.InputInvalid for what does not fit.
func (m *Manager) Answer(ctx context.Context, who *Person, id string, a *Answer) (*Outcome, error) {
	given := *a
	given.By, given.Key, given.Link = who.Name, who.Key, false
	return m.answer(ctx, who, id, &given)
}

// answer stores an answer with other changes, all of them or none, and makes it the result of the
// step.
func (m *Manager) answer(ctx context.Context, who *Person, id string, a *Answer, with ...store.RecordChange) (*Outcome, error) {
	for tries := 1; ; tries++ {
		s, c, err := m.store(ctx, who, id, a, with)
		switch {
		case err == nil:
			return m.recorded(ctx, who, s, c)
		case fault.CodeOf(err) != fault.Conflict || s == nil || tries == 3:
			return nil, err
		}
		// Another answer was stored, which is found now, or a reminder was noted.
	}
}

// store stores an answer. The request is returned with the error fault.Conflict if it has changed
// while it was read.
func (m *Manager) store(ctx context.Context, who *Person, id string, a *Answer, with []store.RecordChange) (*stored, *content, error) {
	s, err := m.read(ctx, who.Account, id)
	if err != nil {
		return nil, nil, err
	}
	if !who.may(s.Approvers) {
		err := fault.New(fault.Forbidden, "%q is for others to answer", s.Title)
		err.Remedy = "Let one of its approvers answer it; `roux approvals show ID` and `GET /v1/approvals/ID` name them."
		return nil, nil, err
	}
	if err := m.open(ctx, s); err != nil {
		return nil, nil, err
	}
	c, err := m.content(ctx, s.account, s.id)
	if err != nil {
		return nil, nil, err
	}
	if s.Answer, err = checkAnswer(a, s.Decisions, c.Form); err != nil {
		return nil, nil, err
	}
	s.Answer.At = m.now()
	_, err = m.cfg.Put(ctx, append(slices.Clip(with), s.put(false))...)
	return s, c, err
}

// recorded makes a stored answer the result of its step.
func (m *Manager) recorded(ctx context.Context, who *Person, s *stored, c *content) (*Outcome, error) {
	info := m.brief(who, s, true)
	info.Form, info.Text, info.Value = c.Form, c.Text, c.Value
	out := &Outcome{Info: info}
	// It is stored: that the person who has given it hangs up changes nothing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	took, err := m.settle(ctx, s, c)
	switch {
	case err != nil:
		m.cfg.Logger.Info("an answer is stored and not the result of its step yet", "request", s.id, "run", s.Run, "err", err)
		m.again(s.id, s.account, s.Attempt)
		out.Later = true
	case !took:
		return nil, errEnded(s.Title)
	}
	return out, nil
}

// open refuses to answer a request that is not open.
func (m *Manager) open(ctx context.Context, s *stored) error {
	switch {
	case s.Answer != nil && s.End != endGone:
		err := fault.New(fault.Conflict, "%q was %s by %s at %s", s.Title, s.Answer.Decision, s.Answer.By, stamp(s.Answer.At))
		err.Remedy = "Nothing to do: the first answer counts."
		return err
	case s.End == endTimedOut || s.End == "" && s.Due > 0 && m.now() >= s.Due:
		err := fault.New(fault.TooLate, "%q was to be answered until %s", s.Title, stamp(s.Due))
		err.Remedy = "Nothing to do; the recipe says what follows without an answer. Retry the run to be asked again."
		return err
	case s.End != "":
		return errEnded(s.Title)
	}
	j, err := m.job(ctx, s.id)
	if err != nil || j != nil {
		return err
	}
	// The step may have got another answer since the request was read.
	again, err := m.read(ctx, s.account, s.id)
	switch {
	case err != nil:
		return err
	case again.Answer != nil || again.End != "":
		return m.open(ctx, again)
	}
	return errEnded(s.Title)
}

func stamp(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339) }

// settle makes the stored answer of a request, or its time-out, the result of its step. took is
// false if the step did not wait any more.
func (m *Manager) settle(ctx context.Context, s *stored, c *content) (took bool, err error) {
	j, err := m.job(ctx, s.id)
	if err != nil || j == nil {
		return false, err
	}
	m.mu.Lock()
	result := m.results[s.Kind]
	m.mu.Unlock()
	err = m.host.Settle(ctx, j, journal.FromWebhook, func(ctx context.Context, t *action.Task) (action.Result, error) {
		took = true
		switch {
		case s.Answer == nil:
			return action.Result{}, fault.New(fault.WaitTimeout, "%q was not answered until %s", s.Title, stamp(s.Due))
		case result == nil:
			return action.Result{}, fault.New(fault.InternalError, "nobody knows what follows from the answer to a request of the kind %q", s.Kind)
		}
		r := &Request{
			Kind: s.Kind, Title: s.Title, Text: c.Text, Form: c.Form, Value: c.Value, Held: s.Held, Decisions: s.Decisions, Approvers: s.Approvers, Options: c.Options,
		}
		return result(ctx, r, s.Answer, t)
	})
	return took, err
}
