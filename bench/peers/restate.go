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
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/ingress"
	"github.com/restatedev/sdk-go/server"
)

// restateVersion is the server's; the SDK's is in go.mod.
const restateVersion = "1.7.12"

// restateServer finds the server binary in the user's cache, or installs it there with
// npm, without running package scripts.
func restateServer(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "roux-peers", "restate-"+restateVersion)
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	path := filepath.Join(dir, "node_modules", "@restatedev", "restate-server-"+runtime.GOOS+"-"+arch, "bin", "restate-server")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errors.New("no npm on this machine to fetch @restatedev/restate-server with")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "install", "--prefix", dir, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund",
		"@restatedev/restate-server@"+restateVersion)
	install.Env = append(os.Environ(), "SCARF_ANALYTICS=false", "DO_NOT_TRACK=1")
	if text, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install of @restatedev/restate-server: %w: %s", err, lastLines(text, 3))
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the npm package brought no server for this machine: %w", err)
	}
	return path, nil
}

// restatePeer is a restate-server process and a service in this one.
type restatePeer struct {
	shapes
	server *exec.Cmd
	entry  string // host:port of its ingress
	stop   context.CancelFunc
}

// restateInput is the input of a handler.
type restateInput struct {
	ID string
	N  int
}

func (p *restatePeer) Open(ctx context.Context, e env) error {
	ports, err := keptPorts(e.Dir, 4)
	if err != nil {
		return err
	}
	admin, entry := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	service := fmt.Sprintf("127.0.0.1:%d", ports[3])
	p.entry = fmt.Sprintf("127.0.0.1:%d", ports[1])
	p.server = exec.Command(e.Restate, "--no-logo", "--base-dir", filepath.Join(e.Dir, "restate"), "--node-name", "peers")
	p.server.Env = append(os.Environ(), "DO_NOT_TRACK=1", "RESTATE_DISABLE_TELEMETRY=true", "RESTATE_LISTEN_MODE=tcp", "RESTATE_LOG_FILTER=warn",
		"RESTATE_BIND_IP=127.0.0.1", "RESTATE_DEFAULT_NUM_PARTITIONS=4", "RESTATE_DEFAULT_REPLICATION=1",
		fmt.Sprintf("RESTATE_BIND_PORT=%d", ports[2]),
		fmt.Sprintf("RESTATE_ADMIN__BIND_PORT=%d", ports[0]), fmt.Sprintf("RESTATE_INGRESS__BIND_PORT=%d", ports[1]))
	p.server.Stdout, p.server.Stderr = e.Log, e.Log
	if err := p.server.Start(); err != nil {
		return err
	}
	p.marks, p.starters = e.Marks, 64
	background, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	served := make(chan error, 1)
	go func() {
		err := server.NewRestate().WithLogger(slog.DiscardHandler, true).Bind(p.service()).Start(background, service)
		if err != nil {
			p.marks.failed(fmt.Errorf("serve: %w", err))
		}
		served <- err
	}()
	if err := introduce(ctx, e, admin, entry, "http://"+service); err != nil {
		select {
		case failed := <-served:
			err = errors.Join(err, failed)
		default:
		}
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	client := ingress.NewClient(entry, ingress.WithHttpClient(&http.Client{Transport: transport}))
	p.start = func(ctx context.Context, k kind, id string, n int) error {
		_, err := ingress.ServiceSend[restateInput](client, "peers", string(k)).Send(ctx, restateInput{id, n})
		return err
	}
	p.signal = func(ctx context.Context, address string) error {
		return ask(ctx, http.MethodPost, entry+"/restate/awakeables/"+address+"/resolve", []byte("0"))
	}
	return nil
}

// service is the service that this process registers with the server.
func (p *restatePeer) service() restate.ServiceDefinition {
	return restate.NewService("peers").
		Handler(string(kindChain), restate.NewServiceHandler(p.chainOf)).
		Handler(string(kindFan), restate.NewServiceHandler(p.fanOf)).
		Handler(string(kindWait), restate.NewServiceHandler(p.waitFor, restate.WithInactivityTimeout(5*time.Second)))
}

// introduce registers the service with the server as soon as that listens, unless it is
// registered already, and returns when the server accepts invocations.
func introduce(ctx context.Context, e env, admin, entry, service string) error {
	if !e.Again {
		body, err := json.Marshal(map[string]any{"uri": service, "force": true})
		if err != nil {
			return err
		}
		if err := eventually(ctx, func() error { return ask(ctx, http.MethodPost, admin+"/deployments", body) }); err != nil {
			return fmt.Errorf("register the service with restate-server: %w", err)
		}
	}
	if err := eventually(ctx, func() error { return ask(ctx, http.MethodGet, entry+"/restate/health", nil) }); err != nil {
		return fmt.Errorf("restate-server takes no invocations: %w", err)
	}
	return nil
}

func ask(ctx context.Context, method, url string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 500))
		return fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, text)
	}
	return nil
}

func (p *restatePeer) step(restate.RunContext) (int, error) {
	p.marks.step()
	return 0, nil
}

func (p *restatePeer) chainOf(ctx restate.Context, in restateInput) (int, error) {
	for range in.N {
		if _, err := restate.Run(ctx, p.step); err != nil {
			return 0, err
		}
	}
	p.marks.reached(in.ID)
	return in.N, nil
}

func (p *restatePeer) fanOf(ctx restate.Context, in restateInput) (int, error) {
	steps := make([]restate.RunAsyncFuture[int], in.N)
	for i := range steps {
		steps[i] = restate.RunAsync(ctx, p.step)
	}
	for _, s := range steps {
		if _, err := s.Result(); err != nil {
			return 0, err
		}
	}
	p.marks.reached(in.ID)
	return in.N, nil
}

func (p *restatePeer) waitFor(ctx restate.Context, in restateInput) (int, error) {
	event := restate.Awakeable[int](ctx)
	p.marks.waits(in.ID, event.Id())
	if _, err := event.Result(); err != nil {
		return 0, err
	}
	return restate.Run(ctx, p.step)
}

// Address returns host:port of its ingress.
func (p *restatePeer) Address() string { return p.entry }

// dialRestate connects to the ingress. Requests are written to the connections as they are, so
// that the client takes little processor time from the server.
func dialRestate(ctx context.Context, address string, n int) (starters []starter, done func(), err error) {
	var conns []net.Conn
	done = func() {
		for _, c := range conns {
			_ = c.Close() // nothing is in flight
		}
	}
	for range n {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			done()
			return nil, nil, err
		}
		conns = append(conns, c)
		r := bufio.NewReader(c)
		starters = append(starters, func(ctx context.Context, id string) error {
			body := fmt.Sprintf(`{"ID":%q,"N":%d}`, id, ingressSteps)
			if deadline, ok := ctx.Deadline(); ok {
				if err := c.SetDeadline(deadline); err != nil {
					return err
				}
			}
			_, err := fmt.Fprintf(c, "POST /peers/%s/send HTTP/1.1\r\nHost: peers\r\nidempotency-key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				kindChain, id, len(body), body)
			if err != nil {
				return err
			}
			answer, err := http.ReadResponse(r, nil)
			if err != nil {
				return err
			}
			text, err := io.ReadAll(answer.Body)
			if err == nil && (answer.StatusCode != http.StatusAccepted || !bytes.Contains(text, []byte(`"Accepted"`))) {
				err = fmt.Errorf("%s: %s", answer.Status, text)
			}
			return err
		})
	}
	return starters, done, nil
}

func (p *restatePeer) Close() error {
	p.stop()
	if err := p.server.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.server.Wait()
}
