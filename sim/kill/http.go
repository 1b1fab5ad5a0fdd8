// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A round over HTTP kills `roux serve` again and again. Clients start runs with an
// idempotency key and repeat each start until it is answered, whatever happens to the
// server; others follow the runs and the feed of the account over connections that are cut
// at random bytes. After the last kill everything ends by itself, and the records must agree:
//   - one key has started one run, and each answer named that one
//   - what each client was sent of a run over all its connections is the journal, byte for byte, without gap or duplicate
//   - what each client was sent of the feed, and of the ledger, is what is stored
//   - what the other rounds check: effects, charges, the ledger, replay, doctor

const (
	operator = "operator-operator-operator-operator-" // the key with the role admin
	payer    = "acme"                                 // the account that starts the runs, and pays
	starters = 4
	// httpRuns is how many runs a round starts for each kill.
	httpRuns = 3
	// meanLife is how long a server lives before it is killed, on average.
	meanLife = 350 * time.Millisecond
	// requestTime bounds a request that is no stream.
	requestTime = 10 * time.Second
)

// served are the recipes of such a round.
var served = []string{"mixed", "chain", "wide", "gate", "undo", "nested", "bulky"}

// registered is what recipes say instead when they are registered: a step names a registered
// recipe instead of a file, and large events have 90 kB, because the server reads a journal
// from its start for each of the many connections that follow it.
var registered = [][2]string{{"file: middle.yaml", "ref: middle"}, {"file: leaf.yaml", "ref: leaf"}, {"bytes=900000", "bytes=90000"}}

// A server is `roux serve` on the data directory of a round, again after each kill.
type server struct {
	*round
	url, address string
	web          *webClient // without cuts
	key          string     // of the account that pays

	env     []string // of the process, besides what every server has
	end     func()   // the round
	process *process
	mu      sync.Mutex
	order   []string      // the runs that were started
	more    chan struct{} // closed when there is another run
	bad     []string
}

// problem records what must not be, and ends the round: what a client does after it may have
// no end.
func (s *server) problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad = append(s.bad, s.name+": "+fmt.Sprintf(format, args...))
	s.end()
}

// overHTTP is a round with that number of kills.
func (r *round) overHTTP(ctx context.Context, kills int) (problems []string, err error) {
	s, err := newServer(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("the round has not ended within 5 minutes (I6)"))
	defer cancel()
	s.end = cancel
	if err := s.begin(); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.kill9())
	}
	if err := s.work(ctx, kills); err != nil || len(s.bad) > 0 {
		kerr := s.kill9()
		if len(s.bad) > 0 {
			err = nil // it follows from that
		}
		return s.bad, errors.Join(err, kerr)
	}
	s.process.signal(syscall.SIGTERM)
	if code, err := s.process.within(maxCommandTime); err != nil || code != 0 {
		return nil, errors.Join(err, fmt.Errorf("%s: the server stopped with exit code %d\n%s", r.name, code, s.process.stderr()))
	}
	more, err := r.compare()
	return slices.Concat(r.slow, more), err
}

