// SPDX-License-Identifier: Apache-2.0

package emulate

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/list"
)

// The modes of jobs: how a job, its webhook and the answers about it go wrong. OK is one, too.
const (
	Lost    = "lost"    // there is no webhook
	Late    = "late"    // the webhook comes long after the end of the job
	Twice   = "twice"   // the webhook comes twice, with the same delivery id
	Reorder = "reorder" // the webhook comes before the submission is answered
	Forged  = "forged"  // before the webhook comes one that says the job failed, with a wrong signature
	Old     = "old"     // the only webhook has the time of an hour ago
	Silent  = "silent"  // the job never ends
	Deaf    = "deaf"    // polls are answered 503 until the webhook was sent
	Limit   = "limit"   // the first poll is answered 429 with Retry-After
	Garbage = "garbage" // the first poll is answered with HTML
	Drop    = "drop"    // the job is accepted and the connection closed without an answer
	Fail    = "fail"    // the job fails
	Preview = "preview" // the job says what it has made so far, in answers and webhooks
	Faults  = "faults"  // a mode for each job, drawn with Seed: any but Silent, Fail, Preview and those of streams
)

// JobModes returns the names of the modes of jobs.
func JobModes() []string {
	return append(slices.Clone(drawn), Fail, Preview, Cut, Doubled, Stalled, Lagging, Silent, Faults)
}

// drawn are the modes that Faults draws. With Silent a load test would not end, and with Fail
// it would not know what to expect. Previews are not what goes wrong.
var drawn = []string{OK, Lost, Late, Twice, Reorder, Forged, Old, Deaf, Limit, Garbage, Drop}

// JobsConfig configures an emulator of services that carry out jobs. Its zero value completes
// every job after 200 ms.
type JobsConfig struct {
	// Mode is the mode of jobs that choose none themselves. Default OK.
	Mode string
	// Seed is that of Faults.
	Seed uint64
	// After is how long a job takes. Default 200 ms.
	After time.Duration
	// Late is how long after the end of a job its webhook comes in mode Late, or the end of its stream
	// in mode Lagging. Default 1 minute.
	Late time.Duration
	// Key is the key that requests must have; "" = none is checked.
	Key string
	// Idempotent makes all protocols return the same job for the same Idempotency-Key, as the
	// plain one does. The services themselves do not document that they do.
	Idempotent bool
	// Secret signs webhooks: whsec_ and base64. The key pair of fal follows from it. Default: random.
	Secret string
	// Webhook is where OpenAI's events go, which is set for a project and not for a request; "" = nowhere.
	Webhook string
	// Allow are the ranges that webhooks may go to, besides public addresses.
	Allow []netip.Prefix
	// RetryAfter is the value of that header in mode Limit. Default "1".
	RetryAfter string
	// MaxJobs is how many jobs are kept. Those that ended first make room. Default 100,000.
	MaxJobs int
}

const (
	maxJobRequest = 16 << 20  // bytes of a submission
	maxJobBytes   = 512 << 20 // of the submissions of all jobs that are kept
	senders       = 8         // goroutines that send webhooks
)

// Jobs emulates services that carry out jobs. It keeps books about what was asked of it, and what
// it has sent. It uses a fixed number of goroutines, however many jobs wait.
type Jobs struct {
	cfg    JobsConfig
	out    *egress.Client
	signer signer
	forger signer // has other keys
	ctx    context.Context
	stop   context.CancelFunc
	done   sync.WaitGroup
	wake   chan struct{} // has an element if the first timer has changed

	mu      sync.Mutex
	closed  bool
	jobs    map[string]*job // by id
	keys    map[string]*job // by protocol and Idempotency-Key
	ended   list.List[job]  // those that may be dropped, the first to end first
	size    int             // bytes of the submissions of jobs
	count   int             // of jobs that were ever accepted
	dropped int
	dice    *rand.Rand
	polls   map[string]*PollCount
	timers  []timer     // a heap
	queue   []*delivery // to be sent now
	ready   sync.Cond   // for a change of queue or closed
}

