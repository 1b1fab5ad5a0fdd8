// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// jobsSecret signs the webhooks of the services.
const jobsSecret = "whsec_b25seS1mb3ItdGhpcy1iZW5jaG1hcmstMjQtYnl0ZXM="

// A jobsProvider is some services that accept every job and never end one. They keep only counts.
// Which id a job has follows from its number.
type jobsProvider struct {
	url    string
	server *http.Server
	jobs   [jobServices]atomic.Int64
	asked  [jobServices]atomic.Int64
}

// offerJobs starts the services on a port of loopback.
func offerJobs() (*jobsProvider, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &jobsProvider{url: "http://" + ln.Addr().String()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{service}/v1/jobs", p.submit)
	mux.HandleFunc("GET /{service}/v1/jobs/{job}", p.poll)
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: requestTime}
	go func() { _ = p.server.Serve(ln) }() // ends with close
	return p, nil
}

func (p *jobsProvider) close() error { return p.server.Close() }

// serviceNumber returns the number of the service of a request.
func serviceNumber(r *http.Request) int {
	i, err := strconv.Atoi(strings.TrimPrefix(r.PathValue("service"), "farm"))
	if err != nil || i < 0 || i >= jobServices {
		panic(http.ErrAbortHandler)
	}
	return i
}

func (p *jobsProvider) submit(w http.ResponseWriter, r *http.Request) {
	i := serviceNumber(r)
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	seq := p.jobs[i].Add(1) - 1
	_, _ = fmt.Fprintf(w, `{"id": %q, "status": "queued"}`, jobName(i, int(seq))) // the client has gone otherwise
}

func (p *jobsProvider) poll(w http.ResponseWriter, r *http.Request) {
	p.asked[serviceNumber(r)].Add(1)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"id": %q, "status": "running"}`, r.PathValue("job"))
}

// submissions is how many jobs there are.
func (p *jobsProvider) submissions() (n int) {
	for i := range jobServices {
		n += p.count(i)
	}
	return n
}

// count is how many jobs a service has.
func (p *jobsProvider) count(service int) int { return int(p.jobs[service].Load()) }

// polls is how often each service was asked about jobs.
func (p *jobsProvider) polls() (n [jobServices]int64) {
	for i := range n {
		n[i] = p.asked[i].Load()
	}
	return n
}

// nth returns the k-th of all jobs: its service, and its number there.
func (p *jobsProvider) nth(k int) (service, seq int) {
	for service = range jobServices {
		if n := p.count(service); k >= n {
			k -= n
			continue
		}
		return service, k
	}
	panic("bench: there is no such job")
}

// jobName is the id of the job of a service with a number. The ids of one after another are far
// apart, as those of services are.
func jobName(service, seq int) string {
	x := uint64(seq) + 1
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return fmt.Sprintf("job_%d_%016x", service, x)
}

// serviceOf is the name of the service of a job.
func serviceOf(job string) string {
	of, _, _ := strings.Cut(strings.TrimPrefix(job, "job_"), "_")
	return "farm" + of
}

// serveJobs starts a server that submits jobs, and waits until it is ready.
func (b *bench) serveJobs(ctx context.Context, set *jobsSetting) (*jobsServer, error) {
	var args []string
	if set.Profile != "" {
		args = []string{"-profile", set.Profile}
	}
	p, in, out, err := b.start(ctx, "jobs", args...)
	if err != nil {
		return nil, err
	}
	s := &jobsServer{process: p, set: set, in: json.NewEncoder(in), figures: make(chan figures, 1), called: make(chan called, 1), failed: make(chan error, 1)}
	from := json.NewDecoder(out)
	var said jobsMessage
	if err = s.in.Encode(set); err == nil {
		err = from.Decode(&said)
	}
	if err == nil && said.Error != "" {
		err = fmt.Errorf("the server did not start: %s", said.Error)
	}
	if err == nil {
		s.address = said.Address
		go s.listen(from)
		err = (&server{address: said.Address}).isReady(ctx)
	}
	if err != nil {
		return nil, closing(p.kill, err)
	}
	return s, nil
}