// newServer returns a server for the account that pays, which has a free port.
func newServer(r *round) (*server, error) {
	r.pays, r.onlyKills, r.started = true, true, map[string]string{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{
		round: r, address: ln.Addr().String(), url: "http://" + ln.Addr().String(), more: make(chan struct{}),
		web: newWebClient(),
	}
	// The commands that read the records afterwards are of the account that pays.
	r.c.env = append(r.c.env, "ROUX_ACCOUNT="+payer)
	return s, ln.Close() // the server gets its port
}

// begin starts the process, and waits until it serves.
func (s *server) begin() error {
	cmd := s.c.command("serve", "--listen", s.address, "-o", "jsonl")
	cmd.Env = append(cmd.Env, "ROUX_ACCOUNT=local", "ROUX_ADMIN_KEY="+operator,
		`ROUX_ACCOUNTS={"`+payer+`":{"max_live_runs":1000}}`, fmt.Sprintf(`ROUX_PRICES={"http":"%g"}`, httpPrice/1e6))
	cmd.Env = append(cmd.Env, s.env...)
	began := time.Now()
	p, err := s.c.startCommand(cmd)
	if err != nil {
		return err
	}
	s.process = p
	for ; ; time.Sleep(2 * time.Millisecond) {
		if res, err := s.web.Get(s.url + "/readyz"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Since(began) > maxCommandTime {
			p.signal(syscall.SIGKILL)
			return fmt.Errorf("%s: the server does not serve: exit code %d\n%s", s.name, p.wait(), p.stderr())
		}
	}
	s.restarted(time.Since(began))
	return nil
}

// kill9 kills the process.
func (s *server) kill9() error {
	s.process.signal(syscall.SIGKILL)
	_, err := s.process.within(maxCommandTime)
	return err
}

// prepare grants credits, makes a key and registers the recipes.
func (s *server) prepare(ctx context.Context) error {
	if _, err := s.call(ctx, operator, "/v1/accounts/"+payer+"/grants", "", map[string]any{"key": "first", "amount": granted}, nil, http.StatusCreated); err != nil {
		return err
	}
	if err := s.c.noteGrant("first"); err != nil {
		return err
	}
	var key struct{ Token string }
	if _, err := s.call(ctx, operator, "/v1/keys", "", map[string]any{"account": payer, "name": "bench", "role": "developer"}, &key, http.StatusCreated); err != nil {
		return err
	}
	s.key = key.Token
	for _, name := range append([]string{"leaf", "middle"}, served...) {
		text, err := recipes.ReadFile(path.Join("recipes", name+".yaml"))
		if err != nil {
			return err
		}
		for _, r := range registered {
			text = bytes.ReplaceAll(text, []byte(r[0]), []byte(r[1]))
		}
		if _, err := s.call(ctx, s.key, "/v1/recipes", "", text, nil, http.StatusCreated); err != nil {
			return err
		}
	}
	return nil
}

// errUnanswered means that nobody knows what a request has done.
var errUnanswered = errors.New("the request was not answered")

// call sends a POST once. body is a text of YAML or is sent as JSON. The status must be one
// of want; a request that was cut off or that a server cannot serve now is errUnanswered.
func (s *server) call(ctx context.Context, key, to, idempotency string, body, out any, want ...int) (int, error) {
	kind, data := "application/yaml", []byte(nil)
	if text, ok := body.([]byte); ok {
		data = text
	} else {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return 0, err
		}
		kind = "application/json"
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+to, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", kind)
	if idempotency != "" {
		req.Header.Set("Idempotency-Key", idempotency)
	}
	res, err := s.web.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUnanswered, err)
	}
	answer, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", errUnanswered, err)
	case slices.Contains(want, res.StatusCode):
		if out == nil {
			return res.StatusCode, nil
		}
		return res.StatusCode, json.Unmarshal(answer, out)
	case res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusTooManyRequests:
		return res.StatusCode, fmt.Errorf("%w: %s", errUnanswered, answer)
	}
	return res.StatusCode, fmt.Errorf("%s: POST %s is answered with %d: %s", s.name, to, res.StatusCode, answer)
}

// get sends a GET once. ok is false if it was not answered.
func (s *server) get(ctx context.Context, web *webClient, path string, out any) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	res, err := web.Do(req)
	if err != nil {
		return false, nil
	}
	answer, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	switch {
	case err != nil, res.StatusCode == http.StatusServiceUnavailable, res.StatusCode == http.StatusTooManyRequests:
		return false, nil
	case res.StatusCode != http.StatusOK:
		return false, fmt.Errorf("%s: GET %s is answered with %d: %s", s.name, path, res.StatusCode, answer)
	}
	return true, json.Unmarshal(answer, out)
}