// NewJobs returns an emulator, which needs a Close. It fails if the configuration is not valid.
func NewJobs(cfg JobsConfig) (*Jobs, error) {
	cfg.Mode, cfg.RetryAfter, cfg.MaxJobs = cmp.Or(cfg.Mode, OK), cmp.Or(cfg.RetryAfter, "1"), cmp.Or(cfg.MaxJobs, 100_000)
	cfg.After, cfg.Late, cfg.Secret = cmp.Or(cfg.After, 200*time.Millisecond), cmp.Or(cfg.Late, time.Minute), cmp.Or(cfg.Secret, newSecret())
	if err := checkMode(cfg.Mode); err != nil {
		return nil, err
	}
	if cfg.Webhook != "" {
		if _, err := egress.ParseURL(cfg.Webhook); err != nil {
			return nil, fmt.Errorf("the URL of webhooks: %w", err)
		}
	}
	signer, err := newSigner(cfg.Secret)
	if err != nil {
		return nil, err
	}
	forger, err := newSigner(newSecret())
	if err != nil {
		return nil, err
	}
	s := &Jobs{
		cfg: cfg, out: egress.New(egress.Config{Allow: cfg.Allow}), signer: signer, forger: forger, wake: make(chan struct{}, 1),
		jobs: map[string]*job{}, keys: map[string]*job{}, polls: map[string]*PollCount{}, dice: rand.New(rand.NewPCG(cfg.Seed, 0)),
	}
	s.ended.Init()
	s.ready.L = &s.mu
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.done.Go(s.loop)
	for range senders {
		s.done.Go(s.sendQueued)
	}
	return s, nil
}

// Secret returns the secret that signs webhooks.
func (s *Jobs) Secret() string { return s.cfg.Secret }

// Close ends the emulator: no job ends any more, and no webhook is sent. It waits for those that
// are being sent, which it cuts off.
func (s *Jobs) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.ready.Broadcast()
	s.stop()
	s.done.Wait()
	s.out.Close()
}

// Handler returns the handler of all protocols, each below a prefix: /plain/v1/jobs,
// /replicate/v1/predictions, /fal/OWNER/ALIAS and /openai/v1/responses; and of GET /books.
//
// A job says itself how it goes with an object "emulate" in its input (for OpenAI: as JSON in
// metadata.emulate): "result" is its result, "fail" is why it fails, "after" is how long it takes,
// such as "250ms", "mode" is its mode, and "previews" is a list of what it has made so far, one after
// the other, in the mode Preview of the protocols that have such a thing: the plain one and Replicate's. A model that is called emulate-MODE or OWNER/emulate-MODE,
// also with a :VERSION, has that mode.
// The result of a job that says nothing is its input.
func (s *Jobs) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /books", s.serveBooks)
	serve := func(pattern string, p jobProtocol, h func(http.ResponseWriter, *http.Request, jobProtocol)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if s.authorized(r, p) {
				h(w, r, p)
				return
			}
			fail(w, p, http.StatusUnauthorized, "the request does not have the right key")
		})
	}
	serve("POST /plain/v1/jobs", plain{}, s.submit)
	serve("GET /plain/v1/jobs/{id}", plain{}, s.poll)
	serve("DELETE /plain/v1/jobs/{id}", plain{}, s.cancel)

	serve("POST /replicate/v1/predictions", replicate{}, s.submit)
	serve("POST /replicate/v1/models/{owner}/{name}/predictions", replicate{}, s.submit)
	serve("GET /replicate/v1/predictions/{id}", replicate{}, s.poll)
	serve("POST /replicate/v1/predictions/{id}/cancel", replicate{}, s.cancel)

	serve("POST /fal/{owner}/{alias}", fal{}, s.submit)
	serve("POST /fal/{owner}/{alias}/{path...}", fal{}, s.submit)
	serve("GET /fal/{owner}/{alias}/requests/{id}/status", fal{}, s.poll)
	serve("GET /fal/{owner}/{alias}/requests/{id}", fal{}, s.falResult)
	serve("PUT /fal/{owner}/{alias}/requests/{id}/cancel", fal{}, s.cancel)
	mux.HandleFunc("GET /fal/.well-known/jwks.json", s.falKeys)
	mux.HandleFunc("GET /.well-known/jwks.json", s.falKeys)

	serve("POST /openai/v1/responses", openAI{s.cfg.Webhook}, s.submit)
	serve("GET /openai/v1/responses/{id}", openAI{}, s.poll)
	serve("POST /openai/v1/responses/{id}/cancel", openAI{}, s.cancel)
	return mux
}

