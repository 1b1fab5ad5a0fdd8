// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/internal/lease"
)

// A session is a server with a worker.
type session struct {
	*server
	cfg    *Config
	owner  string // the key of the client
	key    string // of the worker
	client *client.Client
	worker *process // nil = none runs
}

func open(ctx context.Context, dir string, cfg *Config) (*session, error) {
	s := &session{cfg: cfg, server: &server{dir: dir, address: "127.0.0.1:0"}}
	s.changed = make(chan struct{})
	s.leased, s.given, s.sent, s.ended = map[string][]lease.WorkerTask{}, map[string]time.Time{}, map[string][]time.Time{}, map[string]bool{}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	var err error
	s.owner = s.svc.FirstKey
	if s.client, err = client.New(client.Config{URL: s.url(), Key: s.owner}); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	key, err := s.client.Keys.Create(ctx, client.KeyRequest{Name: "worker", Role: "worker"})
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.key = key.Token
	return s, nil
}

// close ends everything.
func (s *session) close() {
	s.kill()
	s.client.Close()
	_ = s.stop() // the directory is removed
}

// A process is the program that is checked.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // is closed when it has ended
}

// launch starts the program.
func (s *session) launch() error {
	cmd := exec.Command(s.cfg.Command[0], s.cfg.Command[1:]...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ROUX_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "ROUX_SERVER="+s.url(), "ROUX_KEY="+s.key, "ROUX_QUEUE="+Queue, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	cmd.Stdout, cmd.Stderr = s.cfg.Output, s.cfg.Output
	cmd.WaitDelay = time.Second
	group(cmd)
	if err := cmd.Start(); err != nil {
		return unexpected("it cannot be started: %w", err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the state has the code
		close(p.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tell()
	}()
	s.worker = p
	return nil
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ready returns when a worker asks for tasks.
func (s *session) ready(ctx context.Context) error {
	if s.worker != nil && !s.worker.over() {
		return nil
	}
	s.mu.Lock()
	before := s.polls
	s.mu.Unlock()
	if err := s.launch(); err != nil {
		return err
	}
	w := s.worker
	if !s.until(ctx, s.cfg.Patience, func() bool { return s.polls > before || w.over() }) {
		return unexpected("it asks for no tasks of the queue %s", Queue)
	}
	if w.over() {
		return unexpected("the program ended with %d as soon as it was started", w.cmd.ProcessState.ExitCode())
	}
	return nil
}

// terminated ends the worker with SIGTERM and returns its exit code.
func (s *session) terminated(ctx context.Context, within time.Duration) error {
	w := s.worker
	if err := terminate(w.cmd); err != nil {
		return err
	}
	if !s.until(ctx, within, w.over) {
		return unexpected("%s after SIGTERM it still runs", within)
	}
	if code := w.cmd.ProcessState.ExitCode(); code != 0 {
		return unexpected("it ends with %d", code)
	}
	return nil
}

// kill ends the worker at once, with all that it has started.
func (s *session) kill() {
	if s.worker != nil {
		kill(s.worker.cmd)
		<-s.worker.done
	}
}