// work starts runs and follows them while the server is killed, until all have ended.
func (s *server) work(ctx context.Context, kills int) error {
	w := newWatch(s, s.rng.Uint64())
	s.watch = w
	todo := make(chan int)
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = errors.Join(failed, err)
	}
	started := make(chan struct{}) // closed when every start was answered
	var starts sync.WaitGroup
	names := make([]string, kills*httpRuns)
	for i := range names {
		names[i] = served[s.rng.IntN(len(served))]
		s.tags[s.tag(i)] = names[i]
	}
	for range starters {
		starts.Go(func() {
			for i := range todo {
				if err := s.start(ctx, i, names[i]); err != nil {
					fail(err)
				}
			}
		})
	}
	pauses := make([]time.Duration, len(names)) // so that there are starts until the last kill
	for i := range pauses {
		pauses[i] = time.Duration(s.rng.Int64N(2 * int64(meanLife) / httpRuns))
	}
	group.Go(func() {
		defer close(todo)
		for i := range names {
			time.Sleep(pauses[i])
			select {
			case todo <- i:
			case <-ctx.Done():
				return
			}
		}
	})
	group.Go(func() {
		starts.Wait()
		close(started)
	})
	group.Go(func() { fail(w.all(ctx, started)) })
	for range kills {
		if ctx.Err() != nil {
			break
		}
		time.Sleep(time.Duration(s.rng.Int64N(2 * int64(meanLife)))) // what happens meanwhile is what is tested
		if err := s.kill9(); err != nil {
			fail(err)
			break
		}
		s.kills.Add(1)
		s.killed++
		if err := s.begin(); err != nil {
			fail(err)
			break
		}
	}
	ended := make(chan struct{})
	go func() {
		group.Wait()
		close(ended)
	}()
	for open := true; open; { // a run in whose turn the process died three times is quarantined (I16)
		select {
		case <-ended:
			open = false
		case <-time.After(time.Second):
			if _, err := s.release(); err != nil {
				fail(err)
			}
		}
	}
	if failed == nil {
		fail(w.catchUp(ctx))
	}
	if failed == nil {
		fail(w.compareFeeds(ctx))
	}
	return failed
}

// tag is what the run of a start calls itself in its effects.
func (s *server) tag(i int) string { return fmt.Sprintf("%s.%d.", s.name, i) }

// start starts a run, and repeats that until it is answered. Now and then it repeats a start
// that was answered: the answer must name the same run.
func (s *server) start(ctx context.Context, i int, recipe string) error {
	tag := s.tag(i)
	body := map[string]any{"parameters": map[string]any{"base": s.rec.URL, "tag": tag}}
	for again := i%3 == 0; ; {
		var out struct{ ExecutionID string }
		_, err := s.call(ctx, s.key, "/v1/recipes/"+recipe+"/execute", "start "+tag, body, &out, http.StatusAccepted, http.StatusOK)
		if errors.Is(err, errUnanswered) && ctx.Err() == nil {
			s.unanswered.Add(1)
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if err == nil {
			err = s.answered(tag, out.ExecutionID)
		}
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if !again {
			return nil
		}
		again = false
	}
}

// answered records in the client's log which run a start was answered with.
func (s *server) answered(tag, run string) error {
	s.mu.Lock()
	known := s.started[tag]
	if known == "" {
		s.started[tag] = run
		s.order = append(s.order, run)
		close(s.more)
		s.more = make(chan struct{})
	}
	s.mu.Unlock()
	if run == "" || known != "" && known != run {
		s.problem("the start of %s is answered with run %q, and before with run %q (I13)", tag, run, known)
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.note(fmt.Sprintf(`{"started":%q,"tag":%q}`, run, tag), true)
}

// signal gives a run the signal that it waits for, and repeats that until it is answered.
func (s *server) signal(ctx context.Context, run string) error {
	for ctx.Err() == nil {
		status, err := s.call(ctx, s.key, "/v1/recipe-executions/"+run+"/signal", "signal "+run, map[string]any{"name": "go", "payload": map[string]any{"said": "yes"}}, nil, http.StatusOK)
		switch {
		case err == nil || status == http.StatusConflict: // an earlier one was taken and its answer lost
			s.c.mu.Lock()
			defer s.c.mu.Unlock()
			s.c.signalled[run] = true
			return s.c.note(fmt.Sprintf(`{"signalled":%q}`, run), true)
		case !errors.Is(err, errUnanswered):
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return context.Cause(ctx)
}

// known returns the runs that were started so far, and a channel that is closed when there
// is another one.
func (s *server) known() ([]string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order), s.more
}

// checkStarts checks that each start that a client was answered is the run that it named, with
// the tag of that start, and that there is no other run.
func (r *round) checkStarts(roots []listed, byTag map[string]*history, bad func(string, ...any)) {
	if r.started == nil {
		return
	}
	for tag, run := range r.started {
		if h := byTag[tag]; h == nil || h.id != run || h.recipe != r.tags[tag] {
			bad("a client was answered that run %s of %s has started with the tag %s, and there is %+v (I1, I13)", run, r.tags[tag], tag, h)
		}
	}
	for _, run := range roots {
		if !slices.Contains(slices.Collect(maps.Values(r.started)), run.ID) {
			bad("run %s was started by no request that was answered (I13)", run.ID)
		}
	}
}
