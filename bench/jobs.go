// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/roux-engine/roux/internal/signature"
)

const (
	// jobServices is how many services have jobs.
	jobServices = 4
	// pollBudget is how many jobs a server asks a service about in a second, at most.
	pollBudget = 10
	// firstPolls is when the jobs of the first second are asked about, after their submission: a
	// tenth more than 30 s.
	firstPolls = 34 * time.Second
	// pollWindow is how long polls are counted.
	pollWindow = 10 * time.Second
)

// jobsWaiting measures a server with many runs (-n) whose step waits for an external job: its
// memory, its polls, how long it takes to start again after it was killed, and how soon a run
// goes on when its service reports that the job has ended.
func jobsWaiting(ctx context.Context, b *bench) (_ []Line, err error) {
	n := b.few(b.waiting, 200)
	p, err := offerJobs()
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(p.close, err) }()
	l := b.line("jobs", n)
	set := jobsSetting{Dir: filepath.Join(b.fresh(), "data"), Services: p.url, Slots: n + 1000, Profile: b.profile}
	s, err := b.serveJobs(ctx, &set)
	if err != nil {
		return nil, err
	}
	err = s.submitted(&l, p, b)
	if err = closing(s.kill, err); err != nil {
		return nil, err
	}
	set.Profile += "2" // of the process after the restart
	if b.profile == "" {
		set.Profile = ""
	}
	began := time.Now()
	if s, err = b.serveJobs(ctx, &set); err != nil {
		return nil, err
	}
	defer func() { err = closing(s.kill, err) }()
	l.put("ready_s", time.Since(began).Seconds())
	got, err := s.ask("known", n)
	if err != nil {
		return nil, err
	}
	l.put("restart_s", time.Since(began).Seconds())
	if got["slots"] != float64(n) {
		return nil, fmt.Errorf("%v slots are held after the restart, want %d", got["slots"], n)
	}
	if err := s.reported(ctx, &l, p, b); err != nil {
		return nil, err
	}
	if got, err = s.ask("look", 0); err != nil {
		return nil, err
	}
	l.put("rss_restarted_mb", got["rss_mb"])
	return []Line{l}, nil
}

// submitted has a server submit the jobs of a line, and measures it while they wait.
func (s *jobsServer) submitted(l *Line, p *jobsProvider, b *bench) error {
	empty, err := s.ask("look", 0)
	if err != nil {
		return err
	}
	began := time.Now()
	filled, err := s.ask("fill", l.N)
	if err != nil {
		return err
	}
	if got := p.submissions(); got != l.N {
		return fmt.Errorf("%d jobs were submitted, want %d", got, l.N)
	}
	l.Seconds = filled["seconds"]
	l.StepsPerS, l.CPUPerStepUS = float64(l.N)/l.Seconds, filled["cpu_us"]/float64(l.N)
	full, err := s.ask("look", 0)
	if err != nil {
		return err
	}
	l.RSSMB = full["rss_mb"]
	l.put("rss_start_mb", empty["rss_mb"])
	l.put("rss_before_mb", full["rss_before_mb"])
	l.put("heap_mb", full["heap_mb"])
	l.put("bytes_per_job", (full["rss_mb"]-empty["rss_mb"])*(1<<20)/float64(l.N))
	l.put("goroutines_start", empty["goroutines"])
	l.put("goroutines", full["goroutines"])
	used, err := diskUse(s.set.Dir)
	if err != nil {
		return err
	}
	l.BytesPerStep = float64(used) / float64(l.N)
	l.put("disk_mb", float64(used)/(1<<20))
	return s.polled(l, p, b, began)
}

// polled measures the polls, and whether runs are read for them. A smoke test has no time for the
// first ones: it asks for some itself.
func (s *jobsServer) polled(l *Line, p *jobsProvider, b *bench, began time.Time) error {
	if !b.smoke {
		time.Sleep(time.Until(began.Add(firstPolls)))
	}
	before, err := s.ask("count", 0)
	if err != nil {
		return err
	}
	polls, at := p.polls(), time.Now()
	if !b.smoke {
		time.Sleep(pollWindow)
	} else if err := s.askAbout(p, 10); err != nil {
		return err
	}
	got, spent := p.polls(), time.Since(at).Seconds()
	after, err := s.ask("count", 0)
	if err != nil {
		return err
	}
	var all, over float64
	for i := range got {
		of := float64(got[i] - polls[i])
		all += of
		over += max(of-pollBudget*spent-1, 0) // one may be due when the time begins
	}
	if b.smoke {
		over = 0 // these are counted, but not delayed
	}
	l.put("polls_per_s", all/spent)
	l.put("poll_budget_per_s", pollBudget*jobServices)
	l.put("polls_over_budget", over)
	l.put("runs_read_by_polls", after["runs_read"]-before["runs_read"])
	l.put("poll_cpu_ms_per_s", (after["cpu_us"]-before["cpu_us"])/1000/spent)
	return nil
}

