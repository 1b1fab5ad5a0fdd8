// SPDX-License-Identifier: Apache-2.0

// Package client uses a Roux server from Go: its recipes, runs, files, credits and keys.
//
//	c, err := client.New(client.Config{URL: "https://roux.example.com", Key: os.Getenv("ROUX_KEY")})
//	…
//	started, err := c.Recipes.Execute(ctx, "greet", client.ExecuteRequest{Parameters: map[string]any{"name": "Ana"}})
//	…
//	run, err := c.Runs.Wait(ctx, started.ID)
//
// It decides when a request is sent again, and how a stream of events goes on after it was
// cut off. What operations there are, and what they mean, is decided by the server, whose
// document /openapi.json describes them.
//
// # Errors
//
// An error of the server is a [fault.Error] with its code, message, remedy and, where credits
// are missing, its limit, so that [fault.CodeOf] and errors.Is(err, fault.RunNotFound) work as
// in the server. It wraps a [Problem], which has the status and the id of the request. A server
// that cannot be reached is [fault.ServerUnreachable]; the end of the context is its cause.
//
// # Repeated requests
//
// A request is sent again, up to [Config.Attempts] times, after a connection that failed and
// after the statuses 429, 502, 503 and 504, as soon as the server allows (Retry-After), and
// only if a second one changes nothing more: each POST has an Idempotency-Key, by which the
// server recognises it. The exceptions are requests for which the server has no such key (a
// new key, a replacement with a revision): they are sent again only when they cannot have
// arrived.
//
// # Values
//
// Results, inputs and payloads are [encoding/json.RawMessage], because only the recipe knows
// their types. Methods that list return iterators, which ask for the next page when it is
// needed.
package client

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
)

// Config says which server a Client uses, and how. Fields left zero take the default that
// their comment names.
type Config struct {
	// URL is where the server is, such as "https://roux.example.com". Paths of operations are
	// appended to its own path. Required, unless Socket or HTTP with a Transport of its own
	// reaches the server.
	URL string
	// Key is the key of an account, which is sent with each request. "" = none, for a server
	// that checks no keys.
	Key string
	// Socket is the path of a Unix socket at which the server listens, in place of the address
	// in URL.
	Socket string
	// HTTP sends requests. It must not follow redirects and must have no Timeout, which would
	// end streams. Default: a client with connections of its own.
	HTTP *http.Client
	// Header has headers that are added to each request.
	Header http.Header
	// UserAgent names the program. Default "roux-client".
	UserAgent string

	// Attempts is how often a request is sent, at most. Default 5; 1 = once.
	Attempts int
	// Backoff is how long the first pause between two attempts is; later ones double up to
	// MaxBackoff. Each is shortened at random by up to a half. Defaults 200 ms and 10 s.
	Backoff, MaxBackoff time.Duration
	// MaxRetryAfter is the longest pause that a server may ask for. After a longer one its
	// error is returned at once. Default 1 min.
	MaxRetryAfter time.Duration
	// Silence is how long a stream may send nothing before it counts as cut off. The server
	// sends something every 15 s. Default 45 s.
	Silence time.Duration
	// Sleep pauses between attempts, until ctx ends. Tests replace it.
	Sleep func(ctx context.Context, d time.Duration) error
}

// A Client uses a server on behalf of one account. It is safe for concurrent use.
type Client struct {
	Recipes *Recipes // register, read, estimate and execute recipes
	Runs    *Runs    // read, follow and control runs
	Jobs    *Jobs    // runs in the words of jobs
	Files   *Files   // upload and download
	Actions *Actions // what recipes may call
	Credits *Credits // of the account
	Keys    *Keys    // of the account
	// Webhooks are URLs that events of the account are sent to.
	Webhooks *Webhooks
	// Schedules start runs of recipes at times.
	Schedules *Schedules
	// Lenses are prompt templates that steps name.
	Lenses *Lenses
	// Approvals are what people are asked.
	Approvals *Approvals
	// Triggers start runs when outside systems send webhooks.
	Triggers *Triggers
	// ExternalJobs are the work of outside services that steps wait for.
	ExternalJobs *ExternalJobs
	// Workers are tasks that remote workers carry out.
	Workers *Workers
	// Workflows are recipes and runs in the words of graphs of nodes.
	Workflows *Workflows
	// Bulks do one thing to many runs.
	Bulks *Bulks
	// Accounts are other accounts, for a key that administers them.
	Accounts *Accounts
	// Operator looks after the server.
	Operator *Operator
	// Secrets are those that the account keeps on the server.
	Secrets *Secrets
	// Cache has the results of actions that are kept for later steps.
	Cache *Cache

	cfg  Config
	base *url.URL
}

// headerTime bounds the time until an answer begins: the server waits up to 60 s for the end
// of a run.
const headerTime = 90 * time.Second

// New returns a client. It sends nothing yet.
func New(cfg Config) (*Client, error) {
	base, err := baseOf(&cfg)
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(cfg.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fault.New(fault.Usage, "the key has a character that no key has, such as a space or the end of a line")
	}
	if cfg.HTTP == nil {
		cfg.HTTP = newHTTP(cfg.Socket)
	}
	cfg.UserAgent = cmp.Or(cfg.UserAgent, "roux-client")
	cfg.Attempts = cmp.Or(cfg.Attempts, 5)
	cfg.Backoff, cfg.MaxBackoff = cmp.Or(cfg.Backoff, 200*time.Millisecond), cmp.Or(cfg.MaxBackoff, 10*time.Second)
	cfg.MaxRetryAfter, cfg.Silence = cmp.Or(cfg.MaxRetryAfter, time.Minute), cmp.Or(cfg.Silence, 45*time.Second)
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	c := &Client{cfg: cfg, base: base}
	c.Recipes, c.Runs, c.Jobs, c.Files = &Recipes{c: c}, &Runs{c}, &Jobs{c}, &Files{c}
	c.Actions, c.Credits, c.Keys, c.Webhooks, c.Bulks = &Actions{c}, &Credits{c}, &Keys{c}, &Webhooks{c}, &Bulks{c}
	c.Accounts, c.Secrets, c.Operator, c.Schedules, c.Cache = &Accounts{c}, &Secrets{c}, &Operator{c}, &Schedules{c}, &Cache{c}
	c.Triggers, c.Workers, c.ExternalJobs, c.Approvals, c.Workflows = &Triggers{c}, &Workers{c}, &ExternalJobs{c}, &Approvals{c}, &Workflows{c}
	c.Lenses = &Lenses{c}
	return c, nil
}

// baseOf returns the address that paths are appended to.
func baseOf(cfg *Config) (*url.URL, error) {
	if cfg.URL == "" && (cfg.Socket != "" || cfg.HTTP != nil) {
		cfg.URL = "http://localhost" // the host of a socket is not used
	}
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fault.New(fault.Usage, "the address of the server must be like https://roux.example.com or http://127.0.0.1:7420")
	case u.User != nil:
		return nil, fault.New(fault.Usage, "the address of the server must have no name and password: a key is given apart")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fault.New(fault.Usage, "the address of the server must have no query")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// newHTTP returns a client whose connections no other one uses.
func newHTTP(socket string) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		MaxIdleConns: 100, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: headerTime, DisableCompression: true,
	}
	if socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close closes the connections that are not in use.
func (c *Client) Close() { c.cfg.HTTP.CloseIdleConnections() }
