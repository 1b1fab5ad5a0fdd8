// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/cli"
)

// A server is `roux serve` in another process, or another command that listens.
type server struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	address string // host:port
	admin   string // of its other listener
}

// adminKey is the key with the role admin of every server that is measured.
const adminKey = "a-key-with-the-role-admin-of-a-benchmark"

// profileVariable has the file for the processor profile of a server.
const profileVariable = "ROUX_BENCH_PROFILE"

// rouxRole is the main function of a process that is a command of roux, such as a server. It ends,
// as after SIGTERM, when its standard input does, which also happens when the process that started
// it dies. A byte there makes it return free memory to the system, as an idle process does every
// two minutes.
func rouxRole(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for b := make([]byte, 1); ; freeMemory() {
			if _, err := stdin.Read(b); err != nil {
				cancel()
				return
			}
		}
	}()
	if path := os.Getenv(profileVariable); path != "" {
		f, err := os.Create(path)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(stderr, "bench:", err)
			return 1
		}
		defer pprof.StopCPUProfile()
	}
	return cli.Main(ctx, args, strings.NewReader(""), stdout, stderr, nil)
}

// anyPort is an address with a port that is free.
const anyPort = "127.0.0.1:0"

// serve starts a server on a data directory. A profile of it is written to the file of the
// flag -profile with the name of the shape.
func (b *bench) serve(ctx context.Context, dir, shape string) (*server, error) {
	return b.serveWith(ctx, dir, shape, "")
}

// serveWith starts a server with a configuration: the text of a roux.yaml.
func (b *bench) serveWith(ctx context.Context, dir, shape, config string) (*server, error) {
	return b.serveAt(ctx, anyPort, dir, shape, config)
}

// serveAt starts a server at an address, with more variables of the environment.
func (b *bench) serveAt(ctx context.Context, listen, dir, shape, config string, env ...string) (*server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "roux.yaml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	env = append(env, "ROUX_ADMIN_KEY="+adminKey)
	if b.profile != "" && shape != "" {
		env = append(env, profileVariable+"="+b.profile+"."+shape)
	}
	return command(ctx, filepath.Dir(dir), env, "serve", "--data", dir, "--listen", listen, "--admin", anyPort, "--output", "json", "--drain", "1s")
}

// command starts a command of roux that listens somewhere and says where. dir is its working
// directory; "" = this one.
func command(ctx context.Context, dir string, env []string, args ...string) (*server, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), roleVariable+"=roux"), env...)
	var log bytes.Buffer
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, stdin: stdin}
	var said struct{ URL, AdminURL string }
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&said); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error says that it was killed
		return nil, fmt.Errorf("roux %s did not start: %w\n%s", args[0], err, log.String())
	}
	for _, a := range []struct {
		url string
		to  *string
	}{{said.URL, &s.address}, {said.AdminURL, &s.admin}} {
		if a.url == "" {
			continue // only a server has another listener
		}
		u, err := url.Parse(a.url)
		if err != nil || u.Host == "" {
			return nil, errors.Join(fmt.Errorf("roux %s listens at %q", args[0], a.url), s.stop())
		}
		*a.to = u.Host
	}
	return s, nil
}

// kill kills the server, as a crash would.
func (s *server) kill() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = s.cmd.Wait() // the error says that it was killed
	return nil
}

// stop drains the server and waits for its end.
func (s *server) stop() error {
	if err := s.stdin.Close(); err != nil {
		return err
	}
	err := s.cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return nil // its code says that it was asked to end
	}
	return err
}

// used is the processor time of the server so far.
func (s *server) used() time.Duration { return cpuOf(s.cmd.Process.Pid) }

// rss is its resident memory in MiB.
func (s *server) rss() float64 { return rssOf(s.cmd.Process.Pid) }

// free makes the server return free memory to the system.
func (s *server) free() error {
	_, err := s.stdin.Write([]byte{0})
	return err
}

// A tenant is an account of a server, with the key of one of its operators.
type tenant struct{ account, key string }

// call sends one request as the administrator or as a tenant, and decodes the answer.
func (c *client) call(method, path, key, body string, want int, into any) error {
	status, data, err := c.do(request(method, path, key, body))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if status != want {
		return fmt.Errorf("%s %s: %d, want %d: %s", method, path, status, want, data)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}

// tenants makes accounts that pay, each with credits, a key and the recipe.
func (s *server) tenants(ctx context.Context, n int, recipe string) ([]tenant, error) {
	c, err := dial(ctx, s.address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	list := make([]tenant, n)
	for i := range list {
		t := &list[i]
		t.account = fmt.Sprintf("tenant-%d", i)
		if err := c.call("POST", "/v1/accounts/"+t.account+"/grants", adminKey, `{"key": "bench", "amount": 1000000000}`, 201, nil); err != nil {
			return nil, err
		}
		var made struct{ Token string }
		if err := c.call("POST", "/v1/keys", adminKey, fmt.Sprintf(`{"account": %q, "name": "bench", "role": "developer"}`, t.account), 201, &made); err != nil {
			return nil, err
		}
		t.key = made.Token
		if err := c.call("POST", "/v1/recipes", t.key, recipe, 201, nil); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// started is the part of the answer to a start that clients need.
type started struct {
	ExecutionID string `json:"executionId"`
}

// ended waits until a run has completed.
func (c *client) ended(ctx context.Context, run, key string) error {
	for {
		var got struct{ Status string }
		if err := c.call("GET", "/v1/recipe-executions/"+run, key, "", 200, &got); err != nil {
			return err
		}
		switch got.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("run %s is %s", run, got.Status)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