// askAbout has the server poll the first jobs of each service.
func (s *jobsServer) askAbout(p *jobsProvider, each int) error {
	c, err := dial(context.Background(), s.address)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range jobServices {
		for seq := range each {
			if err := c.call("POST", "/v1/jobs/"+serviceName(i)+"/"+jobName(i, seq)+"/poll", adminKey, "", 200, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// reported measures how soon the step after a job is called when its service reports that the job
// has ended: of runs that are not in memory, and of some that are.
func (s *jobsServer) reported(ctx context.Context, l *Line, p *jobsProvider, b *bench) error {
	c, err := dial(ctx, s.address)
	if err != nil {
		return err
	}
	defer c.Close()
	k := b.few(1000, 40)
	before, err := s.ask("count", 0)
	if err != nil {
		return err
	}
	var times []time.Duration
	for _, seq := range rand.Perm(l.N)[:k] {
		took, err := s.report(ctx, c, jobName(p.nth(seq)))
		if err != nil {
			return err
		}
		times = append(times, took)
	}
	after, err := s.ask("count", 0)
	if err != nil {
		return err
	}
	if got := after["runs_read"] - before["runs_read"]; got != float64(k) {
		return fmt.Errorf("%v runs were read for %d webhooks of runs that are not in memory", got, k)
	}
	l.spread(times)
	times = nil
	for i := range k {
		job := jobName(i%jobServices, p.count(i%jobServices))
		if err := s.send("start", i); err != nil {
			return err
		}
		if err := s.waitsFor(ctx, c, serviceName(i%jobServices)+"/"+job); err != nil {
			return err
		}
		took, err := s.report(ctx, c, job)
		if err != nil {
			return err
		}
		times = append(times, took)
	}
	last, err := s.ask("count", 0)
	if err != nil {
		return err
	}
	if got := last["runs_read"] - after["runs_read"]; got != 0 {
		return fmt.Errorf("%v runs were read for webhooks of runs that are in memory", got)
	}
	l.put("loaded_p50_us", us(quantile(times, 0.5)))
	l.put("loaded_p99_us", us(quantile(times, 0.99)))
	return nil
}

// waitsFor waits until a step waits for a job.
func (s *jobsServer) waitsFor(ctx context.Context, c *client, job string) error {
	for ctx.Err() == nil {
		status, body, err := c.do(request("GET", "/v1/jobs/"+job, adminKey, ""))
		switch {
		case err != nil:
			return err
		case status == http.StatusOK:
			return nil
		case status != http.StatusNotFound:
			return fmt.Errorf("GET /v1/jobs/%s: %d %s", job, status, body)
		}
	}
	return ctx.Err()
}

// report sends the webhook of a job that has ended, and returns how long it took until the step
// after it was called.
func (s *jobsServer) report(ctx context.Context, c *client, job string) (time.Duration, error) {
	body := fmt.Sprintf(`{"id": %q, "status": "done", "result": {"pages": 7}}`, job)
	header := http.Header{}
	scheme := signature.Scheme{Name: signature.Standard}
	if err := scheme.Sign(header, []byte(body), jobsSecret, "msg_"+job, time.Now()); err != nil {
		return 0, err
	}
	raw := fmt.Appendf(nil, "POST /v1/providers/%s/webhook HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", serviceOf(job), len(body))
	for name := range header {
		raw = fmt.Appendf(raw, "%s: %s\r\n", name, header.Get(name))
	}
	raw = append(append(raw, "\r\n"...), body...)
	at := time.Now()
	status, answer, err := c.do(raw)
	if err == nil && status != http.StatusNoContent {
		err = fmt.Errorf("the webhook of %s is answered with %d %s", job, status, answer)
	}
	if err != nil {
		return 0, err
	}
	select {
	case got := <-s.called:
		if got.job != job {
			return 0, fmt.Errorf("the step after %s was called, want %s", got.job, job)
		}
		return got.at.Sub(at), nil
	case err := <-s.failed:
		return 0, err
	case <-time.After(requestTime):
		return 0, fmt.Errorf("the step after %s was not called in %v", job, requestTime)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// A call is one of the action of the step after a job.
type called struct {
	job string
	at  time.Time
}

// A jobsServer is a server in another process that submits jobs.
type jobsServer struct {
	*process
	set     *jobsSetting
	in      *json.Encoder
	address string
	figures chan figures
	called  chan called
	failed  chan error
}

// ask has the server do something, and returns its figures.
func (s *jobsServer) ask(do string, n int) (figures, error) {
	if err := s.send(do, n); err != nil {
		return nil, err
	}
	select {
	case f := <-s.figures:
		return f, nil
	case err := <-s.failed:
		return nil, fmt.Errorf("%s: %w", do, err)
	}
}

func (s *jobsServer) send(do string, n int) error { return s.in.Encode(&jobsOrder{Do: do, N: n}) }

// errSilent says that a server has ended by itself.
var errSilent = errors.New("the server has ended")

// listen reads what the server says.
func (s *jobsServer) listen(from *json.Decoder) {
	for {
		var m jobsMessage
		if err := from.Decode(&m); err != nil {
			s.failed <- fmt.Errorf("%w: %w", errSilent, err)
			return
		}
		switch {
		case m.Error != "":
			s.failed <- errors.New(m.Error)
			return
		case m.Called != "":
			s.called <- called{m.Called, time.Now()}
		default:
			s.figures <- m.Figures
		}
	}
}

// serviceName is the name of a service.
func serviceName(i int) string { return "farm" + strconv.Itoa(i) }
