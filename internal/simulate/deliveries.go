// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// Some webhooks of the service go through the keeper of jobs itself, which stores them and acts upon
// them later. They may come before anybody knows their job: the service has finished it while its answer
// to the submission is still on the way (F14).

// keepJobs gives a process its keeper, if its service has jobs.
func (p *process) keepJobs() {
	if p.w.service.rate == 0 {
		return
	}
	p.keeper = jobs.New(jobs.Config{
		Records: p.disk.Store, Put: p.putDeliveries, Settle: p.settleJob, Logger: p.w.logger,
		Service: func(string) action.Service { return toldByWebhook{} },
		Now:     func() time.Time { return time.UnixMicro(p.now()) },
	})
}

// jobsChanged is engine.Config.Jobs.
func (p *process) jobsChanged(changes []jobs.Change) {
	if p.keeper != nil {
		p.keeper.Changed(slices.Clone(changes))
	}
	if p.leases != nil {
		p.leases.changed(changes)
	}
}

// toldByWebhook is the service as the keeper knows it: what has become of a job is in its books.
type toldByWebhook struct{ action.Service }

func (toldByWebhook) Receive(h http.Header, _ []byte) (action.Webhook, error) {
	return action.Webhook{Job: h.Get("Job"), ID: h.Get("Id")}, nil
}

func (toldByWebhook) Read(context.Context, *action.SubmittedJob, []byte) (action.JobState, error) {
	return action.JobState{Result: byService}, nil
}

// putDeliveries is jobs.Config.Put.
func (p *process) putDeliveries(ctx context.Context, changes ...store.RecordChange) (list []store.Record, err error) {
	err = errProcessGone
	if !p.dead {
		p.call(func() { list, err = p.stage.PutRecords(ctx, changes...) })
	}
	if p.dead {
		return nil, errProcessGone // it may have been written
	}
	return list, err
}

// settleJob is jobs.Config.Settle.
func (p *process) settleJob(_ context.Context, job *jobs.Job, source journal.Source, run action.Func) error {
	c := p.currentCall
	if p.dead || c == nil {
		return errProcessGone
	}
	c.answered = false
	c.message = p.stage.Settle(job, source, func(ctx context.Context, t *action.Task) (action.Result, error) {
		p.settlingCall = c
		return run(ctx, t)
	})
	p.report(c.message)
	if !c.yield(struct{}{}) {
		return errProcessGone
	}
	return c.err
}

// webhook lets the service send a webhook about a job that it has finished, and reports whether it does.
func (p *process) webhook(j *job, known bool) bool {
	w := p.w
	s := &w.service
	if p.keeper == nil || p != w.owner || w.noFaults || !j.done || j.webhooks > 2 || s.dice.IntN(3) > 0 {
		return false
	}
	j.webhooks++
	h := http.Header{"Job": {j.id}, "Id": {strconv.Itoa(j.webhooks / 2)}} // some come twice
	if err := p.keeper.Deliver(w.ctx(), provider, h, []byte("{}")); err != nil {
		w.tracef("a webhook about job %s is not taken: %v", j.id, err)
		return true
	}
	if !known {
		w.stats.EarlyWebhooks++
	}
	return true
}

// actUpon lets the keeper act upon webhooks, one after the other.
func (p *process) actUpon() (moved bool) {
	if p.keeper == nil || p.dead || slices.ContainsFunc(p.calls, func(c *call) bool { return c.kind == callDelivery }) {
		return false
	}
	p.startCall(&call{kind: callDelivery}, func() { moved = p.keeper.Act(p.w.ctx()) })
	return moved
}

// checkDeliveries asserts that every webhook that was acted upon has counted for its job: the service has
// sent each of them because the job was done.
func (w *World) checkDeliveries() {
	err := store.EachRecord(w.ctx(), w.mem, store.RecordQuery{Kind: jobs.KindDelivery}, func(r *store.Record) error {
		var d jobs.Delivery
		if err := json.Unmarshal(r.Data, &d); err != nil {
			return err
		}
		if d.Outcome == "nothing" && !d.Expired(r) {
			w.fail("F14: a webhook about job %s was thrown away, because it came before its job was known", d.Job)
		}
		w.stats.Webhooks++
		return nil
	})
	if err != nil {
		w.fail("F14: the webhooks cannot be read: %v", err)
	}
}
