// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/service"
)

// account is whose tasks the worker carries out.
const account = "local"

// actions are those of the queue. conform-unknown is one that the worker does not have.
var actions = []string{"conform-echo", "conform-fail", "conform-progress", "conform-slow", "conform-file", "conform-key", "conform-big", "conform-submit", "conform-unknown"}

// provider is the service whose jobs a worker submits.
const provider = "conform"

// A jobService is a service whose jobs have ended when it is asked about them.
type jobService struct{}

func (jobService) Poll(_ context.Context, j *action.SubmittedJob) (action.JobState, error) {
	return action.JobState{Result: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{"ended": j.ID, "within": time.Until(j.Until).Round(time.Minute).String()}}, nil
	}}, nil
}

func (jobService) Receive(http.Header, []byte) (action.Webhook, error) {
	return action.Webhook{}, errors.New("it sends no webhooks")
}

func (s jobService) Read(ctx context.Context, j *action.SubmittedJob, _ []byte) (action.JobState, error) {
	return s.Poll(ctx, j)
}

func (jobService) Cancel(context.Context, *action.SubmittedJob) error { return nil }

// A server serves the tasks, and sees what the worker sends.
type server struct {
	dir     string
	address string // the same after a restart

	svc   *service.Service
	front *http.Server

	mu      sync.Mutex
	changed chan struct{} // is closed and replaced when something below changes
	polls   int           // requests for tasks
	leased  map[string][]lease.WorkerTask
	given   map[string]time.Time   // when the task of a run was handed out last
	sent    map[string][]time.Time // when the result of a lease was sent
	unknown bool                   // a result has said that its outcome is unknown
	ended   map[string]bool        // leases of which a heartbeat was told that they are over
	faults  faults
}

// faults are those of the next requests.
type faults struct {
	loseResults bool          // the answer to the next results gets lost
	loseReports bool          // so does that to the next reports with a piece of a text
	busy        time.Duration // the next results are refused for that long; 0 = they are not
}

// specs are the actions as an operator would configure them.
func specs() map[string]lease.Spec {
	all := map[string]lease.Spec{}
	for _, name := range actions {
		all[name] = lease.Spec{Queue: Queue, Lease: leaseTime.String(), Input: json.RawMessage(`{"type": "object"}`), Output: json.RawMessage(`{"type": "object"}`), Providers: []string{provider}}
	}
	return all
}

// start opens the service and listens. Every start has leases of its own, as a new process has.
func (s *server) start(ctx context.Context) error {
	list := node.NewActions(nil)
	if err := list.AddWorkers(specs()); err != nil {
		return err
	}
	st, err := node.OpenStore(ctx, s.dir)
	if err != nil {
		return err
	}
	svc, err := service.Open(ctx, st, service.Config{Node: node.Config{Dir: s.dir, Actions: list, Services: map[string]action.Service{provider: jobService{}}}, Account: account, MaxSource: 1 << 20, Rate: -1, Release: "conform"})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", s.address)
	if err != nil {
		return errors.Join(err, svc.Close(ctx))
	}
	front := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.mu.Lock()
	s.svc, s.front, s.address = svc, front, ln.Addr().String()
	s.mu.Unlock()
	go func() { _ = front.Serve(ln) }() // ends with stop
	return nil
}

// stop ends the service. Requests in progress are cut off.
func (s *server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(s.front.Close(), s.svc.Close(ctx))
}

func (s *server) url() string { return "http://" + s.address }

// ServeHTTP answers a request, and notes those of the worker.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	svc := s.svc
	s.mu.Unlock()
	if !strings.HasPrefix(r.URL.Path, "/v1/workers/") {
		svc.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	operation := path.Base(r.URL.Path)
	wait, lost := s.asked(operation, body)
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
		http.Error(w, "the server is busy", http.StatusServiceUnavailable)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := newRecorder()
	svc.ServeHTTP(answer, r)
	if lost {
		panic(http.ErrAbortHandler) // the connection is cut off
	}
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body.Bytes()) // the worker may have gone
	_ = http.NewResponseController(w).Flush()
	s.answered(operation, answer.body.Bytes()) // after it is sent, because a case may then stop the server
}

// A recorder keeps an answer back.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: http.Header{}, status: http.StatusOK} }

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// asked notes a request. wait is how long the worker shall send no other one; lost says that the
// answer gets lost. That is decided here, because the run before may have ended while the answer to
// its result is still under way.
func (s *server) asked(operation string, body []byte) (wait time.Duration, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch operation {
	case "lease":
		s.polls++
	case "results":
		var req struct {
			Results []lease.WorkerResult `json:"results"`
		}
		_ = json.Unmarshal(body, &req) // the server says what is wrong with it
		for i := range req.Results {
			token := req.Results[i].Lease
			s.sent[token] = append(s.sent[token], time.Now())
			s.unknown = s.unknown || req.Results[i].Error != nil && req.Results[i].Error.OutcomeUnknown
		}
		wait, lost = s.faults.busy, s.faults.loseResults
		s.faults.busy, s.faults.loseResults = 0, false
	case "heartbeat":
		var req struct {
			Reports []lease.WorkerReport `json:"reports"`
		}
		_ = json.Unmarshal(body, &req)
		if slices.ContainsFunc(req.Reports, func(r lease.WorkerReport) bool { return r.Delta != "" }) {
			lost, s.faults.loseReports = s.faults.loseReports, false
		}
	}
	s.tell()
	return wait, lost
}

// answered notes an answer.
func (s *server) answered(operation string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer struct {
		Tasks []lease.WorkerTask `json:"tasks"`
		Ended []string           `json:"ended"`
	}
	_ = json.Unmarshal(body, &answer) // results have neither
	switch operation {
	case "lease":
		for _, t := range answer.Tasks {
			s.leased[t.Run], s.given[t.Run] = append(s.leased[t.Run], t), time.Now()
		}
	case "heartbeat":
		for _, token := range answer.Ended {
			s.ended[token] = true
		}
	}
	s.tell()
}

// tell wakes those that wait for a change. mu is held.
func (s *server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// fault sets the faults of the next requests.
func (s *server) fault(f faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// until waits until a condition holds, which is asked with mu held.
func (s *server) until(ctx context.Context, within time.Duration, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		s.mu.Lock()
		holds, changed := ok(), s.changed
		s.mu.Unlock()
		if holds {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