// A jobProtocol is how a service speaks. Its methods get a copy of a job.
type jobProtocol interface {
	name() string
	scheme() string   // what is before the key in Authorization
	idempotent() bool // the same Idempotency-Key gives the same job
	read(r *http.Request, body []byte) (*job, error)
	// accepted, polled and cancelled return the status and the body of an answer. ended says that
	// the job had ended when it was to be cancelled.
	accepted(j *job) (int, object)
	polled(j *job) (int, object)
	cancelled(j *job, ended bool) (int, object)
	failed(status int, message string) object
	// event is the body of a webhook, and sign signs it.
	event(j *job, delivery string) object
	sign(by *signer, m *signedMessage, h http.Header)
}

func (s *Jobs) authorized(r *http.Request, p jobProtocol) bool {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), p.scheme()+" ")
	return s.cfg.Key == "" || ok && subtle.ConstantTimeCompare([]byte(key), []byte(s.cfg.Key)) == 1
}

func fail(w http.ResponseWriter, p jobProtocol, status int, text string) {
	writeJSON(w, status, p.failed(status, text))
}

func (s *Jobs) submit(w http.ResponseWriter, r *http.Request, p jobProtocol) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJobRequest))
	if err != nil {
		fail(w, p, http.StatusRequestEntityTooLarge, "the request is too large")
		return
	}
	j, err := p.read(r, body)
	if err != nil {
		fail(w, p, http.StatusBadRequest, err.Error())
		return
	}
	j.protocol, j.key, j.size = p, r.Header.Get("Idempotency-Key"), len(body)
	a, err := s.accept(j)
	if err != nil {
		fail(w, p, http.StatusServiceUnavailable, err.Error())
		return
	}
	if a.before != nil {
		s.send(a.before)
	}
	if a.drop {
		panic(http.ErrAbortHandler) // closes the connection
	}
	if p, ok := p.(openAI); ok && a.job.streamed {
		s.stream(w, r, p, a.job.id, -1)
		return
	}
	status, answer := p.accepted(&a.job)
	writeJSON(w, status, answer)
}

func (s *Jobs) poll(w http.ResponseWriter, r *http.Request, p jobProtocol) {
	j, refused := s.countPoll(p, r.PathValue("id"))
	switch {
	case j == nil:
		fail(w, p, http.StatusNotFound, "there is no such job")
	case refused == Deaf:
		fail(w, p, http.StatusServiceUnavailable, "the service is not available")
	case refused == Limit:
		w.Header().Set("Retry-After", s.cfg.RetryAfter)
		fail(w, p, http.StatusTooManyRequests, "there are too many requests")
	case refused == Garbage:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!doctype html>\n<title>Maintenance</title>\n<p>We will be back soon.\n")
	default:
		if p, ok := p.(openAI); ok && r.URL.Query().Get("stream") == "true" {
			s.follow(w, r, p, j)
			return
		}
		status, answer := p.polled(j)
		writeJSON(w, status, answer)
	}
}

func (s *Jobs) cancel(w http.ResponseWriter, r *http.Request, p jobProtocol) {
	j, ended := s.endCancelled(p, r.PathValue("id"))
	if j == nil {
		fail(w, p, http.StatusNotFound, "there is no such job")
		return
	}
	status, answer := p.cancelled(j, ended)
	writeJSON(w, status, answer)
}

func checkMode(mode string) error {
	if !slices.Contains(JobModes(), mode) {
		return fmt.Errorf("mode %q: want one of %s", mode, strings.Join(JobModes(), ", "))
	}
	return nil
}

var errFull = errors.New("there are too many jobs that have not ended")
